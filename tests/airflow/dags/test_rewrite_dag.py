"""The DAG ``rewrite``: the Spark provider's operator submits the real rewrite job to a real Spark."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from statecore.model import KeyGroupRange, key_group_for
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import decode_base
from statecore.snapshot.verify import verify
from tests.support.handmade import written
from tests.support.paths import REPO


@pytest.fixture
def dag(airflow_db: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from airflow.dag_processing.dagbag import BundleDagBag

    connection = {"conn_type": "spark", "host": "local[2]"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    folder = REPO / "dags"
    return BundleDagBag(dag_folder=str(folder), bundle_path=folder, bundle_name="dags-folder").dags["rewrite"]


def test_the_dag_rewrites_a_savepoint_for_another_max_parallelism(dag: Any, tmp_path: Path) -> None:
    store = CheckpointStore.at(str(tmp_path))
    before = written(store, 2)
    path = store.write_savepoint(before, "before", reason="a test", now_ms=1)
    conf = {"savepoint": str(tmp_path / path), "name": "after", "parallelism": 3, "max_parallelism": 32}
    run = dag.test(run_conf=conf)
    assert run.state == "success"
    after = store.manifest("savepoints/after/manifest.json")
    assert (after.parallelism, after.max_parallelism) == (3, 32)
    assert verify(store, after) == []
    # Every key is there once, with its value, in the key group that its new max parallelism gives it.
    expected = {(f"k{group}",): group * 10 for group in range(before.max_parallelism)}
    found: dict[Any, Any] = {}
    for subtask in after.operators[0].subtasks:
        for item in subtask.keyed:
            rows = decode_base(store.read_file(item.file), KeyGroupRange(*item.key_groups))
            assert len(rows.keys) == item.rows
            assert rows.key_groups == [key_group_for(key, ["string"], 32) for key in rows.keys]
            found.update(zip(rows.keys, rows.values, strict=True))
    assert found == expected
    elements = [len(item.partitions.offsets) for subtask in after.operators[0].subtasks for item in subtask.operator]
    assert sum(elements) == 6
