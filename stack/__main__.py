"""``python -m stack start|stop [RUN_DIR]``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stack.airflow_server import REPO
from stack.processes import StackError
from stack.stack import Stack
from statecore.errors import StatecoreError

app = typer.Typer(help="Start or stop catalog, Spark, supervisor and Airflow on this machine.", no_args_is_help=True)

RunDir = Annotated[Path, typer.Argument(help="Folder of the stack.")]
DEFAULT = REPO / ".run" / "demo"


@app.command()
def start(run_dir: RunDir = DEFAULT) -> None:
    """Start all parts and leave them running."""
    stack = Stack(run_dir)
    stack.start()
    user, password = stack.airflow_login
    typer.echo(f"Airflow {stack.airflow_url} (user {user}, password {password})\nSpark {stack.master_url}")


@app.command()
def stop(run_dir: RunDir = DEFAULT) -> None:
    """End every process of a stack; does nothing when there is none."""
    Stack(run_dir).stop()


if __name__ == "__main__":
    try:
        app()
    except (StackError, StatecoreError) as error:
        typer.echo(str(error), err=True)
        sys.exit(1)
