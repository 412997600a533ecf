"""``check`` and ``register --try``, in a Spark of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statecore.catalog import Catalog
from tests.spark.queries.job.test_driver import QUERY
from tests.support.shell import run

JOB = """
import os

from statecore import KeyedProcessFunction, ValueStateDescriptor
from statecore.runtime import ParquetSink


class Totals(KeyedProcessFunction):
    def open(self, ctx):
        assert "STATECORE_CATALOG" not in os.environ
        self.total = ctx.get_state(ValueStateDescriptor("total", "TYPE"))

    def process_element(self, value, ctx):
        self.total.update(value.n)
        yield value.k, value.n


def build(job):
    def read(spark):
        assert spark.conf.get("spark.mine") == job.settings["mine"]
        return spark.readStream.schema("k string, n bigint").json(job.settings["in"])

    records = job.source("records", read)
    totals = records.key_by("KEY").process(Totals(), output="k string, n bigint", uid="totals")
    totals.sink("totals", ParquetSink(job.settings["in"] + "/../out"))
"""


@pytest.fixture
def given(tmp_path: Path) -> list[Any]:
    (tmp_path / "in").mkdir()
    return ["--setting", f"in={tmp_path}/in", "--setting", "mine=a secret", "--conf", "spark.mine=a secret"]


def job_file(tmp_path: Path, key: str = "k", kind: str = "bigint") -> Path:
    path = tmp_path / "totals.py"
    path.write_text(JOB.replace("KEY", key).replace("TYPE", kind))
    return path


def test_a_job_file_is_tried_as_a_driver_would_run_it(tmp_path: Path, given: list[Any]) -> None:
    done = run("check", job_file(tmp_path), *given, "--json", STATECORE_CATALOG="sqlite:///none.db")
    assert done.returncode == 0, done.stderr
    parts = {part["name"]: part for part in json.loads(done.stdout)["parts"] if part["kind"] == "operator"}
    assert parts["totals"]["does"] == "Totals by (k string)"
    assert parts["totals"]["has"] == "total: value of bigint"

    done = run("check", job_file(tmp_path, kind="bigin"), *given)
    assert done.returncode == 1 and "error: totals.py:11 in open: " in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_job_that_is_tried_is_registered_only_if_it_can_run(tmp_path: Path, given: list[Any]) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    new: list[Any] = ["register", "totals", "--catalog", url, "--store", tmp_path / "store", "--master", "local[2]"]
    new += ["--parallelism", "1", "--artifact", tmp_path / "totals.py", *given]
    job_file(tmp_path, key="kk")
    done = run(*new, "--try")
    assert done.returncode == 1
    assert "error: totals.py:24: found no columns ['kk'] in the input of operator 'totals'" in done.stderr
    with Catalog(url) as catalog:
        assert catalog.jobs.names() == []
    # Without a trial nobody sees it.
    assert run(*new).returncode == 0


def test_a_query_file_is_tried_on_a_clone_of_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    url, checkpoint = f"sqlite:///{tmp_path}/catalog.db", tmp_path / "checkpoint"
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
    (tmp_path / "in" / "0.json").write_text('{"k": 1, "v": 2}\n')
    query = tmp_path / "query.py"
    query.write_text(QUERY)
    once = json.dumps({"availableNow": True})
    settings = {"in": str(tmp_path / "in"), "out": str(tmp_path / "out"), "trigger": once}
    register: list[Any] = [
        "register",
        "totals",
        "--catalog",
        url,
        "--store",
        tmp_path / "store",
        "--master",
        "local[2]",
    ]
    register += ["--parallelism", "2", "--query", query, "--checkpoint", checkpoint, "--try"]
    for key, value in settings.items():
        register += ["--setting", f"{key}={value}"]
    done = run(*register)
    assert done.returncode == 0 and "nothing to try the query on" in done.stderr

    namespace: dict[str, Any] = {}
    exec(query.read_text(), namespace)
    writer = namespace["build"](spark, settings).option("checkpointLocation", str(checkpoint))
    writer.start().awaitTermination()
    before = sorted(checkpoint.rglob("*"))
    query.write_text(QUERY.replace('groupBy("k")', 'groupBy("k", "v")'))
    done = run(*register)
    assert done.returncode == 1 and "nothing was stopped" in done.stderr
    assert sorted(checkpoint.rglob("*")) == before
