"""``plan``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statecore.snapshot.checkpoints import CheckpointStore
from tests.support.shell import assert_refused, committed, run


class TestPlan:
    def test_it_prints_what_each_subtask_will_have_and_writes_nothing(self, savepoint: Path, tmp_path: Path) -> None:
        before = sorted((tmp_path / "store").rglob("*"))
        done = run("plan", savepoint, "--parallelism", "4")
        assert (done.returncode, done.stderr) == (0, "")
        first, *_ = done.stdout.splitlines()
        assert first == (
            "orders, epoch 7 of lineage 1: parallelism 2 -> 4, max parallelism 16 -> 16, by_reference; "
            "0 bytes to write, skew 1.09"
        )
        assert "\noperator totals: 22 rows of state, " in done.stdout
        assert [groups in done.stdout for groups in ("0–3", "4–7", "8–11", "12–15")] == [True] * 4
        assert sorted((tmp_path / "store").rglob("*")) == before

    def test_it_tells_programs_the_same(self, savepoint: Path) -> None:
        done = run("plan", savepoint, "--parallelism", "3", "--max-parallelism", "32", "--json")
        assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
        planned = json.loads(done.stdout)
        assert (planned["method"], planned["to_parallelism"], planned["to_max_parallelism"]) == ("rewrite", 3, 32)
        assert (len(planned["subtasks"]), planned["rows"]) == (3, sum(s["rows"] for s in planned["subtasks"]))
        assert planned["bytes_written"] > 0 and planned["skew"] >= 1

    def test_a_damaged_file_is_refused_by_name(self, savepoint: Path, tmp_path: Path) -> None:
        damaged = next((tmp_path / "store/state").rglob("*.parquet"))
        damaged.write_bytes(damaged.read_bytes()[:-1])
        assert_refused(run("plan", savepoint, "--parallelism", "4"), damaged)

    @pytest.mark.parametrize(("parallelism", "exit_code"), [("17", 1), ("0", 2)])
    def test_an_impossible_parallelism_is_refused(self, savepoint: Path, parallelism: str, exit_code: int) -> None:
        done = run("plan", savepoint, "--parallelism", parallelism)
        assert (done.returncode, done.stdout) == (exit_code, "")
        assert "parallelism" in done.stderr

    def test_of_a_job_it_plans_with_the_newest_epoch(self, job: str, store: CheckpointStore) -> None:
        assert_refused(run("plan", job, "--parallelism", "4"), "no committed epoch of job 'orders'")
        committed(store)
        committed(store, epoch=8)
        done = run("plan", job, "--parallelism", "4")
        assert done.returncode == 0
        assert done.stdout.startswith("orders, epoch 8 of lineage 1: parallelism 2 -> 4, ")
        assert_refused(run("plan", "typo", "--parallelism", "4"), "'typo' is not registered")
