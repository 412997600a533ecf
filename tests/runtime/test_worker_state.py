"""Workers' state without Spark: real epochs of real subtasks on real files, in one process that plays several workers.

The cache may only ever save reads; whatever it holds, an epoch must leave the state that its manifest's history says.
"""

from __future__ import annotations

import dataclasses
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statecore import (
    CheckpointedFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from statecore.errors import CorruptFileError
from statecore.model import key_group_for, key_group_range, subtask_for_key_group
from statecore.runtime import cache
from statecore.runtime.messages import (
    ANCHOR,
    COMMIT,
    COMMIT_DECODER,
    KEY_GROUP,
    MAIN,
    SUBTASK,
    EpochSpec,
    OperatorSpec,
    SubtaskCommit,
    SubtaskSpec,
)
from statecore.runtime.operator_epoch import merged_schemas, next_state
from statecore.runtime.subtask import subtask_runner
from statecore.snapshot import compaction
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.compaction import Merged, carry_out, due_merges
from statecore.snapshot.manifest import FieldRef, FileRef, Manifest, OperatorState, SubtaskState
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.restore import apply_keyed_files, find_state, read_elements, table_schema
from statecore.state import HeapKeyedStateBackend
from tests.handmade import manifest

GROUPS = 16
KEYS = [f"k{n}" for n in range(40)]
POISON = 666
BUFFERED = 100


class Totals(KeyedProcessFunction, CheckpointedFunction):
    """Sums per key; 0 clears; buffers what is over 100 in operator state; fails at 666."""

    def initialize_state(self, context: Any) -> None:
        self.waiting = context.operator_state_store.get_list_state(ListStateDescriptor("waiting", "bigint"))

    def open(self, ctx: Any) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", "bigint"))
        self.last = ctx.get_list_state(ListStateDescriptor("last", "bigint"))

    def process_element(self, value: Any, ctx: Any) -> None:
        if value.n == POISON:
            raise ZeroDivisionError("poison")
        self.total.update(None if value.n == 0 else (self.total.value() or 0) + value.n)
        self.last.update([*self.last.get(), value.n][-2:])
        if value.n > BUFFERED:
            self.waiting.add(value.n)

    def snapshot_state(self, context: Any) -> None:
        return None


class Truth:
    """What an uninterrupted run would hold."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.last: dict[str, list[int]] = {}
        self.waiting: Counter[int] = Counter()

    def take(self, rows: list[tuple[str, int]]) -> None:
        for k, n in rows:
            self.totals[k] = self.totals.get(k, 0) + n
            if n == 0:
                del self.totals[k]
            self.last[k] = [*self.last.get(k, []), n][-2:]
            self.waiting.update([n] if n > BUFFERED else [])

    def copy(self) -> Truth:
        made = Truth()
        made.totals, made.last, made.waiting = dict(self.totals), dict(self.last), Counter(self.waiting)
        return made


class Clock:
    def now_ms(self) -> int:
        return 0


class Cluster:
    """A store, and workers that differ in nothing but what they remember."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = CheckpointStore.at(str(folder))
        self.workers: dict[str, tuple[dict[Any, Any], dict[Any, Any]]] = {}
        self.monkeypatch = monkeypatch
        self.read: list[str] = []
        self.merges = 0
        monkeypatch.setattr(compaction, "_RUN", 2)
        self.newest: Manifest | None = None
        self.spec = OperatorSpec(
            uid="totals", function=Totals(), reads_operator=False, event_time=None,
            key_fields=(FieldRef(name="k", type="string"),), broadcast=(), broadcast_event_time=None, late=None,
            max_parallelism=GROUPS, sinks=(), crossings=(), store_url=self.store.files.url,
            allow_non_restored_state=False,
        )  # fmt: skip
        read_file = CheckpointStore.read_file

        def counting(store: CheckpointStore, ref: FileRef) -> bytes:
            self.read.append(ref.path)
            return read_file(store, ref)

        monkeypatch.setattr(CheckpointStore, "read_file", counting)

    def epoch(
        self,
        rows: list[tuple[str, int]],
        workers: str = "A",
        *,
        parallelism: int = 1,
        merge: str | bool = False,
        commit: bool = True,
        lineage: int | None = None,
        restores: bool = False,
    ) -> list[SubtaskCommit]:
        """Run an epoch, subtask i on the worker of the i-th letter, and commit it or lose the attempt.

        With ``restores`` it is the first of a generation. With ``merge`` the files of the epoch before are laid
        together beside it, as far as there is cause to, or those of one state alone; its manifest names them then.
        """
        previous = self.newest
        restores = restores or previous is None or previous.parallelism != parallelism
        subtasks: tuple[SubtaskState, ...] = (SubtaskState(),) * parallelism
        if previous is not None:
            restored = rescale_by_reference(previous, parallelism) if restores else previous
            subtasks = restored.operators[0].subtasks
        epoch = EpochSpec(
            lineage=lineage or (previous.lineage if previous else 1),
            epoch=previous.epoch + 1 if previous else 0,
            now_ms=0,
            watermark_ms=None,
            watermark_before_ms=None,
            previous=CheckpointStore.manifest_path(previous.lineage, previous.epoch) if previous else None,
            foreign_store=None,
            restores=restores,
            counts_state=False,
            subtasks=tuple(_spec(i, parallelism, state) for i, state in enumerate(subtasks)),
        )
        merged = []
        if merge and previous is not None and not restores:
            due = [d for d in due_merges(previous, base_floor_bytes=0) if merge is True or d.state.name == merge]
            merged = [carry_out(self.store, each, "state/merged") for each in due]
            self.merges += len(merged)
        self.read.clear()
        commits = []
        for index in range(parallelism):
            self._become(workers[index % len(workers)])
            ((row,),) = (
                b.column(COMMIT).to_pylist() for b in subtask_runner(self.spec, epoch)(_batches(rows, index, epoch))
            )
            commits.append(COMMIT_DECODER.decode(row))
        if commit:
            self.newest = _manifest(self.spec.uid, epoch, subtasks, commits, merged)
            self.store.commit(self.newest)
        return commits

    def _become(self, worker: str) -> None:
        keyed, operator = self.workers.setdefault(worker, ({}, {}))
        self.monkeypatch.setattr(cache, "_keyed", keyed)
        self.monkeypatch.setattr(cache, "_operator", operator)

    def assert_exact(self, truth: Truth) -> None:
        assert self.newest is not None
        operator = self.newest.operators[0]
        totals: dict[str, int] = {}
        last: dict[str, list[int]] = {}
        waiting: Counter[int] = Counter()
        for index, subtask in enumerate(operator.subtasks):
            own = key_group_range(GROUPS, self.newest.parallelism, index)
            backend = HeapKeyedStateBackend(GROUPS, own, Clock())
            apply_keyed_files(backend, self.store, operator, subtask.keyed, dict.fromkeys(own, 0))
            for name, found in (("total", totals), ("last", last)):
                table = backend.restored_table(name, table_schema(find_state(operator, name)))
                found.update({k: stored for rows in table.groups.values() for (k,), stored in rows.items()})
            for item in subtask.operator:
                waiting.update(read_elements(self.store, find_state(operator, item.state), item))
        assert (totals, last, waiting) == (truth.totals, truth.last, truth.waiting)

    def of_epoch(self, *epochs: int) -> set[str]:
        """Return the keyed files that these epochs wrote."""
        assert self.newest is not None
        files = (item.file.path for s in self.newest.operators[0].subtasks for item in s.keyed)
        return {path for path in files if any(f"-{epoch:012d}/" in path for epoch in epochs)}


def _spec(index: int, parallelism: int, state: SubtaskState) -> SubtaskSpec:
    own = key_group_range(GROUPS, parallelism, index)
    heads = dict.fromkeys(own, "")
    for item in state.keyed:
        heads.update(dict.fromkeys(range(item.key_groups[0], item.key_groups[1] + 1), item.token))
    runs = tuple((group, group, head) for group, head in heads.items())
    return SubtaskSpec((own.start, own.end), runs, state.operator_token)


def _batches(rows: list[tuple[str, int]], index: int, epoch: EpochSpec) -> Iterator[pa.RecordBatch]:
    mine = []
    for k, n in rows:
        group = key_group_for((k,), ["string"], GROUPS)
        if subtask_for_key_group(GROUPS, len(epoch.subtasks), group) == index:
            mine.append((k, n, index, index, group))
    columns = list(zip(*(mine or [(None, None, index, None, None)]), strict=True))
    types = [pa.string(), pa.int64(), pa.int32(), pa.int32(), pa.int32()]
    k, n, *placed = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    marker = None if mine else pa.array([True])
    records = pa.StructArray.from_arrays([k, n], names=["k", "n"], mask=marker)
    yield pa.RecordBatch.from_arrays([records, *placed], names=[MAIN, ANCHOR, SUBTASK, KEY_GROUP])


def _manifest(
    uid: str,
    epoch: EpochSpec,
    restored: tuple[SubtaskState, ...],
    commits: list[SubtaskCommit],
    merged: list[Merged],
) -> Manifest:
    subtasks = tuple(
        next_state(state, commit, [each for each in merged if each.merge.subtask == commit.subtask])
        for state, commit in zip(restored, commits, strict=True)
    )
    fields = (FieldRef(name="k", type="string"),)
    states = merged_schemas((), [commit.states for commit in commits])
    operator = OperatorState(uid=uid, key_fields=fields, states=states, subtasks=subtasks)
    return manifest(
        lineage=epoch.lineage, epoch=epoch.epoch, parent=epoch.previous, max_parallelism=GROUPS,
        parallelism=len(epoch.subtasks), operators=(operator,),
    )  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


ROWS = [(k, n) for n, k in enumerate(KEYS, start=90)]


def truth(*epochs: list[tuple[str, int]]) -> Truth:
    made = Truth()
    for rows in epochs:
        made.take(rows)
    return made


def test_a_worker_that_ran_the_epoch_before_reads_nothing(cluster: Cluster) -> None:
    cluster.epoch(ROWS)
    (commit,) = cluster.epoch(ROWS)
    assert (cluster.read, commit.cached_key_groups) == ([], GROUPS)
    cluster.assert_exact(truth(ROWS, ROWS))


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
    with pytest.raises(ZeroDivisionError):
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
    with pytest.raises(ZeroDivisionError):
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
    return {k: count for rows in backend.tables["count"].groups.values() for (k,), count in rows.items()}


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


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(steps)
def test_whatever_workers_remember_the_state_is_that_of_an_uninterrupted_run(
    tmp_path_factory: pytest.TempPathFactory, history: list[dict[str, Any]]
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        cluster = Cluster(tmp_path_factory.mktemp("store"), monkeypatch)
        expected, past, lineage = Truth(), [], 1
        for step in history:
            fate, rows = step.pop("fate"), step["rows"]
            if fate == "go back" and past:
                cluster.newest, expected = past[len(past) // 2]
                expected = expected.copy()
                lineage += 1
            if fate == "fail":
                with pytest.raises(ZeroDivisionError):
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


@pytest.fixture
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_a_look_for_garbage_does_not_go_through_the_state(cluster: Cluster) -> None:
    def in_reach() -> list[str]:
        """Return the keys of state dictionaries that a look for garbage goes through."""
        watched = {id(item) for item in gc.get_objects()}
        groups = cluster.workers[worker][0][cluster.spec.store_url, "totals"].values()
        held = [rows for group in groups for _, rows in group.states.values()]
        assert sum(map(len, held)) >= 2 * len(keys)
        return [key for rows in held if id(rows) in watched for (key,) in rows]

    keys = [f"k{n}" for n in range(64)]
    worker = "A"
    cluster.epoch([(key, 1) for key in keys])
    assert in_reach() == []
    for _ in range(2):
        # As Spark's worker does after each task.
        gc.collect()
        cluster.epoch([(key, 1) for key in keys])
        assert in_reach() == []

    worker = "B"
    cluster.epoch([(key, 1) for key in keys], workers="B")
    assert in_reach() == []

    keys += [f"more{n}" for n in range(128)]
    cluster.epoch([(key, 1) for key in keys], workers="B")
    assert in_reach() == []


class Knot:
    """Garbage that refers to itself, once nobody else refers to it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.usefixtures("thawed")
def test_an_operator_without_state_leaves_nothing_out_after_its_first_epoch(cluster: Cluster) -> None:
    cluster.epoch([])
    new = Knot()
    cluster.epoch([])
    assert any(item is new for item in gc.get_objects())
