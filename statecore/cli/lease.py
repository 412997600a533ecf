"""The lease on a job, held while a command changes it."""

from __future__ import annotations

import getpass
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from statecore.catalog import Catalog
from statecore.cli.options import unique_name
from statecore.errors import LeaseHeldError, StatecoreError, UnknownRecordError

log = logging.getLogger(__name__)

# Long enough to outlast a catalog that is away for a moment; when the command is killed, the supervisor brings the job
# back after so long.
_TTL_MS = 60_000
_RENEW_S = 10.0


def shell_run() -> str:
    """Return an id for what this command changes, by which others find whoever began it."""
    return f"{unique_name('shell')}-{getpass.getuser()}@{socket.gethostname()}"


@contextmanager
def alone(catalog: Catalog, job: str) -> Iterator[None]:
    """Say what is wanted of a job while nobody else changes it; of no longer than a moment.

    A change whose lease has expired is taken back first: done later, it would undo what is said here.

    Raises:
        UnknownJobError: The job is not registered.
        LeaseHeldError: Somebody is changing it; the message names them, and says how to end that.

    """
    owner = shell_run()
    catalog.acquire_lease(job, owner, _TTL_MS)
    try:
        yield
    finally:
        catalog.release_lease(job, owner)


class HeldLease:
    """A lease that a thread renews.

    Args:
        catalog: Where it is.
        job: Name of the job.
        owner: Who has it.

    """

    def __init__(self, catalog: Catalog, job: str, owner: str) -> None:
        self._catalog = catalog
        self._job = job
        self._owner = owner
        self._ended = threading.Event()
        self._lost: StatecoreError | None = None
        self._is_rolled_back = False
        self._thread = threading.Thread(target=self._renew, name="statecore-lease", daemon=True)

    def check(self) -> None:
        """Do nothing while the lease is held.

        Raises:
            LeaseHeldError, UnknownRecordError: It was lost; the job is somebody else's to change now.

        """
        if self._lost is not None:
            raise self._lost

    def take(self) -> None:
        """Take the lease.

        Raises:
            LeaseHeldError: Somebody else has it.

        """
        self._catalog.acquire_lease(self._job, self._owner, _TTL_MS)
        self._thread.start()

    def roll_back(self, reason: str) -> None:
        """Put the job back to what it was when the lease was taken, from its newest epoch.

        Args:
            reason: Why, for those whose request comes to nothing.

        Raises:
            LeaseHeldError, UnknownRecordError: The lease was lost; the job is somebody else's to change now.

        """
        self._catalog.roll_back(self._job, self._owner, _TTL_MS, reason)
        self._is_rolled_back = True

    def end(self, *, done: bool) -> None:
        """Give it back, if it is still held.

        Args:
            done: Whether what it was for is done. If not, and the job was not rolled back either, the lease is left to
                expire, so that the supervisor brings the job back.

        """
        self._ended.set()
        self._thread.join()
        if done or self._is_rolled_back:
            self._catalog.release_lease(self._job, self._owner)

    def _renew(self) -> None:
        while not self._ended.wait(_RENEW_S):
            try:
                self._catalog.renew_lease(self._job, self._owner, _TTL_MS)
            except (LeaseHeldError, UnknownRecordError) as error:
                self._lost = error
                return
            except StatecoreError as error:
                log.warning("the lease could not be renewed, and is tried again: %s", error)


@contextmanager
def held(catalog: Catalog, job: str, owner: str) -> Iterator[HeldLease]:
    """Hold the lease on a job meanwhile.

    Raises:
        LeaseHeldError: Somebody else has it; the message names them.

    """
    lease = HeldLease(catalog, job, owner)
    lease.take()
    done = False
    try:
        yield lease
        done = True
    finally:
        # A catalog that is away now lets the lease expire.
        with suppress(StatecoreError):
            lease.end(done=done)
