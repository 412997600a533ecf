from __future__ import annotations

from tests.support.flights import flights, flights_table, frame

__all__ = ["flights", "flights_table", "frame"]
