"""A job with every kind of state does on Spark what its function does alone; state that left the job is no accident."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statecore.runtime import read_savepoint
from tests.support.alone import ARTIFACT, assert_as_alone
from tests.support.bench import JOB, KEYS, Bench
from tests.support.waiting import wait


def test_state_timers_and_outputs_are_those_of_the_function_run_alone(spark: Any, bench: Bench) -> None:
    bench.register(artifact=ARTIFACT)
    for parallelism in (2, 4, 3, 1):
        with bench.running(parallelism):
            for _ in range(2):
                bench.feed(120)
            bench.wait_done()
    assert_as_alone(spark, bench)


def test_a_restored_state_that_the_job_left_out_is_refused_unless_allowed(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
    original = Path(bench.catalog.jobs.get(JOB).artifact)
    smaller = original.read_text().replace("self.newest = ctx.get_list_state(NEWEST)", "")
    smaller = smaller.replace("self.newest.update([*self.newest.get(), value.n][-2:])", "")
    artifact = bench.input.parent / "smaller.py"
    artifact.write_text(smaller)
    bench.register(artifact=artifact)
    with bench.running(2):
        bench.feed()
        bench.wait_failed()
    assert "restored state 'newest'" in (bench.generation().error or "")
    bench.catalog.jobs.set_desired(JOB, allow_non_restored_state=True)
    with bench.running(2):
        bench.wait_done()
    assert len(read_savepoint(spark, newest_path(bench), "totals", "newest").collect()) == KEYS


def test_an_operator_that_left_the_job_is_refused_unless_allowed(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
    artifact = bench.input.parent / "renamed.py"
    artifact.write_text(Path(bench.catalog.jobs.get(JOB).artifact).read_text().replace('uid="totals"', 'uid="sums"'))
    bench.register(artifact=artifact)
    with bench.running(2):
        bench.wait_failed()
    assert "'totals'" in (bench.generation().error or "")
    bench.catalog.jobs.set_desired(JOB, allow_non_restored_state=True)
    with bench.running(2):
        bench.feed()
        bench.wait_done()
    assert [operator.uid for operator in bench.newest().operators] == ["sums"]
    counts = {row.k: row["count"] for row in read_savepoint(spark, newest_path(bench), "sums", "total").collect()}
    assert max(counts.values()) <= 200 // KEYS


def test_a_job_file_that_a_rollback_brings_back_goes_on_after_epochs_with_state_that_it_does_not_know(
    spark: Any, bench: Bench
) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
    old = Path(bench.catalog.jobs.get(JOB).artifact).read_text()
    added = 'ctx.get_state(ValueStateDescriptor("added", "int"))'
    new = old.replace("        self.newest = ", f"        self.added = {added}\n        self.newest = ")
    new = new.replace("        if value.n % 50", "        self.added.update(1)\n        if value.n % 50")
    new += '    twice = job.source("again", read=read).key_by("k", order_by=("n",))\n'
    new += '    twice.process(Totals(), output="k string, n bigint", uid="again")\n'
    artifact = bench.input.parent / "new.py"
    artifact.write_text(new)
    bench.catalog.leases.acquire(JOB, "upgrade", 600_000)
    changed = bench.catalog.jobs.set_desired(JOB, state="stopped", artifact=str(artifact))
    bench.catalog.job_files.permit(changed)
    with bench.running(2):
        bench.feed()
        wait(lambda: bench.generation().ended or len(bench.newest().operators) == 2, "an epoch of the new file")
    newest = bench.newest()
    assert [operator.uid for operator in newest.operators] == ["totals", "again"], bench.generation().error
    bench.catalog.leases.roll_back(JOB, "upgrade", 600_000, "step verify failed")
    # Twice: a state that the old file does not know stays, so its next driver needs leave, too.
    for _ in range(2):
        with bench.running():
            bench.feed()
            wait(lambda: bench.generation().ended or seen(bench) == len(bench.fed), "the records")
    assert bench.generation().error is None
    bench.assert_exact(spark)


def seen(bench: Bench) -> int:
    return bench.published("seen", ("n",)).total()


def newest_path(bench: Bench) -> Path:
    newest = bench.newest()
    return bench.store / bench.checkpoints.manifest_path(newest.lineage, newest.epoch)
