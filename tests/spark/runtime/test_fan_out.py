"""An operator whose outputs two others read runs once an epoch, also without a key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from statecore.runtime import read_savepoint
from statecore.runtime.epoch import subtasks
from statecore.runtime.epoch.commits import checked_commits
from statecore.runtime.messages import SubtaskCommit
from tests.support.bench import JOB, Bench
from tests.support.jobs import fan_out


def test_two_operators_read_what_one_without_a_key_gives(spark: Any, bench: Bench) -> None:
    bench.register(artifact=Path(fan_out.__file__))
    for parallelism in (3, 2):
        with bench.running(parallelism):
            for _ in range(2):
                bench.feed(60)
            bench.wait_done()
    path = bench.store / bench.checkpoints.manifest_path(1, bench.newest().epoch)
    for name, fed in (("all", bench.fed), ("odd", [(k, n) for k, n in bench.fed if n % 2])):
        assert bench.published(name, ("k", "n")) == Counter(fed)
        expected: Counter[str] = Counter()
        for k, n in fed:
            expected[k] += n
        sums = read_savepoint(spark, path, f"sum_{name}", "sum").collect()
        assert {row.k: row.value for row in sums} == dict(expected)


def test_the_catalog_knows_the_dataflow_and_how_many_rows_came_in_and_went_out(bench: Bench) -> None:
    bench.register(artifact=Path(fan_out.__file__))
    with bench.running(2):
        bench.feed(60)
        bench.wait_done()
    dataflow = bench.catalog.epochs.dataflow(JOB)
    assert dataflow is not None
    assert (dataflow.generation, dataflow.ui_url) == (bench.generation().generation, None)
    found = {(each.kind, each.name): (each.does, each.inputs) for each in dataflow.nodes}
    read, inputs = found.pop(("source", "records"))
    assert read.startswith("FileSource[") and inputs == ()
    assert found == {
        ("operator", "split"): ("Split", (("source", "records"),)),
        ("operator", "same"): ("Same", (("operator", "split"),)),
        ("operator", "sum_all"): ("Sum", (("operator", "same"),)),
        ("operator", "sum_odd"): ("Sum", (("operator", "split"),)),
        ("sink", "all"): ("ParquetSink", (("operator", "sum_all"),)),
        ("sink", "odd"): ("ParquetSink", (("operator", "sum_odd"),)),
    }
    epochs = bench.catalog.epochs.of(JOB)
    assert sum(each.source_rows["records"] for each in epochs) == 60
    odd = sum(n % 2 for _, n in bench.fed)
    assert [sum(each.sink_rows.get(name, 0) for each in epochs) for name in ("all", "odd")] == [60, odd]


def test_a_reader_without_rows_names_the_attempts_that_gave_it_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[SubtaskCommit] = []

    def checked(commits: Sequence[SubtaskCommit], parallelism: Mapping[str, int], epoch: int) -> Any:
        found.extend(commits)
        return checked_commits(commits, parallelism, epoch)

    monkeypatch.setattr(subtasks, "checked_commits", checked)
    bench.register(artifact=Path(fan_out.__file__))
    with bench.running(2):
        bench.feed(numbers=range(0, 60, 2))
        bench.wait_done()
    split = {commit.attempt for commit in found if commit.uid == "split"}
    odd = [commit for commit in found if commit.uid == "sum_odd"]
    assert sum(commit.rows for commit in odd) == 0
    assert {attempt for commit in odd for attempt in commit.read_from} == split
