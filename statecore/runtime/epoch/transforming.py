"""Applies the transformations of streams to the rows of an epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from statecore.errors import JobDefinitionError
from statecore.model import Field, parse_row
from statecore.model.parsing import parse_type
from statecore.runtime.epoch.plan_check import require_row_for_row, require_stateless
from statecore.runtime.job import Origin, Source
from statecore.runtime.job.places import at_line
from statecore.runtime.messages import ATTEMPT, COMMIT, PHASE, RECORD, SUBTASK, TIMESTAMP
from statecore.runtime.placement import column
from statecore.runtime.transforms import RowByRow, Transformation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Hold = Callable[["DataFrame"], "DataFrame"]
"""Computes rows now and holds them until the epoch's end."""

# Columns of rows from another operator; a user's function sees them.
_OF_RECORDS = (ATTEMPT, PHASE, TIMESTAMP)
_CARRIED = (RECORD, SUBTASK, COMMIT, *_OF_RECORDS)


def transformed_source(records: DataFrame, source: Source) -> DataFrame:
    """Return a source's records after its reader's transformations."""
    for each in source.transformations:
        records = each.apply(records, ()) if isinstance(each, RowByRow) else each.function(records)
    return records


def transformed_output(rows: DataFrame, record: str, origin: Origin, hold: Hold) -> DataFrame:
    """Return the rows of another operator's output after its reader's transformations.

    Args:
        rows: Rows of the operator: records, each in the column ``record``, and commits.
        record: The column.
        origin: The output.
        hold: Persists the rows for a user's function, which gets only the records: commits bypass it, and both must
            come from one attempt of the operator.

    """
    if not origin.transformations:
        return rows
    flat = rows.select(F.col(record).isNotNull().alias(RECORD), *(F.col(each) for each in _CARRIED[1:]), f"{record}.*")
    for each in origin.transformations:
        if isinstance(each, RowByRow):
            flat = each.apply(flat, _CARRIED)
        else:
            held = hold(flat)
            records = _kept(each.function(held.where(RECORD).drop(RECORD, SUBTASK, COMMIT)), origin)
            others = held.where(~F.col(RECORD)).select(*_CARRIED)
            flat = records.withColumn(RECORD, F.lit(True)).unionByName(others, allowMissingColumns=True)
    fields = F.struct(*(column(name) for name in flat.columns if name not in _CARRIED))
    return flat.select(F.when(F.col(RECORD), fields).alias(record), *(F.col(each) for each in _CARRIED[1:]))


def transformed_columns(records: Callable[[], DataFrame], origin: Origin) -> tuple[Field, ...]:
    """Return the columns of a stream.

    Args:
        records: Returns rows without transformations, of any epoch; for an operator's output, also without any row.
        origin: The stream.

    Raises:
        JobDefinitionError: Spark refuses a transformation, or it depends on more than single records and tables.

    """
    if not isinstance(origin, Source) and not origin.transformations:
        return parse_row(origin.schema)
    rows = records()
    if origin.transformations:
        place = f"source {origin.name!r}" if isinstance(origin, Source) else f"the output of operator {origin.uid!r}"
        made = rows
        for each in origin.transformations:
            with at_line(each.line):
                try:
                    made = _probed(made, each, origin, place)
                except AnalysisException as error:
                    raise JobDefinitionError(
                        f"found a transformation of {place} that Spark refuses: {str(error).splitlines()[0]}; expected "
                        f"one of the columns {_names(made)}; correct it in the job file"
                    ) from None
                require_stateless(made, rows, place)
        rows = made
    return tuple(
        Field(field.name, parse_type(field.dataType.simpleString()))
        for field in rows.schema.fields
        if field.name not in _OF_RECORDS
    )


def _probed(records: DataFrame, transformation: Transformation, origin: Origin, place: str) -> DataFrame:
    """Apply a transformation to rows, and check what it does to those of an operator."""
    if not isinstance(transformation, RowByRow):
        made = transformation.function(records)
        return made if isinstance(origin, Source) else _kept(made, origin)
    if isinstance(origin, Source):
        return transformation.apply(records, ())
    made = transformation.apply(records, _OF_RECORDS)
    require_row_for_row(made, records, place)
    return made


def _kept(made: DataFrame, origin: Origin) -> DataFrame:
    missing = [name for name in _OF_RECORDS if name not in made.columns]
    if missing:
        raise JobDefinitionError(
            f"found no columns {missing} after transform() of the output of an operator; expected them to stay, since "
            "they say which attempt made a row, and when; select columns by stream.select(…), and use "
            "df.select('*', …) within transform()"
        )
    return made


def _names(df: DataFrame) -> list[str]:
    return [name for name in df.columns if name not in _OF_RECORDS]
