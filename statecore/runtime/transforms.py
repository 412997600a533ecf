"""Transformations of a stream in the JVM, on the DataFrame of each epoch.

Rows of another operator carry columns that the engine needs, ``__statecore_…``, and some rows are commits of subtasks
instead of records. Row-by-row transformations pass these on unevaluated: their fields are null, on which an expression
may fail. A user's function gets only the records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from statecore.runtime.messages import RECORD
from statecore.runtime.placement import column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class RowByRow(ABC):
    """A transformation whose result for a row does not depend on other rows, nor on tables.

    Attributes:
        line: The job file's line that asks for it.

    """

    line: str

    @abstractmethod
    def apply(self, df: DataFrame, carried: Sequence[str]) -> DataFrame:
        """Return the transformed rows.

        Args:
            df: Rows of an epoch.
            carried: Columns to keep. With ``RECORD`` among them, rows where it is false pass.

        """


@dataclass(frozen=True, slots=True)
class Filter(RowByRow):
    """Keeps the records that meet a condition."""

    condition: str | Callable[[DataFrame], Column]
    line: str = field(default="", kw_only=True, compare=False)

    def apply(self, df: DataFrame, carried: Sequence[str]) -> DataFrame:
        """Return the rows that meet the condition."""
        condition = _column(self.condition, df)
        return df.where(F.when(F.col(RECORD), condition).otherwise(True) if RECORD in carried else condition)


@dataclass(frozen=True, slots=True)
class Select(RowByRow):
    """Replaces the columns."""

    columns: tuple[str, ...]
    line: str = field(default="", kw_only=True, compare=False)

    def apply(self, df: DataFrame, carried: Sequence[str]) -> DataFrame:
        """Return rows of the selected columns."""
        own = [name for name in df.columns if name not in carried] if "*" in self.columns else []
        columns = [each for text in self.columns for each in (map(column, own) if text == "*" else [F.expr(text)])]
        if RECORD in carried:
            names = df.select(*columns).columns
            columns = [_of_records(each, carried).alias(name) for each, name in zip(columns, names, strict=True)]
        return df.select(*columns, *carried)


@dataclass(frozen=True, slots=True)
class WithColumn(RowByRow):
    """Adds or replaces one column."""

    name: str
    expression: str | Callable[[DataFrame], Column]
    line: str = field(default="", kw_only=True, compare=False)

    def apply(self, df: DataFrame, carried: Sequence[str]) -> DataFrame:
        """Return rows with the column."""
        return df.withColumn(self.name, _of_records(_column(self.expression, df), carried))


@dataclass(frozen=True, slots=True)
class ByFunction:
    """Calls a function of the user's on the DataFrame of each epoch."""

    function: Callable[[DataFrame], DataFrame]
    line: str = field(default="", kw_only=True, compare=False)


Transformation = RowByRow | ByFunction
"""A transformation of a stream."""


def _column(expression: str | Callable[[DataFrame], Column], df: DataFrame) -> Column:
    return F.expr(expression) if isinstance(expression, str) else expression(df)


def _of_records(value: Column, carried: Sequence[str]) -> Column:
    return F.when(F.col(RECORD), value) if RECORD in carried else value
