"""A driver that cleans up much sooner than a job's configuration may ask for; spark-submit starts this file.

When it is to stop, it also waits less for an epoch that hangs.
"""

from __future__ import annotations

from datetime import timedelta

from statecore.runtime.generation import patience
from statecore.runtime.programs.stream import main
from statecore.snapshot.settings import DriverSettings

if __name__ == "__main__":
    patience.LEAST_PATIENCE_SECONDS = 10.0
    # The grace period is longer than the longest epoch, also of one whose storage fails.
    # So many checkpoints stay that the campaign, which reads all, may look away for seconds.
    main(DriverSettings(retained_checkpoints=15, clean_up_grace=timedelta(seconds=40), base_floor_bytes=8192))
