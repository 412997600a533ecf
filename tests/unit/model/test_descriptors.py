"""Descriptors refuse, when they are built, what could not be stored later."""

from __future__ import annotations

import dataclasses
import operator
from datetime import timedelta
from typing import Any

import pytest

from statecore.errors import ConfigurationError, UnsupportedTypeError
from statecore.model.descriptors import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ReducingStateDescriptor,
    StateKind,
    StateTtlConfig,
    StateVisibility,
    UpdateType,
    ValueStateDescriptor,
)


class Sum(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


TTL = StateTtlConfig(timedelta(hours=1))
BUILDERS = {
    StateKind.VALUE: lambda name="s", **kw: ValueStateDescriptor(name, "long", **kw),
    StateKind.LIST: lambda name="s", **kw: ListStateDescriptor(name, "struct<a int>", **kw),
    StateKind.MAP: lambda name="s", **kw: MapStateDescriptor(name, "string", "array<long>", **kw),
    StateKind.REDUCING: lambda name="s", **kw: ReducingStateDescriptor(name, "long", reduce=operator.add, **kw),
    StateKind.AGGREGATING: lambda name="s", **kw: AggregatingStateDescriptor(name, "dec", aggregate=Sum(), **kw),
}
each_kind = pytest.mark.parametrize("kind", list(BUILDERS))


def test_a_descriptor_knows_its_kind_and_its_canonical_type():
    assert {kind: build().kind for kind, build in BUILDERS.items()} == {
        kind: kind for kind in set(StateKind) - {StateKind.TIMERS}
    }
    assert {kind.value: build().type_ddl() for kind, build in BUILDERS.items()} == {
        "value": "bigint",
        "list": "struct<a:int>",
        "map": "map<string,array<bigint>>",
        "reducing": "bigint",
        "aggregating": "decimal(10,0)",
    }


@each_kind
def test_a_descriptor_is_frozen_and_takes_a_ttl(kind):
    descriptor = BUILDERS[kind](ttl=TTL)
    assert descriptor.ttl is TTL
    assert BUILDERS[kind]().ttl is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        descriptor.name = "other"  # type: ignore[misc]


@each_kind
@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", ".", "..", "a\n", None, 3])
def test_a_name_that_cannot_name_a_file_is_refused(kind, name):
    with pytest.raises(ConfigurationError, match="name"):
        BUILDERS[kind](name)


@pytest.mark.parametrize("name", ["_default_", "topic-partition-offset-states", "v1.2", "7"])
def test_names_as_flink_jobs_have_them_are_taken(name):
    assert ValueStateDescriptor(name, "int").name == name


@each_kind
@pytest.mark.parametrize("name", ["__event_timers", "__", "__mine"])
def test_names_of_the_librarys_own_state_are_refused(kind, name):
    with pytest.raises(ConfigurationError, match=rf"state name '{name}'; expected one that does not begin with '__'"):
        BUILDERS[kind](name)


def test_an_underscore_is_a_fine_beginning_and_a_side_output_is_no_state():
    assert ValueStateDescriptor("_mine__", "int").name == "_mine__"
    assert OutputTag("__late", "string").name == "__late"


@each_kind
def test_renames_are_kept_and_no_part_of_what_a_descriptor_is(kind):
    renamed = BUILDERS[kind](renames={"a": "b"})
    assert renamed.renames == {"a": "b"}
    assert BUILDERS[kind]().renames == {}
    if kind is not StateKind.AGGREGATING:  # whose aggregate function is another object each time
        assert renamed == BUILDERS[kind]()
        assert renamed != BUILDERS[kind]("other", renames={"a": "b"})


@each_kind
def test_renames_are_keyword_only(kind):
    extra: Any = {StateKind.REDUCING: {"reduce": max}, StateKind.AGGREGATING: {"aggregate": Sum()}}.get(kind, {})
    described: Any = type(BUILDERS[kind]())
    positional = {StateKind.MAP: ["int", "int"], StateKind.LIST: ["int"]}.get(kind, ["int"])
    assert described("s", *positional, renames={"a": "b"}, **extra).renames == {"a": "b"}
    with pytest.raises(TypeError):
        described("s", *positional, *[None] * (2 if kind is StateKind.LIST else 1), {"a": "b"}, **extra)


@each_kind
def test_a_bare_timedelta_is_no_ttl(kind):
    with pytest.raises(ConfigurationError, match="StateTtlConfig"):
        BUILDERS[kind](ttl=timedelta(hours=1))


def test_types_are_read_when_the_descriptor_is_built():
    for build in (
        lambda: ValueStateDescriptor("s", "variant"),
        lambda: ListStateDescriptor("s", "foo"),
        lambda: MapStateDescriptor("s", "string", "void"),
        lambda: MapStateDescriptor("s", "map<int,int>", "int"),
        lambda: MapStateDescriptor("s", "string collate UTF8_LCASE", "int"),
        lambda: ReducingStateDescriptor("s", "interval day", reduce=max),
        lambda: AggregatingStateDescriptor("s", "", aggregate=Sum()),
        lambda: OutputTag("s", "foo"),
    ):
        with pytest.raises(UnsupportedTypeError):
            build()


def test_functions_are_keyword_only_and_checked():
    with pytest.raises(TypeError):
        ReducingStateDescriptor("s", "int", max)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        AggregatingStateDescriptor("s", "int", Sum())  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="reduce"):
        ReducingStateDescriptor("s", "int", reduce=3)  # type: ignore[arg-type]
    for wrong in (Sum, max):
        with pytest.raises(ConfigurationError, match="AggregateFunction"):
            AggregatingStateDescriptor("s", "int", aggregate=wrong)  # type: ignore[arg-type]


def test_a_list_is_cut_contiguously_unless_told_otherwise():
    assert ListStateDescriptor("s", "int").strategy == "contiguous"
    assert ListStateDescriptor("s", "int", strategy="interleaved").strategy == "interleaved"
    with pytest.raises(ConfigurationError, match="round_robin"):
        ListStateDescriptor("s", "int", strategy="round_robin")


def test_a_ttl_has_flinks_defaults():
    assert (TTL.update_type, TTL.visibility) == (
        UpdateType.ON_CREATE_AND_WRITE,
        StateVisibility.NEVER_RETURN_EXPIRED,
    )
    assert (TTL.cleanup_full_snapshot, TTL.cleanup_incremental) == (False, None)
    assert TTL.ttl_ms == 3_600_000
    assert TTL.enabled
    assert not StateTtlConfig(timedelta(hours=1), UpdateType.DISABLED).enabled


def test_the_longest_timedelta_is_the_longest_ttl():
    assert StateTtlConfig(timedelta.max).ttl_ms == 2**63 - 1


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(-1), timedelta(microseconds=999), 5, None])
def test_a_ttl_under_a_millisecond_is_refused(ttl):
    with pytest.raises(ConfigurationError, match="millisecond"):
        StateTtlConfig(ttl)


@pytest.mark.parametrize(
    "setting",
    [
        {"update_type": "on_read_and_write"},
        {"visibility": None},
        {"cleanup_full_snapshot": 1},
        {"cleanup_incremental": 5},
        {"cleanup_incremental": (-1, False)},
        {"cleanup_incremental": (5, 1)},
        {"cleanup_incremental": (True, True)},
        {"cleanup_incremental": (5,)},
    ],
)
def test_a_ttl_setting_out_of_bounds_is_refused_by_name(setting):
    with pytest.raises(ConfigurationError, match=next(iter(setting))):
        StateTtlConfig(timedelta(1), **setting)


def test_an_output_tag_has_columns():
    assert [f.ddl() for f in OutputTag("late", "k string, n long").fields] == ["k:string", "n:bigint"]
    assert [f.ddl() for f in OutputTag("late", "struct<k:string>").fields] == ["k:string"]
    assert [f.ddl() for f in OutputTag("late", "string").fields] == ["value:string"]
    with pytest.raises(ConfigurationError, match="side output"):
        OutputTag("", "string")
