"""Each program does its work with the rights of its own database role, and no other's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.catalog import Catalog, SourceBacklog
from statecore.catalog.audit import this_user
from statecore.catalog.roles import AIRFLOW, DRIVER, ROLES, SUPERVISOR
from statecore.errors import CatalogError, JobDefinitionError
from statecore.operations.supervising.job_file_checks import JobFileChecks
from tests.contracts.catalog.epochs import epoch
from tests.contracts.catalog.fixtures import ManualClock, register
from tests.postgres.catalog.logins import As, own_driver
from tests.support.postgres import PostgresServer
from tests.support.waiting import wait

SOUND = """
from statecore import ProcessFunction

class Same(ProcessFunction):
    def process_element(self, value, ctx):
        yield value

def build(job):
    job.source("in", read=print).process(Same(), output="a int", uid="same")
"""


def test_a_supervisor_a_driver_and_airflow_do_their_work(
    as_role: As, catalog: Catalog, job: str, clock: ManualClock
) -> None:
    supervisor, driver, airflow = as_role(SUPERVISOR), as_role(DRIVER), as_role(AIRFLOW)
    catalog.clusters.register("local", "standalone", {}, workers=2)
    on = {"artifact": "/jobs/flights.py", "store": "/s", "master_url": "spark://127.0.0.1:7077", "cluster": "local"}
    catalog.jobs.register(job, **on, parallelism=2, max_parallelism=128)
    supervisor.create_schema(only_if_new=True)

    airflow.leases.acquire(job, "run-0", 5_000)
    airflow.runs.start("run-0", job, from_parallelism=2, to_parallelism=1, from_workers=2, to_workers=1)
    assert airflow.runs.finish("run-0").state == "done"
    assert catalog.clusters.get("local").desired_workers == 1
    airflow.leases.release(job, "run-0")

    airflow.leases.acquire(job, "run-1", 5_000)
    airflow.runs.start("run-1", job, from_parallelism=2, to_parallelism=4)
    airflow.jobs.set_desired(job, state="running", parallelism=4, artifact="/new.py", artifact_sha256="f" * 64)
    airflow.clusters.set_desired_workers("local", 2)
    airflow.runs.mark_step("run-1", "lease", started=True)
    airflow.policies.set(job, {})
    asked = airflow.requests.send(job, "check_job_file", {"artifact": "/a.py"}, "check")

    assert supervisor.requests.to_supervisor() == [asked]
    supervisor.job_files.permit(replace(supervisor.jobs.get(job), artifact="/a.py", artifact_sha256="e" * 64))
    supervisor.requests.finish(asked.id, result={})
    supervisor.clusters.report("local", ready_workers=2)
    claimed = supervisor.generations.claim(job, log_path="/l", if_wanted=True).generation

    assert driver.generations.heartbeat(job, claimed, lineage=1, epoch=1)
    driver.epochs.record(epoch(1, 200, generation=claimed))
    driver.epochs.record_backlog(job, claimed, [SourceBacklog("in", 1)])
    stop = airflow.requests.send(job, "rescale", {"parallelism": 2}, "live")
    assert driver.requests.take_next(job) is not None
    assert driver.generations.apply_parallelism(job, claimed, 2, stop.id, {})
    driver.savepoints.record("/sp", job=job, lineage=1, epoch=1, parallelism=2, reason="")
    driver.jobs.set_desired(job, parallelism=2, max_parallelism=128)
    driver.jobs.clear_start(job, 0)
    driver.jobs.set_desired(job, checkpoint="/cp")
    driver.generations.end(job, claimed, state="failed", error="x")
    driver.generations.import_stopped(job, claimed + 7, parallelism=2, lineage=None, epoch=None)
    with pytest.raises(JobDefinitionError, match="it was not run"):
        driver.job_files.require_permitted(driver.jobs.get(job))
    assert airflow.generations.claim(job, log_path="(no driver)").generation == claimed + 8
    airflow.generations.end(job, claimed + 8, state="stopped")

    assert airflow.savepoints.of(job) and airflow.epochs.of(job) and airflow.overviews.figures(job)
    clock.advance(5_000)
    assert supervisor.leases.recover_expired(job) is not None
    assert supervisor.jobs.get(job).artifact == "/jobs/flights.py"
    supervisor.job_files.require_permitted(supervisor.jobs.get(job))
    lines = catalog.jobs.audit(job)
    logins = {f"{role}_login" for role in ROLES} | {catalog_owner(catalog)}
    assert {each.actor for each in lines} == logins and {each.on_behalf_of for each in lines} == {this_user()}


def test_airflow_upgrades_to_a_file_that_the_supervisor_takes_from_its_folder(
    as_role: As, catalog: Catalog, tmp_path: Path
) -> None:
    size: dict[str, Any] = {"parallelism": 1, "max_parallelism": 1}
    catalog.jobs.register("j", artifact="/old.py", store=str(tmp_path / "store"), master_url="m", **size)
    supervisor, driver, airflow = as_role(SUPERVISOR), as_role(DRIVER), as_role(AIRFLOW)
    (new := tmp_path / "new.py").write_text(SOUND)
    asked = airflow.requests.send("j", "check_job_file", {"artifact": str(new)}, "check")
    checks = JobFileChecks(supervisor, [str(tmp_path)])
    checks.answer()
    wait(lambda: airflow.requests.get(asked.id).state != "pending", "the answer")
    result = airflow.requests.get(asked.id).result
    assert result is not None
    airflow.jobs.set_desired("j", artifact=str(new), artifact_sha256=result["sha256"])
    driver.job_files.require_permitted(driver.jobs.get("j"))
    assert [each.actor for each in catalog.job_files.of("j")] == [f"{SUPERVISOR}_login", catalog_owner(catalog)]


@pytest.mark.parametrize("role", ROLES)
def test_none_of_them_registers_jobs_or_changes_where_they_run(as_role: As, job: str, role: str) -> None:
    opened = as_role(role)
    for statement in (
        f"UPDATE jobs SET store = '/mine' WHERE name = '{job}'",
        f"UPDATE jobs SET conf = '{{}}' WHERE name = '{job}'",
        "DELETE FROM jobs",
        "UPDATE audit SET on_behalf_of = 'nobody'",
        f"INSERT INTO audit (job, at_ms, actor, on_behalf_of, change) VALUES ('{job}', 1, 'owner', 'me', '{{}}')",
        f"UPDATE job_files SET artifact_sha256 = '{'f' * 64}'",
        "DELETE FROM job_files",
        "DELETE FROM audit",
        "CREATE TABLE mine (n int)",
        "DROP TABLE jobs",
    ):
        refused(opened, statement)
    with pytest.raises(CatalogError, match="permission denied"):
        opened.jobs.register("new", artifact="/a", store="/s", master_url="m", parallelism=1, max_parallelism=1)


def test_a_driver_neither_brings_code_nor_starts_jobs_nor_sees_leases(as_role: As, job: str) -> None:
    driver = as_role(DRIVER)
    with pytest.raises(CatalogError, match="permission denied"):
        driver.jobs.set_desired(job, artifact="/evil.py", artifact_sha256="f" * 64)
    with pytest.raises(CatalogError, match="permission denied"):
        driver.jobs.set_desired(job, state="running")
    for table in ("clusters", "leases", "policies", "decisions", "rescale_runs"):
        refused(driver, f"SELECT 1 FROM {table}")


def test_a_driver_with_a_role_of_its_job_reaches_no_other(
    as_role: As, postgres_server: PostgresServer, catalog: Catalog, catalog_url: str, job: str, clock: ManualClock
) -> None:
    other = register(catalog, "payments")
    for each in (job, other):
        claimed = catalog.generations.claim(each, log_path="/l")
        catalog.generations.heartbeat(each, claimed.generation, lineage=1, epoch=1)
        catalog.epochs.record(replace(epoch(1, 200, generation=claimed.generation), job=each))
        catalog.savepoints.record(f"/{each}", job=each, lineage=1, epoch=1, parallelism=2, reason="")
        catalog.requests.send(each, "savepoint", {"name": "x"}, f"savepoint of {each}")
    assert as_role(DRIVER).epochs.of(other) != []
    with own_driver(postgres_server, catalog_url, job, clock) as driver:
        assert driver.jobs.get(job).name == job and driver.epochs.of(job) and driver.savepoints.of(job)
        assert driver.generations.heartbeat(job, 1, lineage=1, epoch=2)
        assert driver.requests.take_next(job) is not None
        driver.epochs.record_backlog(job, 1, [SourceBacklog("in", 1)])

        with pytest.raises(CatalogError, match=other):
            driver.jobs.get(other)
        for table in ("jobs", "generations", "requests", "savepoints", "epochs", "backlogs"):
            assert jobs_in(driver, table) == [job], table
        with driver._database.write() as connection:
            for change in ("UPDATE generations SET epoch = 9", "DELETE FROM savepoints", "DELETE FROM epochs"):
                assert connection.exec_driver_sql(f"{change} WHERE job = '{other}'").rowcount == 0
        for insert in (
            f"INSERT INTO audit (job, at_ms, on_behalf_of, change) VALUES ('{other}', 1, 'me', '{{}}')",
            f"INSERT INTO backlogs VALUES ('{other}', 1, 1, '[]')",
        ):
            refused(driver, insert, "row-level security")
        # A role that is less than the login's own does not shed the job's.
        with driver._database.write() as connection:
            connection.exec_driver_sql(f"SET LOCAL ROLE {DRIVER}")
            found = connection.exec_driver_sql("SELECT DISTINCT job FROM generations").scalars().all()
        assert found == [job]
    assert catalog.generations.newest(other).epoch == 1  # type: ignore[union-attr]


def test_airflow_reports_no_figures(as_role: As) -> None:
    refused(as_role(AIRFLOW), "DELETE FROM epochs")
    refused(as_role(AIRFLOW), "UPDATE clusters SET settings = '{}'")


def catalog_owner(catalog: Catalog) -> str:
    with catalog._database.read() as connection:
        return str(connection.exec_driver_sql("SELECT session_user").scalar())


def jobs_in(catalog: Catalog, table: str) -> list[str]:
    with catalog._database.write() as connection:
        column = "name" if table == "jobs" else "job"
        return sorted(connection.exec_driver_sql(f"SELECT DISTINCT {column} FROM {table}").scalars())


def refused(catalog: Catalog, statement: str, why: str = "permission denied|must be owner") -> None:
    with (
        pytest.raises(CatalogError, match=why),
        catalog._database.write() as connection,
    ):
        connection.exec_driver_sql(statement)
