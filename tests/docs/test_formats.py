"""docs/formats.md: the reader it shows, which knows nothing of statecore, reads what statecore wrote."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import (
    DELETE,
    KeyedRows,
    base_table,
    changelog_table,
    encode_base,
    encode_changelog,
    key_schema,
)
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

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
KEYS = key_schema([("customer", "string")])
GROUPS = {"ann": 1, "bob": 2, "eve": 3}


def _shown_reader() -> Callable[..., dict[tuple[Any, ...], Any]]:
    found = re.search(r"<!-- read-a-state -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    namespace: dict[str, Any] = {}
    exec(found.group(1), namespace)
    return namespace["read_state"]  # type: ignore[no-any-return]


def _file(store: CheckpointStore, kind: FileKind, values: dict[str, Any]) -> KeyedFile:
    rows = KeyedRows([(name,) for name in values], [GROUPS[name] for name in values], list(values.values()))
    make_table, encode = (base_table, encode_base) if kind is FileKind.BASE else (changelog_table, encode_changelog)
    path = f"state/totals/{kind.value}"
    file = store.write_file(path, encode(make_table(rows, KEYS, pa.int64(), "total")))
    return KeyedFile(file=file, state="total", kind=kind, token="t", key_groups=(0, 3), rows=len(values))


def test_the_reader_shown_reads_bases_and_changelogs_also_after_a_rescale(tmp_path: Path) -> None:
    store = CheckpointStore.at(str(tmp_path))
    base = _file(store, FileKind.BASE, {"ann": 1, "bob": 2, "eve": 3})
    changelog = _file(store, FileKind.CHANGELOG, {"ann": 10, "bob": DELETE})
    operator = OperatorState(
        uid="totals",
        key_fields=(FieldRef(name="customer", type="string"),),
        states=(StateSchema(name="total", scope="keyed", kind="value", type="bigint"),),
        subtasks=(SubtaskState(keyed=(base, changelog)),),
    )
    manifest = Manifest(
        writer="test", job="orders", lineage=1, epoch=2, generation=1, root="..", parent=None,
        parallelism=1, max_parallelism=4, batch_timestamp_ms=0, committed_ms=0, rows=0, rows_total=0,
        operators=(operator,), outputs=(), progress=(),
    )  # fmt: skip
    store.commit(manifest)
    rescaled = store.write_savepoint(rescale_by_reference(manifest, 3), "wider", reason="", now_ms=0)

    for path in ("manifests/000001-000000000002.json", rescaled):
        assert _shown_reader()(tmp_path / path, "totals", "total") == {("ann",): 10, ("eve",): 3}
