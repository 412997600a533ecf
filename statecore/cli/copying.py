"""The progress of a driver's copy, read from its target: the driver does not report it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from statecore.cli.output import Report, progress
from statecore.errors import StatecoreError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.storage import open_store

_POLL_S = 2.0
_STATE = "state"


@contextmanager
def watched(store: CheckpointStore, path: str, target: str) -> Iterator[None]:
    """Show the copied bytes of the state of the savepoint at ``path``; nothing if they cannot be read."""
    ended = threading.Event()
    with progress("copying bytes of state") as report:
        watching = threading.Thread(target=_watch, args=(store, path, target, report, ended), daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()


def _watch(store: CheckpointStore, path: str, target: str, report: Report, ended: threading.Event) -> None:
    total = 0
    while not ended.wait(_POLL_S):
        try:
            total = total or sum(ref.size for ref in store.manifest(path).files() if ref.path.startswith(f"{_STATE}/"))
            copied = sum(entry.size for entry in open_store(target).list(_STATE))
        except StatecoreError:
            # Not pinned yet, or not readable from this machine.
            continue
        # A folder on the driver's host looks empty from another host.
        if copied:
            report(copied, total)
