"""Each program does its work with the rights of its own database role, and no other's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from psycopg import sql
from sqlalchemy import make_url

from statecore.catalog import Catalog, SourceBacklog
from statecore.catalog.roles import AIRFLOW, DRIVER, JOB, ROLES, SUPERVISOR
from statecore.errors import CatalogError
from tests.contracts.catalog.epochs import epoch
from tests.contracts.catalog.fixtures import ManualClock, register
from tests.support.postgres import PostgresServer

As = Callable[[str], Catalog]


@pytest.fixture
def as_role(postgres_server: PostgresServer, catalog: Catalog, catalog_url: str, clock: ManualClock) -> Iterator[As]:
    """Open the catalog as a login that has one of the roles."""
    opened: list[Catalog] = []
    with postgres_server.connect() as connection:
        for role in ROLES:
            if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone() is None:
                connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
                login = sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x' IN ROLE {}")
                connection.execute(login.format(sql.Identifier(f"{role}_login"), sql.Identifier(role)))
    assert catalog.grant_roles() == sorted(ROLES)

    def open_as(role: str) -> Catalog:
        url = make_url(catalog_url).set(username=f"{role}_login", password="x").render_as_string(hide_password=False)
        opened.append(Catalog(url, clock=clock))
        return opened[-1]

    yield open_as
    for each in opened:
        each.close()


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

    assert airflow.savepoints.of(job) and airflow.epochs.of(job) and airflow.epochs.figures(job)
    clock.advance(5_000)
    assert supervisor.leases.recover_expired(job) is not None
    assert supervisor.jobs.get(job).artifact == "/jobs/flights.py"
    assert {each.who for each in catalog.jobs.audit(job)} and len(catalog.jobs.audit(job)) >= 5


@pytest.mark.parametrize("role", ROLES)
def test_none_of_them_registers_jobs_or_changes_where_they_run(as_role: As, job: str, role: str) -> None:
    opened = as_role(role)
    for statement in (
        f"UPDATE jobs SET store = '/mine' WHERE name = '{job}'",
        f"UPDATE jobs SET conf = '{{}}' WHERE name = '{job}'",
        "DELETE FROM jobs",
        "UPDATE audit SET who = 'nobody'",
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
            f"INSERT INTO audit (job, at_ms, who, change) VALUES ('{other}', 1, 'me', '{{}}')",
            f"INSERT INTO backlogs VALUES ('{other}', 1, 1, '[]')",
        ):
            refused(driver, insert, "row-level security")
        # A role that is less than the login's own does not shed the job's.
        with driver._database.write() as connection:
            connection.exec_driver_sql(f"SET LOCAL ROLE {DRIVER}")
            found = connection.exec_driver_sql("SELECT DISTINCT job FROM generations").scalars().all()
        assert found == [job]
    assert catalog.generations.newest(other).epoch == 1  # type: ignore[union-attr]


@contextmanager
def own_driver(server: PostgresServer, catalog_url: str, job: str, clock: ManualClock) -> Iterator[Catalog]:
    """Open the catalog as a driver of one job."""
    login = "driver_of_one"
    with server.connect() as connection:
        connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(JOB + job)))
        made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x' IN ROLE {}, {}")
        connection.execute(made.format(*map(sql.Identifier, (login, DRIVER, JOB + job))))
    url = make_url(catalog_url).set(username=login, password="x").render_as_string(hide_password=False)
    try:
        with Catalog(url, clock=clock) as opened:
            yield opened
    finally:
        with server.connect() as connection:
            for role in (login, JOB + job):
                connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def test_airflow_reports_no_figures(as_role: As) -> None:
    refused(as_role(AIRFLOW), "DELETE FROM epochs")
    refused(as_role(AIRFLOW), "UPDATE clusters SET settings = '{}'")


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
