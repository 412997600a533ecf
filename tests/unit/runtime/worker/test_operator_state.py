"""Operator state in the memory of workers: split and union lists, broadcast."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from statecore import (
    CheckpointedFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
)
from statecore.errors import FunctionError
from statecore.model import key_group_for, subtask_for_key_group
from statecore.snapshot.restore import find_state, read_elements
from tests.support.miniature import GROUPS, KEYS, POISON, Cluster, cluster, truth

__all__ = ["cluster"]


class Votes(KeyedProcessFunction, CheckpointedFunction):
    """Notes what it finds in a union list; each record adds to it and to a broadcast map."""

    def __init__(self) -> None:
        self.found: list[list[int]] = []

    def initialize_state(self, context: Any) -> None:
        self.votes = context.operator_state_store.get_union_list_state(ListStateDescriptor("votes", "bigint"))
        self.rules = context.operator_state_store.get_broadcast_state(MapStateDescriptor("rules", "string", "bigint"))
        self.found.append(list(self.votes.get()))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.votes.add(value.n)
        self.rules.put(value.k, value.n)

    def snapshot_state(self, context: Any) -> None:
        return None


@pytest.fixture
def votes(cluster: Cluster) -> Votes:
    function = Votes()
    cluster.spec = dataclasses.replace(cluster.spec, function=function, uid="votes")
    return function


# Keys of the first and of the second of two subtasks.
FIRST, SECOND = (
    next(k for k in KEYS if subtask_for_key_group(GROUPS, 2, key_group_for((k,), ["string"], GROUPS)) == subtask)
    for subtask in (0, 1)
)


@pytest.mark.parametrize("second", ["AA", "BB"], ids=["in memory", "read from files"])
def test_a_union_is_given_to_everybody_at_a_restore_and_never_in_between(
    cluster: Cluster, votes: Votes, second: str
) -> None:
    cluster.epoch([(FIRST, 1), (SECOND, 2)], "AA", parallelism=2)
    cluster.epoch([], second, parallelism=2)
    assert votes.found[-2:] == [[1], [2]]
    cluster.epoch([], second, parallelism=2, restores=True)
    assert votes.found[-2:] == [[1, 2], [1, 2]]
    for _ in range(3):
        cluster.epoch([], second, parallelism=2)
        assert votes.found[-2:] == [[1, 2], [1, 2]]
    cluster.epoch([], second, parallelism=2, restores=True)
    assert votes.found[-2:] == [[1, 2], [1, 2]]


def test_a_restore_that_is_repeated_after_a_kill_gives_the_same_union(cluster: Cluster, votes: Votes) -> None:
    cluster.epoch([(FIRST, 1), (SECOND, 2)], "AA", parallelism=2)
    for worker in ("A", "B", "A"):
        cluster.epoch([(FIRST, 3)], worker, parallelism=2, restores=True, commit=False)
        assert votes.found[-2:] == [[1, 2], [1, 2]]


def test_a_union_that_nobody_writes_does_not_multiply_while_other_state_of_its_operator_changes(
    cluster: Cluster,
) -> None:
    class RulesAlone(Votes):
        def process_element(self, value: Any, ctx: Any) -> None:
            self.rules.put(value.k, value.n)

    cluster.spec = dataclasses.replace(cluster.spec, function=Votes(), uid="votes")
    cluster.epoch([(FIRST, 1), (SECOND, 2)], parallelism=2)
    function = RulesAlone()
    cluster.spec = dataclasses.replace(cluster.spec, function=function)
    for n in range(3):
        cluster.epoch([(FIRST, n), (SECOND, n)], "AB"[n % 2], parallelism=2, restores=True)
        assert function.found[-2:] == [[1, 2], [1, 2]]


def test_a_union_that_is_declared_with_another_strategy_does_not_multiply(cluster: Cluster, votes: Votes) -> None:
    class Dealt(Votes):
        def initialize_state(self, context: Any) -> None:
            dealt = ListStateDescriptor("votes", "bigint", strategy="interleaved")
            self.votes = context.operator_state_store.get_union_list_state(dealt)
            self.rules = context.operator_state_store.get_broadcast_state(RULES)
            self.found.append(list(self.votes.get()))

    cluster.epoch([(FIRST, 1), (SECOND, 2)], parallelism=2)
    function = Dealt()
    cluster.spec = dataclasses.replace(cluster.spec, function=function)
    for _ in range(2):
        cluster.epoch([], parallelism=2, restores=True)
        assert function.found[-2:] == [[1, 2], [1, 2]]
    assert cluster.newest is not None
    assert find_state(cluster.newest.operators[0], "votes").strategy == "interleaved"


def test_a_new_subtask_meets_a_copy_of_the_broadcast_state(cluster: Cluster) -> None:
    met: list[dict[str, int]] = []

    class Rules(Votes):
        def initialize_state(self, context: Any) -> None:
            super().initialize_state(context)
            met.append(dict(self.rules.items()))

    cluster.spec = dataclasses.replace(cluster.spec, function=Rules(), uid="votes")
    cluster.epoch([(FIRST, 1)], parallelism=1)
    cluster.epoch([], parallelism=3)
    assert met[1:] == [{FIRST: 1}] * 3


class Held(KeyedProcessFunction, CheckpointedFunction):
    """Has operator state of its own description, and does with it what it is made to do, if there is a record."""

    def __init__(
        self, state: ListStateDescriptor | MapStateDescriptor, write: Callable[[Any], None] = lambda state: None
    ) -> None:
        self.descriptor = state
        self.write = write

    def initialize_state(self, context: Any) -> None:
        store = context.operator_state_store
        get = store.get_broadcast_state if isinstance(self.descriptor, MapStateDescriptor) else store.get_list_state
        self.state = get(self.descriptor)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.write(self.state)

    def snapshot_state(self, context: Any) -> None:
        return None


def held(cluster: Cluster, name: str) -> str:
    """Return what the files hold of an operator state."""
    assert cluster.newest is not None
    operator = cluster.newest.operators[0]
    schema = find_state(operator, name)
    return repr([e for s in operator.subtasks for i in s.operator for e in read_elements(cluster.store, schema, i)])


DOUBLES = ListStateDescriptor("doubles", "double")
RULES = MapStateDescriptor("rules", "string", "bigint")


def reorder(state: Any) -> None:
    entries = dict(state.items())
    state.clear()
    state.put_all(dict(reversed(entries.items())))


@pytest.mark.parametrize("worker", ["A", "B"], ids=["in memory", "read from files"])
@pytest.mark.parametrize(
    ("state", "first", "second", "expected"),
    [
        (DOUBLES, lambda state: state.add(0.0), lambda state: state.update([-0.0]), "[-0.0]"),
        (RULES, lambda state: state.put_all({"a": 1, "b": 2}), reorder, "[{'b': 2, 'a': 1}]"),
        (DOUBLES, lambda state: state.add(1), lambda state: state.clear(), "[]"),
    ],
    ids=["another sign of zero", "another order", "emptied"],
)
def test_a_change_of_operator_state_is_written_though_what_was_there_may_equal_it(
    cluster: Cluster, worker: str, state: Any, first: Any, second: Any, expected: str
) -> None:
    cluster.spec = dataclasses.replace(cluster.spec, function=Held(state, first), uid="held")
    cluster.epoch([("k1", 1)], "A")
    cluster.spec = dataclasses.replace(cluster.spec, function=Held(state, second))
    cluster.epoch([("k1", 1)], worker)
    assert held(cluster, state.name) == expected
    (commit,) = cluster.epoch([], worker)
    assert (commit.operator, held(cluster, state.name)) == (None, expected)


@pytest.mark.parametrize("state", [DOUBLES, RULES], ids=["list", "map"])
def test_operator_state_in_which_there_is_nothing_is_known_to_the_manifest(cluster: Cluster, state: Any) -> None:
    cluster.spec = dataclasses.replace(cluster.spec, function=Held(state), uid="held")
    for worker in "AAB":
        cluster.epoch([], worker)
        assert cluster.newest is not None
        found = find_state(cluster.newest.operators[0], state.name)
        assert (found.type, found.scope) == (state.type_ddl(), "operator")


def test_untouched_operator_state_is_neither_written_nor_copied(cluster: Cluster) -> None:
    cluster.spec = dataclasses.replace(cluster.spec, function=Held(DOUBLES, lambda state: state.add(1)), uid="held")
    cluster.epoch([("k1", 1)])

    def container() -> Any:
        (cached,) = cluster.workers["A"][1].values()
        return cached.states["doubles"].elements

    first = container()
    for _ in range(2):
        (commit,) = cluster.epoch([])
        assert (commit.operator, cluster.read) == (None, [])
        assert container() is first


def test_an_attempt_that_failed_or_was_lost_leaves_no_trace_in_operator_state(cluster: Cluster) -> None:
    cluster.epoch([("k1", 101)], "A")
    with pytest.raises(FunctionError, match="ZeroDivisionError: poison"):
        cluster.epoch([("k1", 102), ("k2", POISON)], "A")
    cluster.epoch([("k1", 103)], "A", commit=False)
    cluster.epoch([("k1", 104)], "A")
    cluster.assert_exact(truth([("k1", 101)], [("k1", 104)]))


def test_a_function_of_an_epoch_before_writes_into_nothing_that_is_still_in_use(cluster: Cluster) -> None:
    function = Held(DOUBLES, lambda state: state.add(1))
    cluster.spec = dataclasses.replace(cluster.spec, function=function, uid="held")
    cluster.epoch([("k1", 1)])
    older = function.state
    cluster.epoch([])
    older.add(2)
    cluster.epoch([("k1", 1)])
    assert held(cluster, "doubles") == "[1.0, 1.0]"


@pytest.mark.parametrize("worker", ["A", "B"], ids=["in memory", "read from files"])
@pytest.mark.parametrize(
    "wanted",
    [ListStateDescriptor("waiting", "decimal(25,0)"), ListStateDescriptor("waiting", "int", strategy="interleaved")],
    ids=["another type", "another strategy"],
)
def test_operator_state_that_is_declared_otherwise_is_written_once(
    cluster: Cluster, worker: str, wanted: ListStateDescriptor
) -> None:
    before = Held(ListStateDescriptor("waiting", "int"), lambda state: state.add(1))
    cluster.spec = dataclasses.replace(cluster.spec, function=before, uid="held")
    cluster.epoch([("k1", 1)])
    cluster.spec = dataclasses.replace(cluster.spec, function=Held(wanted))
    cluster.epoch([], worker, restores=True, commit=False)
    (commit,) = cluster.epoch([], worker, restores=True)
    assert commit.operator
    (commit,) = cluster.epoch([], worker)
    assert commit.operator is None
    assert cluster.newest is not None
    found = find_state(cluster.newest.operators[0], "waiting")
    assert (found.type, found.strategy) == (wanted.type_ddl(), wanted.strategy)


def test_a_map_in_a_list_of_operator_state_survives_a_restore(cluster: Cluster) -> None:
    maps = ListStateDescriptor("maps", "map<string collate UTF8_LCASE,int>")
    function = Held(maps, lambda state: state.add({"A": 1, "a": 2}))
    cluster.spec = dataclasses.replace(cluster.spec, function=function, uid="held")
    cluster.epoch([("k1", 1)], "A")
    cluster.epoch([], "B")
    assert held(cluster, "maps") == "[{'A': 1, 'a': 2}]"
