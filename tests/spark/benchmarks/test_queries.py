"""The rows of queries rescale what Spark repartitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.rows import queries
from tests.support.one_round import OneRound

ROWS = ["query_rescale_vs_spark", "query_rescale_hdfs", "query_rescale_growth"]


def test_all_rows_have_figures_and_leave_no_files(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MANY_KEYS", 2000)
    monkeypatch.setattr(queries, "FEW_KEYS", 200)
    figures = queries.rescale(OneRound(spark, tmp_path, print))
    assert [figure.name for figure in figures] == ROWS
    assert all(figure.ratio > 0 for figure in figures)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
