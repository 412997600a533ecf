"""Keyed state in the memory of workers: it may only ever save reads.

Whatever workers remember, an epoch must leave the state that its manifest's history says.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    KeyedProcessFunction,
    ValueStateDescriptor,
)
from statecore.errors import CorruptFileError, FunctionError
from statecore.model import key_group_range
from statecore.runtime.epoch.operator import subtask_specs
from statecore.runtime.worker import cache
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import footer_of
from statecore.snapshot.manifest import encode_manifest, subtask_parts
from statecore.snapshot.restore import apply_keyed_files
from statecore.state import HeapKeyedStateBackend
from tests.support.examples import examples
from tests.support.miniature import GROUPS, KEYS, POISON, ROWS, Clock, Cluster, Truth, cluster, truth

__all__ = ["cluster"]


def test_a_worker_that_ran_the_epoch_before_reads_nothing(cluster: Cluster) -> None:
    cluster.epoch(ROWS)
    (commit,) = cluster.epoch(ROWS)
    assert (cluster.read, commit.cached_key_groups) == ([], GROUPS)
    cluster.assert_exact(truth(ROWS, ROWS))


def test_a_worker_that_ran_the_epoch_before_needs_nothing_of_the_manifest(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "AB", parallelism=2)
    cluster.epoch(ROWS, "AB", parallelism=2)
    assert (cluster.manifests_read, cluster.parts_read) == ([], [])


def test_a_worker_without_state_reads_of_the_manifest_its_own_part_alone(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A", parallelism=4)
    cluster.epoch(ROWS, "A", parallelism=4)
    assert cluster.newest is not None
    data = encode_manifest(cluster.newest)

    cluster.epoch(ROWS, "AABA", parallelism=4)

    assert cluster.manifests_read == []
    assert cluster.parts_read == [subtask_parts(data)["totals"][2]]
    assert cluster.parts_read[0].size < len(data) / 4
    cluster.assert_exact(truth(ROWS, ROWS, ROWS))


@pytest.mark.parametrize("parallelism", [2, 3])
def test_where_state_was_redistributed_each_subtask_is_told_its_files(cluster: Cluster, parallelism: int) -> None:
    cluster.epoch(ROWS, "AB", parallelism=2)

    cluster.epoch(ROWS, "CDE", parallelism=parallelism, restores=True)

    assert (cluster.manifests_read, cluster.parts_read) == ([], [])
    cluster.assert_exact(truth(ROWS, ROWS))


def test_a_part_of_a_manifest_that_changed_is_refused(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A")
    cluster.epoch(ROWS, "A")
    path = CheckpointStore.manifest_path(1, 1)
    data = cluster.store.files.read(path)
    cluster.store.files.write(path, data.replace(b'"rows": 40', b'"rows": 41', 1))
    with pytest.raises(CorruptFileError, match=path):
        cluster.epoch(ROWS, "B")


def test_what_every_task_receives_does_not_grow_with_the_files(cluster: Cluster) -> None:
    sizes = []
    for _ in range(12):
        cluster.epoch(ROWS, "A", parallelism=4)
        assert cluster.newest is not None
        (operator,) = cluster.newest.operators
        parts = subtask_parts(encode_manifest(cluster.newest))[operator.uid]
        told = subtask_specs(operator, 4, GROUPS, parts)
        sizes.append(max(map(len, told)))
    assert max(sizes) < 200


def test_an_epoch_without_rows_keeps_the_cache_and_writes_no_file(cluster: Cluster) -> None:
    cluster.epoch(ROWS)
    for _ in range(cache._EPOCHS_KEPT + 2):
        (commit,) = cluster.epoch([])
        assert (commit.keyed, commit.operator, commit.cached_key_groups, cluster.read) == ((), None, GROUPS, [])
    cluster.assert_exact(truth(ROWS))


def test_a_new_worker_reads_every_file_of_its_key_groups_once(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A")
    cluster.epoch(ROWS, "A")
    assert cluster.newest is not None
    files = {ref.path for ref in cluster.newest.files()}

    (commit,) = cluster.epoch(ROWS, "B")

    assert Counter(cluster.read) == Counter(files)
    assert commit.cached_key_groups == 0
    cluster.assert_exact(truth(ROWS, ROWS, ROWS))


def test_a_worker_that_missed_epochs_reads_the_changelogs_of_these_alone(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A")
    cluster.epoch([("k1", 1)], "A")
    cluster.epoch([("k1", 2), ("k2", 0)], "B")
    cluster.epoch([("k3", 3)], "B")

    (commit,) = cluster.epoch([("k2", 5), ("k4", 1)], "A")

    assert set(cluster.read) == cluster.of_epoch(2, 3)
    assert len(cluster.read) == len(set(cluster.read)) == 4
    assert commit.cached_key_groups == 0
    cluster.assert_exact(truth(ROWS, [("k1", 1)], [("k1", 2), ("k2", 0)], [("k3", 3)], [("k2", 5), ("k4", 1)]))


def test_what_was_cleared_elsewhere_is_not_met_again(cluster: Cluster) -> None:
    cluster.epoch([("k1", 1)], "A")
    cluster.epoch([("k1", 0)], "B")
    cluster.epoch([("k1", 7)], "A")
    cluster.assert_exact(truth([("k1", 1)], [("k1", 0)], [("k1", 7)]))


def test_an_attempt_that_was_not_committed_is_dropped_though_its_worker_remembers_it(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A")
    cluster.epoch([("k1", 1_000), ("k2", 0)], "A", commit=False)
    cluster.epoch([("k3", 3)], "B")

    (commit,) = cluster.epoch([("k1", 1)], "A")

    assert commit.cached_key_groups == 0
    cluster.assert_exact(truth(ROWS, [("k3", 3)], [("k1", 1)]))


def test_an_epoch_replayed_on_the_worker_that_ran_it_counts_once(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A")
    cluster.epoch([("k1", 500)], "A", commit=False)
    cluster.epoch([("k1", 500)], "A")
    cluster.assert_exact(truth(ROWS, [("k1", 500)]))


def test_an_attempt_that_failed_halfway_leaves_nothing(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A")
    with pytest.raises(FunctionError, match="ZeroDivisionError: poison"):
        cluster.epoch([("k1", 101), ("k2", 0), ("k3", POISON)], "A")

    (commit,) = cluster.epoch([("k1", 1)], "A")

    assert commit.cached_key_groups == 0
    cluster.assert_exact(truth(ROWS, [("k1", 1)]))


def test_at_another_parallelism_keyed_state_in_memory_is_used_and_operator_state_is_read_anew(
    cluster: Cluster,
) -> None:
    cluster.epoch(ROWS, "A", parallelism=3)
    for parallelism in (5, 1, 4):
        assert cluster.newest is not None
        listed = {item.file.path for s in cluster.newest.operators[0].subtasks for item in s.operator}
        commits = cluster.epoch([("k1", 1)], "A", parallelism=parallelism)
        assert sum(commit.cached_key_groups for commit in commits) == GROUPS
        assert set(cluster.read) <= listed
    cluster.assert_exact(truth(ROWS, *[[("k1", 1)]] * 3))


def test_at_another_parallelism_each_worker_reads_only_what_it_did_not_hold(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "AB", parallelism=2)
    commits = cluster.epoch(ROWS, "AABB", parallelism=4)
    assert [commit.cached_key_groups for commit in commits] == [4, 4, 4, 4]
    commits = cluster.epoch(ROWS, "A", parallelism=1)
    assert commits[0].cached_key_groups == GROUPS // 2
    cluster.assert_exact(truth(ROWS, ROWS, ROWS))


def test_a_merge_changes_nothing_for_the_worker_that_holds_the_state(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A")
    (commit,) = cluster.epoch([("k1", 0)], "A", merge=True)
    assert (cluster.merges, cluster.of_epoch(0), commit.cached_key_groups) == (2, set(), GROUPS)
    (commit,) = cluster.epoch([("k2", 1)], "A")
    assert (cluster.read, commit.cached_key_groups) == ([], GROUPS)
    cluster.assert_exact(truth(ROWS, [("k1", 0)], [("k2", 1)]))


def test_after_a_merge_a_worker_that_missed_an_epoch_catches_up_from_what_came_after(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A")
    cluster.epoch([("k1", 0)], "B", merge=True)
    cluster.epoch([("k2", 1)], "A")
    assert {path for path in cluster.read if "operator" not in path} == cluster.of_epoch(1)
    cluster.assert_exact(truth(ROWS, [("k1", 0)], [("k2", 1)]))


def test_a_base_takes_away_what_an_older_memory_still_holds(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A")
    cluster.epoch([("k1", 0)], "B")
    # The other state's file still shows where A's memory stands, in front of the base.
    cluster.epoch([], "B", merge="total")
    cluster.epoch([("k1", 5)], "A")
    cluster.assert_exact(truth(ROWS, [("k1", 0)], [("k1", 5)]))


def test_key_groups_that_moved_away_for_good_are_forgotten(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A", parallelism=2)
    for _ in range(cache._EPOCHS_KEPT + 2):
        cluster.epoch([("k1", 1)], "AB", parallelism=2)
    (groups,) = cluster.workers["A"][0].values()
    assert sorted(groups) == list(range(GROUPS // 2))


def test_going_back_to_an_older_epoch_drops_what_came_after_it(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A")
    older = cluster.newest
    cluster.epoch([("k1", 1_000), ("k2", 0)], "A")
    cluster.newest = older
    cluster.epoch([("k1", 1)], "A", lineage=2)
    cluster.assert_exact(truth(ROWS, [("k1", 1)]))


class Shapes(KeyedProcessFunction):
    """Notes the shape of the value it meets; writes it in another shape than a restore gives it back."""

    def __init__(self) -> None:
        self.met: list[str] = []

    def open(self, ctx: Any) -> None:
        self.state = ctx.get_state(ValueStateDescriptor("shape", "struct<n:bigint,part:float,l:array<int>>"))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.met.append(repr(self.state.value()))
        self.state.update({"n": value.n, "part": 0.1, "l": (1, 2)})


def test_a_value_is_met_in_one_shape_whether_it_was_in_memory_or_was_read_from_a_file(cluster: Cluster) -> None:
    met = []
    for second in ("A", "B"):
        function = Shapes()
        cluster.spec = dataclasses.replace(cluster.spec, function=function, uid=f"shapes-{second}")
        cluster.newest = None
        cluster.epoch([("k1", 1)], "A", lineage=ord(second))
        cluster.epoch([("k1", 2)], second)
        met.append(function.met)
    assert met[0] == met[1]
    assert met[0][1] == "Row(n=1, part=0.10000000149011612, l=[1, 2])"


def test_a_state_file_that_is_damaged_is_an_error_with_its_path_and_no_state(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A")
    (path,) = [path for path in cluster.of_epoch(0) if path.endswith("total.arrow")]
    data = bytearray(cluster.store.files.read(path))
    data[len(data) // 2] ^= 1
    cluster.store.files.write(path, bytes(data))
    with pytest.raises(CorruptFileError, match=path):
        cluster.epoch(ROWS, "B")


class Widened(KeyedProcessFunction):
    """Counts, in a state of the type it is made with."""

    def __init__(self, ddl: str) -> None:
        self.ddl = ddl

    def open(self, ctx: Any) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", self.ddl))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)


@pytest.mark.parametrize("worker", ["A", "B"], ids=["in memory", "read from files"])
def test_state_that_became_another_type_is_written_whole_and_an_attempt_at_that_may_be_lost(
    cluster: Cluster, worker: str
) -> None:
    cluster.spec = dataclasses.replace(cluster.spec, function=Widened("int"), uid="widened")
    cluster.epoch(ROWS, "A")
    cluster.spec = dataclasses.replace(cluster.spec, function=Widened("bigint"))
    cluster.epoch([("k1", 1)], worker, restores=True, commit=False)
    (commit,) = cluster.epoch([("k1", 1)], worker, restores=True)
    assert commit.replaces
    assert [item.rows for item in commit.keyed] == [len(KEYS)]
    assert [item.footer for item in commit.keyed] == [
        footer_of(cluster.store.read_file(item.file)) for item in commit.keyed
    ]
    (commit,) = cluster.epoch([("k1", 1)], worker)
    assert not commit.replaces
    (commit,) = cluster.epoch([], "C")
    assert cluster.newest is not None
    assert [(state.name, state.type) for state in cluster.newest.operators[0].states][-1] == ("count", "bigint")
    assert counts(cluster)["k1"] == 3


def counts(cluster: Cluster) -> dict[str, int]:
    assert cluster.newest is not None
    operator = cluster.newest.operators[0]
    own = key_group_range(GROUPS, 1, 0)
    backend = HeapKeyedStateBackend(GROUPS, own, Clock())
    apply_keyed_files(backend, cluster.store, operator, operator.subtasks[0].keyed, dict.fromkeys(own, 0))
    return {k: count for rows in backend.tables["count"].groups.values() for (k,), count in rows.items()}  # type: ignore[misc]


steps = st.lists(
    st.fixed_dictionaries(
        {
            "rows": st.lists(st.tuples(st.sampled_from(KEYS[:12]), st.sampled_from([0, 1, 2, 101, 102])), max_size=8),
            "workers": st.text("ABC", min_size=1, max_size=5),
            "parallelism": st.sampled_from([1, 2, 3, 5]),
            "merge": st.booleans(),
            "restores": st.booleans(),
            "fate": st.sampled_from(["commit", "commit", "commit", "lose", "fail", "go back"]),
        }
    ),
    min_size=2,
    max_size=9,
)


@examples(40)
@given(steps)
def test_whatever_workers_remember_the_state_is_that_of_an_uninterrupted_run(
    tmp_path_factory: pytest.TempPathFactory, history: list[dict[str, Any]]
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        cluster = Cluster(tmp_path_factory.mktemp("store"), monkeypatch)
        expected, lineage = Truth(), 1
        past: list[Any] = []
        for step in history:
            fate, rows = step.pop("fate"), step["rows"]
            if fate == "go back" and past:
                cluster.newest, expected = past[len(past) // 2]
                expected = expected.copy()
                lineage += 1
            if fate == "fail":
                with pytest.raises(FunctionError, match="ZeroDivisionError: poison"):
                    cluster.epoch(**{**step, "rows": [*rows, ("k0", POISON)]}, lineage=lineage)
                continue
            cluster.epoch(**step, lineage=lineage, commit=fate != "lose")
            if fate != "lose":
                expected.take(rows)
                past.append((cluster.newest, expected.copy()))
                cluster.assert_exact(expected)


def test_the_manifests_made_here_are_read_back_as_they_are(cluster: Cluster) -> None:
    cluster.epoch(ROWS, "A", parallelism=2)
    assert cluster.newest is not None
    assert msgspec.json.encode(cluster.store.newest()) == msgspec.json.encode(cluster.newest)
