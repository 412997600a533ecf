"""Spark rewrites savepoints, and reads them as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statecore.errors import ConfigurationError
from statecore.model import (
    ValueStateDescriptor,
)
from statecore.runtime import read_savepoint, rewrite_savepoint, write_savepoint
from statecore.runtime.offline import rewrite
from statecore.snapshot.checkpoints import CheckpointStore
from tests.support.every_kind import KEYS, RULES, STATES, expected, restored, written
from tests.support.jobs import totals


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path))


def test_spark_rewrites_and_reads_state_of_every_kind(spark: Any, store: CheckpointStore, tmp_path: Path) -> None:
    before = tmp_path / store.write_savepoint(written(store, 2), "before", reason="", now_ms=1)
    after = store.manifest(rewrite_savepoint(spark, before, name="after", parallelism=3, max_parallelism=64))
    assert restored(store, after) == expected(64)
    assert after.operators[0].states == (*STATES, RULES)
    shown = tmp_path / "savepoints" / "after"

    def rows(state: str) -> list[dict[str, Any]]:
        found = read_savepoint(spark, shown, "totals", state)
        return [row.asDict(recursive=True) for row in found.collect()]

    def of(n: int, state: str) -> dict[str, Any]:
        (row,) = [row for row in rows(state) if (row["k"], row["n"]) == KEYS[n]]
        return {name: value for name, value in row.items() if name not in ("k", "n", "key_group")}

    assert of(5, "fresh") == {"value": 5}
    assert of(5, "last") == {"value": ["e0", "e1", "e2"]}
    assert of(5, "routes") == {"value": {"a": 5, "b": None}}
    assert of(5, "visits") == {"window_start": 0, "window_end": 86_400_000, "value": {5: "v5", -1: "w"}}
    assert of(4, "sums") == {"window_start": None, "window_end": None, "value": 16}
    assert of(5, "total") == {"value": {"n": 5, "tags": ["x", None]}}
    assert rows("rules") == [{"subtask": index, "value": {"limit": 3}} for index in range(3)]
    assert {row["key_group"] for row in rows("sums")} == set(expected(64)["sums"])


def test_a_rewrite_reports_how_many_bytes_it_has_written_of_about_how_many(
    spark: Any, store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = written(store, 2)
    before = tmp_path / store.write_savepoint(manifest, "before", reason="", now_ms=1)
    reported: list[tuple[int, int]] = []
    monkeypatch.setattr(rewrite, "_REPORT_S", 0.01)
    path = rewrite_savepoint(
        spark, before, name="after", parallelism=3, report=lambda done, total: reported.append((done, total))
    )
    keyed = [
        each.file for operator in store.manifest(path).operators for state in operator.subtasks for each in state.keyed
    ]
    assert {total for _, total in reported} == {manifest.state_bytes}
    done = [done for done, _ in reported]
    assert done == sorted(done) and done[-1] <= sum(file.size for file in keyed)
    assert rewrite._written(store, manifest, "after") == sum(file.size for file in keyed)


def test_nothing_is_written_beside_a_savepoint_that_has_a_folder_of_its_own(
    spark: Any, store: CheckpointStore, tmp_path: Path
) -> None:
    rows = spark.range(10).selectExpr("cast(id as string) k", "id value")
    tables: Any = {"totals": {ValueStateDescriptor("total", "bigint"): (rows, ["k"])}}
    made = write_savepoint(tmp_path / "made", tables, 16, 2, job=totals.build, settings={"input": "", "output": ""})
    before = sorted((tmp_path / "made").rglob("*"))
    with pytest.raises(ConfigurationError, match="found the self-contained savepoint"):
        rewrite_savepoint(spark, made, name="after", parallelism=4)
    assert sorted((tmp_path / "made").rglob("*")) == before
