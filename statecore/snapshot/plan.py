"""Plans a rescale from the manifest and the files' statistics; writes and moves nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.errors import CorruptFileError, MissingFileError
from statecore.model import key_group_range
from statecore.model.key_groups import check_max_parallelism, check_parallelism
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import rows_per_key_group
from statecore.snapshot.manifest import FileKind, Manifest, OperatorState
from statecore.snapshot.rescale import rescale_by_reference, rescale_operator_state

_Counts = npt.NDArray[np.int64]
_Amounts = npt.NDArray[np.float64]  # two rows, state rows and bytes, with a column for each key group
# What pyarrow raises for damaged bytes.
_UNREADABLE = (pa.ArrowException, OSError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class SubtaskPlan:
    """The share of one new subtask, over all operators.

    Attributes:
        key_groups: First and last key group.
        files: Files that it reads when it starts.
        rows: Rows of keyed state and elements of operator state; an estimate when a subtask's key groups are divided.
        bytes: Size of these rows, at the average size of a row in their files.

    """

    subtask: int
    key_groups: tuple[int, int]
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """The state of one operator: rows of keyed state and elements of operator state, and the bytes they take."""

    uid: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RescalePlan:
    """What a rescale will do.

    Attributes:
        method: ``rewrite`` when all keyed state is written anew, else ``by_reference``.
        subtasks: Each subtask's share of the operators that follow the job's parallelism. For a rewrite, keyed state
            is divided evenly: the real shares are known only after hashing every key again.
        operators: All operators, in the job's order.
        fixed: Operators whose parallelism the job file fixes, with that parallelism.
        bytes_written: State that the rescale writes: none by reference, all keyed state in a rewrite.

    """

    job: str
    lineage: int
    epoch: int
    method: Literal["by_reference", "rewrite"]
    from_parallelism: int
    to_parallelism: int
    from_max_parallelism: int
    to_max_parallelism: int
    subtasks: tuple[SubtaskPlan, ...]
    operators: tuple[OperatorPlan, ...]
    fixed: tuple[tuple[str, int], ...]
    bytes_written: int

    @property
    def rows(self) -> int:
        """Rows in all subtasks."""
        return sum(subtask.rows for subtask in self.subtasks)

    @property
    def bytes(self) -> int:
        """Bytes in all subtasks."""
        return sum(subtask.bytes for subtask in self.subtasks)

    @property
    def skew(self) -> float:
        """Rows of the largest subtask divided by the average; 1.0 is even."""
        return max(subtask.rows for subtask in self.subtasks) * len(self.subtasks) / self.rows if self.rows else 1.0


def newest_to_plan(store: CheckpointStore, job: str) -> Manifest:
    """Return the newest committed epoch of a job, where a rescale starts; MissingFileError before the first."""
    newest = store.newest()
    if newest is None:
        raise MissingFileError(
            f"found no committed epoch of job {job!r} in {store.files.url}; expected one to plan with; start the job, "
            "and plan after it has committed its first epoch"
        )
    return newest


def plan_rescale(
    store: CheckpointStore,
    manifest: Manifest,
    parallelism: int,
    max_parallelism: int | None = None,
    *,
    rewrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> RescalePlan:
    """Plan a rescale of a savepoint or checkpoint.

    Args:
        store: Has the files.
        manifest: What to rescale.
        parallelism: The new number of subtasks.
        max_parallelism: The new number of key groups; None keeps it. Another one needs a rewrite.
        rewrite: Whether all keyed state is written anew in any case.
        progress: Called with the number of files read so far, and of all files.

    Raises:
        InvalidParallelismError: A parallelism is out of bounds.

    """
    groups = manifest.max_parallelism if max_parallelism is None else max_parallelism
    check_max_parallelism(groups)
    check_parallelism(parallelism, groups)
    rehashed = groups != manifest.max_parallelism
    rewrite = rewrite or rehashed
    counted = _counted(store, manifest, progress)
    keyed = {each.uid: _keyed_amounts(each, counted, manifest.max_parallelism) for each in manifest.operators}
    operators = tuple(_operator_plan(each, keyed[each.uid]) for each in manifest.operators)
    fixed = tuple((each.uid, each.own_parallelism) for each in manifest.operators if each.own_parallelism is not None)
    follow = tuple(operator for operator in manifest.operators if operator.own_parallelism is None)
    manifest = msgspec.structs.replace(manifest, operators=follow)
    amounts = sum((keyed[each.uid] for each in follow), np.zeros((2, manifest.max_parallelism)))
    if rehashed:
        rescaled = rescale_operator_state(manifest, parallelism, groups)
        amounts = np.repeat(amounts.sum(axis=1, keepdims=True) / groups, groups, axis=1)
        states = {(each.uid, item.state) for each in follow for subtask in each.subtasks for item in subtask.keyed}
        files = [len(states)] * parallelism
    else:
        rescaled = rescale_by_reference(manifest, parallelism)
        files = [sum(len(each.subtasks[index].keyed) for each in rescaled.operators) for index in range(parallelism)]
    shares = _dealt_out(amounts, files, groups)
    return RescalePlan(
        job=manifest.job,
        lineage=manifest.lineage,
        epoch=manifest.epoch,
        method="rewrite" if rewrite else "by_reference",
        from_parallelism=manifest.parallelism,
        to_parallelism=parallelism,
        from_max_parallelism=manifest.max_parallelism,
        to_max_parallelism=groups,
        subtasks=_subtasks(rescaled, shares, _operator_shares(manifest, rescaled)),
        operators=operators,
        fixed=fixed,
        bytes_written=round(sum(of_operator[1].sum() for of_operator in keyed.values())) if rewrite else 0,
    )


class _Share(NamedTuple):
    """One subtask's share of some files."""

    files: int
    rows: int
    bytes: int


def _counted(
    store: CheckpointStore, manifest: Manifest, progress: Callable[[int, int], None] | None
) -> dict[str, _Counts]:
    """Return the rows per key group of each keyed file."""
    files = {
        item.file.path: item.kind
        for operator in manifest.operators
        for subtask in operator.subtasks
        for item in subtask.keyed
    }
    counted: dict[str, _Counts] = {}
    for done, (path, kind) in enumerate(files.items(), start=1):
        with store.files.open_input(path) as file:
            try:
                counted[path] = rows_per_key_group(file, manifest.max_parallelism, base=kind is FileKind.BASE)
            except _UNREADABLE as error:
                raise CorruptFileError(
                    f"found {store.describe(path)} unreadable ({error}); expected a {kind} of keyed state; "
                    "verify the savepoint, and restore the file from a backup or use another savepoint"
                ) from error
        if progress is not None:
            progress(done, len(files))
    return counted


def _keyed_amounts(operator: OperatorState, counted: dict[str, _Counts], key_groups: int) -> _Amounts:
    """Return rows and bytes of an operator's keyed state per key group.

    Files hold a row per write; ``state_rows`` holds the number of live rows. The files' rows of each key group are
    scaled to that number. Without it, they count in full.
    """
    amounts = np.zeros((2, key_groups))
    for subtask in operator.subtasks:
        in_files: dict[str, _Amounts] = defaultdict(lambda: np.zeros((2, key_groups)))
        for item in subtask.keyed:
            start, end = item.key_groups
            rows = counted[item.file.path][start : end + 1]
            in_files[item.state][:, start : end + 1] += rows, rows * (item.file.size / max(item.rows, 1))
        for state, of_state in in_files.items():
            written = of_state[0].sum()
            amounts += of_state * (subtask.state_rows.get(state, written) / max(written, 1))
    return amounts


def _dealt_out(amounts: _Amounts, files: Sequence[int], max_parallelism: int) -> list[_Share]:
    """Return each subtask's share of the key groups; the shares add up exactly, to the row."""
    up_to = np.rint(np.cumsum(amounts, axis=1, dtype=np.float64)).astype(np.int64)
    rows, size = np.concatenate([np.zeros((2, 1), np.int64), up_to], axis=1)
    shares = []
    for index, count in enumerate(files):
        own = key_group_range(max_parallelism, len(files), index)
        end = own.end + 1
        shares.append(_Share(count, int(rows[end] - rows[own.start]), int(size[end] - size[own.start])))
    return shares


def _operator_plan(operator: OperatorState, keyed: _Amounts) -> OperatorPlan:
    listed = {item.file.path: item.file.size for subtask in operator.subtasks for item in subtask.operator}
    elements = {
        (item.file.path, offset)
        for subtask in operator.subtasks
        for item in subtask.operator
        for offset in item.partitions.offsets
    }
    rows, size = keyed.sum(axis=1)
    return OperatorPlan(operator.uid, round(rows) + len(elements), round(size) + sum(listed.values()))


def _operator_shares(manifest: Manifest, rescaled: Manifest) -> list[_Share]:
    elements: dict[str, set[int]] = defaultdict(set)
    for operator in manifest.operators:
        for subtask in operator.subtasks:
            for item in subtask.operator:
                elements[item.file.path].update(item.partitions.offsets)
    shares = []
    for index in range(rescaled.parallelism):
        files = [item for operator in rescaled.operators for item in operator.subtasks[index].operator]
        rows = [len(item.partitions.offsets) for item in files]
        sizes = [
            item.file.size * n // max(len(elements[item.file.path]), 1) for item, n in zip(files, rows, strict=True)
        ]
        shares.append(_Share(len(files), sum(rows), sum(sizes)))
    return shares


def _subtasks(rescaled: Manifest, keyed: list[_Share], operator: list[_Share]) -> tuple[SubtaskPlan, ...]:
    plans = []
    for index, shares in enumerate(zip(keyed, operator, strict=True)):
        own = key_group_range(rescaled.max_parallelism, rescaled.parallelism, index)
        files, rows, size = (sum(column) for column in zip(*shares, strict=True))
        plans.append(SubtaskPlan(index, (own.start, own.end), files, rows, size))
    return tuple(plans)
