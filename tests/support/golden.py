"""Behaviour recorded from Flink; ``tests/golden/README.md`` describes the files."""

from __future__ import annotations

import json
from typing import Any

from tests.support.paths import GOLDEN


def golden(name: str) -> list[dict[str, Any]]:
    """Return the cases of a file, named without its suffix."""
    return [json.loads(line) for line in (GOLDEN / f"{name}.jsonl").read_text().splitlines()]
