"""Which alerts fire, and which changes are told; the same words as those of ``status``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from statecore.catalog import (
    Catalog,
    ClusterRecord,
    EpochRecord,
    GenerationRecord,
    PolicyRecord,
    RescaleRunRecord,
    SourceBacklog,
    SupervisorRecord,
    TakenBackRecord,
    ToldAlertRecord,
)
from statecore.operations.status.advice import advice
from statecore.operations.status.alerts import (
    ALL_JOBS,
    RESOLVED_AFTER_MS,
    RULES,
    SUPERVISOR_DEAD_MS,
    FiringAlert,
    Notice,
    alert_changes,
    job_alerts,
    supervisor_alerts,
)
from statecore.operations.status.finding import Alert
from statecore.operations.status.job_status import JobStatus, job_status
from statecore.release import RELEASE
from tests.contracts.catalog.fixtures import ManualClock

MINUTE_MS = 60_000


@pytest.fixture
def healthy(catalog_url: str) -> JobStatus:
    """A job that runs, keeps up and has no alert; its catalog's time stands still."""
    with Catalog(catalog_url, clock=ManualClock()) as catalog:
        catalog.jobs.register("orders", artifact="a", store="s", master_url="m", parallelism=2, max_parallelism=16)
        catalog.jobs.set_desired("orders", state="running")
        catalog.generations.claim("orders", log_path="/logs/1.log")
        catalog.generations.heartbeat("orders", 1)
        now_ms = catalog.jobs.get("orders").updated_ms
        catalog.epochs.record(EpochRecord("orders", 1, 0, 1, 2, 10, 10, now_ms, now_ms, 100))
        catalog.epochs.record_backlog("orders", 1, [SourceBacklog("in", 10)])
        return job_status(catalog, catalog.jobs.get("orders"))


def later(status: JobStatus, ms: int, **changes: Any) -> JobStatus:
    return dataclasses.replace(status, now_ms=status.now_ms + ms, **changes)


def failed(status: JobStatus, number: int, error: str, *, silent_ms: int = 0) -> GenerationRecord:
    (one,) = status.generations
    return dataclasses.replace(
        one,
        generation=number,
        state="failed",
        error=error,
        heartbeat_ms=status.now_ms - silent_ms,
        ended_ms=status.now_ms,
        settled_ms=None,
    )


def driven_by(status: JobStatus, release: str, **changes: Any) -> JobStatus:
    (one,) = status.generations
    return dataclasses.replace(status, generations=[dataclasses.replace(one, version=release)], **changes)


def memory_full(status: JobStatus) -> JobStatus:
    assert status.figures.epoch is not None
    full = dataclasses.replace(status.figures.epoch, memory_share=0.9)
    return dataclasses.replace(status, figures=dataclasses.replace(status.figures, epoch=full))


def gone(status: JobStatus) -> JobStatus:
    assert status.figures.backlog is not None
    sources = (SourceBacklog("in", problem="found no /data/in; expected it; bring it back"),)
    backlog = dataclasses.replace(status.figures.backlog, sources=sources)
    return dataclasses.replace(status, figures=dataclasses.replace(status.figures, backlog=backlog))


def host_full(status: JobStatus) -> JobStatus:
    assert status.figures.epoch is not None
    full = dataclasses.replace(status.figures.epoch, memory_share=0.12, host_share=0.9)
    return dataclasses.replace(status, figures=dataclasses.replace(status.figures, epoch=full))


def diagnosed(status: JobStatus, name: str, *, for_ms: int) -> PolicyRecord:
    finding = "9,000 rows/s arrive; the key AA has 60% of the work"
    return PolicyRecord("orders", True, {}, {}, 0, finding, status.now_ms, status.now_ms, name, status.now_ms - for_ms)


def crash_loop(status: JobStatus) -> JobStatus:
    row = [failed(status, 2, "orders.py:13: ValueError: negative"), failed(status, 1, "x")]
    return later(status, 0, alive=False, generations=row)


def lost_and_replaced(status: JobStatus) -> JobStatus:
    lost = failed(status, 1, "no heartbeat for 21000 ms while running; see /logs/1.log", silent_ms=21_000)
    new = dataclasses.replace(
        status.generations[0], generation=2, state="launching", started_ms=status.now_ms, settled_ms=None
    )
    return later(status, 1_000, generations=[new, lost])


RUN = RescaleRunRecord("r", "orders", 2, 4, None, None, "live", "", "failed", None, None, {}, "no quota", 1, 2)
SUPERVISOR = SupervisorRecord("s", "blue", 7, 0, RELEASE, {}, 0, heartbeat_ms=1_000)
WAITING = dataclasses.replace(SUPERVISOR, hung={"job 'orders'": 70})
CLUSTER = ClusterRecord("c", "ec2", {}, 4, 1, "MaxSize is 1", 0)
ILL: list[tuple[Alert, str, Callable[[JobStatus], JobStatus]]] = [
    (
        Alert.CRASH_LOOP,
        "orders.py:13: ValueError: negative (crash loop: 2 drivers failed in a row, the first 0 s ago)",
        crash_loop,
    ),
    (Alert.DRIVER_LOST, "last heard of 1 min ago", lambda found: later(found, MINUTE_MS, alive=False)),
    (Alert.DRIVER_LOST, "generation 1 was lost after 21 s without a heartbeat", lost_and_replaced),
    (
        Alert.DRIVER_MISSING,
        "for 1 min 1 s no supervisor has started it",
        lambda found: later(found, MINUTE_MS + 1_000, alive=False, generations=()),
    ),
    (
        Alert.DRIVER_MISSING,
        "for 1 min 1 s no supervisor starts the next driver",
        # The pause before it was a second.
        lambda found: later(found, MINUTE_MS + 2_000, alive=False, generations=[failed(found, 1, "x")]),
    ),
    (
        Alert.SUPERVISOR_WAITS,
        "the supervisor has waited for job 'orders' for 1 min 10 s",
        lambda found: dataclasses.replace(found, supervised=True, supervisor=WAITING),
    ),
    (Alert.STREAM_STALLED, "no epoch was committed for 1 min 1 s", lambda found: later(found, MINUTE_MS + 1_000)),
    (Alert.SOURCE_SILENT, "source in cannot be looked at: found no /data/in", gone),
    (
        Alert.LEASE_TAKEN_BACK,
        "the lease of run-1 was taken back 5 s ago",
        lambda found: later(found, 5_000, taken_back=TakenBackRecord("orders", "run-1", found.now_ms)),
    ),
    (Alert.RESCALE_FAILED, "the last rescale failed (no quota)", lambda found: later(found, 0, rescales=[RUN])),
    (
        Alert.WORKERS_MISSING,
        "1 of 4 workers of c are ready, because of: MaxSize is 1",
        lambda found: later(found, 0, cluster=CLUSTER),
    ),
    (Alert.MEMORY_FULL, "a worker used 90% of its memory", memory_full),
    (Alert.MEMORY_FULL, "a worker's host used 90% of its memory, the job's fullest worker 12%", host_full),
    (
        Alert.POLICY_IDLE,
        "the policy was not evaluated for 6 min",
        lambda found: dataclasses.replace(
            found, policy=PolicyRecord("orders", True, {}, {}, 0, None, None, found.now_ms - 6 * MINUTE_MS)
        ),
    ),
    (
        Alert.POLICY_BLOCKED,
        "the last 3 rescales of this policy failed, the newest with: no quota",
        lambda found: dataclasses.replace(
            found,
            policy=PolicyRecord("orders", True, {}, {}, 0, None, None, found.now_ms),
            rescales=(RUN, RUN, RUN),
            decided={RUN.run_id},
        ),
    ),
    (
        Alert.JOB_BOTTLENECK,
        "hot key: 9,000 rows/s arrive; the key AA has 60% of the work",
        lambda found: dataclasses.replace(found, policy=diagnosed(found, "hot_key", for_ms=2 * MINUTE_MS)),
    ),
    (
        Alert.RELEASES_DIFFER,
        f"the driver runs release 0.0.9 of statecore, the supervisor runs {RELEASE}",
        lambda found: driven_by(found, "0.0.9", supervised=True, supervisor=SUPERVISOR),
    ),
]


def test_a_driver_that_starts_says_which_phase_it_is_in_and_how_long_that_took_before(healthy: JobStatus) -> None:
    (one,) = healthy.generations
    begun_ms = healthy.now_ms
    before = dataclasses.replace(
        one, state="stopped", started_ms=begun_ms - 90_000, running_ms=begun_ms - 69_000, settled_ms=begun_ms - 60_000
    )
    new = dataclasses.replace(
        one, generation=2, state="launching", started_ms=begun_ms, running_ms=None, settled_ms=None
    )
    supervised = dataclasses.replace(healthy, supervisor=SUPERVISOR, supervised=True)
    assert advice(later(supervised, 12_000, generations=[new, before])) == [
        "generation 2 is launching Spark and finding its state, for 12 s; in generation 1 that took 21 s"
    ]
    running = dataclasses.replace(new, state="running", running_ms=begun_ms + 20_000)
    assert advice(later(supervised, 23_000, generations=[running, before])) == [
        "generation 2 runs, and has committed no epoch yet, for 3 s; in generation 1 that took 9 s"
    ]
    assert advice(later(supervised, 12_000, generations=[new])) == [
        "generation 2 is launching Spark and finding its state, for 12 s"
    ]


def test_a_healthy_job_has_no_alert(healthy: JobStatus) -> None:
    assert job_alerts(healthy) == []


@pytest.mark.parametrize(
    ("alert", "figures", "ill"), ILL, ids=[f"{alert}: {figures[:30]}" for alert, figures, _ in ILL]
)
def test_what_is_wrong_is_an_alert_with_its_figures_and_the_advice_of_status(
    healthy: JobStatus, alert: Alert, figures: str, ill: Callable[[JobStatus], JobStatus]
) -> None:
    found = ill(healthy)
    (fires,) = (each for each in job_alerts(found) if each.alert == alert)
    assert figures in fires.found and fires.todo
    assert f"{fires.found}: {fires.todo}" in advice(found)


def test_every_alert_is_known_by_its_finding_and_its_severity() -> None:
    assert {alert for alert, _, _ in ILL} | {Alert.SUPERVISOR_DEAD} == set(Alert) == set(RULES)


@pytest.mark.parametrize("ill", [crash_loop, lost_and_replaced])
def test_a_job_that_was_stopped_has_no_alert_about_its_drivers(
    healthy: JobStatus, ill: Callable[[JobStatus], JobStatus]
) -> None:
    found = ill(healthy)
    assert job_alerts(dataclasses.replace(found, job=dataclasses.replace(found.job, desired_state="stopped"))) == []


def test_a_lost_driver_is_over_once_its_successor_has_settled(healthy: JobStatus) -> None:
    found = lost_and_replaced(healthy)
    new, lost = found.generations
    committed = dataclasses.replace(new, state="running", lineage=2, epoch=1, settled_ms=found.now_ms)
    assert job_alerts(dataclasses.replace(found, generations=[committed, lost])) == []


def test_a_lease_is_not_told_for_ever(healthy: JobStatus) -> None:
    back = TakenBackRecord("orders", "run-1", healthy.now_ms)
    idle = dataclasses.replace(healthy, taken_back=back, figures=dataclasses.replace(healthy.figures, backlog=None))
    assert [each.alert for each in job_alerts(later(idle, 3_599_000))] == [Alert.LEASE_TAKEN_BACK]
    assert job_alerts(later(idle, 3_600_000)) == []


def test_a_supervisor_that_is_silent_is_dead_and_one_that_never_was_is_not() -> None:
    assert supervisor_alerts(None, RELEASE, 10**9) == []
    assert supervisor_alerts(SUPERVISOR, RELEASE, 1_000 + SUPERVISOR_DEAD_MS - 1) == []
    (fires,) = supervisor_alerts(SUPERVISOR, RELEASE, 1_000 + 90_000)
    assert (fires.subject, fires.alert) == (ALL_JOBS, Alert.SUPERVISOR_DEAD)
    assert fires.found == "the last supervisor, process 7 on blue, was last heard of 1 min 30 s ago"


def test_airflow_of_another_release_than_the_supervisor_is_one_alert_of_all_jobs() -> None:
    (fires,) = supervisor_alerts(SUPERVISOR, "0.0.9", 2_000)
    assert (fires.subject, fires.alert) == (ALL_JOBS, Alert.RELEASES_DIFFER)
    assert fires.found == f"Airflow runs release 0.0.9 of statecore, the supervisor on blue runs {RELEASE}"
    assert fires.todo.startswith("install one release everywhere: the supervisor's first, then Airflow's")


def test_each_program_is_compared_with_the_supervisor_and_without_one_with_the_program_that_looks(
    healthy: JobStatus,
) -> None:
    same = driven_by(healthy, RELEASE, supervised=True, supervisor=SUPERVISOR)
    assert advice(same) == []
    (found,) = advice(dataclasses.replace(same, release="0.0.9"))
    assert found.startswith(f"this program runs release 0.0.9 of statecore, the supervisor on blue runs {RELEASE}: ")
    # A shell tells nobody unasked: the alert loops do.
    assert job_alerts(dataclasses.replace(same, release="0.0.9")) == []
    alone = [each for each in advice(driven_by(healthy, "0.0.9")) if "release" in each]
    assert len(alone) == 1 and f"0.0.9 of statecore, this program runs {RELEASE}: " in alone[0]
    assert (
        advice(driven_by(same, "0.0.9", alive=False, job=dataclasses.replace(same.job, desired_state="stopped"))) == []
    )


LOOP = FiringAlert("orders", Alert.CRASH_LOOP, "ValueError: negative (crash loop: 4 drivers failed)", "read its log")
FULL = FiringAlert("orders", Alert.MEMORY_FULL, "a worker used 90% of its memory", "add workers")
LESS = dataclasses.replace(FULL, only_keeps=True)


def told(
    firing: bool, alert: Alert = Alert.CRASH_LOOP, *, subject: str = "orders", changed_ms: int | None = None
) -> ToldAlertRecord:
    return ToldAlertRecord("supervisor", subject, alert, firing, 1_000, 0, changed_ms)


def test_a_change_says_how_urgent_it_is_what_to_do_and_where_to_read_on() -> None:
    ((change,), _) = alert_changes([LOOP], [], {"orders"}, 0)
    assert (change.subject, change.alert, change.firing) == ("orders", Alert.CRASH_LOOP, True)
    assert change.text == (
        "CRITICAL crash_loop, job orders: ValueError: negative (crash loop: 4 drivers failed)\n"
        "What to do: read its log\n"
        "Runbook: statecore explain crash_loop"
    )


def test_what_was_told_is_told_again_only_when_it_changes() -> None:
    assert alert_changes([LOOP], [told(True)], {"orders"}, 0) == ([], [])
    assert alert_changes([], [told(False)], {"orders"}, 0) == ([], [])
    assert len(alert_changes([LOOP], [told(False)], {"orders"}, 0)[0]) == 1


def test_what_is_over_is_noted_and_resolved_once_that_has_lasted() -> None:
    assert alert_changes([], [told(True)], {"orders"}, 721_000) == ([], [Notice("orders", Alert.CRASH_LOOP, 721_000)])
    over = told(True, changed_ms=721_000)
    assert alert_changes([], [over], {"orders"}, 721_000 + RESOLVED_AFTER_MS - 1) == ([], [])
    ((change,), notices) = alert_changes([], [over], {"orders"}, 721_000 + RESOLVED_AFTER_MS)
    assert (change.firing, change.text, notices) == (False, "RESOLVED crash_loop, job orders after 12 min", [])
    # It fires again before that.
    assert alert_changes([LOOP], [over], {"orders"}, 730_000) == ([], [Notice("orders", Alert.CRASH_LOOP, None)])


def test_what_has_to_last_is_noted_and_told_once_it_has() -> None:
    limit_ms = RULES[Alert.MEMORY_FULL].sent_after_ms
    assert alert_changes([FULL], [], {"orders"}, 5_000) == ([], [Notice("orders", Alert.MEMORY_FULL, 5_000)])
    noted = told(False, Alert.MEMORY_FULL, changed_ms=5_000)
    assert alert_changes([FULL], [noted], {"orders"}, 5_000 + limit_ms - 1) == ([], [])
    ((change,), _) = alert_changes([FULL], [noted], {"orders"}, 5_000 + limit_ms)
    assert change.text.startswith("WARNING memory_full")
    assert alert_changes([], [noted], {"orders"}, 9_000) == ([], [Notice("orders", Alert.MEMORY_FULL, None)])


def test_an_alert_of_another_release_is_left_alone() -> None:
    unknown = ToldAlertRecord("supervisor", "orders", "job_down", True, 1_000, 0)
    assert alert_changes([LOOP], [unknown, told(True)], {"orders"}, 0) == ([], [])


def test_between_two_values_an_alert_stays_as_it_was_told() -> None:
    assert alert_changes([LESS], [], {"orders"}, 0) == ([], [])
    assert alert_changes([LESS], [told(True, Alert.MEMORY_FULL)], {"orders"}, 0) == ([], [])


def test_an_alert_of_a_job_that_was_not_looked_at_is_not_resolved() -> None:
    assert alert_changes([], [told(True, subject="clicks")], {"orders"}, 0) == ([], [])


@pytest.mark.parametrize(
    ("name", "for_ms", "fires"),
    [
        ("sink_bound", 2 * MINUTE_MS, True),
        ("healthy", 10 * MINUTE_MS, False),
        ("too_small", 10 * MINUTE_MS, False),
    ],
)
def test_a_bottleneck_is_an_alert_and_what_the_policy_can_help_is_not(
    healthy: JobStatus, name: str, for_ms: int, fires: bool
) -> None:
    found = dataclasses.replace(healthy, policy=diagnosed(healthy, name, for_ms=for_ms))
    assert [each.alert for each in job_alerts(found)] == [Alert.JOB_BOTTLENECK] * fires
