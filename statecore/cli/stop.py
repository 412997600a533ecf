"""``stop``."""

from __future__ import annotations

from typing import Annotated

import typer

from statecore.catalog import Catalog
from statecore.cli.options import AsJson, CatalogUrl, JobName
from statecore.cli.output import note, print_json
from statecore.cli.steps import carry_out, shell_change
from statecore.errors import RequestFailedError, StepFailedError
from statecore.operations.changes import StopWithSavepoint, TakeLease
from statecore.operations.kinds import JobKind, kind_of


def stop_job(
    name: JobName,
    catalog: CatalogUrl,
    reason: Annotated[str, typer.Option(help="Why, kept with the savepoint.")] = "by hand",
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for the savepoint and the end of the driver.")
    ] = 300.0,
    as_json: AsJson = False,
) -> None:
    """Stop a job with a savepoint, wait until its driver has ended, and print the savepoint's path.

    Without a live driver the savepoint is taken from the newest epoch. If no savepoint is possible, the job is stopped
    all the same, and a start resumes from its newest epoch. Refused while another run changes the job, because that run
    would start it again: wait for it, or end it first.
    """
    with Catalog(catalog) as opened:
        was_stopped = opened.jobs.get(name).desired_state == "stopped"
        change = shell_change(opened, name)
        stop = StopWithSavepoint(change=change, reason=reason, for_good=True)
        try:
            path = carry_out([TakeLease(change=change), stop], timeout_s, rolls_back=False)[stop.name]
        except StepFailedError as error:
            raise RequestFailedError(f"{name} should stop: {error}") from error
        store = change.store()
        url = None if path is None else store.describe(path)
        if url is None:
            resumes = _resumes(kind_of(opened.jobs.get(name)))
            note(f"{name} {'was stopped before' if was_stopped else 'is stopped'}; {resumes}")
    if as_json:
        print_json({"job": name, "savepoint": url})
    elif url is not None:
        print(url)


def _resumes(kind: JobKind) -> str:
    newest = kind.newest()
    if newest is None:
        return f"no {kind.unit} is committed, so there is no savepoint"
    return f"this command made no savepoint; a start resumes from {newest}"
