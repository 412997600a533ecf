from __future__ import annotations

from tests.support.flights import flights_table

__all__ = ["flights_table"]
