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
) -> None:
    """Run jobs: launch their drivers, bring them back, resize their clusters; ends on SIGTERM and Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # What it does with every new connection is of no interest to whoever reads what became of a job.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    run_supervisor(catalog, logs)
