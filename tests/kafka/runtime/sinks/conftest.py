from __future__ import annotations

from tests.support.epochs import epochs

__all__ = ["epochs"]
