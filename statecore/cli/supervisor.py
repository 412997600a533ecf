"""``supervisor``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from statecore.cli.options import CatalogUrl
from statecore.supervisor import run_supervisor


def supervise(
    catalog: CatalogUrl,
    logs: Annotated[Path, typer.Option(help="Directory for the drivers' output.")],
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve metrics for Prometheus at this port; default: none.", min=0, max=65535)
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address to serve metrics at.")] = "127.0.0.1",
    job_files: Annotated[
        list[str] | None,
        typer.Option(
            help="Folder, a path or a URL, that the DAG upgrade may take job files from; repeatable. Default: only "
            "files that were registered for the job before."
        ),
    ] = None,
) -> None:
    """Launch and restart the drivers of jobs and resize their clusters, until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Alembic logs every new connection, which only hides the events of jobs.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    run_supervisor(catalog, logs, metrics_host=metrics_host, metrics_port=metrics_port, job_files=job_files or ())
