"""Where the pages of the web view are: below Airflow's own address, alone or in Airflow's frame."""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode, urlsplit

from airflow.configuration import conf

MOUNT = "statecore"
"""Where the app is mounted, below Airflow's address."""
VIEW = "statecore"
"""What Airflow calls the view: with its navigation around it, a page is at ``/plugin/<VIEW>/<path of the page>``."""


_SHELL = "shell-"
_OF_ANOTHER_DAG = re.compile(r"([a-z_]+):(.+)", re.DOTALL)


def mounted(page: str = "") -> str:
    """Return the path of a page without Airflow's navigation, from the root of the host."""
    return f"{urlsplit(_base_url()).path.rstrip('/')}/{MOUNT}/{page}"


def job_page(job: str) -> str:
    """Return the address of a job's page, with Airflow's navigation."""
    return _framed("job", name=job)


def log_page(job: str) -> str:
    """Return the address of the page with the end of a job's driver log, with Airflow's navigation."""
    return _framed("log", name=job)


def run_page(dag: str, run: str) -> str:
    """Return the address of a DAG run in Airflow."""
    return f"{_base_url().rstrip('/')}/{_run_path(dag, run)}"


def change_path(change: str) -> str | None:
    """Return the path, below Airflow's address, of the DAG run that the catalog knows by an id; None from a shell.

    Args:
        change: Of a rescale run, or of the owner of a lease; see ``step.change_id``.

    """
    if change.startswith(_SHELL):
        return None
    found = _OF_ANOTHER_DAG.fullmatch(change)
    return _run_path(*found.groups()) if found else _run_path("rescale", change)


def _run_path(dag: str, run: str) -> str:
    return f"dags/{quote(dag, safe='')}/runs/{quote(run, safe='')}"


def _framed(page: str, **query: str) -> str:
    return f"{_base_url().rstrip('/')}/plugin/{VIEW}{mounted(page)}?{urlencode(query)}"


def _base_url() -> str:
    return str(conf.get("api", "base_url", fallback="")) or "/"
