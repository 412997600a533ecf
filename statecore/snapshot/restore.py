"""Restores state from files into memory: which files, in which order, with which types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from statecore.errors import ManifestError
from statecore.model import DistributionMode, KeyGroupRange, StateKind, key_encoder
from statecore.model.redistribution import CONTIGUOUS
from statecore.snapshot.base_parts import read_keyed
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import decode_base, decode_changelog
from statecore.snapshot.live_rows import apply_rows
from statecore.snapshot.manifest import FieldRef, FileKind, KeyedFile, OperatorFile, OperatorState, StateSchema
from statecore.snapshot.operator_files import decode_elements
from statecore.state import HeapKeyedStateBackend, TableSchema
from statecore.state.operator_state import OperatorStateSnapshot
from statecore.state.tables import Key


class NoClock:
    """A clock for reading state, which does not depend on time."""

    def now_ms(self) -> int:
        """Return the same time always."""
        return 0


def find_operator(operators: Sequence[OperatorState], uid: str, where: str) -> OperatorState:
    """Return the state of an operator in a manifest, or raise ManifestError."""
    for operator in operators:
        if operator.uid == uid:
            return operator
    raise ManifestError(
        f"found the operators {[operator.uid for operator in operators]} in {where}; expected {uid!r}; "
        "give the operator the uid that its state was written under"
    )


def find_state(operator: OperatorState, name: str) -> StateSchema:
    """Return the schema of a state that an operator's program declares, or raise ManifestError."""
    declared = [state for state in operator.states if state.kind is not StateKind.TIMERS]
    for state in declared:
        if state.name == name:
            return state
    raise ManifestError(
        f"found the states {[state.name for state in declared]} in operator {operator.uid!r}; "
        f"expected {name!r}; give one of these names"
    )


def table_schema(state: StateSchema) -> TableSchema:
    """Return the schema of a keyed state's tables and files."""
    return TableSchema(state.kind, state.type, state.stamped, state.windowed)


def apply_keyed_files(
    backend: HeapKeyedStateBackend,
    store: CheckpointStore,
    operator: OperatorState,
    files: Sequence[KeyedFile],
    first_file: Mapping[int, int],
    key: Key | None = None,
) -> None:
    """Bring key groups of a backend up to date from files, oldest first, without counting them as changes.

    ``first_file`` maps each key group to the index of the first file that it misses; other key groups stay unchanged.
    With a key, rows of other keys may be left out.
    """
    schemas = {state.name: table_schema(state) for state in operator.states if state.scope == "keyed"}
    encode = key_encoder([field.type for field in operator.key_fields])
    for index, item in enumerate(files):
        start, end = item.key_groups
        wanted = {g for g in range(start, end + 1) if g in first_file and first_file[g] <= index}
        if wanted:
            decode = decode_base if item.kind is FileKind.BASE else decode_changelog
            needed = KeyGroupRange(min(wanted), max(wanted))
            rows = decode(read_keyed(store, item, needed), needed, key)
            table = backend.restored_table(item.state, schemas[item.state])
            if item.kind is FileKind.BASE:
                # A base replaces everything before it, including state in memory.
                for key_group in wanted:
                    table.detach(key_group)
            apply_rows(table, rows, wanted, encode)


def operator_snapshots(
    store: CheckpointStore, states: Iterable[StateSchema], files: Sequence[OperatorFile]
) -> list[dict[str, OperatorStateSnapshot]]:
    """Read one subtask's operator state, including empty states; restore all snapshots at once, in this order."""
    schemas = {state.name: state for state in states if state.scope == "operator"}
    snapshots = [
        {item.state: _snapshot(schemas[item.state], read_elements(store, schemas[item.state], item))} for item in files
    ]
    empty = schemas.keys() - {item.state for item in files}
    return [{name: _snapshot(schemas[name], []) for name in sorted(empty)}, *snapshots]


def read_elements(store: CheckpointStore, state: StateSchema, item: OperatorFile) -> list[Any]:
    """Return the elements of an operator state that a subtask takes from a file."""
    partitions = item.partitions
    return decode_elements(store.read_file(item.file), partitions.offsets, state.type, partitions.mode)


def _snapshot(state: StateSchema, elements: list[Any]) -> OperatorStateSnapshot:
    assert state.mode is not None
    if state.mode is DistributionMode.BROADCAST and not elements:
        elements = [{}]
    return OperatorStateSnapshot(state.mode, state.type, state.strategy or CONTIGUOUS, tuple(elements))


def describe_key(fields: Sequence[FieldRef]) -> str:
    """Return a key's columns and types for a message."""
    return "(" + ", ".join(f"{field.name} {field.type}" for field in fields) + ")"
