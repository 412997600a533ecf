"""What a rescale will do, without doing it: only counts of rows are read, nothing is written or moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statecore.model import key_group_range
from statecore.model.key_groups import check_max_parallelism, check_parallelism
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import rows_per_key_group
from statecore.snapshot.manifest import FileKind, KeyedFile, Manifest, SubtaskState
from statecore.snapshot.rescale import rescale_by_reference

_Counts = npt.NDArray[np.int64]


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
        subtasks: What each will have; of a rewrite with another max parallelism an even share, because only hashing
            every key anew could tell.
        bytes_written: State that the rescale itself writes: nothing by reference, all keyed state in a rewrite.

    """

    job: str
    lineage: int
    epoch: int
    method: str
    from_parallelism: int
    to_parallelism: int
    from_max_parallelism: int
    to_max_parallelism: int
    subtasks: tuple[SubtaskPlan, ...]
    bytes_written: int

    @property
    def rows(self) -> int:
        """Rows in all subtasks."""
        return sum(subtask.rows for subtask in self.subtasks)

    @property
    def skew(self) -> float:
        """Rows of the fullest subtask per rows of the average one; 1.0 is even."""
        return max(subtask.rows for subtask in self.subtasks) * len(self.subtasks) / self.rows if self.rows else 1.0


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

    """
    groups = manifest.max_parallelism if max_parallelism is None else max_parallelism
    check_max_parallelism(groups)
    check_parallelism(parallelism, groups)
    rehashed = groups != manifest.max_parallelism
    counted = _counted(store, manifest, progress)
    keyed_bytes = sum({item.file.path: item.file.size for item in _keyed(manifest)}.values())
    if rehashed:
        subtasks = _even(manifest, counted, keyed_bytes, parallelism, groups)
    else:
        subtasks = _by_reference(rescale_by_reference(manifest, parallelism), counted)
    return RescalePlan(
        job=manifest.job,
        lineage=manifest.lineage,
        epoch=manifest.epoch,
        method="rewrite" if rehashed else "by_reference",
        from_parallelism=manifest.parallelism,
        to_parallelism=parallelism,
        from_max_parallelism=manifest.max_parallelism,
        to_max_parallelism=groups,
        subtasks=subtasks,
        bytes_written=keyed_bytes if rehashed else 0,
    )


def rows_by_key_group(store: CheckpointStore, manifest: Manifest) -> dict[str, list[int]]:
    """Return per operator the rows of each of its key groups, ``max_parallelism`` numbers."""
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


def _keyed(manifest: Manifest) -> list[KeyedFile]:
    return [item for operator in manifest.operators for subtask in operator.subtasks for item in subtask.keyed]


def _counted(
    store: CheckpointStore, manifest: Manifest, progress: Callable[[int, int], None] | None
) -> dict[str, _Counts]:
    """Return the rows per key group of each keyed file."""
    files = {item.file.path: item.kind for item in _keyed(manifest)}
    counted: dict[str, _Counts] = {}
    for done, (path, kind) in enumerate(files.items(), start=1):
        with store.files.open_input(path) as file:
            counted[path] = rows_per_key_group(file, manifest.max_parallelism, base=kind is FileKind.BASE)
        if progress is not None:
            progress(done, len(files))
    return counted


def _by_reference(rescaled: Manifest, counted: dict[str, _Counts]) -> tuple[SubtaskPlan, ...]:
    plans = []
    for index in range(rescaled.parallelism):
        own = key_group_range(rescaled.max_parallelism, rescaled.parallelism, index)
        states = [operator.subtasks[index] for operator in rescaled.operators]
        keyed = [_share(item, counted[item.file.path]) for state in states for item in state.keyed]
        elements = _elements(states)
        plans.append(
            SubtaskPlan(
                subtask=index,
                key_groups=(own.start, own.end),
                files=len(keyed) + sum(len(state.operator) for state in states),
                rows=sum(rows for rows, _ in keyed) + elements,
                bytes=sum(size for _, size in keyed) + sum(i.file.size for state in states for i in state.operator),
            )
        )
    return tuple(plans)


def _share(item: KeyedFile, counts: _Counts) -> tuple[int, int]:
    """Return the rows that a reference takes from its file, and their part of its bytes."""
    start, end = item.key_groups
    rows = int(counts[start : end + 1].sum())
    return rows, item.file.size * rows // max(item.rows, 1)


def _elements(states: Sequence[SubtaskState]) -> int:
    return sum(len(item.partitions.offsets) for state in states for item in state.operator)


def _even(
    manifest: Manifest, counted: dict[str, _Counts], keyed_bytes: int, parallelism: int, max_parallelism: int
) -> tuple[SubtaskPlan, ...]:
    rows = sum(int(counts.sum()) for counts in counted.values())
    states = len({(operator.uid, s.name) for operator in manifest.operators for s in operator.states})
    plans = []
    for index in range(parallelism):
        own = key_group_range(max_parallelism, parallelism, index)
        plans.append(
            SubtaskPlan(
                subtask=index,
                key_groups=(own.start, own.end),
                files=states,
                rows=rows * len(own) // max_parallelism,
                bytes=keyed_bytes * len(own) // max_parallelism,
            )
        )
    return tuple(plans)
