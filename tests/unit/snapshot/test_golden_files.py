"""State files kept in the repository: a round trip would not see that the format has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statecore.model import KeyGroupRange, StateKind, key_encoder
from statecore.snapshot.keyed_files import decode_base, decode_changelog
from statecore.snapshot.live_rows import apply_rows
from statecore.state import StateTable, TableSchema, Window
from statecore.state.tables import joined_scope

DATA = Path(__file__).parent / "data"
WINDOW = Window(0, 60_000)
STRUCTS = TableSchema(StateKind.VALUE, "struct<a:bigint,b:array<string>>")
LISTS = TableSchema(StateKind.LIST, "bigint")
MAPS = TableSchema(StateKind.MAP, "map<string,double>", stamped=True, windowed=True)

# Per file: what its base holds, and what is there after its changelog.
FILES: dict[str, tuple[TableSchema, dict[int, Any], dict[int, Any]]] = {
    "value": (
        STRUCTS,
        {1: {("a", 1): (1, ["x", None]), ("b", 2): (2, None)}, 5: {(None, 3): (3, [])}},
        {1: {("a", 1): (10, [])}, 5: {(None, 3): (3, [])}},
    ),
    "list": (LISTS, {1: {("a", 1): [1, 2]}}, {1: {("b", 2): [3]}}),
    "map": (
        MAPS,
        {
            1: {
                ("a", 1): {"x": (0.5, 5)},
                joined_scope(("a", 1), WINDOW): {"y": (None, 6)},
                joined_scope(("b", 2), WINDOW): {"x": (1.5, 7)},
            }
        },
        {
            1: {
                joined_scope(("a", 1), WINDOW): {"y": (None, 6), "z": (2.5, 8)},
                joined_scope(("b", 2), WINDOW): {"w": (3.5, 9)},
            }
        },
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_base_and_a_changelog_stay_readable(name: str) -> None:
    schema, before, after = FILES[name]
    table = StateTable("s", schema.kind, schema.type, schema.stamped, schema.windowed)
    everything, encode = KeyGroupRange(0, 127), key_encoder(["string", "bigint"])
    apply_rows(table, decode_base((DATA / f"{name}.parquet").read_bytes(), everything), everything, encode)
    assert table.groups == before
    apply_rows(table, decode_changelog((DATA / f"{name}.arrow").read_bytes(), everything), everything, encode)
    assert table.groups == after
