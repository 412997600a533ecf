"""Named points at which a test may kill the process that passes them.

Off unless ``STATECORE_FAULTS`` names points and the first epoch to hit each in, as ``manifest_written@3,published@5``.
``STATECORE_FAULT_DIR`` is a folder. A point that is hit creates a file of its name there, so each is hit only once.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum
from pathlib import Path


class FaultPoint(StrEnum):
    """Points where work can be killed: those of an epoch in order, then those of work in parallel to epochs."""

    BEFORE_CHANGELOG = "before_changelog"
    CHANGELOG_WRITTEN = "changelog_written"
    MANIFEST_WRITTEN = "manifest_written"
    SINK_PUBLISHED = "sink_published"
    PUBLISHED = "published"
    MERGED = "merged"
    CLEANING_UP = "cleaning_up"
    SAVEPOINT_PINNED = "savepoint_pinned"
    SAVEPOINT_COPIED = "savepoint_copied"
    RESCALE_PREPARED = "rescale_prepared"
    RESCALE_APPLIED = "rescale_applied"


def fault_point(point: FaultPoint, epoch: int) -> None:
    """Kill this process with SIGKILL if a test requested it at this point."""
    for fault in filter(None, os.environ.get("STATECORE_FAULTS", "").split(",")):
        name, _, first_epoch = fault.partition("@")
        if name == point and epoch >= int(first_epoch):
            _kill_once(point, epoch)


def _kill_once(point: FaultPoint, epoch: int) -> None:
    try:
        with (Path(os.environ["STATECORE_FAULT_DIR"]) / point).open("x") as file:
            file.write(f"epoch {epoch}, pid {os.getpid()}\n")
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
