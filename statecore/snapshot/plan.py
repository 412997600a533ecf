"""What a rescale will do, without doing it: only counts of rows are read, nothing is written or moved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
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
from statecore.snapshot.manifest import FileKind, KeyedFile, Manifest
from statecore.snapshot.rescale import rescale_by_reference, rescale_operator_state

_Counts = npt.NDArray[np.int64]
# What pyarrow raises for bytes that are not checked before it looks at them.
_UNREADABLE = (pa.ArrowException, OSError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class SubtaskPlan:
    """What one subtask will have, over all operators.

    Attributes:
        key_groups: First and last key group.
        files: Files it will read.
        rows: Rows of keyed state and elements of operator state in them that are its own; a row that was written over
            in a later changelog counts each time.
        bytes: Its share of these files' bytes.

    """

    subtask: int
    key_groups: tuple[int, int]
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RescalePlan:
    """What a rescale will do.

    Attributes:
        method: ``by_reference``, or ``rewrite`` when max parallelism changes.
        subtasks: What each will have of the operators that follow the job's parallelism; of keyed state an even share
            in a rewrite, because only hashing every key anew could tell.
        fixed: The operators whose parallelism the job file fixes, with that parallelism.
        bytes_written: State that the rescale itself writes: nothing by reference, all keyed state in a rewrite.

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
    fixed: tuple[tuple[str, int], ...]
    bytes_written: int

    @property
    def rows(self) -> int:
        """Rows in all subtasks."""
        return sum(subtask.rows for subtask in self.subtasks)

    @property
    def skew(self) -> float:
        """Rows of the fullest subtask per rows of the average one; 1.0 is even."""
        return max(subtask.rows for subtask in self.subtasks) * len(self.subtasks) / self.rows if self.rows else 1.0


def newest_to_plan(store: CheckpointStore, job: str) -> Manifest:
    """Return the newest committed epoch of a job, which a rescale would go on from.

    Raises:
        MissingFileError: None is committed yet.

    """
    newest = store.newest()
    if newest is None:
        raise MissingFileError(
            f"found no committed epoch of job {job!r} in {store.files.url}; expected one to plan with; start the job, "
            "and plan when it has committed its first epoch"
        )
    return newest


def plan_rescale(
    store: CheckpointStore,
    manifest: Manifest,
    parallelism: int,
    max_parallelism: int | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> RescalePlan:
    """Return what a rescale of a savepoint or checkpoint will do.

    Args:
        store: Where its files lie.
        manifest: What to rescale.
        parallelism: Subtasks to be.
        max_parallelism: Key groups to be; None keeps their number.
        progress: Called with the files read so far and their number.

    Raises:
        InvalidParallelismError: A parallelism is out of bounds.
        MissingFileError: A file of the state is not there.
        CorruptFileError: A file of the state cannot be read.

    """
    groups = manifest.max_parallelism if max_parallelism is None else max_parallelism
    check_max_parallelism(groups)
    check_parallelism(parallelism, groups)
    rehashed = groups != manifest.max_parallelism
    counted = _counted(store, manifest, progress)
    stored_bytes = sum(_keyed_share(files, counted).bytes for files in _keyed_files(manifest))
    fixed = tuple((each.uid, each.own_parallelism) for each in manifest.operators if each.own_parallelism is not None)
    follow = tuple(operator for operator in manifest.operators if operator.own_parallelism is None)
    manifest = msgspec.structs.replace(manifest, operators=follow)
    if rehashed:
        rescaled = rescale_operator_state(manifest, parallelism, groups)
        keyed = _even_shares(manifest, counted, parallelism, groups)
    else:
        rescaled = rescale_by_reference(manifest, parallelism)
        keyed = [_keyed_share(files, counted) for files in _keyed_files(rescaled)]
    return RescalePlan(
        job=manifest.job,
        lineage=manifest.lineage,
        epoch=manifest.epoch,
        method="rewrite" if rehashed else "by_reference",
        from_parallelism=manifest.parallelism,
        to_parallelism=parallelism,
        from_max_parallelism=manifest.max_parallelism,
        to_max_parallelism=groups,
        subtasks=_subtasks(rescaled, keyed, _operator_shares(manifest, rescaled)),
        fixed=fixed,
        bytes_written=stored_bytes if rehashed else 0,
    )


def rows_by_key_group(store: CheckpointStore, manifest: Manifest) -> dict[str, list[int]]:
    """Return per operator the rows of each of its key groups, ``max_parallelism`` numbers.

    Raises:
        MissingFileError: A file of the state is not there.
        CorruptFileError: A file of the state cannot be read.

    """
    counted = _counted(store, manifest, None)
    totals = {}
    for operator in manifest.operators:
        total = np.zeros(manifest.max_parallelism, np.int64)
        for subtask in operator.subtasks:
            for item in subtask.keyed:
                start, end = item.key_groups
                total[start : end + 1] += counted[item.file.path][start : end + 1]
        totals[operator.uid] = total.tolist()
    return totals


class _Share(NamedTuple):
    """What one subtask gets of some files."""

    files: int
    rows: int
    bytes: int


def _counted(
    store: CheckpointStore, manifest: Manifest, progress: Callable[[int, int], None] | None
) -> dict[str, _Counts]:
    """Return the rows per key group of each keyed file."""
    files = {item.file.path: item.kind for of_subtask in _keyed_files(manifest) for item in of_subtask}
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


def _keyed_files(manifest: Manifest) -> list[list[KeyedFile]]:
    """Return the keyed files of each subtask, over all operators."""
    subtasks = max((len(operator.subtasks) for operator in manifest.operators), default=0)
    files: list[list[KeyedFile]] = [[] for _ in range(max(subtasks, manifest.parallelism))]
    for operator in manifest.operators:
        for index, subtask in enumerate(operator.subtasks):
            files[index] += subtask.keyed
    return files


def _keyed_share(files: Iterable[KeyedFile], counted: dict[str, _Counts]) -> _Share:
    shares = []
    for item in files:
        start, end = item.key_groups
        rows = int(counted[item.file.path][start : end + 1].sum())
        shares.append((rows, item.file.size * rows // max(item.rows, 1)))
    return _Share(len(shares), sum(rows for rows, _ in shares), sum(size for _, size in shares))


def _even_shares(
    manifest: Manifest, counted: dict[str, _Counts], parallelism: int, max_parallelism: int
) -> list[_Share]:
    of_subtasks = _keyed_files(manifest)
    _, rows, size = (
        sum(column) for column in zip(*(_keyed_share(files, counted) for files in of_subtasks), strict=True)
    )
    states = {
        (operator.uid, item.state)
        for operator in manifest.operators
        for subtask in operator.subtasks
        for item in subtask.keyed
    }
    shares = []
    for index in range(parallelism):
        own = key_group_range(max_parallelism, parallelism, index)
        start, end = own.start, own.end + 1
        shares.append(
            _Share(
                len(states),
                rows * end // max_parallelism - rows * start // max_parallelism,
                size * end // max_parallelism - size * start // max_parallelism,
            )
        )
    return shares


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
