from __future__ import annotations

from tests.support.bench import bench

__all__ = ["bench"]
