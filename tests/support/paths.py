"""Where things are in the repository, wherever a test file lies."""

from __future__ import annotations

from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
GOLDEN = REPO / "tests" / "golden"
