"""What a trial finds of a job: its parts, or why it cannot run."""

from __future__ import annotations

from typing import Literal

import msgspec


class JobPart(msgspec.Struct, frozen=True):
    """A part of a job.

    Attributes:
        kind: What it is.
        name: Its name or uid.
        does: What a source reads, the function of an operator and its key, or the class of a sink.
        has: Columns of a source or a sink, or the states of an operator.

    """

    kind: Literal["source", "operator", "sink"]
    name: str
    does: str
    has: str


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a trial.

    Attributes:
        parts: The job's parts; none of a job that cannot run.
        epoch: The epoch whose state the job would take up, in words; None for a start without state.
        error: Why the job cannot run; None if it can.

    """

    parts: tuple[JobPart, ...] = ()
    epoch: str | None = None
    error: str | None = None
