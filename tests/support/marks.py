"""Each test has one mark, that of its folder: ``tests/<mark>/…``."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

MARKS = {
    "unit": "needs neither Java nor PostgreSQL, Chromium or Airflow",
    "spark": "starts Spark",
    "postgres": "starts PostgreSQL's server, and Spark where a job writes to it",
    "kafka": "starts a Kafka broker, and Spark where a job reads from it; needs the jars of `make kafka`",
    "airflow": "imports or starts Airflow, and what its steps need",
    "browser": "starts Airflow's API server and Chromium",
    "queries": "starts Spark; every kind of query on every provider, outside the gate; make queries",
    "e2e": "stories through a whole Airflow on PostgreSQL, Spark, S3, Kafka and Chromium; make e2e",
}


def pytest_configure(config: pytest.Config) -> None:
    for mark, needs in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {needs}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m unit`` no other folder is imported: what its tests need may not be installed."""
    mark = _folder(collection_path, config.rootpath)
    return True if mark in MARKS and config.option.markexpr in MARKS and mark != config.option.markexpr else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test its mark, before any is deselected by it."""
    for item in items:
        mark = _folder(item.path, config.rootpath)
        if mark not in MARKS:
            raise pytest.UsageError(
                f"found the test {item.nodeid} outside the folders of the marks; "
                f"expected it below tests/<mark>/, a mark being one of {', '.join(MARKS)}; move it there"
            )
        others = [each.name for each in item.iter_markers() if each.name in MARKS]
        if others:
            raise pytest.UsageError(
                f"found the mark {others[0]} at the test {item.nodeid}; "
                f"expected no mark but {mark}, which its folder sets; remove it, or move the test"
            )
        item.add_marker(mark)


@lru_cache
def _folder(path: Path, root: Path) -> str | None:
    """Return the folder below ``tests`` that a path lies in; remembered, because a file has many tests."""
    tests, *below = path.relative_to(root).parts if path.is_relative_to(root) else ("",)
    return below[0] if tests == "tests" and below else None
