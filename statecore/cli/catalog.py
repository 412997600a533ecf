"""``catalog upgrade`` and ``catalog rebuild``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import typer

from statecore.catalog import Catalog
from statecore.catalog.rebuild import Rebuilt, rebuild_job
from statecore.cli.options import AsJson, CatalogUrl, absolute
from statecore.cli.output import complain, print_json, progress
from statecore.errors import StatecoreError
from statecore.queries.job.current_checkpoint import newest_batch
from statecore.queries.job.savepoints import record_kept


def upgrade_catalog(catalog: CatalogUrl, as_json: AsJson = False) -> None:
    """Migrate the catalog's tables to this release; a new database gets all tables.

    Stop all jobs, the supervisor and Airflow first: an older release cannot work with newer tables. Make a backup:
    there is no downgrade.
    """
    with Catalog(catalog) as opened:
        before = opened.revision()
        opened.create_schema()
        after = opened.revision()
        roles = opened.grant_roles()
    if as_json:
        print_json({"from": before, "to": after})
        return
    if before == after:
        print(f"the catalog is already at revision {after}")
    else:
        print(f"migrated the catalog from revision {before or 'none'} to {after}")
    if roles:
        print(f"granted the rights of {', '.join(roles)}")


def rebuild_catalog(
    stores: Annotated[
        list[str], typer.Argument(metavar="STORE…", help="Root of a job's store: a path or a URL; repeatable.")
    ],
    catalog: CatalogUrl,
    as_json: AsJson = False,
) -> None:
    """Restore jobs and their savepoints into a lost catalog from their stores; the jobs stay stopped.

    Savepoints copied outside of the stores are not found. Unreadable stores are reported, and the others restored.
    """
    problems: list[StatecoreError] = []
    rebuilt: list[Rebuilt] = []
    with Catalog(catalog) as opened:
        opened.create_schema(only_if_new=True)
        for store in stores:
            try:
                with progress("reading savepoints") as report:
                    restored = rebuild_job(opened, absolute(store), progress=report)
                if restored.job.is_query:
                    kept, unread = record_kept(opened.savepoints, restored.job)
                    problems += unread
                    restored = replace(restored, savepoints=kept, lineage=1, epoch=newest_batch(restored.job))
            except StatecoreError as error:
                problems.append(error)
                continue
            problems += restored.problems
            rebuilt.append(restored)
            if not as_json:
                for line in _lines(restored):
                    print(line)
    if as_json:
        print_json([_facts(restored) for restored in rebuilt])
    for problem in problems:
        complain(problem)
    if problems:
        raise typer.Exit(1)


def _facts(restored: Rebuilt) -> dict[str, Any]:
    """Return a restored job for programs; its configuration is left out, because it may hold secrets."""
    fields = ("lineage", "epoch", "savepoints", "registered_before", "withheld", "lost_cluster")
    return {"job": restored.job.name, **{field: getattr(restored, field) for field in fields}}


def _lines(restored: Rebuilt) -> Iterator[str]:
    newest = "no epoch yet" if restored.epoch is None else f"epoch {restored.epoch} of lineage {restored.lineage}"
    yield f"{restored.job.name}: {newest}, {restored.savepoints} savepoints, {restored.job.desired_state}"
    if restored.registered_before:
        yield "  the job was already registered again; its definition is kept"
    if restored.withheld:
        yield f"  register it again to set {', '.join(restored.withheld)}: secrets are not kept in the store"
    lost = restored.lost_cluster
    if lost is not None:
        yield f"  register its cluster {lost!r}, then the job again with --cluster {lost}"
