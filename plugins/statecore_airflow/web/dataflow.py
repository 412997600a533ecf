"""Routes: a job's dataflow with figures, its newest epochs, and the subtasks of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, status

from statecore.catalog import DataflowNode, EpochRecord, NodeKind, OperatorFigures, SourceBacklog
from statecore.operations.backlog import backlog_rows, rows_per_file
from statecore.operations.status.rates import SourceRate, drain, recent_epochs, source_rates
from statecore.redaction import redacted
from statecore_airflow.web.access import JobName
from statecore_airflow.web.answers import Answer, Backlog
from statecore_airflow.web.catalogs import CatalogDep
from statecore_airflow.web.charts import phases_of

router = APIRouter()

_LISTED = 50


class Work(Answer):
    """Work of an operator in an epoch; times are those of the subtask that took longest.

    Attributes:
        subtasks: Number of its subtasks.
        busiest: That subtask.
        busy_ratio: Its time to the average of all.
        rows: Records of all subtasks.

    """

    subtasks: int
    busiest: int
    busy_ratio: float
    took_ms: int
    rows: int


class Node(Answer):
    """A source, operator or sink; what is not known of it is None.

    Attributes:
        inputs: Kind and name of the nodes that its records come from.
        rows_in, rows_out: Rows per second: of a source, those that arrive and those that are read; of a sink, those
            that are published.
        backlog: What waits in a source.
        work: Work of an operator in the newest epoch.
        took_ms: Mean time to publish in a sink.

    """

    kind: NodeKind
    name: str
    does: str
    inputs: list[tuple[NodeKind, str]]
    rows_in: float | None = None
    rows_out: float | None = None
    backlog: Backlog | None = None
    work: Work | None = None
    took_ms: float | None = None


class EpochLine(Answer):
    """An epoch in the table of epochs; the phases are those that add up to it."""

    lineage: int
    epoch: int
    generation: int
    parallelism: int
    committed_ms: int
    duration_ms: int
    phases: dict[str, float]
    rows: int
    rows_out: int
    late_rows: int
    state_rows: int
    state_bytes: int
    subtasks: int


class DataflowAnswer(Answer):
    """A job's dataflow, and its newest epochs, the newest first.

    Attributes:
        growth: Rows per second that what waits grows by; None if unknown.
        drained_in_ms: How long it will last at the present rates; None unless it shrinks.

    """

    now_ms: int
    nodes: list[Node]
    growth: float | None
    drained_in_ms: int | None
    epochs: list[EpochLine]


class Subtask(Answer):
    """A subtask in an epoch, with the milliseconds that it took, in all and by phase."""

    subtask: int
    rows: int
    took_ms: int
    read_ms: int | None
    load_ms: int
    process_ms: int
    write_ms: int
    key_groups: int
    cached_key_groups: int


class OperatorSubtasks(Answer):
    """The subtasks of an operator."""

    uid: str
    subtasks: list[Subtask]


class SubtasksAnswer(Answer):
    """The subtasks of all operators in one epoch."""

    now_ms: int
    operators: list[OperatorSubtasks]


@router.get("/api/dataflow")
def get_dataflow(name: JobName, catalog: CatalogDep) -> DataflowAnswer:
    """Return a job's dataflow and its newest epochs."""
    catalog.jobs.get(name)
    dataflow, epochs = catalog.epochs.dataflow(name), catalog.epochs.of(name, limit=_LISTED)
    lives = catalog.generations.is_alive(catalog.generations.newest(name))
    recent = recent_epochs(epochs, catalog.now_ms()) if lives else ()
    rates, measured = source_rates(recent), catalog.overviews.figures(name).backlog
    sources = measured.sources if measured else ()
    drains = drain(rates, backlog_rows(sources, rows_per_file(epochs)))
    newest = catalog.epochs.subtasks(name, limit=1)
    nodes = _Nodes(recent, rates, sources, newest[0].operators if newest else ())
    return DataflowAnswer(
        now_ms=catalog.now_ms(),
        nodes=[nodes.node(each) for each in (dataflow.nodes if dataflow else ())],
        growth=drains.growth,
        drained_in_ms=drains.drained_in_ms,
        epochs=[_line(each) for each in reversed(epochs)],
    )


@router.get("/api/subtasks")
def get_subtasks(
    name: JobName,
    catalog: CatalogDep,
    lineage: Annotated[int, Query(ge=0, description="Lineage of the epoch.")],
    epoch: Annotated[int, Query(ge=0, description="Number of the epoch.")],
) -> SubtasksAnswer:
    """Return the subtasks of one epoch."""
    catalog.jobs.get(name)
    found = catalog.epochs.subtasks_of(name, lineage, epoch)
    if found is None:
        raise HTTPException(
            status.HTTP_404_NOT_FOUND,
            f"found no figures of subtasks of epoch {epoch} of lineage {lineage}; expected one of the newest thousand "
            "epochs of a job of statecore; choose a newer one",
        )
    operators = [OperatorSubtasks(uid=each.uid, subtasks=_subtasks(each)) for each in found.operators]
    return SubtasksAnswer(now_ms=catalog.now_ms(), operators=operators)


class _Nodes:
    """Adds figures to the nodes of a dataflow."""

    def __init__(
        self,
        recent: Sequence[EpochRecord],
        rates: Sequence[SourceRate],
        sources: Sequence[SourceBacklog],
        operators: Sequence[OperatorFigures],
    ) -> None:
        self._recent = recent
        self._rates = {each.name: each for each in rates}
        self._sources = {each.name: each for each in sources}
        self._operators = {each.uid: each for each in operators}

    def node(self, node: DataflowNode) -> Node:
        made: dict[str, Any] = {
            "kind": node.kind,
            "name": node.name,
            "does": redacted(node.does),
            "inputs": list(node.inputs),
        }
        if node.kind == "source":
            rate, backlog = self._rates.get(node.name), self._sources.get(node.name)
            return Node(
                **made,
                rows_in=None if rate is None else rate.arriving,
                rows_out=None if rate is None else rate.read,
                backlog=None if backlog is None else Backlog.model_validate(backlog),
            )
        if node.kind == "operator":
            figures = self._operators.get(node.name)
            return Node(**made, work=None if figures is None else _work(figures))
        return Node(**made, rows_out=self._published(node.name), took_ms=self._publishing_ms(node.name))

    def _published(self, sink: str) -> float | None:
        """Return the rows per second that a sink has published; None for a query of Spark's own."""
        span_ms = self._recent[-1].committed_ms - self._recent[0].committed_ms if self._recent else 0
        rows = [each.sink_rows.get(sink, 0) for each in self._recent[1:]]
        known = any(each.sink_rows for each in self._recent)
        return sum(rows) * 1000 / span_ms if known and span_ms > 0 else None

    def _publishing_ms(self, sink: str) -> float | None:
        took = [each.publish_ms[sink] for each in self._recent if sink in each.publish_ms]
        return sum(took) / len(took) if took else None


def _work(figures: OperatorFigures) -> Work | None:
    took = [each.took_ms for each in _subtasks(figures)]
    if not took:
        return None
    longest = max(took)
    return Work(
        subtasks=len(took),
        busiest=took.index(longest),
        busy_ratio=longest * len(took) / sum(took) if sum(took) else 1.0,
        took_ms=longest,
        rows=sum(figures.rows),
    )


def _subtasks(figures: OperatorFigures) -> list[Subtask]:
    # Earlier releases recorded no time to read.
    read_ms = figures.read_ms or (None,) * len(figures.rows)
    columns = (
        figures.rows, read_ms, figures.load_ms, figures.process_ms, figures.write_ms, figures.key_groups,
        figures.cached_key_groups,
    )  # fmt: skip
    return [
        Subtask(
            subtask=number,
            rows=rows,
            took_ms=load + (read or 0) + process + write,
            read_ms=read,
            load_ms=load,
            process_ms=process,
            write_ms=write,
            key_groups=groups,
            cached_key_groups=cached,
        )
        for number, (rows, read, load, process, write, groups, cached) in enumerate(zip(*columns, strict=True))
    ]


def _line(epoch: EpochRecord) -> EpochLine:
    own: dict[str, Any] = {"late_rows": sum(epoch.late_rows.values()), "phases": dict(phases_of(epoch.phases))}
    shared = {field: getattr(epoch, field) for field in EpochLine.model_fields.keys() - own.keys()}
    return EpochLine(**shared, **own)
