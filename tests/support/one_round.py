"""The benchmark's environment for tests, which measure each side once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.harness import Bench


class OneRound(Bench):
    def rounds(self, sides: Mapping[str, Callable[[], float]], **_: Any) -> dict[str, list[float]]:
        return {name: [side()] for name, side in sides.items()}
