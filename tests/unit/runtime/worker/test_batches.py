"""What a subtask does with its rows: gathered to batches or grouped by key, staged and crossed as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import add
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statecore import (
    BatchProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ReducingStateDescriptor,
    key_group_for,
)
from statecore.errors import FunctionError
from statecore.model import parse_row
from statecore.runtime.epoch.operator import subtask_specs
from statecore.runtime.messages import (
    AFTER_WATERMARK,
    ANCHOR,
    ATTEMPT,
    BEFORE_WATERMARK,
    BROADCAST,
    COMMIT,
    COMMIT_DECODER,
    KEY_GROUP,
    MAIN,
    PHASE,
    SUBTASK,
    TIMESTAMP,
    Crossing,
    EpochSpec,
    InputSpec,
    OperatorSpec,
    StagedSink,
    SubtaskCommit,
)
from statecore.runtime.worker import part_buffer, subtask
from statecore.runtime.worker.subtask import subtask_runner
from statecore.snapshot.manifest import FieldRef
from statecore.storage import open_store

GROUPS = 16
TOTAL = ReducingStateDescriptor("total", "bigint", reduce=add)
TENTH = OutputTag("tenth", "k string, n bigint")
Rows = Sequence[tuple[str, int]]


class Totals(BatchProcessFunction):
    """Sums per key; sends every tenth number aside."""

    def open(self, ctx: Any) -> None:
        self.total = ctx.get_reducing_state(TOTAL)

    def process_batch(self, batch: Any, ctx: Any) -> Iterator[Any]:
        tenth = batch.filter(pa.array([n % 10 == 0 for n in batch["n"].to_pylist()]))
        ctx.output(TENTH, tenth.select(["k", "n"]))
        yield ctx.keys().append_column("total", self.total.add_batch(batch["n"]))


class Passing(BatchProcessFunction):
    """Gives rows on as they are, with their event times."""

    def process_batch(self, batch: Any, ctx: Any) -> Iterator[Any]:
        yield batch.select(["k", "n"]), ctx.timestamps()


class Seen(KeyedProcessFunction):
    """Gives records on in the order that they come."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value.k, value.n


class Worker:
    """Runs one subtask over one epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(
        self,
        function: Any,
        batches: Iterable[pa.RecordBatch],
        *,
        output: str = "k string, total bigint",
        crossings: tuple[Crossing, ...] = (),
        watermark_ms: int | None = None,
        **spec: Any,
    ) -> tuple[list[pa.RecordBatch], SubtaskCommit]:
        store = open_store(str(self.folder / "out"))
        sinks = (StagedSink("main", "", parse_row(output), store), StagedSink("tenth", TENTH.name, TENTH.fields, store))
        operator = OperatorSpec(
            uid="totals", function=function, max_parallelism=GROUPS, sinks=sinks, crossings=crossings,
            store_url=str(self.folder / "store"), allow_non_restored_state=False, late=None,
            **{"reads_operator": False, "broadcast": (), "key_fields": (FieldRef(name="k", type="string"),),
               "inputs": (InputSpec(MAIN, (None,), ("k",)),), **spec},
        )  # fmt: skip
        epoch = EpochSpec(
            lineage=1, epoch=0, now_ms=0, watermark_ms=watermark_ms, watermark_before_ms=None, previous=None,
            restored=None, foreign_store=None, restores=True, counts_state=False,
            subtasks=subtask_specs(None, 1, GROUPS),
        )  # fmt: skip
        *crossed, last = subtask_runner(operator, epoch)(iter(batches))
        return crossed, COMMIT_DECODER.decode(last.column(COMMIT)[0].as_py())

    def staged(self, commit: SubtaskCommit, sink: str) -> list[tuple[Any, ...]]:
        paths = [self.folder / "out" / output.file.path for output in commit.outputs if output.sink == sink]
        return [tuple(row.values()) for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def group(key: str) -> int:
    """Return the key group of a key."""
    return key_group_for((key,), ["string"], GROUPS)


def from_spark(rows: Rows, phases: Sequence[int] | None = None) -> pa.RecordBatch:
    """Return rows as Spark hands them over: the first batch has a marker row; phases are of another operator's rows."""
    records = pa.array([None, *({"k": k, "n": n} for k, n in rows)], pa.struct({"k": pa.string(), "n": pa.int64()}))
    groups = [None, *(group(k) for k, _ in rows)]
    zeros = pa.array([0] * (len(rows) + 1), pa.int32())
    columns = {MAIN: records, KEY_GROUP: pa.array(groups, pa.int32()), SUBTASK: zeros, ANCHOR: zeros}
    if phases is not None:
        columns[PHASE] = pa.array([None, *phases], pa.int32())
        columns[ATTEMPT] = pa.array([None, *[5] * len(rows)], pa.int64())
        columns[TIMESTAMP] = pa.array([None, *(n * 1000 for _, n in rows)], pa.int64())
        columns[COMMIT] = pa.nulls(len(rows) + 1, pa.string())
    return pa.RecordBatch.from_pydict(columns)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


ROWS = [(f"k{n % 3}", n) for n in range(30)]


def test_an_epoch_is_one_batch_whatever_its_rows_came_in(worker: Worker) -> None:
    _, commit = worker.run(
        Totals(), [from_spark(ROWS[:1]), from_spark([]), from_spark(ROWS[1:20]), from_spark(ROWS[20:])]
    )
    assert sorted(worker.staged(commit, "main")) == [("k0", 135), ("k1", 145), ("k2", 155)]
    assert worker.staged(commit, "tenth") == [("k0", 0), ("k1", 10), ("k2", 20)]
    assert (commit.rows, [(file.state, file.rows) for file in commit.keyed]) == (30, [("total", 3)])


def test_waiting_for_rows_is_told_apart_from_processing_them(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]

    class Slow(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            now_s[0] += 0.02
            yield value.k, value.n

    def late() -> Iterator[pa.RecordBatch]:
        yield from_spark(ROWS[:3])
        now_s[0] += 0.5
        yield from_spark(ROWS[3:5])

    monkeypatch.setattr(subtask, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    _, commit = worker.run(Slow(), late(), output="k string, n bigint")
    assert (commit.load_ms, commit.read_ms, commit.process_ms, commit.write_ms) == (0, 500, 100, 0)


@pytest.mark.parametrize(
    ("function", "spec"), [(Totals(), {}), (Seen(), {}), (Seen(), {"ordered": True})], ids=["batch", "keyed", "ordered"]
)
def test_a_key_with_most_of_the_rows_is_told(worker: Worker, function: Any, spec: dict[str, Any]) -> None:
    hot = [("k0" if n % 5 < 3 else f"k{n}", n) for n in range(100)]
    output = "k string, total bigint" if isinstance(function, Totals) else "k string, n bigint"
    _, commit = worker.run(function, [from_spark(hot[:60]), from_spark(hot[60:])], output=output, **spec)
    assert commit.heavy_keys == (("k0", 0.6, group("k0")),)
    assert commit.heavy_key_groups[0][0] == group("k0") and 0.6 <= commit.heavy_key_groups[0][1] < 0.8


def test_rows_without_a_key_and_rows_of_the_broadcast_input_tell_no_keys(worker: Worker) -> None:
    class Plain(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield value.k, value.n

    class Rules(KeyedBroadcastProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield value.k, value.n

        def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield value.k, value.n

    output = "k string, n bigint"
    keyless = (InputSpec(MAIN, (None,)),)
    _, commit = worker.run(Plain(), [from_spark(ROWS)], output=output, key_fields=(), inputs=keyless)
    assert (commit.rows, commit.heavy_keys) == (30, ())
    keyed, rules = from_spark([("a", 1), ("b", 2)]), from_spark(ROWS)
    batch = pa.RecordBatch.from_pydict(
        {
            MAIN: pa.concat_arrays([keyed[MAIN], pa.nulls(31, rules[MAIN].type)]),
            BROADCAST: pa.concat_arrays([pa.nulls(3, rules[MAIN].type), rules[MAIN]]),
            **{name: pa.concat_arrays([keyed[name], rules[name]]) for name in (KEY_GROUP, SUBTASK, ANCHOR)},
        }
    )
    _, commit = worker.run(
        Rules(), [batch], output=output, broadcast=(MapStateDescriptor("rules", "string", "bigint"),),
        inputs=(InputSpec(MAIN, (None,), ("k",)), InputSpec(BROADCAST, (None,))),
    )  # fmt: skip
    assert [read.rows for read in commit.read] == [2, 30]
    assert sorted(commit.heavy_keys) == [("a", 0.5, group("a")), ("b", 0.5, group("b"))]


def test_a_large_epoch_is_cut_and_keeps_its_sums(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_buffer, "_BATCH", (20, 2**30))
    _, commit = worker.run(Totals(), [from_spark(ROWS[:10]), from_spark(ROWS[10:20]), from_spark(ROWS[20:])])
    last = dict(worker.staged(commit, "main"))
    assert (len(worker.staged(commit, "main")), last) == (6, {"k0": 135, "k1": 145, "k2": 155})


def test_a_subtask_without_rows_calls_no_function_over_batches(worker: Worker) -> None:
    _, commit = worker.run(Totals(), [from_spark([])])
    assert (commit.rows, commit.keyed, commit.outputs) == (0, (), ())


def test_rows_before_and_after_the_watermark_go_on_are_no_one_batch(worker: Worker) -> None:
    class Watermarks(BatchProcessFunction):
        def process_batch(self, batch: Any, ctx: Any) -> Iterator[Any]:
            first = batch["n"][0].as_py()
            yield pa.RecordBatch.from_pydict({"k": [f"{first}+{batch.num_rows}"], "total": [ctx.current_watermark()]})

    before, after = BEFORE_WATERMARK, AFTER_WATERMARK
    batches = [from_spark(ROWS[:4], [before] * 4), from_spark(ROWS[4:7], [before, after, after])]
    _, commit = worker.run(Watermarks(), batches, reads_operator=True, watermark_ms=77)
    assert worker.staged(commit, "main") == [("0+5", -(2**63)), ("5+2", 77)]
    assert commit.read_from == (5,)


def test_columns_cross_to_the_next_operator_with_the_event_times_they_are_given(worker: Worker) -> None:
    crossing = Crossing("", parse_row("k string, total bigint"))
    tenth = Crossing(TENTH.name, TENTH.fields)
    batches = [from_spark(ROWS, [AFTER_WATERMARK] * 30)]
    crossed, _ = worker.run(Totals(), batches, crossings=(crossing, tenth), reads_operator=True)
    main = [row for batch in crossed for row in batch.to_pylist() if row["__statecore_out_0"] is not None]
    assert sorted(tuple(row["__statecore_out_0"].values()) for row in main) == [("k0", 135), ("k1", 145), ("k2", 155)]
    assert {(row[PHASE], row[TIMESTAMP], row[COMMIT]) for row in main} == {(AFTER_WATERMARK, 29_000, None)}
    aside = [
        row["__statecore_out_1"]["n"] for batch in crossed for row in batch.to_pylist() if row["__statecore_out_1"]
    ]
    assert aside == [0, 10, 20]

    passed = Crossing("", parse_row("k string, n bigint"))
    outputs: dict[str, Any] = {"crossings": (passed,), "output": "k string, n bigint"}
    crossed, _ = worker.run(Passing(), batches, reads_operator=True, **outputs)
    rows = [row for batch in crossed for row in batch.to_pylist()]
    assert [(row["__statecore_out_0"]["n"], row[TIMESTAMP]) for row in rows] == [(n, n * 1000) for n in range(30)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"k": ["a"], "sum": [1]}, "found the columns k, sum emitted .* expected k string, total bigint"),
        ({"total": [1], "k": ["a"]}, "found the columns total, k emitted"),
        ({"k": ["a"], "total": [1.5]}, "does not fit: .* cast them"),
        ({"k": ["a"], "total": ["x"]}, "does not fit"),
    ],
)
def test_columns_that_do_not_fit_the_output_are_refused(worker: Worker, columns: Any, message: str) -> None:
    class Wrong(BatchProcessFunction):
        def process_batch(self, batch: Any, ctx: Any) -> Iterator[Any]:
            yield pa.RecordBatch.from_pydict(columns)

    with pytest.raises(FunctionError, match=message):
        worker.run(Wrong(), [from_spark(ROWS)])


def test_columns_of_narrower_types_are_widened(worker: Worker) -> None:
    class Narrow(BatchProcessFunction):
        def process_batch(self, batch: Any, ctx: Any) -> Iterator[Any]:
            names = pa.array(["a"]).dictionary_encode()
            yield pa.RecordBatch.from_pydict({"k": names, "total": pa.array([3], pa.int16())})

    _, commit = worker.run(Narrow(), [from_spark(ROWS)])
    assert worker.staged(commit, "main") == [("a", 3)]


def test_records_of_a_key_follow_each_other_in_the_order_that_they_came(worker: Worker) -> None:
    _, commit = worker.run(Seen(), [from_spark(ROWS[:7]), from_spark(ROWS[7:])], output="k string, n bigint")
    seen = worker.staged(commit, "main")
    keys = list(dict(seen))
    assert seen == [(k, n) for k in keys for row_key, n in ROWS if row_key == k]


def test_an_order_that_was_asked_for_holds_across_keys(worker: Worker) -> None:
    _, commit = worker.run(
        Seen(), [from_spark(ROWS[:7]), from_spark(ROWS[7:])], output="k string, n bigint", ordered=True
    )
    assert worker.staged(commit, "main") == ROWS
