"""A restored harness refuses the keys that a restored job refuses."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from statecore import (
    BatchProcessFunction,
    CheckpointedFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    ProcessFunction,
    ValueStateDescriptor,
)
from statecore.errors import ConfigurationError, StateMigrationError, UnsupportedTypeError
from statecore.testing import (
    BatchOperatorHarness,
    HarnessSnapshot,
    KeyedOperatorHarness,
    TwoInputOperatorHarness,
    physical,
)

Row = namedtuple("Row", "a b")
Renamed = namedtuple("Renamed", "x b")
ONE = Row("p", "q")


class Counting(KeyedProcessFunction):
    def open(self, ctx: Any) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", "bigint"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value()


class CountingBoth(KeyedCoProcessFunction):
    def open(self, ctx: Any) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", "bigint"))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value()

    process_element2 = process_element1


class CountingBatches(BatchProcessFunction):
    def open(self, ctx: Any) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", "bigint"))

    def process_batch(self, batch: Any, ctx: Any) -> None:
        return


class Listing(ProcessFunction, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        self.seen = context.operator_state_store.get_list_state(ListStateDescriptor("seen", "bigint"))

    def process_element(self, value: Any, ctx: Any) -> None:
        return

    def snapshot_state(self, context: Any) -> None:
        return


class KeyedListing(Listing, KeyedProcessFunction):
    pass


def taken(*rows: Any, **options: Any) -> HarnessSnapshot:
    harness = KeyedOperatorHarness(Counting(), **options)
    for row in rows:
        harness.process(row)
    return harness.snapshot()


# --- types ---


def test_another_key_type_is_refused_as_soon_as_it_is_known() -> None:
    by_a: dict[str, Any] = {"key": lambda v: (v.a,)}
    saved = taken(Row("p", 1), **by_a)
    with pytest.raises(
        StateMigrationError,
        match=r"found the key \(int\) for Counting; expected the key \(string\), .* another key type is another",
    ):
        KeyedOperatorHarness(Counting(), restore_from=saved, key_types=["int"], **by_a)
    harness = KeyedOperatorHarness(Counting(), restore_from=saved, **by_a)
    with pytest.raises(
        StateMigrationError, match=r"found the key \(bigint\) for Counting; expected the key \(string\)"
    ):
        harness.process(Row(5, 1))
    harness.process(ONE)
    assert harness.output == [(("p",), 2)]


def test_key_types_are_compared_whatever_their_spelling() -> None:
    options: dict[str, Any] = {"key": lambda v: (v.b,), "key_types": ["bigint"]}
    saved = taken(Row("p", 1), **options)
    assert KeyedOperatorHarness(Counting(), restore_from=saved, **{**options, "key_types": ["LONG"]}).output == []
    # By default the type is that of a Python int.
    KeyedOperatorHarness(Counting(), restore_from=saved, key=lambda v: (v.b,)).process(Row("p", 1))
    with pytest.raises(StateMigrationError, match=r"found the key \(int\) .* expected the key \(bigint\)"):
        KeyedOperatorHarness(Counting(), restore_from=saved, **{**options, "key_types": ["int"]})


def test_keys_of_one_harness_have_one_type() -> None:
    harness = KeyedOperatorHarness(Counting(), key=lambda v: (v.a, v.b))
    harness.process(Row(None, 1))
    harness.process(Row("p", None))
    harness.process(Row("p", 2))
    for other in (Row(1, 2), Row("p", "q"), Row(1, None)):
        with pytest.raises(StateMigrationError, match="another key type is another key"):
            harness.process(other)
    assert len(physical(harness.keyed_backend, "count")) == 3


def test_a_type_that_no_key_has_shown_is_taken_from_later_ones() -> None:
    key: dict[str, Any] = {"key": lambda v: (v.a, v.b)}
    saved = taken(Row(None, 1), **key)
    harness = KeyedOperatorHarness(Counting(), restore_from=saved, **key)
    harness.process(Row("p", 1))
    for other in (Row(2, 1), Row("p", "q")):
        with pytest.raises(StateMigrationError):
            KeyedOperatorHarness(Counting(), restore_from=harness.snapshot(), **key).process(other)
    # A subtask that has seen no key says nothing.
    KeyedOperatorHarness(Counting(), restore_from=taken(**key), **key).process(Row(2, "q"))


def test_another_number_of_columns_is_refused() -> None:
    saved = taken(ONE, key=lambda v: (v.a,))
    with pytest.raises(StateMigrationError, match=r"found the key \(string, string\) .* expected the key \(string\)"):
        KeyedOperatorHarness(Counting(), restore_from=saved, key=lambda v: (v.a, v.b)).process(ONE)


def test_snapshots_of_two_key_types_are_refused_together() -> None:
    options: dict[str, Any] = {"key": lambda v: (v.a,), "parallelism": 2}
    saved = [
        taken(subtask=subtask, key_types=[key_type], **options) for subtask, key_type in enumerate(("string", "bigint"))
    ]
    with pytest.raises(StateMigrationError, match="another key type"):
        KeyedOperatorHarness(Counting(), restore_from=saved, key=lambda v: (v.a,))


def test_types_that_cannot_be_a_key_are_refused_as_in_a_job() -> None:
    with pytest.raises(UnsupportedTypeError):
        KeyedOperatorHarness(Counting(), key_types=["map<string,int>"])


def test_a_key_that_is_new_or_gone_is_refused() -> None:
    with pytest.raises(StateMigrationError, match=r"found no key for Listing; expected the key \(string\)"):
        KeyedOperatorHarness(Listing(), key=None, restore_from=taken(ONE, key=lambda v: (v.a,)))
    plain = KeyedOperatorHarness(Listing(), key=None).snapshot()
    with pytest.raises(StateMigrationError, match=r"found a key for KeyedListing; expected no key"):
        KeyedOperatorHarness(KeyedListing(), restore_from=plain)


# --- names ---


def test_a_key_may_be_given_by_its_columns() -> None:
    harness = KeyedOperatorHarness(Counting(), key=("a", "b"))
    harness.process(ONE)
    assert harness.output == [(("p", "q"), 1)]


@pytest.mark.parametrize("key", ["a", 5, ("a", 5), ("a", "a")], ids=repr)
def test_what_is_neither_a_function_nor_columns_is_no_key(key: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"found key=.*; expected .*; "):
        KeyedOperatorHarness(Counting(), key=key)


def test_swapped_columns_are_refused_though_their_types_agree() -> None:
    saved = taken(ONE, key=("a", "b"))
    with pytest.raises(
        StateMigrationError,
        match=r"found the key \(b, a\) for Counting; expected the key \(a string, b string\), .* order",
    ):
        KeyedOperatorHarness(Counting(), key=("b", "a"), restore_from=saved)


def test_a_renamed_column_is_declared_as_in_key_by() -> None:
    saved = taken(ONE, key=("a", "b"))
    with pytest.raises(StateMigrationError, match=r"renames=\{'a': 'x'\}"):
        KeyedOperatorHarness(Counting(), key=("x", "b"), restore_from=saved)
    harness = KeyedOperatorHarness(Counting(), key=("x", "b"), restore_from=saved, renames={"a": "x"})
    harness.process(Renamed("p", "q"))
    assert harness.output == [(("p", "q"), 2)]
    again = KeyedOperatorHarness(Counting(), key=("x", "b"), restore_from=harness.snapshot())
    assert physical(again.keyed_backend, "count") == {("p", "q"): 2}
    with pytest.raises(ConfigurationError, match="found renames="):
        KeyedOperatorHarness(Counting(), key=("x", "b"), renames={"a": "z"})


def test_a_function_as_key_keeps_the_names_that_the_snapshot_has() -> None:
    by_function = KeyedOperatorHarness(Counting(), key=lambda v: (v.a, v.b), restore_from=taken(ONE, key=("a", "b")))
    with pytest.raises(StateMigrationError):
        KeyedOperatorHarness(Counting(), key=("b", "a"), restore_from=by_function.snapshot())


def test_batches_have_the_same_checks() -> None:
    first = BatchOperatorHarness(CountingBatches(), key=("a", "b"))
    first.process_batch(pa.RecordBatch.from_pydict({"a": [None, "p"], "b": [1, None]}))
    saved = first.snapshot()
    with pytest.raises(StateMigrationError, match=r"found the key \(b, a\) for CountingBatches"):
        BatchOperatorHarness(CountingBatches(), key=("b", "a"), restore_from=saved)
    second = BatchOperatorHarness(CountingBatches(), key=("x", "b"), restore_from=saved, renames={"a": "x"})
    with pytest.raises(StateMigrationError, match=r"expected the key \(.* string, .* bigint\)"):
        second.process_batch(pa.RecordBatch.from_pydict({"x": [None, "p"], "b": ["q", None]}))


def test_each_of_two_inputs_has_the_columns_that_it_had() -> None:
    columns: dict[str, Any] = {"key": ("a", "b"), "key2": ("x", "b")}
    first = TwoInputOperatorHarness(CountingBoth(), **columns)
    first.process1(ONE)
    first.process2(Renamed("p", "q"))
    assert first.output == [(("p", "q"), 1), (("p", "q"), 2)]
    with pytest.raises(
        StateMigrationError, match=r"\(b .*, x .*\) for the second input of CountingBoth; expected the key \(x "
    ):
        TwoInputOperatorHarness(CountingBoth(), restore_from=first.snapshot(), **{**columns, "key2": ("b", "x")})
    TwoInputOperatorHarness(
        CountingBoth(), key=("a", "b"), key2=("a", "b"), restore_from=first.snapshot(), renames2={"x": "a"}
    )
    # As in a job, the types of both are those of one key.
    with pytest.raises(StateMigrationError, match="another key type is another key"):
        first.process2(Renamed("p", 5))
