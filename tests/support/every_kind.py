"""A store with state of every kind, what it holds, and what is restored from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from statecore.model import (
    DistributionMode,
    StateKind,
    key_group_for,
    key_group_range,
)
from statecore.model.values import row_class
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import encode_base, key_schema, rows_table
from statecore.snapshot.live_rows import base_rows
from statecore.snapshot.manifest import (
    FieldRef,
    FileKind,
    KeyedFile,
    Manifest,
    OperatorFile,
    PartitionsRef,
    StateSchema,
    SubtaskState,
)
from statecore.snapshot.operator_files import elements_table, encode_elements
from statecore.snapshot.restore import apply_keyed_files, table_schema
from statecore.state import HeapKeyedStateBackend, StateTable, Window
from statecore.state.tables import joined_scope
from statecore.testing import ManualClock
from tests.support.handmade import manifest, operator

TYPES = ["string", "int"]


GROUPS = 16


KEYS = [(f"k{n}", n % 3) for n in range(12)]


DAY = Window(0, 86_400_000)


def keyed(name: str, kind: StateKind, ddl: str, **form: Any) -> StateSchema:
    return StateSchema(name=name, scope="keyed", kind=kind, type=ddl, **form)


total = row_class(("n", "tags"))


# Per state what key number n holds.
STATES: dict[StateSchema, Callable[[int], Any]] = {
    keyed("total", StateKind.VALUE, "struct<n:bigint,tags:array<string>>"): lambda n: total((n, ["x", None])),
    keyed("fresh", StateKind.VALUE, "bigint", stamped=True): lambda n: (n, 1000 + n),
    keyed("last", StateKind.LIST, "string", stamped=True): lambda n: [(f"e{i}", i) for i in range(n % 3 + 1)],
    keyed("routes", StateKind.MAP, "map<string,bigint>"): lambda n: {"a": n, "b": None},
    keyed("visits", StateKind.MAP, "map<int,string>", stamped=True, windowed=True): (
        lambda n: {n: (f"v{n}", n), -1: ("w", 0)}
    ),
    keyed("sums", StateKind.REDUCING, "bigint", windowed=True): lambda n: n * n,
    keyed("means", StateKind.AGGREGATING, "struct<n:bigint,tags:array<string>>"): lambda n: total((n, [])),
    keyed("__event_timers", StateKind.TIMERS, "bigint", windowed=True): lambda n: {n, n + 100},
}


RULES = StateSchema(
    name="rules", scope="operator", kind=StateKind.MAP, type="map<string,bigint>", mode=DistributionMode.BROADCAST
)


def tables(schema: StateSchema, max_parallelism: int) -> StateTable:
    """Return the whole of a state, half of its keys in a window where it has windows."""
    form = table_schema(schema)
    table = StateTable(schema.name, form.kind, form.type, form.stamped, form.windowed)
    for n, key in enumerate(KEYS):
        window = DAY if form.windowed and n % 2 else None
        table.groups[key_group_for(key, TYPES, max_parallelism)][joined_scope(key, window)] = STATES[schema](n)
    return table


def written(store: CheckpointStore, parallelism: int) -> Manifest:
    subtasks = []
    for index in range(parallelism):
        own = key_group_range(GROUPS, parallelism, index)
        files = []
        for schema in STATES:
            table = tables(schema, GROUPS)
            for key_group in [group for group in table.groups if group not in own]:
                del table.groups[key_group]
            rows = rows_table(base_rows(table), key_schema(zip("kn", TYPES, strict=True)), table.schema, schema.name)
            file = store.write_file(f"state/{index}-{schema.name}", encode_base(rows))
            files.append(
                KeyedFile(
                    file=file, state=schema.name, kind=FileKind.BASE, token="t", key_groups=(own.start, own.end), rows=1
                )
            )
        subtasks.append(SubtaskState(keyed=tuple(files), operator=(rules_file(store, index),)))
    fields = tuple(FieldRef(name=name, type=ddl) for name, ddl in zip("kn", TYPES, strict=True))
    made = operator(subtasks, (*STATES, RULES), fields)
    return manifest(parallelism=parallelism, max_parallelism=GROUPS, operators=(made,))


def rules_file(store: CheckpointStore, index: int) -> OperatorFile:
    data = encode_elements(elements_table([{"limit": 3}], pa.map_(pa.string(), pa.int64()), "rules"))
    partitions = PartitionsRef(mode=DistributionMode.BROADCAST, offsets=(0,))
    return OperatorFile(file=store.write_file(f"state/{index}-rules", data), state="rules", partitions=partitions)


def restored(store: CheckpointStore, made: Manifest) -> dict[str, dict[int, dict[Any, Any]]]:
    """Restore every subtask and return all that they hold together."""
    found: dict[str, dict[int, dict[Any, Any]]] = {}
    for index, subtask in enumerate(made.operators[0].subtasks):
        own = key_group_range(made.max_parallelism, made.parallelism, index)
        backend = HeapKeyedStateBackend(made.max_parallelism, own, ManualClock())
        apply_keyed_files(backend, store, made.operators[0], subtask.keyed, dict.fromkeys(own, 0))
        for name, table in backend.tables.items():
            assert all(group in own for group in table.groups)
            found.setdefault(name, {}).update({group: dict(rows) for group, rows in table.groups.items()})
    return found


def expected(max_parallelism: int) -> dict[str, dict[int, dict[Any, Any]]]:
    return {schema.name: dict(tables(schema, max_parallelism).groups) for schema in STATES}
