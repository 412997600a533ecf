"""Describes the dataflow of a job to the catalog, for people to look at."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from statecore.catalog import DataflowNode, DataflowRecord, Epochs, NodeKind
from statecore.redaction import redacted
from statecore.runtime.backlog.detection import streaming_leaves
from statecore.runtime.job import Job, Origin, Source
from statecore.state.process import MAIN_OUTPUT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


def record_dataflow(epochs: Epochs, job: str, generation: int, plan: Job, records: DataFrame) -> None:
    """Record what a driver has built; it is informational, so whatever fails, the driver runs.

    Args:
        epochs: Where it is recorded.
        job: Name of the job.
        generation: The driver.
        plan: The job's sources, operators and sinks.
        records: The records of all sources.

    """
    try:
        nodes = _nodes(plan, source_descriptions(records, plan))
        ui_url = records.sparkSession.sparkContext.uiWebUrl
        epochs.record_dataflow(DataflowRecord(job, generation, nodes, ui_url))
    except Exception:
        log.warning("the dataflow of job %s is not recorded", job, exc_info=True)


def _nodes(plan: Job, descriptions: Sequence[str]) -> tuple[DataflowNode, ...]:
    sources = [DataflowNode("source", each.name, does) for each, does in zip(plan.sources, descriptions, strict=True)]
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


def source_descriptions(records: DataFrame, plan: Job) -> list[str]:
    """Return what each source of a job reads, in Spark's words: ``FileSource[/in/flights]``, ``kafka``."""
    leaves = streaming_leaves(records._jdf.queryExecution().analyzed())
    # Behind them is the stream that triggers timers.
    return [redacted(str(leaf.sourceName())) for leaf in leaves[: len(plan.sources)]]


def _end(origin: Origin) -> tuple[NodeKind, str]:
    return ("source", origin.name) if isinstance(origin, Source) else ("operator", origin.uid)
