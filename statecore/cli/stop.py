"""``stop``."""

from __future__ import annotations

from typing import Annotated

import typer

from statecore.catalog import Catalog
from statecore.cli.driver import answer, wait_until_ended
from statecore.cli.lease import alone
from statecore.cli.options import AsJson, CatalogUrl, JobName, unique_name
from statecore.cli.output import note, print_json, spinner
from statecore.errors import RequestFailedError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest


def stop_job(
    name: JobName,
    catalog: CatalogUrl,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for the savepoint.")] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Stop a job with a savepoint, wait until its driver has ended, and print the savepoint's path.

    Refused while a run changes the job, which would start it again: wait for that run, or end it first.
    """
    with Catalog(catalog) as opened:
        with alone(opened, name):
            opened.set_desired(name, state="stopped")
        url = stop_with_savepoint(opened, name, timeout_s)
        if url is None:
            note(f"{name} is stopped, without a savepoint: {_kept(_newest(opened, name))}")
    if as_json:
        print_json({"job": name, "savepoint": url})
    elif url is not None:
        print(url)


def stop_with_savepoint(catalog: Catalog, job: str, timeout_s: float, reason: str = "by hand") -> str | None:
    """Have a job stopped, and return the savepoint's URL; None when it had no live driver, or no epoch yet.

    Raises:
        RequestFailedError: There is no savepoint, or not in time.

    """
    catalog.set_desired(job, state="stopped")
    if not catalog.is_alive(catalog.newest_generation(job)):
        # One that is silent and wakes up later finds itself replaced.
        catalog.fail_lost_generation(job)
        return None
    savepoint = unique_name("manual")
    request = catalog.request(job, "stop_with_savepoint", {"name": savepoint, "reason": reason}, savepoint)
    url = None
    try:
        with spinner(f"{job}: stopping with a savepoint"):
            url = str(answer(catalog, request, timeout_s, f"{job} is to stop, but without a savepoint")["url"])
    except RequestFailedError:
        is_answered = catalog.get_request(request.id).state == "failed"
        if not is_answered or _newest(catalog, job) is not None:
            raise
    wait_until_ended(catalog, job, timeout_s)
    return url


def _newest(catalog: Catalog, job: str) -> Manifest | None:
    return CheckpointStore.at(catalog.job(job).store).newest()


def _kept(newest: Manifest | None) -> str:
    if newest is None:
        return "it has not committed an epoch, so there is no state to keep"
    return (
        f"no driver was running to take one; epoch {newest.epoch} of lineage {newest.lineage} is kept, and a start "
        "goes on from it"
    )
