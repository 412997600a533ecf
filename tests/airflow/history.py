"""What the catalog knows of a job that does not keep up."""

from __future__ import annotations

import time

from statecore.catalog import Catalog, EpochRecord, SourceBacklog


def fall_behind(catalog: Catalog, job: str, generation: int) -> None:
    """Record the last minute of a job that reads 1,000 rows/s while 100 arrive, with 91,100 still waiting."""
    now_ms, rows = time.time_ns() // 1_000_000, 0
    for number in range(60):
        size = 500 + number % 7 * 200
        rows += size
        at_ms = now_ms - 60_000 + number * 1_000
        waiting = 90_000 + number * 100 + 60_000 - rows
        backlog = (SourceBacklog("in", records=waiting),)
        catalog.record_epoch(
            EpochRecord(job, 1, number, generation, 2, size, rows, at_ms - size, at_ms, size, backlog=backlog)
        )
