"""Refuses plans whose result depends on how rows are cut into epochs, or that differs when an epoch is replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from statecore.errors import JobDefinitionError
from statecore.runtime.backlog.detection import streaming_leaves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Nodes of Spark's logical plans, and the users' names for them.
_STATEFUL = {
    "Aggregate": "an aggregation",
    "Distinct": "distinct()",
    "Deduplicate": "dropDuplicates() or distinct()",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark()",
    "Window": "a window function",
    "WithWindowDefinition": "a window function",
    "Pivot": "pivot()",
    "GlobalLimit": "limit()",
    "LocalLimit": "limit()",
    "Offset": "offset()",
    "Tail": "tail()",
    "Sample": "sample()",
    "Intersect": "intersect()",
    "Except": "subtract()",
    "MapGroups": "groupByKey()",
    "CoGroup": "cogroup()",
    "FlatMapGroupsWithState": "flatMapGroupsWithState()",
    "FlatMapGroupsInPandas": "applyInPandas()",
    "FlatMapGroupsInArrow": "applyInArrow()",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState()",
    "FlatMapCoGroupsInPandas": "cogroup()",
    "FlatMapCoGroupsInArrow": "cogroup()",
    "TransformWithState": "transformWithState()",
    "TransformWithStateInPySpark": "transformWithState()",
}
_CLOCK = {"CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now"}
# Joins whose result depends on single records, by the side of the records.
_JOINS = ({"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti"}, {"Inner", "Cross", "RightOuter"})


def require_one_source(df: DataFrame, source: str) -> None:
    """Check the DataFrame that ``read`` of a source returned.

    Raises:
        JobDefinitionError: It reads no stream or several, or keeps state of Spark's own.

    """
    plan = df._jdf.queryExecution().analyzed()
    streams = len(streaming_leaves(plan))
    if streams != 1:
        raise JobDefinitionError(
            f"found {streams} streams in what read of source {source!r} returns; expected one; add a source for each, "
            "and call stream.union(…)"
        )
    _require(plan, lambda leaf: bool(leaf.isStreaming()), f"read of source {source!r}", replays=False)


def require_stateless(df: DataFrame, records: DataFrame, place: str) -> None:
    """Check the result of a transformation.

    Args:
        df: The result.
        records: What it was made of.
        place: What was transformed, for messages.

    Raises:
        JobDefinitionError: It depends on more than one record and tables, or would differ on replay.

    """
    leaves = records._jdf.queryExecution().analyzed().collectLeaves()
    own = [leaves.apply(index) for index in range(leaves.size())]
    plan = df._jdf.queryExecution().analyzed()
    _require(plan, lambda leaf: any(leaf.sameResult(each) for each in own), f"a transformation of {place}")


def require_row_for_row(df: DataFrame, records: DataFrame, place: str) -> None:
    """Check the result of a transformation row by row of an operator's output.

    Args:
        df: The result.
        records: What it was made of.
        place: What was transformed, for messages.

    Raises:
        JobDefinitionError: It makes none or several rows of one, so that it would lose or double commits.

    """
    if _generators(df._jdf.queryExecution().analyzed()) > _generators(records._jdf.queryExecution().analyzed()):
        raise JobDefinitionError(
            f"found a function like explode() in {place}; expected one row for each; use "
            'stream.transform(lambda df: df.selectExpr("*", "explode(…) AS …"))'
        )


def _generators(plan: Any) -> int:
    own = int(plan.getClass().getSimpleName() == "Generate")
    return own + sum(_generators(each) for each in _listed(plan.children()))


def _require(plan: Any, holds_records: Callable[[Any], bool], place: str, *, replays: bool = True) -> bool:
    """Check a plan from its leaves up; return whether it has records of the epoch."""
    if plan.children().isEmpty():
        return holds_records(plan)
    sides = [_require(each, holds_records, place, replays=replays) for each in _listed(plan.children())]
    asked = [_require(each, holds_records, place, replays=replays) for each in _listed(plan.subqueries())]
    if any(asked):
        raise _refusal(place, "a subquery over the records")
    if not any(sides):
        return False
    name = plan.getClass().getSimpleName()
    if name in _STATEFUL:
        raise _refusal(place, _STATEFUL[name])
    if name == "Join" and (all(sides) or _join_type(plan) not in _JOINS[sides.index(True)]):
        kind = "a join of the records with themselves" if all(sides) else f"a join of type {_join_type(plan)}"
        raise _refusal(place, f"{kind}, which looks at all records of an epoch")
    if replays:
        for expression in _listed(plan.expressions()):
            leaves = {leaf.getClass().getSimpleName() for leaf in _listed(expression.collectLeaves())}
            if not expression.deterministic() or leaves & _CLOCK:
                raise JobDefinitionError(
                    f"found {expression.sql()} in {place}; expected the same result when an epoch is replayed; use a "
                    "column of the record, or ctx.current_processing_time() in a function"
                )
    return True


def _join_type(plan: Any) -> str:
    # Case objects have a $ at the end of their names.
    name: str = plan.joinType().getClass().getSimpleName().rstrip("$")
    return name


def _listed(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _refusal(place: str, cause: str) -> JobDefinitionError:
    return JobDefinitionError(
        f"found {cause} in {place}; expected a result that depends on single records and on tables, because its state "
        "would be lost with the epoch; use a keyed function with state"
    )
