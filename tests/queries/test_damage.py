"""Every file of a checkpoint, damaged in every way: the rescale refuses it, or does not need it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statecore.errors import CheckpointError
from statecore.queries.reading.checkpoint import SparkCheckpoint, open_checkpoint
from statecore.queries.reading.state_files import state_file
from statecore.queries.rescale import rescale
from tests.spark.queries.cells import tree
from tests.spark.queries.damage import DAMAGES
from tests.spark.queries.streams import BY_NAME, PROVIDERS, ROCKSDB_V2_CHANGELOG, Provider, Stream, run, state

CELLS = [
    *((BY_NAME["aggregation-update"], provider) for provider in PROVIDERS),
    (BY_NAME["transform-with-state-in-pandas"], ROCKSDB_V2_CHANGELOG),
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("stream", "provider"), CELLS, ids=[f"{stream}-{provider}" for stream, provider in CELLS])
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damage_passes(spark: SparkSession, tmp_path: Path, stream: Stream, provider: Provider, damage: str) -> None:
    path, target, kept = tmp_path / "checkpoint", tmp_path / "target", tmp_path / "kept"
    run(spark, stream, tmp_path, stream.batches(0, 3), provider, sink="noop")
    whole = state(spark, stream, path, provider, clocks=True)
    path.rename(kept)
    checkpoint = open_checkpoint(str(kept))
    # Without its commit, a batch is one that was not committed yet; Spark repeats it.
    no_damage = {f"commits/{checkpoint.batch}"} if damage == "removed" else set()
    passed = []
    for name in sorted(tree(kept)):
        # The other state partition is like the first.
        if (kept / name).is_dir() or name.startswith("state/0/1/") or name in no_damage:
            continue
        shutil.copytree(kept, path)
        DAMAGES[damage](path / name)
        before = tree(path)
        try:
            rescale(str(path), str(target), 3, spark=spark)
        except CheckpointError as error:
            assert str(error).count(";") >= 2, error
            assert not target.exists(), name
        else:
            assert state(spark, stream, target, provider, clocks=True) == whole, name
            passed.append(name)
            shutil.rmtree(target)
        assert tree(path) == before, name
        shutil.rmtree(path)
    needed = [name for name in passed if not _history(name, checkpoint)]
    assert not needed, needed


def _history(name: str, checkpoint: SparkCheckpoint) -> bool:
    """Return whether a file is history: Spark starts the query without it, too."""
    folder, _, file = name.rpartition("/")
    number = file.lstrip(".").partition(".")[0].partition("_")[0]
    if file.endswith(".crc"):
        return True
    if folder in ("offsets", "commits"):
        return int(number) < checkpoint.batch
    return state_file(name) is not None and _loads_without(name, folder, checkpoint)


def _loads_without(name: str, folder: str, checkpoint: SparkCheckpoint) -> bool:
    """Return whether a store has its newest state without a file: a snapshot, or none, and every change after it."""
    versions: dict[str, set[int]] = {"snapshots": {0}, "changes": set()}
    for entry in checkpoint.store.list(folder):
        found = state_file(entry.path)
        if found is not None and entry.path != name:
            kind = "snapshots" if entry.path.endswith((".zip", ".snapshot")) else "changes"
            versions[kind].add(found.version)
    newest = checkpoint.version
    return any(
        versions["changes"].issuperset(range(snapshot + 1, newest + 1))
        for snapshot in versions["snapshots"]
        if snapshot <= newest
    )
