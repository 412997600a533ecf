"""Redistribution: which new subtask gets which state handles after a change of parallelism.

Arithmetic on handles only; no file is opened, so the cost does not depend on the state size. The rules are Flink's
(``RoundRobinOperatorStateRepartitioner``, ``StateAssignmentOperation``); ``tests/golden`` holds measured vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from statecore.errors import MaxParallelismError, RedistributionError
from statecore.model.handles import (
    DistributionMode,
    KeyedStateHandle,
    OperatorStateHandle,
    StatePartitions,
)
from statecore.model.key_groups import (
    MAX_KEY_GROUPS,
    check_max_parallelism,
    check_parallelism,
    key_group_range,
    subtask_for_key_group,
)

CONTIGUOUS = "contiguous"
INTERLEAVED = "interleaved"


@dataclass(frozen=True, slots=True)
class _Source:
    """One old handle and its position in (old subtask, handle) order."""

    position: int
    subtask: int
    handle: OperatorStateHandle


# For one new subtask: position of the old handle -> state name -> offsets.
_Share = dict[int, dict[str, list[int]]]


def redistribute_operator_state(
    previous: Sequence[Sequence[OperatorStateHandle]],
    new_parallelism: int,
    *,
    strategies: Mapping[str, str] | None = None,
) -> list[list[OperatorStateHandle]]:
    """Assign the operator state of the old subtasks to the new ones.

    Split state is cut into contiguous chunks, or dealt out one by one with the strategy ``interleaved``; the starting
    subtask carries over from one state name to the next, so that remainders spread. Every subtask gets all union state.
    Subtask i gets copy ``i % copies`` of broadcast state. At unchanged parallelism, split and broadcast state stay in
    place.

    Args:
        previous: Handles of each old subtask.
        new_parallelism: Number of new subtasks.
        strategies: Name of a split state → ``contiguous`` (the default) or ``interleaved``.

    Returns:
        Handles of each new subtask, in old order; states without elements are left out.

    Raises:
        InvalidParallelismError: ``new_parallelism`` is out of bounds.
        RedistributionError: One state name has two modes, or a strategy is unknown.

    """
    check_parallelism(new_parallelism, MAX_KEY_GROUPS)
    strategies = strategies or {}
    _check_strategies(strategies)
    placed = [(subtask, handle) for subtask, handles in enumerate(previous) for handle in handles]
    sources = [_Source(position, subtask, handle) for position, (subtask, handle) in enumerate(placed)]
    modes = _modes(sources)
    shares: list[_Share] = [{} for _ in range(new_parallelism)]
    start = 0
    for name in sorted(modes):
        mode = modes[name]
        if mode is DistributionMode.UNION:
            _give_to_all(name, sources, shares)
        elif len(previous) == new_parallelism:
            _leave_in_place(name, sources, shares)
        elif mode is DistributionMode.BROADCAST:
            _give_copies(name, sources, shares)
        else:
            interleaved = strategies.get(name, CONTIGUOUS) == INTERLEAVED
            start = _split(name, sources, shares, start, interleaved)
    return [_handles(share, sources, modes) for share in shares]


def redistribute_keyed_state(
    previous: Sequence[Sequence[KeyedStateHandle]], max_parallelism: int, new_parallelism: int
) -> list[list[KeyedStateHandle]]:
    """Assign the keyed state of the old subtasks to the new ones.

    Each new subtask gets the intersection of every old handle with its key-group range, in old order. At unchanged
    parallelism, the handles stay unchanged, even where one names a wider range than its subtask owns.

    Raises:
        InvalidParallelismError: A parallelism is out of bounds.
        MaxParallelismError: A handle has key groups beyond ``max_parallelism``.

    """
    check_max_parallelism(max_parallelism)
    check_parallelism(new_parallelism, max_parallelism)
    old = [handle for handles in previous for handle in handles]
    for handle in old:
        if handle.key_groups.end >= max_parallelism:
            raise MaxParallelismError(
                f"found key groups {handle.key_groups.start} to {handle.key_groups.end} in {handle.path!r}; "
                f"max parallelism {max_parallelism} expects them to end at {max_parallelism - 1}; "
                "max parallelism cannot change by reference: use the rescale method rewrite"
            )
    if len(previous) == new_parallelism:
        return [list(handles) for handles in previous]
    owned = [key_group_range(max_parallelism, new_parallelism, index) for index in range(new_parallelism)]
    new: list[list[KeyedStateHandle]] = [[] for _ in owned]
    for handle in old:
        # Only the owners of its key groups are looked at: all pairs of handles and subtasks would be too many.
        first, last = (
            subtask_for_key_group(max_parallelism, new_parallelism, group)
            for group in (handle.key_groups.start, handle.key_groups.end)
        )
        for index in range(first, last + 1):
            shared = handle.key_groups.intersect(owned[index])
            if shared is not None:
                new[index].append(KeyedStateHandle(handle.path, shared))
    return new


def _check_strategies(strategies: Mapping[str, str]) -> None:
    for name, strategy in strategies.items():
        if strategy not in (CONTIGUOUS, INTERLEAVED):
            raise RedistributionError(
                f"found the strategy {strategy!r} for the state {name!r}; expected {CONTIGUOUS!r} or "
                f"{INTERLEAVED!r}; correct the descriptor of the state"
            )


def _modes(sources: Sequence[_Source]) -> dict[str, DistributionMode]:
    """Return the mode of every state, the same in all handles."""
    first_seen: dict[str, tuple[DistributionMode, str]] = {}
    for source in sources:
        path = source.handle.path
        for name, partitions in source.handle.states.items():
            mode, first_path = first_seen.setdefault(name, (partitions.mode, path))
            if mode is not partitions.mode:
                raise RedistributionError(
                    f"found the state {name!r} as {mode.value!r} in {first_path!r} and as "
                    f"{partitions.mode.value!r} in {path!r}; expected one mode per name; "
                    "restore from a savepoint written by one version of the job, or give the states two names"
                )
    return {name: mode for name, (mode, _) in first_seen.items()}


def _elements(name: str, sources: Sequence[_Source]) -> Iterator[tuple[_Source, int]]:
    for source in sources:
        partitions = source.handle.states.get(name)
        for offset in partitions.offsets if partitions else ():
            yield source, offset


def _give(share: _Share, source: _Source, name: str, offset: int) -> None:
    share.setdefault(source.position, {}).setdefault(name, []).append(offset)


def _give_to_all(name: str, sources: Sequence[_Source], shares: Sequence[_Share]) -> None:
    # After a rescale by reference, every subtask names the same elements, so take each once.
    first: dict[tuple[str, int], _Source] = {}
    for source, offset in _elements(name, sources):
        first.setdefault((source.handle.path, offset), source)
    for (_, offset), source in first.items():
        for share in shares:
            _give(share, source, name, offset)


def _leave_in_place(name: str, sources: Sequence[_Source], shares: Sequence[_Share]) -> None:
    for source, offset in _elements(name, sources):
        _give(shares[source.subtask], source, name, offset)


def _give_copies(name: str, sources: Sequence[_Source], shares: Sequence[_Share]) -> None:
    copies = [source for source in sources if name in source.handle.states and source.handle.states[name].offsets]
    if not copies:
        return
    for subtask, share in enumerate(shares):
        source = copies[subtask % len(copies)]
        for offset in source.handle.states[name].offsets:
            _give(share, source, name, offset)


def _split(name: str, sources: Sequence[_Source], shares: Sequence[_Share], start: int, interleaved: bool) -> int:
    """Split one state, starting at subtask ``start``; return the start for the next state name."""
    elements = [*_elements(name, sources)]
    parallelism = len(shares)
    size, longer = divmod(len(elements), parallelism)
    for index, (source, offset) in enumerate(elements):
        if interleaved:
            chunk = index % parallelism
        elif index < longer * (size + 1):
            chunk = index // (size + 1)
        else:
            chunk = (index - longer) // size
        _give(shares[(start + chunk) % parallelism], source, name, offset)
    return (start + longer) % parallelism


def _handles(
    share: _Share, sources: Sequence[_Source], modes: Mapping[str, DistributionMode]
) -> list[OperatorStateHandle]:
    return [
        OperatorStateHandle(
            sources[position].handle.path,
            {name: StatePartitions(modes[name], tuple(offsets)) for name, offsets in share[position].items()},
        )
        for position in sorted(share)
    ]
