"""A cluster without Spark: real epochs of real subtasks on real files, in one process that plays several workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from statecore import (
    CheckpointedFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    ValueStateDescriptor,
)
from statecore.model import key_group_for, key_group_range, subtask_for_key_group
from statecore.runtime.epoch.operator import merged_schemas, next_state, subtask_specs
from statecore.runtime.messages import (
    ANCHOR,
    COMMIT,
    COMMIT_DECODER,
    KEY_GROUP,
    MAIN,
    SUBTASK,
    EpochSpec,
    InputSpec,
    OperatorSpec,
    SubtaskCommit,
)
from statecore.runtime.worker import cache
from statecore.runtime.worker.subtask import subtask_runner
from statecore.snapshot import compaction
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.compaction import Merged, carry_out, due_merges
from statecore.snapshot.manifest import (
    FieldRef,
    FilePart,
    FileRef,
    Manifest,
    OperatorState,
    SubtaskState,
    encode_manifest,
    subtask_parts,
)
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.restore import apply_keyed_files, find_state, read_elements, table_schema
from statecore.state import HeapKeyedStateBackend
from statecore.storage import LocalFileStore
from tests.support.handmade import manifest

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
        self.manifests_read: list[str] = []
        self.parts_read: list[FilePart] = []
        self.merges = 0
        monkeypatch.setattr(compaction, "_RUN", 2)
        self.newest: Manifest | None = None
        self.spec = OperatorSpec(
            uid="totals", function=Totals(), reads_operator=False,
            inputs=(InputSpec(MAIN, (None,), ("k",)),),
            key_fields=(FieldRef(name="k", type="string"),), broadcast=(), late=None,
            max_parallelism=GROUPS, sinks=(), crossings=(), store_url=self.store.files.url,
            allow_non_restored_state=False,
        )  # fmt: skip
        read_file = CheckpointStore.read_file

        def counting(store: CheckpointStore, ref: FileRef) -> bytes:
            self.read.append(ref.path)
            return read_file(store, ref)

        monkeypatch.setattr(CheckpointStore, "read_file", counting)
        read_whole, read_parts = LocalFileStore.read, CheckpointStore.read_parts

        def noting_manifests(store: LocalFileStore, path: str) -> bytes:
            self.manifests_read += [path] if path.startswith("manifests/") else []
            return read_whole(store, path)

        def noting_parts(store: CheckpointStore, path: str, parts: list[FilePart]) -> bytes:
            self.parts_read += parts if path.startswith("manifests/") else []
            return read_parts(store, path, parts)

        monkeypatch.setattr(LocalFileStore, "read", noting_manifests)
        monkeypatch.setattr(CheckpointStore, "read_parts", noting_parts)

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
        counts: bool = False,
    ) -> list[SubtaskCommit]:
        """Run an epoch, subtask i on the worker of the i-th letter, and commit it or lose the attempt.

        With ``restores`` it is the first of a generation. With ``merge`` the files of the epoch before are laid
        together beside it, as far as there is cause to, or those of one state alone; its manifest names them then.
        """
        previous = self.newest
        restores = restores or previous is None or previous.parallelism != parallelism
        subtasks: tuple[SubtaskState, ...] = (SubtaskState(),) * parallelism
        operator = None
        if previous is not None:
            (operator,) = (rescale_by_reference(previous, parallelism) if restores else previous).operators
            subtasks = operator.subtasks
        parts = None if restores or previous is None else subtask_parts(encode_manifest(previous))[self.spec.uid]
        epoch = EpochSpec(
            lineage=lineage or (previous.lineage if previous else 1),
            epoch=previous.epoch + 1 if previous else 0,
            now_ms=0,
            watermark_ms=None,
            watermark_before_ms=None,
            previous=CheckpointStore.manifest_path(previous.lineage, previous.epoch) if previous else None,
            restored=None if operator is None else msgspec.structs.replace(operator, subtasks=()),
            foreign_store=None,
            restores=restores,
            counts_state=counts,
            subtasks=subtask_specs(operator, parallelism, GROUPS, parts),
        )
        merged = []
        if merge and previous is not None and not restores:
            due = [d for d in due_merges(previous, base_floor_bytes=0) if merge is True or d.state.name == merge]
            merged = [carry_out(self.store, each, "state/merged") for each in due]
            self.merges += len(merged)
        for noted in (self.read, self.manifests_read, self.parts_read):
            noted.clear()
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
                found.update({k: stored for rows in table.groups.values() for (k,), stored in rows.items()})  # type: ignore[misc]
            for item in subtask.operator:
                waiting.update(read_elements(self.store, find_state(operator, item.state), item))
        assert (totals, last, waiting) == (truth.totals, truth.last, truth.waiting)
        counted = [sum(each.state_rows.get(name, 0) for each in operator.subtasks) for name in ("total", "last")]
        assert counted == [len(totals), len(last)]

    def of_epoch(self, *epochs: int) -> set[str]:
        """Return the keyed files that these epochs wrote."""
        assert self.newest is not None
        files = (item.file.path for s in self.newest.operators[0].subtasks for item in s.keyed)
        return {path for path in files if any(f"-{epoch:012d}/" in path for epoch in epochs)}


def _batches(rows: list[tuple[str, int]], index: int, epoch: EpochSpec) -> Iterator[pa.RecordBatch]:
    mine = []
    for k, n in rows:
        group = key_group_for((k,), ["string"], GROUPS)
        if subtask_for_key_group(GROUPS, len(epoch.subtasks), group) == index:
            mine.append((k, n, index, index, group))
    columns = list(zip(*(mine or [(None, None, index, None, None)]), strict=True))  # type: ignore[list-item]
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
