"""Which operators have no keys, and so all their state in partition 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.operators import SESSION_WINDOW
from statecore.queries.reading.schemas import is_keyless
from tests.unit.queries.handmade import AGGREGATION, PANDAS, Operator, make


def java(text: str) -> bytes:
    return len(text.encode()).to_bytes(2) + text.encode()


def of(*names: str) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": name, "type": "long"} for name in names]})


@pytest.mark.parametrize(
    ("operator", "keys", "expected"),
    [
        (AGGREGATION, (), True),
        (AGGREGATION, ("k",), False),
        (SESSION_WINDOW, ("sessionStartTime",), True),
        (SESSION_WINDOW, ("k", "sessionStartTime"), False),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_by_the_columns_of_the_key(
    tmp_path: Path, operator: str, keys: tuple[str, ...], expected: bool, version: int
) -> None:
    made = make(tmp_path / "checkpoint", Operator(operator))
    key, value = of(*keys), of("v")
    # Java writes at most 65,535 bytes in one piece; version 2 puts long schemas into several.
    pieces = [key[:20], key[20:]]
    data = (
        java("v1") + java(key) + java(value)
        if version == 1
        else java("v2") + (2).to_bytes(4) + b"".join(map(java, pieces)) + (1).to_bytes(4) + java(value)
    )
    made.write("state/0/0/_metadata/schema", data)
    found = open_checkpoint(str(made.root))
    assert is_keyless(found, found.operators[0]) is expected


def test_an_operator_with_metadata_of_version_2_has_keys(tmp_path: Path) -> None:
    found = open_checkpoint(str(make(tmp_path / "checkpoint", Operator(PANDAS, version=2)).root))
    assert not is_keyless(found, found.operators[0])
