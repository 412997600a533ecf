from __future__ import annotations

from tests.support.bench import bench
from tests.support.epochs import epochs

__all__ = ["bench", "epochs"]
