"""The driver's side of one operator in an epoch: the messages to its subtasks, and its state after their commits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from statecore.errors import CommitError, JobDefinitionError, StateConflictError
from statecore.model import Field, OutputTag, key_group_range, parse_row, require_key_type
from statecore.runtime.epoch.publishing import staged_sinks
from statecore.runtime.job import Input, OperatorPlan, Output, Source
from statecore.runtime.messages import SUBTASK_ENCODER, Crossing, OperatorSpec, SubtaskCommit, SubtaskSpec
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.compaction import Merged, with_merged
from statecore.snapshot.manifest import FieldRef, FilePart, Manifest, OperatorState, StateSchema, SubtaskState
from statecore.snapshot.restore import describe_key

Schemas = Mapping[str, tuple[Field, ...]]
"""Per source the columns of its records."""


def operator_spec(
    plan: OperatorPlan,
    operators: Sequence[OperatorPlan],
    schemas: Schemas,
    store: CheckpointStore,
    max_parallelism: int,
    *,
    allow_non_restored_state: bool,
) -> OperatorSpec:
    """Return the message about an operator to its workers.

    Args:
        plan: The operator.
        operators: All operators of the job.
        schemas: The schemas of the sources.
        store: The job's store.
        max_parallelism: Number of key groups.
        allow_non_restored_state: Whether restored state may be left behind.

    Raises:
        JobDefinitionError: A key or event-time column is missing or has a wrong type; or the late output declares other
            columns than the records have.

    """
    columns = {field.name: field for field in _fields(plan.input, schemas)}
    missing = [name for name in (*plan.key_columns, *plan.order_by) if name not in columns]
    if missing:
        raise JobDefinitionError(
            f"found no columns {missing} in the input of operator {plan.uid!r}, which has {sorted(columns)}; expected "
            "the columns of key_by() among them; name others, or select them in the source"
        )
    for name in plan.key_columns:
        require_key_type(columns[name].type)
    if plan.late is not None:
        _check_late(plan.uid, plan.late, columns.values())
    broadcast = plan.broadcast
    inputs = [each for operator in operators for each in operator.inputs]
    read = {each.tag: each for each in inputs if isinstance(each, Output) and each.uid == plan.uid}
    return OperatorSpec(
        uid=plan.uid,
        function=plan.function,
        reads_operator=any(isinstance(each, Output) for each in plan.inputs),
        event_time=_event_time(plan.input, schemas),
        key_fields=tuple(FieldRef(name=name, type=columns[name].type.ddl()) for name in plan.key_columns),
        broadcast=() if broadcast is None else broadcast.states,
        broadcast_event_time=None if broadcast is None else _event_time(broadcast.input, schemas),
        late=plan.late,
        on_error=plan.on_error,
        max_parallelism=max_parallelism,
        sinks=staged_sinks(plan.sinks, store),
        crossings=tuple(Crossing(tag, parse_row(each.schema)) for tag, each in sorted(read.items())),
        store_url=store.files.url,
        allow_non_restored_state=allow_non_restored_state,
        ordered=bool(plan.order_by),
    )


def _fields(read: Input, schemas: Schemas) -> tuple[Field, ...]:
    return schemas[read.name] if isinstance(read, Source) else parse_row(read.schema)


def _check_late(uid: str, late: OutputTag, columns: Iterable[Field]) -> None:
    asked, there = (
        ", ".join(f"{field.name} {field.type.ddl()}" for field in fields)
        for fields in (parse_row(late.value_type), columns)
    )
    if asked != there:
        raise JobDefinitionError(
            f"found the late output {late.name!r} of operator {uid!r} with the columns {asked}; expected those of its "
            f"input, {there}, because late records go there unchanged; declare the tag with these columns"
        )


def _event_time(read: Input, schemas: Schemas) -> str | None:
    if not isinstance(read, Source) or read.event_time is None:
        return None
    name = read.event_time
    found = next((field.type.ddl() for field in schemas[read.name] if field.name == name), None)
    if found not in ("timestamp", "timestamp_ntz"):
        column_found = "no column" if found is None else f"a column of type {found}"
        raise JobDefinitionError(
            f"found {column_found} {name!r} in source {read.name!r}; expected a timestamp, "
            "because it is the declared event time; cast it, or name another column"
        )
    return name


def restored_operator(manifest: Manifest | None, uid: str) -> OperatorState | None:
    """Return an operator's state of the previous epoch; None for a new operator."""
    operators = () if manifest is None else manifest.operators
    return next((operator for operator in operators if operator.uid == uid), None)


def check_key(spec: OperatorSpec, restored: OperatorState | None) -> None:
    """Raise CommitError for a key other than the one that the state was written under."""
    if restored is None or [f.type for f in restored.key_fields] == [f.type for f in spec.key_fields]:
        return
    raise CommitError(
        f"found the key {describe_key(spec.key_fields)} for {spec.uid!r}; expected "
        f"{describe_key(restored.key_fields)}, under which its state was written; "
        "another key type is another key: rewrite the state or use a new uid"
    )


def subtask_specs(
    restored: OperatorState | None, parallelism: int, max_parallelism: int, parts: Sequence[FilePart] | None = None
) -> tuple[bytes, ...]:
    """Return the state that each subtask starts the epoch from, an encoded ``SubtaskSpec`` each.

    Args:
        restored: The operator's state; None for a new operator.
        parallelism: Number of its subtasks.
        max_parallelism: Number of key groups.
        parts: Where the previous manifest holds each subtask's files; None to tell the subtasks their files.

    """
    return tuple(
        SUBTASK_ENCODER.encode(
            SubtaskSpec(
                *_versions(index, state, parallelism, max_parallelism),
                state=state if parts is None and restored is not None else None,
                part=None if parts is None else parts[index],
            )
        )
        for index, state in enumerate(_subtasks(restored, parallelism))
    )


def _subtasks(restored: OperatorState | None, parallelism: int) -> tuple[SubtaskState, ...]:
    return (SubtaskState(),) * parallelism if restored is None else restored.subtasks


def _versions(
    index: int, state: SubtaskState, parallelism: int, max_parallelism: int
) -> tuple[tuple[int, int], tuple[tuple[int, int, str], ...], str]:
    own = key_group_range(max_parallelism, parallelism, index)
    heads = [""] * len(own)
    for item in state.keyed:
        start, end = item.key_groups
        heads[start - own.start : end - own.start + 1] = [item.token] * (end - start + 1)
    return (own.start, own.end), _runs(own.start, heads), state.operator_token


def next_operator(
    spec: OperatorSpec,
    own_parallelism: int | None,
    restored: OperatorState | None,
    commits: Sequence[SubtaskCommit],
    merged: Sequence[Merged],
) -> OperatorState:
    """Return an operator's state after the epoch.

    Args:
        spec: The operator.
        own_parallelism: The number of subtasks that the job file fixes; None for the job's.
        restored: Its previous state.
        commits: The commits of its subtasks, in order.
        merged: Merges of its files since the previous epoch.

    Raises:
        StateConflictError: Two subtasks hold one state under different types.

    """
    by_subtask: dict[int, list[Merged]] = defaultdict(list)
    for each in merged:
        by_subtask[each.merge.subtask].append(each)
    before = _subtasks(restored, len(commits))
    return OperatorState(
        uid=spec.uid,
        own_parallelism=own_parallelism,
        key_fields=spec.key_fields,
        # A restored state that no subtask has used yet is kept.
        states=merged_schemas(() if restored is None else restored.states, [commit.states for commit in commits]),
        subtasks=tuple(next_state(before[commit.subtask], commit, by_subtask[commit.subtask]) for commit in commits),
    )


def next_state(restored: SubtaskState, commit: SubtaskCommit, merged: Sequence[Merged]) -> SubtaskState:
    """Return a subtask's files after an epoch.

    Args:
        restored: Its previous files.
        commit: Its commit.
        merged: Merges of its files since the previous epoch.

    """
    return SubtaskState(
        keyed=commit.keyed if commit.replaces else (*with_merged(restored.keyed, merged), *commit.keyed),
        operator=restored.operator if commit.operator is None else commit.operator,
        operator_token=commit.operator_token,
        # State that the epoch did not count keeps its previous count.
        state_rows={**restored.state_rows, **commit.state_rows},
    )


def merged_schemas(
    restored: Sequence[StateSchema], committed: Sequence[Sequence[StateSchema]]
) -> tuple[StateSchema, ...]:
    """Return the schemas of an operator's states: the restored ones, replaced by those that its subtasks report.

    Raises:
        StateConflictError: Two subtasks hold one state under different types.

    """
    merged: dict[tuple[str, str], StateSchema] = {}
    for state in chain.from_iterable(committed):
        found = merged.get((state.scope, state.name), state)
        if _form(found) != _form(state):
            raise StateConflictError(
                f"found state {state.name!r} as {_form(found)} in one subtask and as {_form(state)} in another; "
                "expected the same in all; get states in open(), by the same descriptor in every subtask"
            )
        merged[state.scope, state.name] = _completed(state, found)
    for state in restored:
        found = merged.get((state.scope, state.name), state)
        merged[state.scope, state.name] = _completed(found, state)
    return tuple(merged[key] for key in sorted(merged))


def _form(state: StateSchema) -> str:
    words = (state.mode, state.kind, "of", state.type, "with time to live" if state.stamped else None)
    return " ".join(word for word in words if word)


def _completed(state: StateSchema, other: StateSchema) -> StateSchema:
    """Return a schema that combines both: one may know about windows, the other the descriptor's time to live."""
    ttl = state.ttl or (other.ttl if state.stamped else None)
    return msgspec.structs.replace(state, windowed=state.windowed or other.windowed, ttl=ttl)


def _runs(first: int, heads: Sequence[str]) -> tuple[tuple[int, int, str], ...]:
    """Return runs of equal heads as (first key group, last key group, head)."""
    runs: list[tuple[int, int, str]] = []
    for offset, head in enumerate(heads):
        if runs and runs[-1][2] == head:
            runs[-1] = (runs[-1][0], first + offset, head)
        else:
            runs.append((first + offset, first + offset, head))
    return tuple(runs)
