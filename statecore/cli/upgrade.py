"""``upgrade``."""

from __future__ import annotations

from typing import Annotated

import typer

from statecore.catalog import Catalog
from statecore.cli.options import AsJson, CatalogUrl, JobName, absolute
from statecore.cli.output import print_json
from statecore.cli.steps import carry_out, shell_change
from statecore.operations.changes import UPGRADE, require_free


def upgrade(
    name: JobName,
    artifact: Annotated[
        str,
        typer.Option(
            help="The new job file, or query file: a path or a URL in one of the supervisor's folders of job files, or "
            "one that was registered for the job before."
        ),
    ],
    catalog: CatalogUrl,
    reason: Annotated[str, typer.Option(help="Why, for the history.")] = "",
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds that each step may take; long epochs get more.")
    ] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Move a running job to a new job file, through a savepoint, and wait until it is healthy.

    The supervisor checks the file before the job is stopped; a query file is tried on a clone of its checkpoint. If a
    step fails, the job returns to its old file and resumes from its newest epoch. A stopped job is registered again
    instead.
    """
    with Catalog(catalog) as opened:
        change = shell_change(opened, name)
        require_free(opened, name, change.run_id)
        before = opened.jobs.get(name).artifact
        parameters = {"artifact": absolute(artifact), "reason": reason}
        results = carry_out([step.of(change, parameters) for step in UPGRADE], timeout_s)
        after = opened.jobs.get(name).artifact
    savepoint = results.get("stop_with_savepoint")
    if as_json:
        print_json({"job": name, "run": change.run_id, "from": before, "to": after, "savepoint": savepoint})
        return
    print(f"{name}: {before} -> {after}; stopped with savepoint {savepoint}")
