"""Every grant of every role is tried for bringing code, and for reading or changing what is another job's.

``REVIEWED`` has the grants that a person has judged. One that the database has beyond them fails the first test. The
other tests take the grants from the database, so they try a new one at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import JSON, BigInteger, Boolean, Column, Executable, Integer, Table, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from statecore.catalog import Catalog, DataflowRecord, JobRecord, SourceBacklog
from statecore.catalog.roles import AIRFLOW, DRIVER, ROLES, SUPERVISOR
from statecore.catalog.schema import VERSION_TABLE
from statecore.catalog.tables import metadata
from statecore.errors import CatalogError, JobDefinitionError
from statecore.operations.supervising.job_file_checks import JobFileChecks
from tests.contracts.catalog.epochs import SUMS, epoch, key_groups
from tests.contracts.catalog.fixtures import ManualClock, register
from tests.postgres.catalog.grants import Grant, grants, summary
from tests.postgres.catalog.logins import As, own_driver
from tests.postgres.catalog.reviewed_grants import REVIEWED
from tests.support.postgres import PostgresServer
from tests.support.waiting import wait

OTHER = "payments"

Columns = Sequence[Column[Any]]
Use = Callable[[Catalog, Table, Columns], int]


def test_every_grant_was_reviewed(as_role: As, catalog: Catalog) -> None:
    for role in ("public", *ROLES):
        assert summary(grants(catalog, role)) == REVIEWED[role], role


class Attack:
    """What a login does to the catalog, grant by grant.

    Attributes:
        evil: A job file that nobody registered, and that leaves a trace when it runs.

    """

    def __init__(self, owner: Catalog, tmp_path: Path) -> None:
        self._owner = owner
        self.evil, self._trace = tmp_path / "evil.py", tmp_path / "ran"
        self.evil.write_text(f"open({str(self._trace)!r}, 'w')\ndef build(job):\n    pass\n")
        self.digest = sha256(self.evil.read_bytes()).hexdigest()
        self._number = 1_000_000

    @property
    def has_run(self) -> bool:
        """Whether the job file has run."""
        return self._trace.exists()

    def write(self, login: Catalog, role: str) -> dict[Grant, int]:
        """Use every right to change and to add rows; return how many rows each has written.

        The supervisor may say what runs: it is not asked to.
        """
        changed = self._use(login, role, "UPDATE", self._update)
        return changed | self._use(login, role, "INSERT", self._insert)

    def delete(self, login: Catalog, role: str) -> None:
        """Use every right to remove rows."""
        self._use(login, role, "DELETE", lambda login, table, _: attempt(login, delete(table)))

    def _use(self, login: Catalog, role: str, privilege: str, use: Use) -> dict[Grant, int]:
        granted: dict[str, list[Grant]] = {}
        for each in grants(self._owner, role):
            if each.privilege == privilege and (role, each.name) != (SUPERVISOR, "job_files"):
                granted.setdefault(each.name, []).append(each)
        assert granted
        changed: dict[Grant, int] = {}
        for name, rights in granted.items():
            table = metadata.tables[name]
            columns = [column for column in table.c if any(each.column in (None, column.name) for each in rights)]
            changed |= dict.fromkeys(rights, use(login, table, columns))
        return changed

    def _update(self, login: Catalog, table: Table, columns: Columns) -> int:
        values = [{column.name: forged} for column in columns for forged in self._forged(column)]
        return sum(attempt(login, update(table).values(**each)) for each in values)

    def _insert(self, login: Catalog, table: Table, columns: Columns) -> int:
        """Add a copy of each row under a new key, as it is and forged."""
        rows, done = rows_of(self._owner, table.name), 0
        assert rows, f"no row of {table.name} to copy"
        names = [column.name for column in columns if column.name not in ("job", "name")]
        forged = {
            column.name: written[0] for column in columns if column.name in names and (written := self._forged(column))
        }
        for row in rows:
            for changes in (dict[str, Any](), forged):
                self._number += 1
                keys: dict[str, Any] = {
                    column.name: self._new_key(column) for column in table.primary_key if column.name != "job"
                }
                copied = row | changes | keys
                given = {column.name: copied[column.name] for column in columns}
                # Where the job is the key, the old row goes first.
                room = [] if keys else [delete(table).where(table.c.job == row["job"])]
                done += attempt(login, *room, insert(table).values(**given).inline())
        return done

    def _new_key(self, column: Column[Any]) -> Any:
        return self._number if isinstance(column.type, Integer | BigInteger) else f"forged {self._number}"

    def _forged(self, column: Column[Any]) -> list[Any]:
        """Return what an attacker writes there: the job file, its digest, and who it is said to be from."""
        by_name: dict[str, list[Any]] = {
            "artifact_sha256": [self.digest, None],
            "change": [{"artifact_sha256": [None, self.digest]}],
            "result": [{"sha256": self.digest}],
            "arguments": [{"artifact": str(self.evil)}],
            "before": [self._before()],
            "claims_savepoint": [{"path": str(self.evil), "fingerprint": "f"}],
            "kind": ["check_job_file"],
            "state": ["pending" if column.table.name == "requests" else "running"],
            "desired_state": ["running"],
        }
        if column.name in by_name:
            return by_name[column.name]
        if column.name in ("job", "name") or column.foreign_keys:
            return [OTHER]
        if isinstance(column.type, JSON):
            return [{"artifact": str(self.evil), "sha256": self.digest}]
        if isinstance(column.type, Boolean):
            return [True]
        return [7] if isinstance(column.type, Integer | BigInteger) else [str(self.evil)]

    def _before(self) -> dict[str, Any]:
        with self._owner._database.read() as connection:
            before: dict[str, Any] = connection.execute(
                select(metadata.tables["leases"].c.before).limit(1)
            ).scalar_one()
        forged = {"artifact": str(self.evil), "artifact_sha256": None, "conf": {"spark.jars": "/evil.jar"}}
        return before | {"job": before["job"] | forged | {"settings": {"a": "b"}, "store": "/evil", "master_url": "x"}}


def attempt(login: Catalog, *statements: Executable) -> int:
    """Write in a transaction of its own; return the rows of the last statement, 0 if the database refuses."""
    try:
        with login._database.write() as connection:
            return max([abs(connection.execute(each).rowcount) for each in statements][-1], 0)
    except (CatalogError, IntegrityError):
        return 0


@pytest.fixture
def attack(catalog: Catalog, tmp_path: Path) -> Attack:
    return Attack(catalog, tmp_path)


@pytest.fixture
def both(catalog: Catalog, job: str) -> list[JobRecord]:
    """Two jobs with a row in every table."""
    catalog.clusters.register("local", "standalone", {}, workers=2)
    catalog.supervisors.lead("s", host="h", pid=1, process_started_ms=1, version="1")
    for name in (job, register(catalog, OTHER)):
        claimed = catalog.generations.claim(name, log_path=f"/logs/{name}-{{generation}}.log").generation
        catalog.generations.record_driver(name, claimed, host="h", pid=7, process_started_ms=7)
        catalog.epochs.record(
            replace(epoch(1, 200, generation=claimed), job=name),
            operators=[SUMS],
            key_groups=[replace(key_groups(1, 200), job=name)],
        )
        catalog.epochs.record_backlog(name, claimed, [SourceBacklog("in", 1)])
        catalog.epochs.record_topics(name, claimed, [])
        catalog.epochs.record_dataflow(DataflowRecord(name, claimed, ()))
        catalog.savepoints.record(f"/{name}", job=name, lineage=1, epoch=1, parallelism=2, reason="")
        catalog.requests.send(name, "savepoint", {"name": "x"}, f"savepoint of {name}")
        catalog.requests.send(name, "check_job_file", {"artifact": "/new.py"}, f"check for {name}")
        catalog.leases.acquire(name, f"run of {name}", 5_000)
        catalog.runs.start(f"run of {name}", name, from_parallelism=2, to_parallelism=4)
        policy = catalog.policies.set(name, {})
        sizes: dict[str, Any] = {"from_parallelism": 2, "to_parallelism": 4, "from_workers": None, "to_workers": None}
        catalog.policies.record_decision(policy, {}, **sizes, method="live", reason="", figures={})
        catalog.alerts.claim("hook", name, "job_down", firing=True, ttl_ms=1)
        with catalog._database.write() as connection:
            made = {"job": name, "owner": "o", "taken_ms": 1}
            connection.execute(insert(metadata.tables["taken_back"]).values(**made))
    return catalog.jobs.all()


@pytest.mark.parametrize("role", ROLES)
def test_no_grant_brings_code(
    as_role: As, catalog: Catalog, clock: ManualClock, both: list[JobRecord], attack: Attack, role: str
) -> None:
    permitted, lines = {each.name: catalog.job_files.of(each.name) for each in both}, len(rows_of(catalog, "audit"))
    processes = {(each["job"], each["generation"]): each for each in rows_of(catalog, "generations")}
    login = as_role(role)
    changed = attack.write(login, role)
    # The job file in a lease must be the job's, which was changed before.
    assert {each.name for each, count in changed.items() if count == 0} <= {"leases"}, changed

    as_supervisor = as_role(SUPERVISOR)
    checks = JobFileChecks(as_supervisor, ["/releases"])

    def is_answered() -> bool:
        checks.answer()
        return not as_supervisor.requests.to_supervisor()

    wait(is_answered, "the answers")
    assert not attack.has_run
    assert {each.name: catalog.job_files.of(each.name) for each in both} == permitted
    refuse_what_was_not_registered(catalog, both, attack)
    # The owner has all rights, and restores what a lease says.
    clock.advance(10_000)
    for each in both:
        catalog.leases.recover_expired(each.name)
    refuse_what_was_not_registered(catalog, both, attack)
    for after in rows_of(catalog, "generations") if role != SUPERVISOR else ():
        before = processes.get((after["job"], after["generation"]), {"host": None, "pid": None})
        assert (after["host"], after["pid"]) == (before["host"], before["pid"]), "a process to end"
        assert after["log_path"] == before.get("log_path", "") or role == AIRFLOW, "a log to show"
    assert {each["actor"] for each in rows_of(catalog, "audit")[lines:]} <= {
        f"{role}_login", f"{SUPERVISOR}_login", actor(catalog)
    }  # fmt: skip


def refuse_what_was_not_registered(catalog: Catalog, before: list[JobRecord], attack: Attack) -> None:
    for known in before:
        job = catalog.jobs.get(known.name)
        same = ("store", "master_url", "cluster", "conf", "settings")
        assert [getattr(job, field) for field in same] == [getattr(known, field) for field in same]
        if (job.artifact, job.artifact_sha256) != (known.artifact, known.artifact_sha256):
            with pytest.raises(JobDefinitionError, match="it was not run"):
                catalog.job_files.require_permitted(job)
        catalog.job_files.require_permitted(known)
        with pytest.raises(JobDefinitionError, match="it was not run"):
            catalog.job_files.require_permitted(
                replace(known, artifact=str(attack.evil), artifact_sha256=attack.digest)
            )


@pytest.fixture
def own(
    as_role: As, postgres_server: PostgresServer, catalog_url: str, job: str, clock: ManualClock
) -> Iterator[Catalog]:
    with own_driver(postgres_server, catalog_url, job, clock) as opened:
        yield opened


def test_no_grant_of_a_driver_reads_what_is_another_jobs(own: Catalog, catalog: Catalog, both: list[JobRecord]) -> None:
    readable = {each.name for each in grants(catalog, DRIVER) if each.privilege == "SELECT"} - {VERSION_TABLE}
    assert readable
    for name in readable:
        column = "name" if name == "jobs" else "job"
        assert OTHER in {row[column] for row in rows_of(catalog, name)}, f"no row of {name} to read"
        assert {row[column] for row in rows_of(own, name)} == {both[0].name}, name


def test_no_grant_of_a_driver_changes_what_is_another_jobs(
    own: Catalog, catalog: Catalog, both: list[JobRecord], attack: Attack
) -> None:
    before = {name: others(catalog, table) for name, table in metadata.tables.items()}
    changed = attack.write(own, DRIVER)
    assert all(changed.values()), changed
    attack.delete(own, DRIVER)
    assert {name: others(catalog, table) for name, table in metadata.tables.items()} == before


def test_a_driver_does_not_answer_whether_a_job_file_is_sound(
    own: Catalog, as_role: As, catalog: Catalog, both: list[JobRecord], attack: Attack
) -> None:
    for driver in (own, as_role(DRIVER)):
        assert {each["kind"] for each in rows_of(driver, "requests")} == {"savepoint"}
    attack.write(own, DRIVER)
    asked = [each for each in rows_of(catalog, "requests") if each["kind"] == "check_job_file"]
    assert [each["result"] for each in asked] == [None] * len(both)


def others(catalog: Catalog, table: Table) -> list[dict[str, Any]]:
    """Return the rows that are not of the first job."""
    key = "name" if table.name == "jobs" else "job"
    return [row for row in rows_of(catalog, table.name) if row.get(key) != "flights"]


def rows_of(catalog: Catalog, name: str) -> list[dict[str, Any]]:
    table = metadata.tables[name]
    with catalog._database.read() as connection:
        return [dict(row._mapping) for row in connection.execute(select(table).order_by(*table.primary_key))]


def actor(catalog: Catalog) -> str:
    with catalog._database.read() as connection:
        return str(connection.exec_driver_sql("SELECT session_user").scalar())
