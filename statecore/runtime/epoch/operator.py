"""The driver's side of one operator in an epoch: the messages to its subtasks, and its state after their commits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import msgspec

from statecore.errors import JobDefinitionError, StateConflictError
from statecore.joins import CoGroupWindowFunction, IntervalJoinFunction
from statecore.model import Field, OutputTag, key_group_range, parse_row, require_key_type
from statecore.model.keys import KeyColumn, KeyColumns, check_key
from statecore.model.metrics import after, merged
from statecore.runtime.epoch.publishing import staged_sinks
from statecore.runtime.job import Input, OperatorPlan, Origin, Output, Source
from statecore.runtime.job.places import at_line
from statecore.runtime.messages import (
    BROADCAST,
    MAIN,
    SECOND,
    SUBTASK_ENCODER,
    Crossing,
    InputSpec,
    OperatorSpec,
    SubtaskCommit,
    SubtaskSpec,
)
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.compaction import Merged, with_merged
from statecore.snapshot.manifest import FieldRef, FilePart, Manifest, OperatorState, StateSchema, SubtaskState
from statecore.snapshot.restore import describe_key

ColumnsOf = Callable[[Origin], tuple[Field, ...]]
"""Returns the columns of the records of a stream."""


def operator_spec(
    plan: OperatorPlan,
    operators: Sequence[OperatorPlan],
    columns_of: ColumnsOf,
    store: CheckpointStore,
    max_parallelism: int,
    *,
    allow_non_restored_state: bool,
) -> OperatorSpec:
    """Return the message about an operator to its workers.

    Args:
        plan: The operator.
        operators: All operators of the job.
        columns_of: Returns the columns of streams.
        store: The job's store.
        max_parallelism: Number of key groups.
        allow_non_restored_state: Whether restored state may be left behind.

    Raises:
        JobDefinitionError: A key or event-time column is missing or has a wrong type; the streams of a union have
            other columns, or two inputs other keys; or the late output declares other columns than the records have.

    """
    columns = _columns(plan, plan.first, columns_of)
    keys = _keys(plan, columns, columns_of)
    if plan.late is not None:
        _check_late(plan.uid, plan.late, columns.values())
    function = plan.function
    if isinstance(function, IntervalJoinFunction | CoGroupWindowFunction):
        function = _bound(function, plan, columns_of)
    origins = [origin for operator in operators for origin in operator.origins]
    read = {each.tag: each for each in origins if isinstance(each, Output) and each.uid == plan.uid}
    placed = (MAIN, BROADCAST if plan.broadcast else SECOND)
    return OperatorSpec(
        uid=plan.uid,
        function=function,
        inputs=tuple(
            InputSpec(column, tuple(_event_time(origin, columns_of) for origin in each.origins), each.key_columns)
            for each, column in zip(plan.inputs, placed, strict=False)
        ),
        reads_operator=any(isinstance(each, Output) for each in plan.origins),
        key_fields=keys,
        broadcast=plan.broadcast,
        late=plan.late,
        on_error=plan.on_error,
        max_parallelism=max_parallelism,
        sinks=staged_sinks(plan.sinks, store),
        crossings=tuple(Crossing(tag, parse_row(each.schema)) for tag, each in sorted(read.items())),
        store_url=store.files.url,
        allow_non_restored_state=allow_non_restored_state,
        ordered=bool(plan.first.order_by) or (plan.has_two_inputs and any(each.order_by for each in plan.inputs)),
        merged=plan.merges_by_event_time,
    )


def _bound(
    join: IntervalJoinFunction | CoGroupWindowFunction, plan: OperatorPlan, columns_of: ColumnsOf
) -> IntervalJoinFunction | CoGroupWindowFunction:
    """Return a join for the columns of its inputs."""
    columns = [_columns(plan, each, columns_of).values() for each in plan.inputs]
    for tag, fields in zip(join.late, columns, strict=True):
        if tag is not None:
            _check_late(plan.uid, tag, fields)
    left, right = map(_text, columns)
    return join.of_columns(left, right)


def _columns(plan: OperatorPlan, read: Input, columns_of: ColumnsOf) -> dict[str, Field]:
    """Return the columns of an input, by name; refuse streams of a union whose columns differ, and missing columns."""
    first, *others = (columns_of(origin) for origin in read.origins)
    for origin, fields in zip(read.origins[1:], others, strict=True):
        if _types(fields) != _types(first):
            raise JobDefinitionError(
                f"found a union with the columns {_text(first)} of {_name(read.origins[0])} and {_text(fields)} of "
                f"{_name(origin)} in the input of operator {plan.uid!r}; expected the same names and types; rename and "
                "cast the columns in the source"
            )
    columns = {field.name: field for field in first}
    missing = [name for name in (*read.key_columns, *read.order_by) if name not in columns]
    if missing:
        with at_line(read.line):
            raise JobDefinitionError(
                f"found no columns {missing} in the input of operator {plan.uid!r}, which has {sorted(columns)}; "
                "expected the columns of key_by() among them; name others, or select them in the source"
            )
    return columns


def _keys(plan: OperatorPlan, columns: Mapping[str, Field], columns_of: ColumnsOf) -> tuple[FieldRef, ...]:
    """Return the key as state files have it; refuse types that cannot be a key, and two inputs whose keys differ."""
    keys = tuple(FieldRef(name=name, type=columns[name].type.ddl()) for name in plan.first.key_columns)
    with at_line(plan.first.line):
        for name in plan.first.key_columns:
            require_key_type(columns[name].type)
    if plan.connected is not None:
        others = _columns(plan, plan.connected, columns_of)
        second = tuple(FieldRef(name=name, type=others[name].type.ddl()) for name in plan.connected.key_columns)
        if plan.has_two_inputs and [each.type for each in second] != [each.type for each in keys]:
            raise JobDefinitionError(
                f"found the keys {describe_key(keys)} and {describe_key(second)} of the two inputs of operator "
                f"{plan.uid!r}; expected the same types, because they share one key; cast a column in its source"
            )
    return keys


def _types(fields: Sequence[Field]) -> dict[str, str]:
    return {field.name: field.type.ddl() for field in fields}


def _text(fields: Iterable[Field]) -> str:
    return ", ".join(f"{field.name} {field.type.ddl()}" for field in fields)


def _name(origin: Origin) -> str:
    return f"source {origin.name!r}" if isinstance(origin, Source) else f"operator {origin.uid!r}"


def _check_late(uid: str, late: OutputTag, columns: Iterable[Field]) -> None:
    asked, there = _text(parse_row(late.value_type)), _text(columns)
    if asked != there:
        raise JobDefinitionError(
            f"found the late output {late.name!r} of operator {uid!r} with the columns {asked}; expected those of its "
            f"input, {there}, because late records go there unchanged; declare the tag with these columns"
        )


def _event_time(read: Origin, columns_of: ColumnsOf) -> str | None:
    if not isinstance(read, Source) or read.event_time is None:
        return None
    name = read.event_time
    for each, where in ((replace(read, transformations=()), ""), (read, "what was made of ")):
        ddl = next((field.type.ddl() for field in columns_of(each) if field.name == name), None)
        if ddl not in ("timestamp", "timestamp_ntz"):
            column_found = "no column" if ddl is None else f"a column of type {ddl}"
            with at_line(read.line):
                raise JobDefinitionError(
                    f"found {column_found} {name!r} in {where}source {read.name!r}; expected a timestamp, "
                    "because it is the declared event time; keep it, cast it, or name another column"
                )
    return name


def restored_operator(manifest: Manifest | None, uid: str) -> OperatorState | None:
    """Return an operator's state of the previous epoch; None for a new operator."""
    operators = () if manifest is None else manifest.operators
    return next((operator for operator in operators if operator.uid == uid), None)


def check_restored_key(plan: OperatorPlan, restored: OperatorState | None, fields: Sequence[FieldRef] = ()) -> None:
    """Check that an operator's state was written under the key that its job declares.

    Args:
        plan: The operator.
        restored: Its state; None for a new operator.
        fields: Its key with types; without them, as before a source is read, only the names are checked.

    Raises:
        StateMigrationError: The state was written under another key.

    """
    if restored is None:
        return
    before = tuple(KeyColumn(field.name, field.type) for field in restored.key_fields)
    typed = tuple(KeyColumn(field.name, field.type) for field in fields)
    owner = f"operator {plan.uid!r}"
    with at_line(plan.first.line):
        check_key(owner, before, typed or _named(plan.first.key_columns), plan.first.key_renames)
    second = restored.second_key
    # A manifest of an earlier release does not have the names of the second input.
    if plan.connected is not None and plan.has_two_inputs and not isinstance(second, msgspec.UnsetType):
        now = plan.connected
        with at_line(now.line):
            check_key(f"the second input of {owner}", _named(second), _named(now.key_columns), now.key_renames)


def _named(columns: Iterable[str]) -> KeyColumns:
    return tuple(KeyColumn(name, None) for name in columns)


def subtask_specs(
    restored: OperatorState | None, parallelism: int, max_parallelism: int, parts: Sequence[FilePart] | None = None
) -> tuple[bytes, ...]:
    """Return the state that each subtask starts the epoch from, an encoded ``SubtaskSpec`` each.

    Args:
        restored: The operator's state; None for a new operator.
        parallelism: Number of its subtasks.
        max_parallelism: Number of key groups.
        parts: Where the previous manifest holds each subtask's files; None to send the subtasks their files.

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
    merges: Sequence[Merged],
) -> OperatorState:
    """Return an operator's state after the epoch.

    Args:
        spec: The operator.
        own_parallelism: The number of subtasks that the job file fixes; None for the job's.
        restored: Its previous state.
        commits: The commits of its subtasks, in order.
        merges: Merges of its files since the previous epoch.

    Raises:
        StateConflictError: Two subtasks hold one state under different types.

    """
    by_subtask: dict[int, list[Merged]] = defaultdict(list)
    for each in merges:
        by_subtask[each.merge.subtask].append(each)
    before = _subtasks(restored, len(commits))
    known = () if restored is None or isinstance(restored.metrics, msgspec.UnsetType) else restored.metrics
    metrics = after(known, merged(each for commit in commits for each in commit.metrics))
    return OperatorState(
        uid=spec.uid,
        own_parallelism=own_parallelism,
        key_fields=spec.key_fields,
        second_key=spec.inputs[1].keys if spec.has_two_inputs and spec.key_fields else msgspec.UNSET,
        # A restored state that no subtask has used yet is kept.
        states=merged_schemas(() if restored is None else restored.states, [commit.states for commit in commits]),
        subtasks=tuple(next_state(before[commit.subtask], commit, by_subtask[commit.subtask]) for commit in commits),
        metrics=metrics or msgspec.UNSET,
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
        known = merged.get((state.scope, state.name), state)
        if _form(known) != _form(state):
            raise StateConflictError(
                f"found state {state.name!r} as {_form(known)} in one subtask and as {_form(state)} in another; "
                "expected the same in all; get states in open(), by the same descriptor in every subtask"
            )
        merged[state.scope, state.name] = _completed(state, known)
    for state in restored:
        known = merged.get((state.scope, state.name), state)
        merged[state.scope, state.name] = _completed(known, state)
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
