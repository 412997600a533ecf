"""The lease on a job, held while a command changes the job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from statecore.catalog import Leases
from statecore.catalog.audit import this_user
from statecore.cli.options import unique_name
from statecore.errors import LeaseHeldError, StatecoreError, UnknownRecordError
from statecore.repeating import Repeating

LEASE_TTL_MS = 60_000
"""Outlasts a short outage of the catalog. The supervisor rolls back a killed command after this time."""
_RENEW_S = 10.0


def shell_run() -> str:
    """Return an id for this command's change; it names the user and the host."""
    return f"{unique_name('shell')}-{this_user()}"


@contextmanager
def alone(leases: Leases, job: str) -> Iterator[str]:
    """Hold the lease for a short change of the job's definition; yield the lease's owner.

    A change whose lease has expired is rolled back first: later, its rollback would undo this change.

    Raises:
        LeaseHeldError: A run changes the job; the message names it and says how to end it.

    """
    owner = shell_run()
    leases.acquire(job, owner, LEASE_TTL_MS)
    try:
        yield owner
    finally:
        leases.release(job, owner)


class LeaseRenewal:
    """Renews the owner's lease on a job in a thread."""

    def __init__(self, leases: Leases, job: str, owner: str) -> None:
        self._leases = leases
        self._job = job
        self._owner = owner
        self._lost: StatecoreError | None = None
        self._repeating = Repeating("renewal of the lease", self._renew, _RENEW_S)

    def __enter__(self) -> Self:
        self._repeating.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._repeating.close()

    def check(self) -> None:
        """Raise LeaseHeldError or UnknownRecordError once the lease is lost: another run may change the job then."""
        if self._lost is not None:
            raise self._lost

    def _renew(self) -> None:
        try:
            self._leases.renew(self._job, self._owner, LEASE_TTL_MS)
        except (LeaseHeldError, UnknownRecordError) as error:
            self._lost = error
            self._repeating.stop()
