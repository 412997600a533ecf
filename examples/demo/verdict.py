"""Compares the job's results with the truth, as multisets: nothing lost, nothing twice."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich import box
from rich.console import Console
from rich.table import Table

from examples.demo import truth

_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two multisets of rows.

    Attributes:
        name: Name of the comparison.
        expected_rows: Rows of the truth.
        actual_rows: Rows that the job computed.
        missing: Rows that the job lacks.
        extra: Surplus rows of the job, duplicates included.
        examples: A few differing rows, each with its count in the job and in the truth.

    """

    name: str
    expected_rows: int
    actual_rows: int
    missing: int
    extra: int
    examples: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Return whether both are equal."""
        return self.missing == 0 and self.extra == 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """All differences between the job and the truth."""

    differences: tuple[Difference, ...]

    @property
    def exact(self) -> bool:
        """Return whether nothing was lost and nothing counted twice."""
        return all(difference.exact for difference in self.differences)

    def print(self, console: Console) -> None:
        """Print one line per comparison, then differing rows, if any."""
        table = Table(title="Verdict: the job against the truth", box=box.SIMPLE_HEAD)
        table.add_column("compared")
        for heading in ("expected", "actual", "missing", "extra"):
            table.add_column(heading, justify="right")
        table.add_column("verdict")
        for d in self.differences:
            counts = (f"{n:,}" for n in (d.expected_rows, d.actual_rows, d.missing, d.extra))
            table.add_row(d.name, *counts, "[green]exact[/]" if d.exact else "[red]DIFFERENT[/]")
        console.print(table)
        for d in self.differences:
            for example in d.examples:
                console.print(f"{d.name}: {example}", markup=False, highlight=False)


def judge(
    flights: DataFrame,
    *,
    totals: DataFrame,
    last_delays: DataFrame,
    alerts: DataFrame,
    published_rejects: DataFrame,
    buffered_rejects: DataFrame,
) -> Verdict:
    """Compare the job's state and outputs with the truth about ``flights``.

    Args:
        flights: Every flight that was fed.
        totals: Final state (tailnum, flights, delay_minutes).
        last_delays: Final state (tailnum, delays), the delays being an array, oldest first.
        alerts: Rows that the sink ``alerts`` published.
        published_rejects: Rows that the sink ``rejects`` published.
        buffered_rejects: The operator state ``rejects``, with the columns of the sink.

    """
    expected_rejects = truth.expected_rejects(flights)
    columns = expected_rejects.columns
    rejects = published_rejects.select(*columns).unionAll(buffered_rejects.select(*columns))
    return Verdict(
        (
            compare(totals, truth.expected_totals(flights), "state totals"),
            compare(last_delays, truth.expected_last_delays(flights), "state last_delays"),
            compare(alerts, truth.expected_alerts(flights), "alerts published"),
            compare(rejects, expected_rejects, "rejects, incl. buffered"),
        )
    )


def compare(actual: DataFrame, expected: DataFrame, name: str) -> Difference:
    """Compare as multisets, over the columns of ``expected``; other columns of ``actual`` are ignored.

    Raises:
        ValueError: ``actual`` lacks a column or has it in another type.

    """
    columns = expected.columns
    _check_schema(actual, expected, name)
    both = _marked(expected, columns, 1, 0).unionAll(_marked(actual, columns, 0, 1))
    # One pass gives the same result as EXCEPT ALL in both directions.
    found = both.groupBy(*columns).agg(F.sum("_expected").alias("_expected"), F.sum("_actual").alias("_actual"))
    sums = found.agg(
        *(
            F.coalesce(F.sum(F.expr(amount)), F.lit(0))
            for amount in (
                "_expected",
                "_actual",
                "greatest(_expected - _actual, 0)",
                "greatest(_actual - _expected, 0)",
            )
        )
    ).first()
    assert sums is not None
    expected_rows, actual_rows, missing, extra = sums
    examples: tuple[str, ...] = ()
    if missing or extra:
        rows = found.where("_expected <> _actual").orderBy(*columns).take(_EXAMPLES)
        examples = tuple(_example(row.asDict()) for row in rows)
    return Difference(name, expected_rows, actual_rows, missing, extra, examples)


def _marked(rows: DataFrame, columns: list[str], expected: int, actual: int) -> DataFrame:
    return rows.select(*columns, F.lit(expected).alias("_expected"), F.lit(actual).alias("_actual"))


def _check_schema(actual: DataFrame, expected: DataFrame, name: str) -> None:
    found, wanted = dict(actual.dtypes), dict(expected.dtypes)
    wrong = {column: found.get(column) for column in wanted if found.get(column) != wanted[column]}
    if wrong:
        raise ValueError(
            f"found {', '.join(f'{column}: {kind}' for column, kind in wrong.items())} in {name!r}; "
            f"expected {', '.join(f'{column}: {wanted[column]}' for column in wrong)}; "
            "rename or cast the columns before comparing"
        )


def _example(row: dict[str, object]) -> str:
    expected, actual = row.pop("_expected"), row.pop("_actual")
    values = ", ".join(f"{column}={value}" for column, value in row.items())
    return f"expected {expected}x, found {actual}x: {values}"
