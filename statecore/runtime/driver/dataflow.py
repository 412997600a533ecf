"""Describes the dataflow of a job to the catalog, for people to look at."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from statecore.catalog import DataflowNode, DataflowRecord, Epochs, NodeKind
from statecore.errors import StatecoreError
from statecore.redaction import redacted
from statecore.runtime.backlog.detection import streaming_leaves
from statecore.runtime.job import Job, Origin, Source
from statecore.state.process import MAIN_OUTPUT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


def nodes(plan: Job, read: Sequence[str]) -> tuple[DataflowNode, ...]:
    """Return the sources, operators and sinks of a job.

    Args:
        plan: The job.
        read: What each source reads, in words.

    """
    sources = [DataflowNode("source", each.name, words) for each, words in zip(plan.sources, read, strict=True)]
    operators = [
        DataflowNode(
            "operator",
            each.uid,
            type(each.function).__name__,
            # A source may be both inputs of an operator.
            tuple(dict.fromkeys(_end(origin) for origin in each.origins)),
        )
        for each in plan.operators
    ]
    sinks = [
        DataflowNode(
            "sink",
            binding.name,
            type(binding.sink).__name__ + ("" if binding.tag == MAIN_OUTPUT else f" of {binding.tag!r}"),
            (("operator", operator.uid),),
        )
        for operator in plan.operators
        for binding in operator.sinks
    ]
    return (*sources, *operators, *sinks)


def what_is_read(records: DataFrame, plan: Job) -> list[str]:
    """Return what each source of a job reads, in Spark's words: ``FileSource[/in/flights]``, ``kafka``."""
    leaves = streaming_leaves(records._jdf.queryExecution().analyzed())
    # Behind them is the stream that triggers timers.
    return [redacted(str(leaf.sourceName())) for leaf in leaves[: len(plan.sources)]]


def record_dataflow(epochs: Epochs, dataflow: DataflowRecord) -> None:
    """Record a dataflow; it is informational, so a driver runs without it."""
    try:
        epochs.record_dataflow(dataflow)
    except StatecoreError as error:
        log.warning("the dataflow of job %s is not recorded: %s", dataflow.job, error)


def _end(origin: Origin) -> tuple[NodeKind, str]:
    return ("source", origin.name) if isinstance(origin, Source) else ("operator", origin.uid)
