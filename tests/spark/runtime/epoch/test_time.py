"""The time of epochs never goes back, whatever clock the next driver has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from statecore.snapshot.manifest import encode_manifest
from tests.support.bench import Bench
from tests.support.jobs import totals


def test_a_driver_whose_clock_is_behind_goes_on_at_the_time_of_the_epoch_before(spark: Any, bench: Bench) -> None:
    bench.register(artifact=Path(totals.__file__))
    with bench.running(2):
        bench.feed()
        bench.wait_done()
    newest = bench.newest()
    ahead = msgspec.structs.replace(newest, batch_timestamp_ms=newest.batch_timestamp_ms + 3_600_000)
    path = bench.checkpoints.manifest_path(newest.lineage, newest.epoch)
    bench.checkpoints.files.write(path, encode_manifest(ahead))
    with bench.running(2):
        bench.feed()
        bench.wait_done()
    assert bench.newest().epoch > newest.epoch
    assert bench.newest().batch_timestamp_ms == ahead.batch_timestamp_ms
