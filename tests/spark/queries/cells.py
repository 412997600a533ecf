"""A query that was rescaled goes on as its twin does that was not: the same outputs and the same state, to the row."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.origin import ORIGIN
from statecore.queries.rescale import RescaleResult, rescale
from tests.spark.queries.streams import GlobalAggregation, Kill, Provider, Stream, outputs, run, share_outputs, state

TWIN = "checkpoint"


def rescaled_like_its_twin(
    spark: SparkSession,
    stream: Stream,
    provider: Provider,
    place: Path,
    *,
    numbers: Sequence[int] = (2, 5, 3),
    first: int = 3,
    between: int = 2,
    query: Path | None = None,
    **conf: Any,
) -> None:
    """Run a query on half of its input, rescale it once and again with input in between, and compare with its twin.

    Args:
        spark: The tests' session.
        stream: The query.
        provider: Where its state is.
        place: An empty folder.
        numbers: Numbers of state partitions, that of the twin first.
        first: Number of batches before the first rescale.
        between: Number of batches after each.
        query: A file for trial restarts, or None.
        conf: More settings of the query.

    """
    run(spark, stream, place, stream.batches(0, first), provider, numbers[0], **conf)
    current, batch = TWIN, first
    for turn, number in enumerate(numbers[1:], 1):
        before, current = current, f"rescaled-{turn}"
        rescaled(spark, place, before, current, number, query)
        assert_same_state(spark, stream, provider, place, before, current, clocks=True)
        assert_spread(place / current, stream, number)
        old = tree(place / before)
        # The setting of a session counts for new checkpoints alone.
        run(spark, stream, place, stream.batches(batch, batch + between), provider, 7, checkpoint=current, **conf)
        assert tree(place / before) == old, "the rescaled query wrote to the checkpoint that it was made from"
        run(spark, stream, place, (), provider, checkpoint=TWIN, **conf)
        batch += between
        assert_same_outputs(place, current)
        assert_same_state(spark, stream, provider, place, TWIN, current, clocks=False)


def killed_and_rescaled(
    spark: SparkSession, stream: Stream, provider: Provider, place: Path, *, written: bool, number: int = 3
) -> None:
    """Kill a query between its sink's write and the commit, or before the write; rescale it, and compare as above."""
    run(spark, stream, place, stream.batches(0, 2), provider)
    batch = open_checkpoint(str(place / TWIN)).batch + 1
    run(spark, stream, place, stream.batches(2, 4), provider, kill=Kill(batch, written))
    made = rescaled(spark, place, TWIN, "rescaled", number)
    assert made.pending == batch
    assert open_checkpoint(str(place / "rescaled")).pending == batch
    run(spark, stream, place, (), provider, checkpoint="rescaled")
    run(spark, stream, place, (), provider, checkpoint=TWIN)
    attempts = outputs(place, "rescaled")[batch]
    assert len(attempts) == (2 if written else 1)
    assert attempts == [attempts[0]] * len(attempts), "the sink gets other rows when the batch is repeated"
    assert_same_outputs(place, "rescaled")
    assert_same_state(spark, stream, provider, place, TWIN, "rescaled", clocks=False)


def file_sink_like_its_twin(
    spark: SparkSession, stream: Stream, provider: Provider, place: Path, *, killed: bool, batches: int = 14
) -> None:
    """Rescale a query with Spark's file sink in mid-life; its log is compacted every 10 batches, and has no gap.

    With ``killed``, the newest batch is in the sink's log and not committed. The sink skips it then, so the query goes
    on from the state that the killed attempt left. (Spark itself fails there with state checkpoint format 2.)
    """
    run(spark, stream, place, stream.batches(0, batches), provider, sink="file", output="whole")
    half, later = place / "half", "rescaled"
    run(spark, stream, half, stream.batches(0, batches // 2), provider, sink="file", output="parts")
    if killed:
        newest = open_checkpoint(str(half / TWIN)).batch
        for path in (half / TWIN / "commits").glob(f"*{newest}*"):
            path.unlink()
    made = rescaled(spark, half, TWIN, later, 3)
    assert (made.pending is not None) == killed
    rest = stream.batches(batches // 2, batches)
    run(spark, stream, half, rest, provider, checkpoint=later, sink="file", output="parts")
    assert (half / "out/parts/_spark_metadata/9.compact").exists() == (batches >= 10)
    ours, theirs = (
        sorted(map(repr, spark.read.parquet(str(folder / "out" / name)).collect()))
        for folder, name in ((half, "parts"), (place, "whole"))
    )
    assert ours == theirs


def query_file(stream: Stream, place: Path) -> Path:
    """Write a file for trial restarts of a query."""
    path = place / "query.py"
    path.write_text(
        "from tests.spark.queries.streams import BY_NAME\n\n\n"
        "def build(spark, settings):\n"
        f"    stream = BY_NAME[{stream.name!r}]\n"
        f"    source = spark.readStream.schema(stream.schema).parquet({str(place / 'in')!r})\n"
        "    return stream.build(spark, source)\n"
    )
    return path


def rescaled(
    spark: SparkSession, place: Path, before: str, after: str, number: int, query: Path | None = None
) -> RescaleResult:
    """Rescale one of the checkpoints of a place to another; the first stays as it is, bit by bit, and is not named."""
    old, new = place / before, place / after
    contents = tree(old)
    made = rescale(str(old), str(new), number, query, spark=spark)
    assert tree(old) == contents
    naming = [path.name for path in new.rglob("*") if path.is_file() and str(old).encode() in path.read_bytes()]
    assert naming == [ORIGIN]
    if (place / "out" / before).exists():
        share_outputs(place, before, after)
    return made


def assert_same_outputs(place: Path, checkpoint: str) -> None:
    """Compare what the sinks of a rescaled query and of its twin were given, batch by batch."""
    ours, theirs = outputs(place, checkpoint), outputs(place, TWIN)
    assert ours.keys() == theirs.keys()
    for batch in theirs:
        assert ours[batch] == theirs[batch], f"batch {batch}"


def assert_same_state(
    spark: SparkSession, stream: Stream, provider: Provider, place: Path, old: str, new: str, *, clocks: bool
) -> None:
    """Compare all state of two checkpoints."""
    ours, theirs = (state(spark, stream, place / name, provider, clocks=clocks) for name in (new, old))
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert ours[name] == theirs[name], name


def assert_spread(checkpoint: Path, stream: Stream, number: int) -> None:
    """Check that a checkpoint has a folder for each state partition, and no more; without keys, only Spark's one."""
    expected = {str(each) for each in range(1 if isinstance(stream, GlobalAggregation) else number)}
    for operator in (checkpoint / "state").iterdir():
        assert {path.name for path in operator.iterdir() if path.name.isdecimal()} == expected


def tree(folder: Path) -> dict[str, str]:
    """Return the digest of each file below a folder, and the name of each folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
    }
