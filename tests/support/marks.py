"""Each test has one mark, that of its folder: ``tests/<mark>/…``; and ``nightly`` where another test shows the same.

``make test`` runs what has neither that mark nor one of ``OUTSIDE_MAKE_TEST``, ``make nightly`` runs everything.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

MARKS = {
    "unit": "needs neither Java nor PostgreSQL, Chromium or Airflow",
    "spark": "starts Spark",
    "postgres": "starts PostgreSQL's server, and Spark where a job writes to it",
    "kafka": "starts a Kafka broker, and Spark where a job reads from it; needs the jars of `make kafka`",
    "s3": "starts S3 servers; needs Java and the jar of `make s3mock`, nightly also the program of `make versitygw`",
    "airflow": "imports or starts Airflow, and what its steps need",
    "browser": "starts Airflow's API server and Chromium",
    "queries": "starts Spark; every kind of query on every provider; make queries",
    "e2e": "stories through a whole Airflow on PostgreSQL, Spark, S3, Kafka and Chromium; make e2e",
}
OUTSIDE_MAKE_TEST = ("queries", "e2e")
NIGHTLY = "nightly"


def pytest_configure(config: pytest.Config) -> None:
    for mark, needs in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {needs}")
    config.addinivalue_line("markers", f"{NIGHTLY}: shows once more, or elsewhere, what a test of make test shows")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m unit`` no other folder is imported: what its tests need may not be installed. And none that is refused.

    Of expressions, those of terms joined by ``and`` are understood; with others, all folders are imported.
    """
    mark, terms = _folder(collection_path, config.rootpath), config.option.markexpr.split(" and ")
    if mark not in MARKS:
        return None
    others = any(term in MARKS and term != mark for term in terms)
    return True if others or f"not {mark}" in terms else None


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
