"""``audit``."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Annotated

import typer

from statecore.catalog import AuditRecord, Catalog
from statecore.cli.options import AsJson, CatalogUrl, JobName
from statecore.cli.output import print_json


def show_audit(
    name: JobName,
    catalog: CatalogUrl,
    limit: Annotated[int, typer.Option(min=1, help="Number of changes, the newest.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show who changed what of a job, newest first; of settings and configuration only the names.

    On PostgreSQL the login comes from the database; the user is what the program says.
    """
    with Catalog(catalog) as opened:
        opened.jobs.get(name)
        changes = opened.jobs.audit(name, limit=limit)
    if as_json:
        print_json([dataclasses.asdict(each) for each in changes])
        return
    for each in changes:
        at = datetime.fromtimestamp(each.at_ms / 1000, UTC)
        print(f"{at:%Y-%m-%d %H:%M:%S}  {_author(each)}  {_words(each)}")


def _author(record: AuditRecord) -> str:
    return record.on_behalf_of if record.actor is None else f"{record.actor} for {record.on_behalf_of}"


def _words(record: AuditRecord) -> str:
    return "; ".join(
        f"{field} {value}" if isinstance(value, str) else f"{field} {_pair(field, value)}"
        for field, value in record.change.items()
    )


def _pair(field: str, value: list[object]) -> str:
    return ", ".join(map(str, value)) if field in ("conf", "settings") else f"{value[0]} → {value[1]}"
