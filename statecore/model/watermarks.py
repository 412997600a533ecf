"""Combines the event time of several streams, as Flink does for an operator of several inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamTime:
    """Event time of one stream.

    Attributes:
        watermark_ms: Its watermark; None before its first record with event time.
        idle: Whether it is left out, because no record has come for some time.

    """

    watermark_ms: int | None
    idle: bool = False


def combined_watermark(before_ms: int | None, streams: Sequence[StreamTime]) -> int | None:
    """Return the watermark of all streams together.

    It is the least of those that are not idle, and there is none until each of them has one. When all are idle it is
    the largest, because nothing remains to wait for. It never moves back: a stream that was idle and is behind holds
    time still until it has caught up.

    Args:
        before_ms: The combined watermark so far; None before the first.
        streams: The streams.

    """
    active = [stream.watermark_ms for stream in streams if not stream.idle]
    known = [each for each in (active or [stream.watermark_ms for stream in streams]) if each is not None]
    if not known or len(known) < len(active):
        return before_ms
    reached = min(known) if active else max(known)
    return reached if before_ms is None else max(before_ms, reached)
