from __future__ import annotations

from tests.support.kafka import kafka, topic

__all__ = ["kafka", "topic"]
