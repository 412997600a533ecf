"""Addresses of the web view's pages below Airflow's address, with and without Airflow's navigation."""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode, urlsplit

from airflow.configuration import conf

MOUNT = "statecore"
"""Path below Airflow's address at which the app is mounted."""
VIEW = "statecore"
"""Airflow's name of the view; ``/plugin/<VIEW>/<path of the page>`` shows a page with Airflow's navigation."""

_SHELL = "shell-"
_OF_ANOTHER_DAG = re.compile(r"([a-z_]+):(.+)", re.DOTALL)
_CLEARS = re.compile(r"#\d+$")


def mounted(page: str = "") -> str:
    """Return the absolute path of a page without Airflow's navigation."""
    return f"{urlsplit(_base_url()).path.rstrip('/')}/{MOUNT}/{page}"


def job_page(job: str) -> str:
    """Return the address of a job's page, with Airflow's navigation."""
    return _framed("job", name=job)


def log_page(job: str) -> str:
    """Return the address of a job's driver log page, with Airflow's navigation."""
    return _framed("log", name=job)


def run_page(dag: str, run: str) -> str:
    """Return the address of a DAG run in Airflow."""
    return f"{_base_url().rstrip('/')}/{_run_path(dag, run)}"


def change_path(change: str) -> str | None:
    """Return the path below Airflow's address of the DAG run with this change id; None for a shell's."""
    if change.startswith(_SHELL):
        return None
    change = without_clears(change)
    match = _OF_ANOTHER_DAG.fullmatch(change)
    return _run_path(*match.groups()) if match else _run_path("rescale", change)


def without_clears(change: str) -> str:
    """Return a change id without the number that says how often its run was cleared."""
    return _CLEARS.sub("", change)


def _run_path(dag: str, run: str) -> str:
    return f"dags/{quote(dag, safe='')}/runs/{quote(run, safe='')}"


def _framed(page: str, **query: str) -> str:
    return f"{_base_url().rstrip('/')}/plugin/{VIEW}{mounted(page)}?{urlencode(query)}"


def _base_url() -> str:
    return str(conf.get("api", "base_url", fallback="")) or "/"
