"""The harnesses that users test their functions with."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from statecore import (
    BatchProcessFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
    Window,
    key_group_for,
    key_group_range,
    subtask_for_key_group,
)
from statecore.errors import (
    ConfigurationError,
    InvalidParallelismError,
    MaxParallelismError,
    OutputTypeError,
    StateError,
    StateMigrationError,
    StateTypeError,
)
from statecore.state import HeapKeyedStateBackend
from statecore.testing import (
    BatchOperatorHarness,
    BroadcastOperatorHarness,
    HarnessSnapshot,
    KeyedOperatorHarness,
    ManualClock,
    physical,
)

Row = namedtuple("Row", "k n")
LATE = OutputTag("late", "n bigint")
RULES = MapStateDescriptor("rules", "string", "int")


class Summing(KeyedProcessFunction):
    """Sums ``n`` per key; negative ones go to a side output as well."""

    def open(self, ctx: Any) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", "bigint"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.total.update((self.total.value() or 0) + value.n)
        if value.n < 0:
            ctx.output(LATE, (value.n,))
        yield ctx.get_current_key(), self.total.value()


class Listing(BroadcastProcessFunction):
    """Keeps the last broadcast value, and yields what it has."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield dict(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put("x", value)


class Offsets(ProcessFunction, CheckpointedFunction):
    """Adds every record to a list that is split at a rescale."""

    def __init__(self, strategy: str = "contiguous") -> None:
        self.strategy = strategy

    def initialize_state(self, context: Any) -> None:
        descriptor = ListStateDescriptor("offsets", "bigint", strategy=self.strategy)
        self.offsets = context.operator_state_store.get_list_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.offsets.add(value)

    def snapshot_state(self, context: Any) -> None:
        """Everything is in state already."""


def totals(harness: KeyedOperatorHarness) -> dict[Any, Any]:
    return physical(harness.keyed_backend, "total")


class TestManualClock:
    def test_it_stands_still_until_it_is_set(self) -> None:
        clock = ManualClock()
        assert (clock.now_ms(), clock.now_ms()) == (0, 0)
        assert ManualClock(5).now_ms() == 5
        clock.set(10)
        assert clock.now_ms() == 10
        clock.advance(3)
        assert clock.now_ms() == 13
        clock.set(-7)
        assert clock.now_ms() == -7


class TestPhysical:
    def backend(self) -> tuple[HeapKeyedStateBackend, ManualClock]:
        clock = ManualClock(100)
        made = HeapKeyedStateBackend(4, KeyGroupRange(0, 3), clock)
        made.set_current_key(("a", 1), 2)
        return made, clock

    def test_it_shows_what_is_stored_per_key(self) -> None:
        made, _ = self.backend()
        made.get_value_state(ValueStateDescriptor("v", "int")).update(1)
        made.get_list_state(ListStateDescriptor("l", "int")).add_all([1, 2])
        made.get_map_state(MapStateDescriptor("m", "string", "int")).put("x", None)
        assert physical(made, "v") == {("a", 1): 1}
        assert physical(made, "l") == {("a", 1): [1, 2]}
        assert physical(made, "m") == {("a", 1): {"x": None}}

    def test_with_a_time_to_live_it_shows_cells_expired_or_not(self) -> None:
        made, clock = self.backend()
        ttl = StateTtlConfig(timedelta(milliseconds=10))
        made.get_value_state(ValueStateDescriptor("v", "int", ttl)).update(1)
        made.get_list_state(ListStateDescriptor("l", "int", ttl)).add(1)
        made.get_map_state(MapStateDescriptor("m", "string", "int", ttl)).put("x", 1)
        made.get_reducing_state(ReducingStateDescriptor("r", "int", reduce=max, ttl=ttl)).add(1)
        clock.set(1_000)
        assert physical(made, "v") == physical(made, "r") == {("a", 1): (1, 100)}
        assert physical(made, "l") == {("a", 1): [(1, 100)]}
        assert physical(made, "m") == {("a", 1): {"x": (1, 100)}}

    def test_state_of_a_window_is_shown_with_its_window(self) -> None:
        made, _ = self.backend()
        state = made.get_value_state(ValueStateDescriptor("v", "int"))
        state.update(1)
        made.set_current_namespace(Window(0, 10))
        state.update(2)
        assert physical(made, "v") == {("a", 1): 1, (("a", 1), Window(0, 10)): 2}

    def test_a_state_that_nobody_has_is_empty(self) -> None:
        assert physical(self.backend()[0], "nobody") == {}

    def test_what_it_returns_may_be_changed(self) -> None:
        made, _ = self.backend()
        state = made.get_list_state(ListStateDescriptor("l", "int"))
        state.add(1)
        physical(made, "l")["a", 1].append(2)
        assert list(state.get()) == [1]


class TestKeys:
    def test_the_key_is_read_off_the_column_k_unless_told_otherwise(self) -> None:
        tested = KeyedOperatorHarness(Summing())
        tested.process(Row("a", 1))
        other = KeyedOperatorHarness(Summing(), key=lambda value: (value.k, value.n % 2))
        other.process(Row("a", 1))
        assert (tested.output, other.output) == ([(("a",), 1)], [(("a", 1), 1)])

    @pytest.mark.parametrize(
        ("key", "ddl"),
        [
            ("ä", "string"),
            (True, "boolean"),
            (5, "bigint"),
            (1.5, "double"),
            (b"x", "binary"),
            (date(2024, 1, 1), "date"),
            (datetime(2024, 1, 1, tzinfo=UTC), "timestamp"),
            (Decimal("1.5"), "decimal(38,18)"),
            (None, "string"),
            (None, "bigint"),
        ],
        ids=repr,
    )
    def test_a_key_belongs_to_the_subtask_that_spark_would_give_it_to(self, key: Any, ddl: str) -> None:
        group = key_group_for((key,), [ddl], 128)
        owner = next(index for index in range(2) if group in key_group_range(128, 2, index))
        tested = [KeyedOperatorHarness(Summing(), parallelism=2, subtask=subtask) for subtask in range(2)]
        tested[owner].process(Row(key, 1))
        assert tested[owner].output == [((key,), 1)]
        with pytest.raises(StateError, match=rf"in key group {group}; expected a key group of this subtask"):
            tested[1 - owner].process(Row(key, 1))
        assert tested[1 - owner].output == []

    def test_equal_keys_are_one_key_however_they_are_written(self) -> None:
        tested = KeyedOperatorHarness(Summing())
        for key in (float("nan"), -float("nan"), 0.0, -0.0):
            tested.process(Row(key, 1))
        assert sorted(totals(tested).values()) == [2, 2]

    def test_key_types_that_are_given_decide_the_key_group(self) -> None:
        keys = [
            n
            for n in range(64)
            if key_group_for((n,), ["int"], 128) // 64 != key_group_for((n,), ["bigint"], 128) // 64
        ]
        for key in keys:
            owner = key_group_for((key,), ["int"], 128) // 64
            tested = KeyedOperatorHarness(Summing(), parallelism=2, subtask=owner, key_types=["int"])
            tested.process(Row(key, 1))
            assert tested.output == [((key,), 1)]
        assert keys

    def test_a_key_that_does_not_fit_the_given_types_is_refused(self) -> None:
        with pytest.raises(StateTypeError):
            KeyedOperatorHarness(Summing(), key_types=["int"]).process(Row("a", 1))

    @pytest.mark.parametrize("key", ["a", None, ["a"], 5], ids=repr)
    def test_a_key_that_is_no_tuple_is_refused(self, key: Any) -> None:
        tested = KeyedOperatorHarness(Summing(), key=lambda value: value.k)
        with pytest.raises(
            ConfigurationError, match=r"returned by key=; expected .* a key is a tuple: \(v\.k,\); return"
        ):
            tested.process(Row(key, 1))

    def test_a_key_whose_type_cannot_be_told_is_refused(self) -> None:
        with pytest.raises(StateTypeError, match=r"found \[1\] in a key; expected a plain value .* key_types="):
            KeyedOperatorHarness(Summing()).process(Row([1], 1))
        tested = KeyedOperatorHarness(Summing(), key_types=["array<int>"])
        tested.process(Row([1], 1))
        assert tested.output == [(((1,),), 1)]


class TestSettings:
    @pytest.mark.parametrize(("parallelism", "subtask"), [(0, 0), (129, 0), (2, 2), (2, -1)])
    def test_a_subtask_that_cannot_be_is_refused(self, parallelism: int, subtask: int) -> None:
        with pytest.raises(ConfigurationError):
            KeyedOperatorHarness(Summing(), parallelism=parallelism, subtask=subtask)

    def test_max_parallelism_bounds_the_parallelism(self) -> None:
        with pytest.raises(InvalidParallelismError):
            KeyedOperatorHarness(Summing(), max_parallelism=2, parallelism=3)

    def test_snapshots_of_another_max_parallelism_are_refused_and_the_remedy_is_named(self) -> None:
        taken = KeyedOperatorHarness(Summing(), max_parallelism=64).snapshot()
        with pytest.raises(MaxParallelismError, match=r"max parallelism \[64\]; expected 128; .* rewriting"):
            KeyedOperatorHarness(Summing(), restore_from=taken)

    @pytest.mark.parametrize("broadcast", [RULES, [], [RULES, "rules"], "rules", None], ids=repr)
    def test_broadcast_states_that_are_no_list_of_descriptors_are_refused(self, broadcast: Any) -> None:
        with pytest.raises(
            ConfigurationError, match=r"found broadcast=.*; expected a list of MapStateDescriptors; put"
        ):
            BroadcastOperatorHarness(Listing(), broadcast)

    def test_without_keys_there_is_no_keyed_backend(self) -> None:
        class Echo(ProcessFunction):
            def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
                yield value

        tested = KeyedOperatorHarness(Echo(), key=None)
        tested.process(3, 10)
        assert tested.output == [3]
        with pytest.raises(ConfigurationError, match=r"harness without keys; expected one with key="):
            _ = tested.keyed_backend


class TestLate:
    TOO_LATE = OutputTag("too_late", "k string, n bigint")

    def test_records_at_or_behind_the_watermark_go_to_the_late_output_and_not_to_the_function(self) -> None:
        tested = KeyedOperatorHarness(Summing(), late=self.TOO_LATE)
        tested.process(Row("a", 1), -(2**62))
        tested.watermark(10)
        for n, timestamp in ((2, 9), (4, 10), (8, 11), (16, None)):
            tested.process(Row("a", n), timestamp)
        assert tested.side_output(self.TOO_LATE) == [Row("a", 2), Row("a", 4)]
        assert tested.output == [(("a",), 1), (("a",), 9), (("a",), 25)]

    def test_without_a_late_output_the_function_gets_every_record(self) -> None:
        tested = KeyedOperatorHarness(Summing())
        tested.watermark(10)
        tested.process(Row("a", 2), 9)
        assert tested.output == [(("a",), 2)]

    def test_broadcast_records_are_never_too_late(self) -> None:
        tested = BroadcastOperatorHarness(Listing(), [RULES], late=self.TOO_LATE)
        tested.watermark(10)
        tested.process_broadcast(1, 9)
        tested.process(Row("a", 1), 9)
        tested.process(Row("a", 2), 11)
        assert tested.side_output(self.TOO_LATE) == [Row("a", 1)]
        assert tested.output == [{"x": 1}]


class TestOutputs:
    """A harness refuses what a job refuses."""

    TAG = OutputTag("audit", "k string, n bigint")

    @pytest.mark.parametrize(
        ("value", "wrong"),
        [
            (("a", "one"), "field 'n': "),
            (("a",), "missing field 'n'"),
            ({"k": "a", "count": 1}, "missing field 'n', unknown field 'count'"),
            ("a", "'a' is not a tuple or dict of fields"),
        ],
    )
    def test_an_output_that_its_columns_do_not_fit_is_refused(self, value: Any, wrong: str) -> None:
        class Aside(ProcessFunction):
            def process_element(self, record: Any, ctx: Any) -> None:
                ctx.output(TestOutputs.TAG, value)

        class Main(ProcessFunction):
            def process_element(self, record: Any, ctx: Any) -> Iterator[Any]:
                yield value

        cases: tuple[tuple[Any, dict[str, Any], str], ...] = (
            (Aside(), {}, "side output 'audit'"),
            (Main(), {"output": TestOutputs.TAG.value_type}, "the main output"),
        )
        for function, schema, where in cases:
            tested = KeyedOperatorHarness(function, key=None, **schema)
            with pytest.raises(OutputTypeError, match=f"found the output .* for {where}, which does not fit: {wrong}"):
                tested.process(1)
            assert (tested.output, tested.side_output(self.TAG)) == ([], [])

    def test_the_columns_of_a_batch_are_checked_and_take_the_declared_types(self) -> None:
        class Aside(BatchProcessFunction):
            def process_batch(self, batch: Any, ctx: Any) -> Iterator[Any]:
                ctx.output(TestOutputs.TAG, batch)
                yield batch

        narrow = pa.RecordBatch.from_pydict({"k": ["a"], "n": pa.array([1], pa.int8())})
        tested = BatchOperatorHarness(Aside(), key=(), output="k string, n double")
        tested.process_batch(narrow)
        assert (tested.side_output(self.TAG), tested.output) == ([("a", 1)], [("a", 1.0)])
        with pytest.raises(OutputTypeError, match="found the columns k, m emitted for side output 'audit'; expected k"):
            tested.process_batch(narrow.rename_columns(["k", "m"]))
        with pytest.raises(OutputTypeError, match="for the main output"):
            BatchOperatorHarness(Aside(), key=(), output="k string").process_batch(narrow)

    def test_none_is_no_row_of_several_columns(self) -> None:
        class Nothing(ProcessFunction):
            def process_element(self, record: Any, ctx: Any) -> Iterator[Any]:
                yield None

        tested = KeyedOperatorHarness(Nothing(), key=None, output="k string, n bigint")
        with pytest.raises(OutputTypeError, match=r"found the output None for .*; expected the columns k string, n"):
            tested.process(1)

    def test_an_output_of_one_column_may_be_the_value_itself(self) -> None:
        class Alone(ProcessFunction):
            def process_element(self, record: Any, ctx: Any) -> Iterator[Any]:
                ctx.output(LATE, record)
                yield record

        tested = KeyedOperatorHarness(Alone(), key=None, output="bigint")
        tested.process(5)
        assert (tested.output, tested.side_output(LATE)) == ([5], [5])
        with pytest.raises(OutputTypeError, match="does not fit"):
            tested.process("five")

    def test_without_a_schema_the_main_output_may_be_anything(self) -> None:
        tested = KeyedOperatorHarness(Summing())
        tested.process(Row("a", 1))
        assert tested.output == [(("a",), 1)]


class TestErrors:
    def test_the_error_of_a_function_stays_what_it_is_and_is_told_where_it_was(self) -> None:
        class Failing(KeyedProcessFunction):
            def process_element(self, value: Any, ctx: Any) -> None:
                raise ValueError("mine")

        tested = KeyedOperatorHarness(Failing(), parallelism=2, subtask=subtask_of("a", 2))
        tested.snapshot()
        with pytest.raises(ValueError, match="mine") as raised:
            tested.process(Row("a", "x" * 1_000))
        assert raised.value.args == ("mine",)
        (note,) = raised.value.__notes__
        assert note.startswith(f"subtask {subtask_of('a', 2)}, epoch 1, key ('a',), record Row(k='a', n='xxx")
        assert len(note) < 300

    @pytest.mark.parametrize(
        ("walks", "told"), [(True, "batch of 2 rows"), (False, "last key ('b',), batch of 2 rows")]
    )
    def test_a_batch_is_told_with_the_key_that_a_walk_stopped_at(self, walks: bool, told: str) -> None:
        class Failing(BatchProcessFunction):
            def process_batch(self, batch: Any, ctx: Any) -> Iterator[Any]:
                for key in ctx.each_key():
                    if key == ("b",) and not walks:
                        raise LookupError(key)
                raise LookupError
                yield

        tested = BatchOperatorHarness(Failing())
        with pytest.raises(LookupError) as raised:
            tested.process_batch(pa.RecordBatch.from_pydict({"k": ["a", "b"], "n": [1, 2]}))
        assert raised.value.__notes__ == [f"subtask 0, epoch 0, {told}"]

    def test_what_the_harness_refuses_is_no_failure_of_the_function(self) -> None:
        tested = KeyedOperatorHarness(Summing())
        with pytest.raises(ConfigurationError) as raised:
            KeyedOperatorHarness(Summing(), key=lambda v: v.k).process(Row("a", 1))
        assert not hasattr(raised.value, "__notes__")
        tested.close()


def subtask_of(key: str, parallelism: int) -> int:
    return subtask_for_key_group(128, parallelism, key_group_for((key,), ["string"], 128))


class TestSnapshots:
    def test_one_snapshot_or_several_may_be_restored(self) -> None:
        first = KeyedOperatorHarness(Summing())
        first.process(Row("a", 1))
        for given in (first.snapshot(), [first.snapshot()], iter([first.snapshot()])):
            second = KeyedOperatorHarness(Summing(), restore_from=given)
            second.process(Row("a", 2))
            assert second.output == [(("a",), 3)]

    def test_a_restored_harness_has_no_outputs_yet(self) -> None:
        first = KeyedOperatorHarness(Summing())
        first.process(Row("a", -1))
        second = KeyedOperatorHarness(Summing(), restore_from=first.snapshot())
        assert (second.output, second.side_output(LATE)) == ([], [])
        assert first.side_output(LATE) == [(-1,)]

    def test_a_snapshot_says_where_it_was_taken(self) -> None:
        tested = KeyedOperatorHarness(Summing(), max_parallelism=16, parallelism=4, subtask=2)
        tested.watermark(7)
        taken: HarnessSnapshot = tested.snapshot()
        assert (taken.subtask, taken.parallelism, taken.max_parallelism, taken.watermark) == (2, 4, 16, 7)

    def test_the_order_that_snapshots_are_given_in_does_not_matter(self) -> None:
        old = [BroadcastOperatorHarness(Listing(), [RULES], parallelism=3, subtask=n) for n in range(3)]
        for n, each in enumerate(old):
            each.process_broadcast(n)
        snapshots = [each.snapshot() for each in old]
        for given in (snapshots, snapshots[::-1]):
            new = BroadcastOperatorHarness(Listing(), [RULES], parallelism=3, subtask=2, restore_from=given)
            new.process("go")
            assert new.output == [{"x": 2}]

    @pytest.mark.parametrize(
        ("strategy", "shares"), [("contiguous", [[1, 2], [3], [4]]), ("interleaved", [[1, 4], [2], [3]])]
    )
    def test_lists_are_cut_as_their_strategy_says(self, strategy: str, shares: list[list[int]]) -> None:
        old = [KeyedOperatorHarness(Offsets(strategy), key=None, parallelism=2, subtask=n) for n in range(2)]
        for n in (1, 2, 3, 4):
            old[(n - 1) // 2].process(n)
        functions = [Offsets(strategy) for _ in range(3)]
        for n, function in enumerate(functions):
            taken = [each.snapshot() for each in old]
            KeyedOperatorHarness(function, key=None, parallelism=3, subtask=n, restore_from=taken)
        assert [list(function.offsets.get()) for function in functions] == shares

    def offsets(self, parallelism: int) -> list[HarnessSnapshot]:
        """Return one snapshot per subtask, each with its own index and ten more than that."""
        snapshots = []
        for n in range(parallelism):
            tested = KeyedOperatorHarness(Offsets(), key=None, parallelism=parallelism, subtask=n)
            tested.process(n)
            tested.process(n + 10)
            snapshots.append(tested.snapshot())
        return snapshots

    def restored(self, given: Any, parallelism: int, subtask: int) -> list[int]:
        function = Offsets()
        KeyedOperatorHarness(function, key=None, parallelism=parallelism, subtask=subtask, restore_from=given)
        return list(function.offsets.get())

    def test_a_subtask_whose_snapshot_is_missing_had_no_state(self) -> None:
        given = [self.offsets(3)[index] for index in (2, 0)]
        assert [self.restored(given, 3, n) for n in range(3)] == [[0, 10], [], [2, 12]]
        assert [self.restored(given, 2, n) for n in range(2)] == [[0, 10], [2, 12]]

    def test_one_subtask_of_several_may_be_restored_alone(self) -> None:
        taken = self.offsets(2)[1]
        assert [self.restored(taken, 2, n) for n in range(2)] == [[], [1, 11]]
        assert self.restored(taken, 1, 0) == [1, 11]

    def test_two_snapshots_of_one_subtask_are_refused(self) -> None:
        first, second = self.offsets(2)
        with pytest.raises(
            ConfigurationError, match=r"several snapshots of the subtasks \[1\] .*; expected one of each; "
        ):
            self.restored([second, first, second], 2, 0)

    def test_snapshots_of_different_parallelism_are_refused(self) -> None:
        given = [self.offsets(2)[0], self.offsets(3)[1]]
        with pytest.raises(ConfigurationError, match=r"snapshots of parallelism \[2, 3\] .*; expected one; give those"):
            self.restored(given, 2, 0)

    def test_keyed_state_is_refused_where_there_are_no_keys(self) -> None:
        with pytest.raises(StateMigrationError, match=r"found no key for Offsets; expected a key, under which"):
            self.restored(KeyedOperatorHarness(Summing()).snapshot(), 1, 0)

    @pytest.mark.parametrize("given", [None, 5, "x", [None], [("a", 1)], KeyedOperatorHarness(Summing())], ids=type)
    def test_what_is_no_snapshot_is_refused(self, given: Any) -> None:
        with pytest.raises(
            ConfigurationError, match=r"in restore_from; expected the result of a harness's snapshot\(\)"
        ):
            KeyedOperatorHarness(Summing(), restore_from=given)

    def test_processing_time_goes_on_from_the_latest_snapshot(self) -> None:
        old = [KeyedOperatorHarness(Summing(), parallelism=2, subtask=n) for n in range(2)]
        old[0].set_processing_time(50)
        old[1].set_processing_time(30)
        taken = [each.snapshot() for each in old]
        assert [each.now_ms for each in taken] == [50, 30]
        assert KeyedOperatorHarness(Summing(), restore_from=taken).clock.now_ms() == 50

    def test_a_time_to_live_that_is_switched_on_begins_when_the_snapshot_was_taken(self) -> None:
        class Expiring(Summing):
            def open(self, ctx: Any) -> None:
                ttl = StateTtlConfig(timedelta(milliseconds=10))
                self.total = ctx.get_state(ValueStateDescriptor("total", "bigint", ttl))

        first = KeyedOperatorHarness(Summing())
        first.set_processing_time(1_000)
        first.process(Row("a", 1))
        second = KeyedOperatorHarness(Expiring(), restore_from=first.snapshot())
        assert totals(second) == {("a",): (1, 1_000)}

    def test_a_rescale_there_and_back_keeps_every_key(self) -> None:
        before = [KeyedOperatorHarness(Summing(), parallelism=2, subtask=n) for n in range(2)]
        keys = [f"k{n}" for n in range(50)]
        for key in keys:
            before[key_group_for((key,), ["string"], 128) // 64].process(Row(key, 1))
        middle = [
            KeyedOperatorHarness(Summing(), parallelism=5, subtask=n, restore_from=[each.snapshot() for each in before])
            for n in range(5)
        ]
        after = KeyedOperatorHarness(Summing(), restore_from=[each.snapshot() for each in middle])
        assert sum(len(totals(each)) for each in middle) == 50
        assert totals(after) == {(key,): 1 for key in keys}
