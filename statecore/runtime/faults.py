"""Named points at which a test may kill the process that passes them.

Off unless ``STATECORE_FAULT_POINT`` names a point and ``STATECORE_FAULT_FILE`` a file that does not exist yet: the file
is created when the point is hit, so that each fault happens once. ``STATECORE_FAULT_EPOCH`` is the first epoch to hit.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum
from pathlib import Path


class FaultPoint(StrEnum):
    """Where an epoch can be cut off, in the order an epoch passes them."""

    BEFORE_CHANGELOG = "before_changelog"
    CHANGELOG_WRITTEN = "changelog_written"
    MANIFEST_WRITTEN = "manifest_written"
    PUBLISHED = "published"


def fault_point(point: FaultPoint, epoch: int) -> None:
    """Kill this process with SIGKILL when a test asked for it here."""
    if os.environ.get("STATECORE_FAULT_POINT") != point:
        return
    if epoch < int(os.environ.get("STATECORE_FAULT_EPOCH", "0")):
        return
    try:
        with Path(os.environ["STATECORE_FAULT_FILE"]).open("x") as file:
            file.write(f"{point} epoch={epoch} pid={os.getpid()}\n")
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
