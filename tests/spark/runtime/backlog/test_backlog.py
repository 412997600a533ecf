"""A running job reports its backlog, even while no epoch ends, and the cost of its epochs."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statecore.catalog import BacklogRecord, EpochRecord, SourceBacklog
from statecore.model import key_group_for
from statecore.operations.autoscaling.figures import figures_of
from statecore.runtime.backlog import monitor as backlog_module
from statecore.snapshot.manifest import Manifest
from tests.support.bench import JOB, Bench
from tests.support.jobs import two_sources
from tests.support.waiting import wait

NEWEST = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 24


def feed(bench: Bench) -> None:
    numbers = range(bench.files * ROWS, (bench.files + 1) * ROWS)
    keys = [f"k{n % 5}" for n in numbers]
    at = pa.array([NEWEST] * ROWS, pa.timestamp("us", "UTC"))
    bench.feed_table(pa.table({"k": keys, "n": pa.array(numbers, pa.int64()), "at": at}))
    bench.fed += list(zip(keys, numbers, strict=True))


def measured(bench: Bench) -> BacklogRecord | None:
    return bench.catalog.overviews.figures(JOB).backlog


def of(found: BacklogRecord | EpochRecord | None, name: str) -> SourceBacklog:
    sources = () if found is None else found.backlog if isinstance(found, EpochRecord) else found.sources
    return next((source for source in sources if source.name == name), SourceBacklog(name))


def read(bench: Bench) -> int:
    """Return how many files committed epochs have read."""
    newest = bench.checkpoints.newest()
    return 0 if newest is None else files_read(newest)


def files_read(manifest: Manifest) -> int:
    (position,) = manifest.sources[0].positions
    return int(json.loads(position)["logOffset"]) + 1


def test_what_waits_is_known_while_an_epoch_is_stuck_after_each_epoch_and_after_a_restart(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_module, "INTERVAL_S", 0.2)
    monkeypatch.setattr(backlog_module, "DUTY_CYCLE", 1.0)
    hold = bench.input.parent / "hold"
    hold.touch()
    # The source ignores it, and so does the meter.
    (bench.input / "_temporary.parquet").write_text("x")
    bench.register(artifact=Path(two_sources.__file__), conf={"statecore.checkpoints.retained": "1000"})
    for _ in range(3):
        feed(bench)
    sizes = [file.stat().st_size for file in sorted(bench.input.glob("0*.parquet"))]

    with bench.running(2):
        # The first epoch has taken its file and cannot end.
        wait(lambda: of(measured(bench), "files").files == 3, "the first measurement")
        assert of(measured(bench), "files") == SourceBacklog("files", bytes=sum(sizes), files=3, files_read=0)
        wait(lambda: (of(measured(bench), "pulse").records or 0) > 20, "rate to owe the records of five seconds")
        feed(bench)
        wait(lambda: of(measured(bench), "files").files == 4, "the file that came meanwhile")
        assert bench.catalog.epochs.of(JOB) == []
        hold.unlink()
        wait(lambda: read(bench) == 4, "all files")
        wait(lambda: of(measured(bench), "files").files == 0, "nothing to wait")
    epochs = bench.catalog.epochs.of(JOB)
    waited = [of(epoch, "files") for epoch in epochs]
    assert [source.files for source in waited][:4] == [3, 2, 1, 0]
    assert [source.files_read for source in waited][:4] == [1, 2, 3, 4]
    assert {source.files for source in waited[4:]} <= {0}
    assert waited[0].bytes == sum(sizes[1:]) + (bench.input / "00003.parquet").stat().st_size
    assert waited[3].bytes == 0
    for epoch, source in zip(epochs, waited, strict=True):
        assert source.records is None
        newest_ms = int(NEWEST.timestamp() * 1000)
        assert source.event_time_lag_ms == pytest.approx(epoch.committed_ms - newest_ms, abs=60_000)
        assert of(epoch, "pulse").event_time_lag_ms is None
    assert_figures(bench)

    # Two more files arrived while no driver ran; the next driver knows the files read before.
    stopped_ms = int(time.time() * 1000)
    hold.touch()
    for _ in range(2):
        feed(bench)
    with bench.running(1):
        wait(lambda: (found := measured(bench)) is not None and found.measured_ms > stopped_ms, "a measurement")
        found = of(bench.catalog.epochs.backlogs(JOB, since_ms=stopped_ms)[0], "files")
        assert found.files == 2
        assert found.event_time_lag_ms is not None
        hold.unlink()
        wait(lambda: read(bench) == 6, "the rest")
    assert [of(epoch, "files").files for epoch in bench.catalog.epochs.of(JOB)][-1] == 0


def test_a_job_records_the_key_with_most_of_its_rows(spark: Any, bench: Bench) -> None:
    # 120 of 200 rows have the key k0.
    bench.feed(numbers=sorted([*range(0, 4_800, 40), *range(1, 80, 2), *range(81, 160, 2)]))
    with bench.running(1):
        bench.wait_done()
    wait(lambda: bench.catalog.epochs.subtasks(JOB), "the figures")
    ((totals,),) = [record.operators for record in bench.catalog.epochs.subtasks(JOB)]
    heaviest, key_groups = totals.heavy_keys[0], sum(totals.key_groups)
    assert (heaviest.key, heaviest.key_group) == ("k0", key_group_for(("k0",), ["string"], key_groups))
    # By rows, or by time where the first calls took long.
    assert 0.3 < heaviest.share < 0.9 and totals.heavy_key_groups[0].key_group == heaviest.key_group
    assert len(totals.read_ms) == 1
    assert figures_of(bench.catalog, JOB, bench.catalog.now_ms()).heavy_keys[0].key == "k0"
    (epoch,) = bench.catalog.epochs.of(JOB)
    assert set(epoch.publish_ms) == {"seen", "batches"}
    assert 0 < max(epoch.publish_ms.values()) <= epoch.phases["publish"] + 1
    assert epoch.phases["read"] + epoch.phases["process"] <= epoch.phases["run"]


def assert_figures(bench: Bench) -> None:
    """Compare the catalog's figures of subtasks and key groups with manifests and input."""
    epochs = bench.catalog.epochs.of(JOB)
    by_epoch = {each.epoch: each for each in bench.catalog.epochs.subtasks(JOB, limit=len(epochs))}
    assert len(by_epoch) == len(epochs)
    for epoch in epochs:
        counts, pulse = by_epoch[epoch.epoch].operators
        assert (counts.uid, pulse.uid) == ("counts", "pulse")
        assert sum(counts.rows) + sum(pulse.rows) == epoch.rows
        assert epoch.subtasks == len(counts.rows) + len(pulse.rows) == 4
        assert counts.key_groups == (64, 64)
        assert pulse.key_groups == pulse.cached_key_groups == (0, 0)
        # Placement of subtasks on workers varies, but the totals do not.
        met = [cached == owned for cached, owned in zip(counts.cached_key_groups, counts.key_groups, strict=True)]
        assert epoch.cache_hits == sum(met) + len(pulse.rows)
        for figures, phase in ((counts.load_ms, "load"), (counts.process_ms, "process"), (counts.write_ms, "write")):
            assert max(figures) <= epoch.phases[phase]
    assert [sum(by_epoch[epoch.epoch].operators[0].rows) for epoch in epochs][:4] == [ROWS] * 4

    (sample,) = bench.catalog.epochs.key_groups(JOB)
    manifest = bench.checkpoints.manifest(bench.checkpoints.manifest_path(sample.lineage, sample.epoch))
    fed = bench.fed[: files_read(manifest) * ROWS]
    digits = Counter((k, n % 10) for k, n in fed)
    keys = {k for k, _ in fed}
    assert sample.uid == "counts"
    assert (len(sample.rows), len(sample.bytes)) == (128, 128)
    # A row for each sum, one for each list, one for each digit.
    assert sum(sample.rows) == 2 * len(keys) + len(digits)
    assert {group for group, rows in enumerate(sample.rows) if rows} == {
        group for group, size in enumerate(sample.bytes) if size
    }
    assert sum(sample.bytes) > 0
