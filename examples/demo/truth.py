"""The results that the job must reach: plain Spark batch queries that share no code with the job."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

_LEG = ("tailnum", "sched_dep", "carrier", "flight", "origin")


def expected_totals(flights: DataFrame) -> DataFrame:
    """Return (tailnum, flights, delay_minutes) over the flown legs."""
    return (
        _flown(flights).groupBy("tailnum").agg(F.count("*").alias("flights"), F.sum("arr_delay").alias("delay_minutes"))
    )


def expected_last_delays(flights: DataFrame) -> DataFrame:
    """Return (tailnum, delays): the arrival delays of up to three last flown legs, oldest first."""
    newest = F.row_number().over(Window.partitionBy("tailnum").orderBy(*(F.desc(name) for name in _LEG[1:])))
    return (
        _with_previous_delays(flights)
        .withColumn("newest", newest)
        .where("newest = 1")
        .select("tailnum", F.array_compact(F.array("before_that", "previous", "arr_delay")).alias("delays"))
    )


def expected_alerts(flights: DataFrame) -> DataFrame:
    """Return (tailnum, sched_dep, carrier, flight, origin, delays): each third late leg in a row."""
    return (
        _with_previous_delays(flights)
        .where("arr_delay > 15 AND previous > 15 AND before_that > 15")
        .select(*_LEG, F.array("before_that", "previous", "arr_delay").alias("delays"))
    )


def expected_rejects(flights: DataFrame) -> DataFrame:
    """Return (tailnum, sched_dep, carrier, flight, origin, dest, reason) of the flights that cannot be counted."""
    return flights.where(~_is_flown()).select(
        *_LEG,
        "dest",
        F.expr(
            "CASE WHEN tailnum IS NULL THEN 'no tail number' WHEN dep_time IS NULL THEN 'cancelled' ELSE 'diverted' END"
        ).alias("reason"),
    )


def _is_flown() -> Column:
    return F.expr("tailnum IS NOT NULL AND dep_time IS NOT NULL AND arr_delay IS NOT NULL")


def _flown(flights: DataFrame) -> DataFrame:
    return flights.where(_is_flown())


def _with_previous_delays(flights: DataFrame) -> DataFrame:
    in_order = Window.partitionBy("tailnum").orderBy(*_LEG[1:])
    return _flown(flights).select(
        *_LEG,
        "arr_delay",
        F.lag("arr_delay", 1).over(in_order).alias("previous"),
        F.lag("arr_delay", 2).over(in_order).alias("before_that"),
    )
