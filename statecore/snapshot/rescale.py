"""Rescale by reference: the same files, assigned to another number of subtasks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from types import MappingProxyType

import msgspec

from statecore.model import (
    KeyedStateHandle,
    KeyGroupRange,
    OperatorStateHandle,
    StatePartitions,
    redistribute_keyed_state,
    redistribute_operator_state,
)
from statecore.model.key_groups import check_parallelism
from statecore.snapshot.manifest import (
    KeyedFile,
    Manifest,
    OperatorFile,
    OperatorState,
    PartitionsRef,
    SubtaskState,
)


def rescale_by_reference(
    manifest: Manifest, parallelism: int, own: Mapping[str, int | None] = MappingProxyType({})
) -> Manifest:
    """Return the manifest with its state files assigned to ``parallelism`` subtasks; no file is read or written.

    A restore uses this at unchanged parallelism, too: all state then stays in place, except that union state goes to
    every subtask. It is idempotent, so a restore can be repeated.

    Args:
        manifest: The epoch to restore.
        parallelism: The job's new parallelism.
        own: Per operator uid the parallelism that the job file fixes now, or None; other operators keep the manifest's.

    Raises:
        InvalidParallelismError: A parallelism is not within 1 and the job's max parallelism.

    """
    check_parallelism(parallelism, manifest.max_parallelism)
    operators = []
    for operator in manifest.operators:
        fixed = own.get(operator.uid, operator.own_parallelism)
        subtasks = _subtasks(operator, manifest.max_parallelism, parallelism if fixed is None else fixed)
        operators.append(msgspec.structs.replace(operator, own_parallelism=fixed, subtasks=subtasks))
    return msgspec.structs.replace(manifest, parallelism=parallelism, operators=tuple(operators))


def rescale_operator_state(manifest: Manifest, parallelism: int, max_parallelism: int) -> Manifest:
    """Return the manifest rescaled with operator state only, which moves by reference even in a rewrite."""
    operators = tuple(
        msgspec.structs.replace(
            operator,
            subtasks=tuple(msgspec.structs.replace(each, keyed=(), state_rows={}) for each in operator.subtasks),
        )
        for operator in manifest.operators
    )
    without_keyed = msgspec.structs.replace(manifest, operators=operators, max_parallelism=max_parallelism)
    return rescale_by_reference(without_keyed, parallelism)


def _subtasks(operator: OperatorState, max_parallelism: int, parallelism: int) -> tuple[SubtaskState, ...]:
    keyed = _keyed(operator, max_parallelism, parallelism)
    listed = _operator(operator, parallelism)
    # A subtask keeps its version of operator state only if its elements stay the same.
    old = operator.subtasks if len(operator.subtasks) == parallelism else (SubtaskState(),) * parallelism
    return tuple(
        SubtaskState(
            keyed=files,
            operator=elements,
            operator_token=before.operator_token if elements == before.operator else "",
            state_rows=before.state_rows,
        )
        for files, elements, before in zip(keyed, listed, old, strict=True)
    )


def _keyed(operator: OperatorState, max_parallelism: int, parallelism: int) -> list[tuple[KeyedFile, ...]]:
    # Named by position, not by path: subtasks that share a file may have different versions of it.
    files = [item for subtask in operator.subtasks for item in subtask.keyed]
    positions = map(str, count())
    previous = [
        [KeyedStateHandle(next(positions), KeyGroupRange(*item.key_groups)) for item in subtask.keyed]
        for subtask in operator.subtasks
    ]
    return [
        tuple(
            msgspec.structs.replace(
                files[int(handle.path)], key_groups=(handle.key_groups.start, handle.key_groups.end)
            )
            for handle in handles
        )
        for handles in redistribute_keyed_state(previous, max_parallelism, parallelism)
    ]


def _operator(operator: OperatorState, parallelism: int) -> list[tuple[OperatorFile, ...]]:
    files = {item.file.path: item for subtask in operator.subtasks for item in subtask.operator}
    previous = [
        [
            OperatorStateHandle(
                item.file.path, {item.state: StatePartitions(item.partitions.mode, item.partitions.offsets)}
            )
            for item in subtask.operator
        ]
        for subtask in operator.subtasks
    ]
    strategies = {
        state.name: state.strategy
        for state in operator.states
        if state.scope == "operator" and state.strategy is not None
    }
    redistributed = redistribute_operator_state(previous, parallelism, strategies=strategies)
    given = [
        [
            msgspec.structs.replace(
                files[handle.path], partitions=PartitionsRef(mode=partitions.mode, offsets=partitions.offsets)
            )
            for handle in handles
            for partitions in handle.states.values()
        ]
        for handles in redistributed
    ]
    # Sorted by state, or a second redistribution would change the order.
    return [tuple(sorted(items, key=_by_state)) for items in given]


def _by_state(item: OperatorFile) -> str:
    return item.state
