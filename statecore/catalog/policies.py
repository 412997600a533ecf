"""Policies of jobs: their settings, their memory and their decisions.

The policy itself does not use the catalog; the catalog stores its settings and memory as JSON. Two concurrent
evaluations must not both decide: a policy has a version, and only a caller that has read the newest one may replace its
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from statecore.catalog import tables
from statecore.catalog.audit import record_change
from statecore.catalog.queries import one
from statecore.catalog.records import DecisionRecord, DecisionState, PolicyRecord, RescaleMethod
from statecore.catalog.transactions import Transactions
from statecore.errors import UnknownRecordError

policies, decisions = tables.policies, tables.decisions

KEPT_DECISIONS = 1_000
"""Per job."""


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """A diagnosis, and the time since which it has held; None for now."""

    name: str
    since_ms: int | None = None


class Policies:
    """Policies of jobs, and their decisions."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def set(self, job: str, settings: Mapping[str, Any], *, enabled: bool = True) -> PolicyRecord:
        """Create or change the policy of a job; its memory stays."""
        with self._transactions.write_job(job) as connection:
            values = {
                "settings": dict(settings),
                "enabled": enabled,
                "updated_ms": self._transactions.now_ms_in(connection),
            }
            policy = _find_policy(connection, job)
            if policy is None:
                connection.execute(insert(policies).values(job=job, memory={}, version=0, **values))
            else:
                changes = update(policies).where(policies.c.job == job)
                connection.execute(changes.values(version=policy.version + 1, **values))
            made = _find_policy(connection, job)
            assert made is not None
            self._audit(connection, policy, made)
            return made

    def switch(self, job: str, *, enabled: bool, who: str | None = None) -> PolicyRecord:
        """Turn a job's policy on or off; its settings and its memory stay.

        Args:
            job: Name of the job.
            enabled: Whether it is on.
            who: The person, for the audit; None for this program's user.

        Raises:
            UnknownRecordError: The job has no policy.

        """
        with self._transactions.write_job(job) as connection:
            before = _find_policy(connection, job)
            if before is None:
                raise UnknownRecordError(
                    f"found no policy of job {job!r}; expected one; set its limits with `statecore policy set {job}`"
                )
            if before.enabled == enabled:
                return before
            now_ms = self._transactions.now_ms_in(connection)
            values = {"enabled": enabled, "updated_ms": now_ms, "version": before.version + 1}
            connection.execute(update(policies).where(policies.c.job == job).values(**values))
            after = _find_policy(connection, job)
            assert after is not None
            self._audit(connection, before, after, who)
            return after

    def find(self, job: str) -> PolicyRecord | None:
        """Return a job's policy, or None when it has none."""
        with self._transactions.read() as connection:
            return _find_policy(connection, job)

    def all(self) -> list[PolicyRecord]:
        """Return all policies by name of the job."""
        return self._transactions.all(select(policies).order_by(policies.c.job), PolicyRecord)

    def save_memory(
        self, seen: PolicyRecord, memory: Mapping[str, Any], finding: str, diagnosis: Diagnosed | None = None
    ) -> bool:
        """Replace memory, finding and, if given, diagnosis of a policy.

        Returns False and changes nothing if the policy changed since ``seen`` was read.
        """
        with self._transactions.write_job(seen.job) as connection:
            return self._replace_memory(connection, seen, memory, finding, diagnosis)

    def record_decision(
        self,
        seen: PolicyRecord,
        memory: Mapping[str, Any],
        *,
        from_parallelism: int,
        to_parallelism: int,
        from_workers: int | None,
        to_workers: int | None,
        method: RescaleMethod,
        reason: str,
        figures: Mapping[str, Any],
        diagnosis: Diagnosed | None = None,
        state: DecisionState = "open",
    ) -> DecisionRecord | None:
        """Record a decision with the new memory and diagnosis, in one transaction; of several callers, one succeeds.

        Returns None when the policy or its memory changed since ``seen`` was read. ``DecisionRecord`` explains the
        other arguments.
        """
        with self._transactions.write_job(seen.job) as connection:
            if not self._replace_memory(connection, seen, memory, reason, diagnosis):
                return None
            now_ms = self._transactions.now_ms_in(connection)
            made = connection.execute(
                insert(decisions).values(
                    job=seen.job,
                    decided_ms=now_ms,
                    from_parallelism=from_parallelism,
                    to_parallelism=to_parallelism,
                    from_workers=from_workers,
                    to_workers=to_workers,
                    method=method,
                    reason=reason,
                    figures=dict(figures),
                    state=state,
                    announced_ms=now_ms,
                    updated_ms=now_ms,
                )
            )
            (number,) = made.inserted_primary_key or (0,)
            connection.execute(delete(decisions).where(decisions.c.job == seen.job, decisions.c.id.in_(_old(seen.job))))
            return _get_decision(connection, number)

    def decision(self, number: int) -> DecisionRecord:
        """Return a decision."""
        with self._transactions.read() as connection:
            return _get_decision(connection, number)

    def decisions(
        self, job: str, *, limit: int | None = None, since_ms: int = 0, until_ms: int | None = None
    ) -> list[DecisionRecord]:
        """Return a job's decisions between two times, both inclusive, newest first."""
        where = [decisions.c.job == job, decisions.c.decided_ms >= since_ms]
        if until_ms is not None:
            where.append(decisions.c.decided_ms <= until_ms)
        query = select(decisions).where(*where)
        order = (decisions.c.decided_ms.desc(), decisions.c.id.desc())
        return self._transactions.all(query.order_by(*order).limit(limit), DecisionRecord)

    def decisions_made(self, job: str, since_ms: int) -> int:
        """Return the number of a job's decisions since a time, without refused and observed ones."""
        of = decisions.c
        counted = (of.job == job, of.decided_ms >= since_ms, of.state.not_in(("refused", "observed")))
        with self._transactions.read() as connection:
            return connection.execute(select(func.count()).where(*counted)).scalar_one()

    def open_decisions(self) -> list[DecisionRecord]:
        """Return the open decisions of all jobs, oldest first."""
        query = select(decisions).where(decisions.c.state == "open").order_by(decisions.c.id)
        return self._transactions.all(query, DecisionRecord)

    def reannounce(self, seen: DecisionRecord) -> bool:
        """Record that an open decision is announced again; return whether this caller is the one to announce it."""
        columns = decisions.c
        unchanged = (columns.id == seen.id, columns.state == "open", columns.announced_ms == seen.announced_ms)
        with self._transactions.write_job(seen.job) as connection:
            changes = update(decisions).where(*unchanged).values(announced_ms=self._transactions.now_ms_in(connection))
            return connection.execute(changes).rowcount == 1

    def claim_decision(self, number: int, run_id: str) -> DecisionRecord:
        """Record that a rescale run carries out an open decision; a decision in another state stays unchanged."""
        return self._change_decision(number, {"state": "triggered", "run_id": run_id}, only=("open",))

    def end_decision(self, number: int, state: DecisionState, outcome: str = "") -> DecisionRecord:
        """Record that a decision is ``done``, or why it was ``refused`` or ``failed``; the first end stays."""
        return self._change_decision(number, {"state": state, "outcome": outcome}, only=("open", "triggered"))

    def _audit(
        self, connection: Connection, before: PolicyRecord | None, after: PolicyRecord, who: str | None = None
    ) -> None:
        """Write a line of the audit if the policy's state has changed."""
        states = [None if before is None else before.state, after.state]
        if states[0] != states[1]:
            now_ms = self._transactions.now_ms_in(connection)
            record_change(connection, after.job, {"policy": states}, who or self._transactions.who, now_ms)

    def _replace_memory(
        self,
        connection: Connection,
        seen: PolicyRecord,
        memory: Mapping[str, Any],
        finding: str,
        diagnosis: Diagnosed | None,
    ) -> bool:
        unchanged = (policies.c.job == seen.job, policies.c.version == seen.version)
        now_ms = self._transactions.now_ms_in(connection)
        changes = {"memory": dict(memory), "finding": finding, "looked_ms": now_ms, "version": seen.version + 1}
        if diagnosis is not None:
            changes |= {
                "diagnosis": diagnosis.name,
                "diagnosed_ms": now_ms if diagnosis.since_ms is None else diagnosis.since_ms,
            }
        return connection.execute(update(policies).where(*unchanged).values(**changes)).rowcount == 1

    def _change_decision(
        self, number: int, values: dict[str, Any], *, only: tuple[DecisionState, ...]
    ) -> DecisionRecord:
        with self._transactions.write() as connection:
            where = (decisions.c.id == number, decisions.c.state.in_(only))
            connection.execute(
                update(decisions).where(*where).values(**values, updated_ms=self._transactions.now_ms_in(connection))
            )
            return _get_decision(connection, number)


def _find_policy(connection: Connection, job: str) -> PolicyRecord | None:
    return one(connection, policies, policies.c.job == job, kind=PolicyRecord)


def _get_decision(connection: Connection, number: int) -> DecisionRecord:
    decision = one(connection, decisions, decisions.c.id == number, kind=DecisionRecord)
    if decision is None:
        raise UnknownRecordError(
            f"there is no decision {number}; expected a number among the newest "
            f"{KEPT_DECISIONS} of its job; check that this is the catalog that recorded it"
        )
    return decision


def _old(job: str) -> Any:
    """Return a query for all but the newest decisions of a job."""
    return select(decisions.c.id).where(decisions.c.job == job).order_by(decisions.c.id.desc()).offset(KEPT_DECISIONS)
