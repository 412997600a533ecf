"""A rescale of a checkpoint of Spark's own query, with clone and proof, to Spark's own repartition alone."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from benchmarks import peers
from benchmarks.cluster import PARALLELISM
from benchmarks.harness import Bench, Figure, in_seconds, median_ratio
from benchmarks.inputs import RECORDS, Input
from statecore.queries.rescale import rescale as rescale_checkpoint

MANY_KEYS, FEW_KEYS = 2_000_000, 200_000
BEFORE, AFTER = PARALLELISM, 2 * PARALLELISM
_CLASS = "spark.sql.streaming.stateStore.providerClass"
# Without a changelog, each batch leaves a snapshot, as a query that has run for a while has. All of the state in one
# changelog, which nobody has, would have both sides replay it first.
PROVIDERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"RocksDB": {_CLASS: peers.STATE_STORE[_CLASS]}, "HDFS-backed": {}}
)


def rescale(bench: Bench) -> list[Figure]:
    """Measure all rows on the same checkpoints: an aggregation with each key in state."""
    with bench.workspace("queries") as folder:
        inputs = {keys: _input(folder / f"input-{keys}", keys) for keys in _sizes(bench)}
        made = {
            (provider, keys): _Checkpoint.made(bench, folder / f"{provider}-{keys}", provider, keys, source)
            for keys, source in inputs.items()
            for provider in PROVIDERS
        }
        sides: dict[str, Callable[[], float]] = {each.name: each.rescale_s for each in made.values()}
        sides["Spark"] = made["RocksDB", MANY_KEYS].repartition_s
        taken = bench.rounds(sides, unit="s")
    return [*_against_spark(taken), *(_growth(taken) if FEW_KEYS in inputs else ())]


def _sizes(bench: Bench) -> tuple[int, ...]:
    return (MANY_KEYS, FEW_KEYS) if bench.wants("query_rescale_growth") else (MANY_KEYS,)


def _against_spark(taken: Mapping[str, list[float]]) -> list[Figure]:
    figures = []
    for row, provider in (("query_rescale_vs_spark", "RocksDB"), ("query_rescale_hdfs", "HDFS-backed")):
        ours = taken[_name(provider, MANY_KEYS)]
        figures.append(Figure(row, median_ratio(ours, taken["Spark"]), in_seconds(ours), in_seconds(taken["Spark"])))
    return figures


def _growth(taken: Mapping[str, list[float]]) -> list[Figure]:
    """Return the growth on the provider where it is larger."""
    ratios = {}
    for provider in PROVIDERS:
        many, few = (_microseconds_a_row(taken, provider, keys) for keys in (MANY_KEYS, FEW_KEYS))
        ratios[provider] = median_ratio(many, few), many, few
    worst = max(ratios, key=lambda provider: ratios[provider][0])
    ratio, many, few = ratios[worst]
    note = "\n".join(f"{provider}: {each[0]:.2f}" for provider, each in ratios.items())
    return [Figure("query_rescale_growth", ratio, _in_microseconds(many), _in_microseconds(few), note)]


def _microseconds_a_row(taken: Mapping[str, list[float]], provider: str, keys: int) -> list[float]:
    return [seconds / keys * 1e6 for seconds in taken[_name(provider, keys)]]


def _in_microseconds(figures: list[float]) -> str:
    return f"{sorted(figures)[len(figures) // 2]:.1f} µs"


def _name(provider: str, keys: int) -> str:
    return f"{provider}, {keys:,} keys"


def _input(folder: Path, keys: int) -> Path:
    made = Input(folder)
    made.feed_each_key(keys)
    return folder


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """A checkpoint of a query that has stopped.

    Attributes:
        name: Its provider and size.
        folder: The checkpoint.
        spark: The query's session.

    """

    name: str
    folder: Path
    spark: SparkSession

    @classmethod
    def made(cls, bench: Bench, folder: Path, provider: str, keys: int, source: Path) -> _Checkpoint:
        """Run a query over the input and return its checkpoint."""
        name = _name(provider, keys)
        bench.say(f"making state: {name}")
        session = bench.spark.newSession()
        for key, value in {**PROVIDERS[provider], "spark.sql.shuffle.partitions": str(BEFORE)}.items():
            session.conf.set(key, value)
        sums = peers.grouped_sum(session.readStream.schema(RECORDS).parquet(str(source)))
        writer = sums.writeStream.outputMode("update").format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
        return cls(name, folder / "checkpoint", session)

    def rescale_s(self) -> float:
        """Return the seconds of a rescale into another folder, with its clone and its proof."""
        target = self.folder.with_name("rescaled")
        started = time.monotonic()
        result = rescale_checkpoint(str(self.folder), str(target), AFTER, spark=self.spark)
        taken = time.monotonic() - started
        assert result.partitions_after == AFTER
        shutil.rmtree(target)
        return taken

    def repartition_s(self) -> float:
        """Return the seconds of Spark's own repartition, which works in place, of a copy made before."""
        copy = self.folder.with_name("repartitioned")
        shutil.copytree(self.folder, copy)
        started = time.monotonic()
        self.spark._streamingCheckpointManager.repartition(str(copy), AFTER)
        taken = time.monotonic() - started
        shutil.rmtree(copy)
        return taken
