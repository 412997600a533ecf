"""A job resumes under the key that its state was written under; the driver refuses another before Spark starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from statecore import KeyedBroadcastProcessFunction as OnBroadcast
from statecore import KeyedCoProcessFunction, KeyedProcessFunction, MapStateDescriptor, ProcessFunction
from statecore.errors import StateMigrationError
from statecore.model import parse_row
from statecore.runtime import Job
from statecore.runtime.driver.checks import check_keys
from statecore.runtime.epoch.operator import check_restored_key, next_operator, operator_spec
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import (
    FieldRef,
    Manifest,
    OperatorState,
    SubtaskState,
    decode_manifest,
    encode_manifest,
)
from tests.support.handmade import manifest, operator, subtask_commit


class Keyed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        return


class Plain(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        return


class Both(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield (value,)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield (value,)


class Told(OnBroadcast):
    def process_element(self, value: Any, ctx: Any) -> None:
        return

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        return


def read(spark: Any) -> Any:
    raise AssertionError("a job only describes")


def one(*columns: str, **options: Any) -> Job:
    job = Job()
    job.source("one", read).key_by(*columns, **options).process(Keyed(), output="n int", uid="totals")
    return job


def two(first: tuple[str, ...], second: tuple[str, ...], **options: Any) -> Job:
    job = Job()
    left, right = job.source("one", read).key_by(*first), job.source("two", read).key_by(*second, **options)
    left.connect(right).process(Both(), output="n int", uid="totals")
    return job


def broadcast(*columns: str) -> Job:
    job = Job()
    told = job.source("two", read).broadcast(MapStateDescriptor("rules", "string", "string"))
    job.source("one", read).key_by(*columns).connect(told).process(Told(), output="n int", uid="totals")
    return job


def written_under(*names: str, **changes: Any) -> Manifest:
    fields = tuple(FieldRef(name=name, type="string") for name in names)
    return manifest(operators=(msgspec.structs.replace(operator([SubtaskState()], (), fields), **changes),))


@pytest.mark.parametrize("make", [one, broadcast])
def test_swapped_columns_are_refused_though_their_types_agree(make: Callable[..., Job]) -> None:
    check_keys(written_under("a", "b"), make("a", "b").operators)
    with pytest.raises(
        StateMigrationError,
        match=r"found the key \(b, a\) for operator 'totals'; expected the key \(a string, b string\).*order",
    ):
        check_keys(written_under("a", "b"), make("b", "a").operators)


def test_another_name_is_refused_until_the_job_declares_the_rename() -> None:
    with pytest.raises(StateMigrationError, match=r"renames=\{'a': 'x'\}"):
        check_keys(written_under("a", "b"), one("x", "b").operators)
    renamed = one("x", "b", renames={"a": "x"}).operators
    check_keys(written_under("a", "b"), renamed)
    check_keys(written_under("x", "b"), renamed)
    with pytest.raises(StateMigrationError):
        check_keys(written_under("b", "a"), renamed)


def test_a_key_that_is_new_or_gone_is_refused() -> None:
    job = Job()
    job.source("one", read).process(Plain(), output="n int", uid="totals")
    check_keys(written_under(), job.operators)
    with pytest.raises(StateMigrationError, match=r"found no key for operator 'totals'; expected the key \(a string\)"):
        check_keys(written_under("a"), job.operators)
    with pytest.raises(StateMigrationError, match=r"found the key \(a\) .*; expected no key"):
        check_keys(written_under(), one("a").operators)


def test_an_operator_without_state_may_have_any_key() -> None:
    check_keys(written_under("z", uid="other"), one("a").operators)


def test_each_of_two_inputs_has_the_columns_that_it_had() -> None:
    before = written_under("a", "b", second_key=("c", "d"))
    check_keys(before, two(("a", "b"), ("c", "d")).operators)
    with pytest.raises(
        StateMigrationError,
        match=r"found the key \(d, c\) for the second input of operator 'totals'; expected the key \(c, d\), .* order",
    ):
        check_keys(before, two(("a", "b"), ("d", "c")).operators)
    with pytest.raises(StateMigrationError, match=r"found the key \(b, a\) for operator 'totals'"):
        check_keys(before, two(("b", "a"), ("c", "d")).operators)
    check_keys(before, two(("a", "b"), ("x", "d"), renames={"c": "x"}).operators)


def test_a_manifest_of_an_earlier_release_does_not_know_the_second_input() -> None:
    check_keys(written_under("a"), two(("a",), ("c",)).operators)
    with pytest.raises(StateMigrationError):
        check_keys(written_under("a"), two(("x",), ("c",)).operators)


def after_an_epoch(job: Job, restored: OperatorState | None, store: CheckpointStore, **columns: str) -> OperatorState:
    spec = operator_spec(
        job.operators[0], job.operators, lambda origin: parse_row(columns[origin.name]), store, 128,  # type: ignore[union-attr]
        allow_non_restored_state=False,
    )  # fmt: skip
    check_restored_key(job.operators[0], restored, spec.key_fields)
    return next_operator(spec, None, restored, [subtask_commit()], [])


def test_an_epoch_records_the_names_of_both_keys(tmp_path: Any) -> None:
    store = CheckpointStore.at(str(tmp_path))
    single = after_an_epoch(one("a"), None, store, one="a string")
    assert (single.key_fields, single.second_key) == ((FieldRef(name="a", type="string"),), msgspec.UNSET)
    both = after_an_epoch(two(("a",), ("c",)), single, store, one="a string", two="c string")
    assert both.second_key == ("c",)
    for state in (single, both):
        made = manifest(operators=(state,))
        assert decode_manifest(encode_manifest(made), "here").operators == (state,)
        assert (b"second_key" in encode_manifest(made)) == (state is both)


def test_a_renamed_column_is_recorded_under_its_new_name(tmp_path: Any) -> None:
    store = CheckpointStore.at(str(tmp_path))
    before = written_under("a").operators[0]
    after = after_an_epoch(one("x", renames={"a": "x"}), before, store, one="x string")
    assert after.key_fields == (FieldRef(name="x", type="string"),)
    with pytest.raises(StateMigrationError, match=r"found the key \(x bigint\) .* another key type is another key"):
        after_an_epoch(one("x", renames={"a": "x"}), before, store, one="x bigint")
