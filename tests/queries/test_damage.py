"""Every file of a checkpoint, damaged in every way: the rescale refuses it, or does not need it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statecore.errors import CheckpointError
from statecore.queries.checkpoint import SparkCheckpoint, open_checkpoint
from statecore.queries.rescale import rescale
from statecore.queries.state_files import state_file
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
    passed = []
    for name in sorted(tree(kept)):
        # The other state partition is like the first.
        if (kept / name).is_dir() or name.startswith("state/0/1/"):
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
    checkpoint = open_checkpoint(str(kept))
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
    found = state_file(name)
    if found is None:
        return False
    # A snapshot stands for all before it; a delta or a changelog needs those before.
    snapshots = [entry.path for entry in checkpoint.store.list(folder) if entry.path.endswith((".zip", ".snapshot"))]
    versions = [each.version for each in map(state_file, snapshots) if each is not None]
    return found.version < max((each for each in versions if each <= checkpoint.version), default=0)
