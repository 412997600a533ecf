"""A driver that merges and cleans up as soon as it can; spark-submit starts this file."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from statecore.runtime.programs.stream import main
from statecore.snapshot.settings import DriverSettings

PROGRAM = Path(__file__)
# The grace period is longer than an epoch takes on a busy machine; a job's configuration cannot ask for one so short.
# Enough checkpoints stay that none is gone before a test has read it: timers have epochs of their own.
EAGER = DriverSettings(retained_checkpoints=10, clean_up_grace=timedelta(seconds=5), base_floor_bytes=0)

if __name__ == "__main__":
    main(EAGER)
