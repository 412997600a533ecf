"""Scheduled savepoints, step by step: taken, read through, and old ones dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from statecore_airflow.operators.savepoints import (
    RetainSavepointsOperator,
    RunningJobsOperator,
    TakeSavepointOperator,
    VerifySavepointOperator,
)

from statecore.catalog import Catalog
from statecore.queries.job.savepoints import take_savepoint
from statecore.queries.job.start import begin_from
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import claimed
from tests.airflow.running import RUN, run_step
from tests.airflow.scripted_driver import ScriptedDriver
from tests.support.paths import REPO
from tests.support.shell import run as shell
from tests.support.webhook import Webhook
from tests.unit.queries.handmade import Operator, make

pytestmark = pytest.mark.usefixtures("quick")


def take(job: str, run: str = RUN) -> str:
    return str(run_step(TakeSavepointOperator(task_id="take", job=job), run))


def retain(job: str, *, verified: str = "another", keep: int = 1, max_age_days: float = 7) -> list[Any]:
    found: list[Any] = run_step(
        RetainSavepointsOperator(task_id="retain", job=job, verified=verified), keep=keep, max_age_days=max_age_days
    )
    return found


def test_all_jobs_that_should_run_or_the_one_that_was_asked_for(catalog: Catalog, job: str) -> None:
    catalog.jobs.register("idle", artifact="x", store="/s", master_url="local", parallelism=1, max_parallelism=8)
    jobs = RunningJobsOperator(task_id="jobs")
    assert run_step(jobs, job=None) == [job]
    assert run_step(jobs, job="idle") == ["idle"]


def test_a_savepoint_is_taken_once_while_the_job_runs_on_and_is_whole(
    catalog: Catalog, job: str, driver: ScriptedDriver, store: CheckpointStore
) -> None:
    url = take(job)
    assert take(job) == url
    assert [each.path for each in catalog.savepoints.of(job)] == [url]
    assert run_step(VerifySavepointOperator(task_id="verify", job=job, savepoint=url)) == url
    assert catalog.generations.newest(job).state == "running"  # type: ignore[union-attr]
    lost = Path(store.files.url) / store.manifest(url.removeprefix(store.describe(""))).files()[0].path
    lost.write_bytes(b"x" * lost.stat().st_size)
    with pytest.raises(AirflowFailException, match=rf"found 1 problems .*{lost}"):
        run_step(VerifySavepointOperator(task_id="verify", job=job, savepoint=url))


def test_a_refused_savepoint_is_asked_for_again_by_the_next_try(
    catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    driver.refuse = "storage is away"
    with pytest.raises(AirflowException, match="storage is away"):
        take(job)
    driver.refuse = None
    assert take(job).endswith("-2/manifest.json")


def test_a_job_without_a_driver_is_not_asked_until_the_next_try_finds_one(
    catalog: Catalog, job: str, store: CheckpointStore, tmp_path: Path
) -> None:
    with pytest.raises(AirflowException, match="no live driver of job 'flights'") as failed:
        take(job)
    assert not isinstance(failed.value, AirflowFailException)
    assert catalog.requests.take_next(job) is None
    with ScriptedDriver(f"sqlite:///{tmp_path / 'catalog.db'}", job, store) as driver:
        driver.wait_running()
        assert take(job).endswith("-2/manifest.json")


def test_old_savepoints_of_this_dag_and_of_rescales_go_and_no_others(
    catalog: Catalog, job: str, driver: ScriptedDriver, store: CheckpointStore
) -> None:
    newest = store.newest()
    assert newest is not None
    by_hand = store.write_savepoint(newest, "by-hand", reason="", now_ms=1)
    left = store.write_savepoint(newest, "left-by-a-rescale", reason="", now_ms=1)
    in_use = store.write_savepoint(newest, "of-a-run-that-goes-on", reason="", now_ms=1)
    for path in (by_hand, left, in_use):
        catalog.savepoints.record(path, job=job, lineage=1, epoch=newest.epoch, parallelism=2, reason="", created_ms=1)
    for run, path in (("done", left), ("on", in_use)):
        catalog.runs.start(run, job, from_parallelism=2, to_parallelism=4)
        catalog.runs.update(run, savepoint=path)
    catalog.runs.finish("done")
    first, second, third = (take(job, f"scheduled__{hour}") for hour in (1, 2, 3))
    with claimed(store.files, first.removeprefix(store.describe("")), "a copy"):
        assert retain(job) == [store.describe(left), second]
        assert sorted(store.savepoints()) == sorted(
            [by_hand, in_use, *(url.removeprefix(store.describe("")) for url in (first, third))]
        )
    assert {each.path for each in catalog.savepoints.of(job)} == {by_hand, in_use, first, third}
    assert retain(job, keep=9, max_age_days=0) == [first]
    # The newest stays, however old.
    assert retain(job, keep=1, max_age_days=0) == []


def test_what_a_rescale_from_the_shell_left_goes_too(
    catalog: Catalog, job: str, driver: ScriptedDriver, store: CheckpointStore, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    done = shell("rescale", job, "--parallelism", 4, "--method", "by_reference", "--catalog", url)
    assert done.returncode == 0, done
    (run,) = catalog.runs.of(job)
    assert run.savepoint is not None and run.rescaled is not None
    kept = take(job)
    assert retain(job) == [store.describe(run.savepoint)]
    # The job started from the rescaled one.
    assert {each.path for each in catalog.savepoints.of(job)} == {kept, store.describe(run.rescaled)}


def test_the_one_that_was_verified_stays_when_a_rescale_leaves_a_newer_one_meanwhile(
    catalog: Catalog, job: str, driver: ScriptedDriver, store: CheckpointStore
) -> None:
    verified = take(job)
    newest = store.newest()
    assert newest is not None
    left = store.write_savepoint(newest, "left-by-a-rescale", reason="", now_ms=1)
    later_ms = catalog.savepoints.of(job)[0].created_ms + 1
    catalog.savepoints.record(
        left, job=job, lineage=1, epoch=newest.epoch, parallelism=2, reason="", created_ms=later_ms
    )
    catalog.runs.start("done", job, from_parallelism=2, to_parallelism=4)
    catalog.runs.update("done", savepoint=left)
    catalog.runs.finish("done")
    assert retain(job, verified=verified) == []
    assert retain(job) == [verified]


def test_a_savepoint_that_a_job_is_to_start_from_stays(
    catalog: Catalog, job: str, driver: ScriptedDriver, store: CheckpointStore
) -> None:
    first, _ = (take(job, f"scheduled__{hour}") for hour in (1, 2))
    catalog.jobs.set_desired(job, start_from=first.removesuffix("/manifest.json"))
    assert retain(job) == []
    catalog.jobs.set_desired(job, start_from=None)
    assert retain(job) == [first]


def test_savepoints_of_a_query_go_the_same_way_and_checkpoints_that_nobody_uses_as_well(
    catalog: Catalog, tmp_path: Path
) -> None:
    made = make(tmp_path / "checkpoint", Operator(), batches=3)
    query = catalog.jobs.register(
        "totals", artifact="q.py", store=str(tmp_path / "totals"), master_url="local", parallelism=2,
        max_parallelism=8, checkpoint=str(made.root),
    )  # fmt: skip
    names = ("by-hand", "airflow-1", "left-by-a-rescale", "airflow-2")
    _, first, left, last = (take_savepoint(catalog, query, name, "", running=False).url for name in names)
    surplus = begin_from(query, first, "left-by-a-rescale-p4").url
    catalog.runs.start("done", "totals", from_parallelism=2, to_parallelism=4)
    catalog.runs.update("done", savepoint="savepoints/left-by-a-rescale", rescaled=surplus)
    assert retain("totals", verified=last, keep=9, max_age_days=9) == []
    assert Path(surplus).exists()
    catalog.runs.finish("done")
    assert retain("totals", verified=last) == [first, left]
    # Nothing was written to it for so long.
    assert Path(surplus).exists()
    assert retain("totals", verified=last, max_age_days=0) == []
    assert sorted(each.name for each in Path(tmp_path, "totals", "savepoints").iterdir()) == ["airflow-2", "by-hand"]
    assert {each.path.rpartition("/")[2] for each in catalog.savepoints.of("totals")} == {"airflow-2", "by-hand"}
    assert not Path(surplus).exists()
    assert made.root.exists()
    Path(last, "offsets/2").unlink()
    with pytest.raises(
        AirflowFailException, match=r"is not whole: found commits up to batch 2 and offsets up to batch 1"
    ):
        run_step(VerifySavepointOperator(task_id="verify", job="totals", savepoint=last))


def test_a_savepoint_that_is_not_whole_is_told_with_its_job_and_its_task_links_to_it(
    airflow_db: Path, catalog: Catalog, job: str, driver: ScriptedDriver, store: CheckpointStore, webhook: Webhook
) -> None:
    from airflow.dag_processing.dagbag import BundleDagBag

    folder = REPO / "dags"
    dag = BundleDagBag(dag_folder=str(folder), bundle_path=folder, bundle_name="dags-folder").dags["savepoints"]
    newest = store.newest()
    assert newest is not None
    lost = Path(store.files.url) / newest.files()[0].path
    lost.write_bytes(b"x" * lost.stat().st_size)
    run = dag.test(run_conf={"job": job})
    assert run.state == "failed"
    assert {task.task_id: str(task.state) for task in run.get_task_instances()} == {
        "jobs": "success", "savepoint.take": "success", "savepoint.verify": "failed",
        "savepoint.retain": "upstream_failed",
    }  # fmt: skip
    (told,) = (message["text"] for message in webhook.messages)
    assert told.startswith(f"Run of savepoints for job {job} failed at savepoint.verify. found 1 problems")
    verify = run.get_task_instance("savepoint.verify", map_index=0)
    assert verify.xcom_pull(task_ids=verify.task_id, key="_link_JobPageLink", map_indexes=0).endswith(f"?name={job}")
