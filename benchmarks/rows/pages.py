"""Costs of the pages that must not grow with what they show: the list of jobs, and a chart of a day."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.harness import Bench, Figure, in_seconds, median_ratio
from statecore.catalog import Catalog, EpochRecord, SourceBacklog

FEW_JOBS, MANY_JOBS = 10, 200
EPOCHS_OF_A_JOB = 20
DAY_MS, APART_MS = 24 * 3_600_000, 10_000
SHORT_MINUTES, LONG_MINUTES = 15, 1_440
_CALLS = 5


def growth(bench: Bench) -> list[Figure]:
    """Measure both rows, by the functions that answer the pages, JSON included."""
    with bench.workspace("pages") as folder:
        figures = []
        if bench.wants("pages_growth"):
            figures.append(_pages_growth(bench, folder))
        if bench.wants("series_growth"):
            figures.append(_series_growth(bench, folder))
        return figures


def _pages_growth(bench: Bench, folder: Path) -> Figure:
    from statecore_airflow.web.jobs import get_jobs

    sides = {}
    for jobs in (FEW_JOBS, MANY_JOBS):
        bench.say(f"filling a catalog of {jobs} jobs")
        catalog = _catalog(folder / f"{jobs}.db", jobs, EPOCHS_OF_A_JOB)
        sides[f"{jobs} jobs"] = _timed(lambda catalog=catalog: get_jobs(catalog, lambda _: True))  # type: ignore[misc]
    return _figure(bench, "pages_growth", sides)


def _series_growth(bench: Bench, folder: Path) -> Figure:
    from statecore_airflow.web.charts import get_series

    bench.say("filling a catalog of one job with a day of epochs")
    catalog = _catalog(folder / "day.db", 1, DAY_MS // APART_MS)
    sides = {
        f"{minutes} minutes": _timed(lambda minutes=minutes: get_series("job-000", catalog, minutes))  # type: ignore[misc]
        for minutes in (SHORT_MINUTES, LONG_MINUTES)
    }
    return _figure(bench, "series_growth", sides)


def _figure(bench: Bench, name: str, sides: dict[str, Callable[[], float]]) -> Figure:
    taken = bench.rounds(sides, unit="s an answer")
    little, much = taken.values()
    return Figure(name, median_ratio(much, little), in_seconds(much), in_seconds(little))


def _timed(answer: Callable[[], object]) -> Callable[[], float]:
    """Return a function that measures the median seconds of an answer, as JSON."""

    def seconds() -> float:
        taken = []
        for _ in range(_CALLS):
            started = time.monotonic()
            answer().model_dump_json()  # type: ignore[attr-defined]
            taken.append(time.monotonic() - started)
        return median(taken)

    return seconds


def _catalog(file: Path, jobs: int, epochs: int) -> Catalog:
    """Return a catalog of running jobs, each with epochs that are ten seconds apart, the last one just now."""
    catalog = Catalog(f"sqlite:///{file}")
    catalog.create_schema()
    now_ms = catalog.now_ms()
    for number in range(jobs):
        job = f"job-{number:03}"
        catalog.jobs.register(job, artifact="/a.py", store="/s", master_url="m", parallelism=2, max_parallelism=16)
        catalog.jobs.set_desired(job, state="running")
        catalog.generations.claim(job, log_path="/l")
        catalog.generations.heartbeat(job, 1)
        backlog = (SourceBacklog("in", records=500, event_time_lag_ms=2_000),)
        phases = {"run": 700.0, "commit": 100.0, "publish": 100.0}
        for epoch in range(epochs):
            at_ms = now_ms - (epochs - 1 - epoch) * APART_MS
            catalog.epochs.record(
                EpochRecord(job, 1, epoch, 1, 2, 500, 500, at_ms - 900, at_ms, 900, phases, backlog=backlog)
            )
        catalog.epochs.record_backlog(job, 1, backlog)
        catalog.savepoints.record(f"/{job}", job=job, lineage=1, epoch=1, parallelism=2, reason="", created_ms=now_ms)
    return catalog
