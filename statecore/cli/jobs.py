"""``jobs``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.markup import escape

from statecore.catalog import Catalog
from statecore.cli.options import AsJson, CatalogUrl
from statecore.cli.output import NOTHING, console, lag, print_json, table, waiting
from statecore.operations.status.finding import span
from statecore.operations.status.job_status import JobStatus, job_statuses, summary


def list_jobs(catalog: CatalogUrl, as_json: AsJson = False) -> None:
    """Print all jobs: desired state, driver, newest epoch, and whether they keep up."""
    with Catalog(catalog) as opened:
        statuses = [*job_statuses(opened).values()]
    if as_json:
        print_json([summary(each) for each in statuses])
        return
    made = table("job", "desired", "driver", "parallelism", "epoch", "committed", "rows/s", "backlog", "lag")
    for each in statuses:
        made.add_row(*_cells(each))
    console().print(made)
    for each in statuses:
        failed = each.last_failure if each.crash_loops else each.generation
        if each.error is not None and failed is not None:
            print(f"{each.job.name}, generation {failed.generation}: {each.error} (log: {failed.log_path})")


def _cells(status: JobStatus) -> Iterator[str]:
    told = summary(status)
    driver = f"{told.driver} (crash loop)" if status.crash_loops else told.driver
    yield from (escape(told.job), told.desired, driver)
    yield str(told.parallelism)
    yield NOTHING if told.epoch is None else str(told.epoch)
    yield NOTHING if told.committed_ms is None else f"{span(status.now_ms - told.committed_ms)} ago"
    # Measurements of a driver that no longer runs are out of date.
    runs = status.driver == "running"
    rate = status.figures.rows_per_second
    yield f"{rate:,.0f}" if runs and rate is not None else NOTHING
    yield waiting(status.waiting) if runs else NOTHING
    yield lag(status.waiting) if runs else NOTHING
