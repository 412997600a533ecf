"""What the job ``everything`` must leave behind: its function run alone, epoch by epoch, over the same records."""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from statecore.model import key_group_range
from statecore.runtime import read_savepoint
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.restore import apply_keyed_files
from statecore.state import HeapKeyedStateBackend
from statecore.testing import KeyedOperatorHarness, ManualClock, physical
from tests.support.bench import Bench
from tests.support.jobs import everything

ARTIFACT = Path(everything.__file__)
Row = namedtuple("Row", ["k", "n", "at"])
TIMERS = ("__event_timers", "__processing_timers")


def assert_as_alone(spark: Any, bench: Bench, manifests: Sequence[Manifest] | None = None) -> None:
    """Compare outputs, state and timers of the newest epoch; each epoch has read one file.

    Manifests are those of all epochs, where clean-up has removed them from the store.
    """
    manifests = manifests or history(bench)
    alone = KeyedOperatorHarness(everything.Everything())
    fed = iter(bench.fed)
    for manifest in manifests:
        if manifest.epoch:
            alone.watermark(manifests[manifest.epoch - 1].watermark_ms)  # type: ignore[arg-type]
        alone.set_processing_time(manifest.batch_timestamp_ms)
        epoch = sorted((next(fed) for _ in range(manifest.rows)), key=lambda record: record[1])
        for k, n in epoch:
            alone.process(Row(k, n, datetime.fromtimestamp(n, UTC)), timestamp_ms=n * 1000)
    assert next(fed, None) is None
    assert bench.published("seen", ("what", "k", "a", "b")) == Counter(map(tuple, alone.output))
    kinds = Counter(output[0] for output in alone.output)
    assert min(kinds[what] for what in ("event_time", "processing_time", "row")) > 0
    expected, restored = alone.keyed_backend, restore(bench, manifests[-1])
    for name in [*(descriptor.name for descriptor in everything.KEYED), *TIMERS]:
        assert live(physical(restored, name)) == live(physical(expected, name)), name
    path = bench.store / bench.checkpoints.manifest_path(1, manifests[-1].epoch)
    sums = {row.k: row.value for row in read_savepoint(spark, path, "totals", "sum").collect()}
    assert sums == {key[0]: value for key, value in physical(expected, "sum").items()}
    newest = manifests[-1]
    found = {state: read_savepoint(spark, path, "totals", state).collect() for state in ("sevens", "epochs", "rules")}
    assert Counter(row.value for row in found["sevens"]) == Counter(n for _, n in bench.fed if n % 7 == 0)
    epochs = sorted((row.value, row.subtask) for row in found["epochs"])
    assert epochs == [(epoch, epoch % newest.parallelism) for epoch in range(newest.epoch + 1)]
    assert [row.value for row in found["rules"]] == [{"epoch": newest.epoch}] * newest.parallelism


def history(bench: Bench) -> list[Manifest]:
    """Return the manifests of all epochs; the job never rolled back."""
    newest = bench.newest()
    return [bench.checkpoints.manifest(bench.checkpoints.manifest_path(1, epoch)) for epoch in range(newest.epoch + 1)]


def restore(bench: Bench, manifest: Manifest, uid: str | None = None) -> HeapKeyedStateBackend:
    """Read the state of all subtasks of an operator, by default the first, from its files, as a worker does."""
    operator = next(each for each in manifest.operators if uid in (None, each.uid))
    backend = HeapKeyedStateBackend(128, key_group_range(128, 1, 0), ManualClock())
    for subtask, state in enumerate(operator.subtasks):
        own = key_group_range(128, manifest.parallelism, subtask)
        every_file = dict.fromkeys(range(own.start, own.end + 1), 0)
        apply_keyed_files(backend, bench.checkpoints, operator, state.keyed, every_file)
    return backend


def live(stored: dict[Any, Any]) -> dict[Any, Any]:
    """Leave out empty collections, which files do not hold."""
    return {key: value for key, value in stored.items() if value not in ({}, [], set())}
