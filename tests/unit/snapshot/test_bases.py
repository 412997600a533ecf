"""How a base encodes its columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from statecore.model import StateKind
from statecore.snapshot.keyed_files import KeyedRows, encode_base, key_schema, rows_table
from statecore.state import TableSchema


def test_keys_are_stored_by_their_differences_and_numbers_byte_by_byte(tmp_path: Path) -> None:
    def encodings(key_type: str, value_type: str) -> dict[str, set[str]]:
        table = rows_table(
            KeyedRows([(None,)], [0], [None]),
            key_schema([("k", key_type)]),
            TableSchema(StateKind.VALUE, value_type),
            "total",
        )
        (tmp_path / "base.parquet").write_bytes(encode_base(table))
        group = pq.read_metadata(tmp_path / "base.parquet").row_group(0)
        columns = [group.column(i) for i in range(group.num_columns)]
        return {column.path_in_schema: set(column.encodings) - {"RLE"} for column in columns}

    assert encodings("string", "bigint")["k"] == {"DELTA_BYTE_ARRAY"}
    assert encodings("bigint", "bigint")["k"] == {"DELTA_BINARY_PACKED"}
    for value_type in ("int", "bigint", "float", "double"):
        assert encodings("string", value_type)["_value"] == {"BYTE_STREAM_SPLIT"}
    assert encodings("string", "string")["_value"] == {"PLAIN"}
