"""Options and arguments that several commands share, and how their values are parsed."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

CatalogUrl = Annotated[
    str, typer.Option("--catalog", envvar="STATECORE_CATALOG", help="URL of the catalog, e.g. sqlite:///catalog.db")
]
OptionalCatalogUrl = Annotated[
    str | None,
    typer.Option("--catalog", envvar="STATECORE_CATALOG", help="URL of the catalog, if there is one."),
]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")]
SavepointPath = Annotated[
    str, typer.Argument(metavar="PATH", help="A savepoint's folder or manifest file: a path or a URL.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on one line, for programs.")]


def absolute(path: str) -> str:
    """Return a URL unchanged, and a path as an absolute path."""
    if "://" in path:
        return path
    local = Path(path).absolute()
    # Do not resolve links, because their target may change; only `..` needs it.
    return str(local.resolve() if ".." in local.parts else local)


def pairs(option: str, items: list[str] | None) -> dict[str, str]:
    """Return parsed ``key=value`` items; raise BadParameter for anything else."""
    parsed = {}
    for item in items or []:
        key, separator, value = item.partition("=")
        if not (separator and key):
            raise typer.BadParameter(f"found {item!r}; expected key=value", param_hint=option)
        parsed[key] = value
    return parsed


def unique_name(what: str) -> str:
    """Return a unique name that begins with ``what`` and the time."""
    return f"{what}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"
