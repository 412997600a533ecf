"""docs/formats.md: the reader it shows, which knows nothing of statecore, reads what statecore wrote."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from statecore.model import StateKind
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import KeyedRows, encode_base, encode_changelog, key_schema, rows_table
from statecore.snapshot.manifest import (
    FieldRef,
    FileKind,
    KeyedFile,
    Manifest,
    OperatorState,
    StateSchema,
    SubtaskState,
)
from statecore.snapshot.rescale import rescale_by_reference
from statecore.state import TableSchema, Window
from tests.support.paths import REPO

PAGE = REPO / "docs" / "formats.md"
KEYS = key_schema([("customer", "string")])
GROUPS = {"ann": 1, "bob": 2, "eve": 3}


def _shown_reader() -> Callable[..., dict[tuple[Any, ...], Any]]:
    found = re.search(r"<!-- read-a-state -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    namespace: dict[str, Any] = {}
    exec(found.group(1), namespace)
    return namespace["read_state"]


def _file(
    store: CheckpointStore, kind: FileKind, schema: TableSchema, rows: KeyedRows, keys: pa.Schema = KEYS
) -> KeyedFile:
    encode = encode_base if kind is FileKind.BASE else encode_changelog
    data = encode(rows_table(rows, keys, schema, "total"))
    file = store.write_file(f"state/totals/{kind.value}", data)
    return KeyedFile(file=file, state="total", kind=kind, token="t", key_groups=(0, 3), rows=len(rows.keys))


def _rows(names: list[str], values: list[Any], **columns: Any) -> KeyedRows:
    return KeyedRows([(name,) for name in names], [GROUPS[name] for name in names], values, **columns)


def _assert_shown(store: CheckpointStore, root: Path, schema: TableSchema, files: list[KeyedFile], found: Any) -> None:
    """Read the files by the reader shown, as they were written and after a rescale."""
    operator = OperatorState(
        uid="totals",
        key_fields=(FieldRef(name="customer", type="string"),),
        states=(
            StateSchema(
                name="total", scope="keyed", kind=schema.kind, type=schema.type,
                stamped=schema.stamped, windowed=schema.windowed,
            ),
        ),
        subtasks=(SubtaskState(keyed=tuple(files)),),
    )  # fmt: skip
    manifest = Manifest(
        writer="test", job="orders", lineage=1, epoch=2, generation=1, root="..", parent=None,
        parallelism=1, max_parallelism=4, batch_timestamp_ms=0, committed_ms=0, rows=0, rows_total=0,
        operators=(operator,), outputs=(), progress=(),
    )  # fmt: skip
    store.commit(manifest)
    rescaled = store.write_savepoint(rescale_by_reference(manifest, 3), "wider", reason="", now_ms=0)
    for path in ("manifests/000001-000000000002.json", rescaled):
        assert _shown_reader()(root / path, "totals", "total") == found


def test_the_reader_shown_reads_bases_and_changelogs_also_after_a_rescale(tmp_path: Path) -> None:
    store = CheckpointStore.at(str(tmp_path))
    schema = TableSchema(StateKind.VALUE, "bigint")
    files = [
        _file(store, FileKind.BASE, schema, _rows(["ann", "bob", "eve"], [1, 2, 3])),
        _file(store, FileKind.CHANGELOG, schema, _rows(["ann", "bob"], [10, None], deleted=[False, True])),
    ]
    _assert_shown(store, tmp_path, schema, files, {(("ann",), None): 10, (("eve",), None): 3})


def test_the_reader_shown_reads_files_from_before_a_key_column_was_renamed(tmp_path: Path) -> None:
    store = CheckpointStore.at(str(tmp_path))
    schema, before = TableSchema(StateKind.VALUE, "bigint"), key_schema([("client", "string")])
    files = [
        _file(store, FileKind.BASE, schema, _rows(["ann", "bob"], [1, 2]), before),
        _file(store, FileKind.CHANGELOG, schema, _rows(["ann"], [10], deleted=[False])),
    ]
    _assert_shown(store, tmp_path, schema, files, {(("ann",), None): 10, (("bob",), None): 2})


def test_the_reader_shown_reads_entries_of_maps_in_windows(tmp_path: Path) -> None:
    store = CheckpointStore.at(str(tmp_path))
    schema = TableSchema(StateKind.MAP, "map<string,bigint>", stamped=True, windowed=True)
    hour, names = Window(0, 3_600_000), ["ann", "ann", "bob", "eve"]
    base = _rows(
        names, [1, None, 3, 4], windows=[None, hour, hour, None], map_keys=["x", "x", "x", "x"], timestamps=[5, 6, 7, 8]
    )
    changes = _rows(
        names, [None, 2, None, 9], windows=[None, hour, hour, None], map_keys=["x", "y", None, "x"],
        timestamps=[None, 9, None, 9], deleted=[True, False, True, False],
    )  # fmt: skip
    files = [_file(store, FileKind.BASE, schema, base), _file(store, FileKind.CHANGELOG, schema, changes)]
    found = {(("ann",), (0, 3_600_000)): {"x": None, "y": 2}, (("eve",), None): {"x": 9}}
    _assert_shown(store, tmp_path, schema, files, found)
