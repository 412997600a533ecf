"""``status``: one screen, and what it says to do about whatever is wrong."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from typing import Any

import pytest

from statecore.catalog import (
    Catalog,
    EpochRecord,
    GenerationRecord,
    JobBefore,
    LeaseRecord,
    RescaleRunRecord,
    SourceBacklog,
    SourceTime,
    SourceTopics,
    StepTimes,
    SystemClock,
)
from statecore.operations.status.advice import advice
from statecore.operations.status.job_status import JobStatus, job_status, summary
from statecore.release import RELEASE
from statecore.topics.lag import PartitionLag
from tests.support.shell import assert_refused, run
from tests.support.supervised import supervise


@pytest.fixture(autouse=True)
def supervised(catalog: Catalog) -> None:
    supervise(catalog)


@pytest.fixture
def busy(catalog: Catalog, job: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A job that runs on a cluster, with a backlog, savepoints, and a rescale under way; time stands still."""
    now_ms = int(time.time() * 1000)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_ms)
    catalog.clusters.register("local", "standalone", {"password": "hidden"}, 2)
    catalog.clusters.report("local", ready_workers=1)
    definition: dict[str, Any] = {"artifact": "/jobs/orders.py", "master_url": "local[2]", "cluster": "local"}
    definition |= {"parallelism": 2, "max_parallelism": 16, "conf": {"spark.secret": "hidden"}}
    store = catalog.jobs.get(job).store
    catalog.jobs.register(job, store=store, **definition)
    catalog.jobs.set_desired(job, state="running")
    catalog.generations.claim(job, log_path="/logs/1.log")
    catalog.generations.end(job, 1, state="failed", error="MissingFileError: found no [file]")
    catalog.generations.claim(job, log_path="/logs/2.log")
    catalog.generations.heartbeat(job, 2)
    catalog.epochs.record(EpochRecord(job, 1, 41, 2, 2, 6_000, 90_000, now_ms - 4_000, now_ms - 3_000, 1_000))
    catalog.epochs.record_backlog(job, 2, [SourceBacklog("in", 244_776, files=3, event_time_lag_ms=83_999)])
    path = f"{store}/savepoints/nightly/manifest.json"
    made: dict[str, Any] = {"job": job, "lineage": 1, "epoch": 30, "parallelism": 2, "reason": "before [2.0]"}
    catalog.savepoints.record(path, created_ms=now_ms - 7_500_000, **made)
    partitions = (PartitionLag("orders", 0, 7, 0, 244_707, now_ms - 120_000), PartitionLag("orders", 1, 9, 0, 85))
    catalog.epochs.record_topics(job, 2, [SourceTopics("in", "broker:9092", False, partitions)])
    policy = catalog.policies.set(job, {"max_parallelism": 8})
    catalog.policies.save_memory(policy, {}, "120 rows/s [of all] arrive")
    catalog.leases.acquire(job, "manual__1", 59_000)
    sizes: dict[str, Any] = {"from_parallelism": 2, "to_parallelism": 4, "from_workers": 1, "to_workers": 2}
    catalog.runs.start("manual__1", job, reason="drain", **sizes)
    catalog.runs.mark_step("manual__1", "resize_cluster", started=True)
    return job


@pytest.mark.parametrize(
    ("watermark_ms", "times", "line"),
    [
        (1_000, {"in": SourceTime(1_000)}, "1970-01-01 00:00:01 UTC"),
        (
            1_000,
            {"in": SourceTime(9_000), "slow [1]": SourceTime(1_000, moved_ms=-240_000)},
            r"1970-01-01 00:00:01 UTC; held back by slow \[1\], which last moved 4 min\w* ago",
        ),
        (
            1_000,
            {"in": SourceTime(9_000), "old": SourceTime(1_000)},
            ".*; held back by old, which has not moved since",
        ),
        (None, {"in": SourceTime(9_000), "new": SourceTime(None)}, "none yet; waits for the first record of new"),
        (
            9_000,
            {"in": SourceTime(9_000), "quiet": SourceTime(1, idle=True)},
            ".*UTC; without quiet, idle",
        ),
    ],
)
def test_the_source_that_holds_event_time_back_is_named(
    catalog: Catalog, job: str, watermark_ms: int | None, times: dict[str, SourceTime], line: str
) -> None:
    now_ms = catalog.now_ms()
    times = {
        name: each if each.moved_ms is None else dataclasses.replace(each, moved_ms=now_ms + each.moved_ms)
        for name, each in times.items()
    }
    catalog.generations.claim(job, log_path="")
    catalog.epochs.record(
        EpochRecord(job, 1, 0, 1, 2, 1, 1, now_ms, now_ms, 1, watermark_ms=watermark_ms, source_times=times)
    )
    assert re.search(rf"^ *watermark +{line}", run("status", job).stdout, re.MULTILINE)
    newest = json.loads(run("status", job, "--json").stdout)["newest_epoch"]
    assert newest["source_times"].keys() == times.keys()


def test_everything_is_on_one_screen(catalog: Catalog, busy: str) -> None:
    done = run("status", busy)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) <= 24
    assert lines[0].startswith("orders  RUNNING  generation 2, since 20")
    # A busy machine takes a second or two between the fixture and the command.
    told = re.sub(r"\b\d s ago", "now", " ".join(" ".join(lines).split()))
    for part in (
        "parallelism 2 of at most 16",
        "workers 1 ready of 2 (cluster local)",
        "backlog 244,776 records, 3 files, measured now",
        "lag 0:01:23",
        "topics of in 244,776 records wait in 2 partitions, the oldest for 2 min; most, 244,700, in orders-0: ",
        "2.0 times the average",
        "newest epoch 41 of lineage 1, now: 6,000 rows in 1.00 s at parallelism 2",
        "newest savepoint epoch 30, 2 h 5 min ago (before [2.0]): /",
        "/savepoints/nightly/manifest.json",
        "lease manual__1, since now; expires in 59 s unless renewed",
        "last rescale manual__1: parallelism 2 -> 4, workers 1 -> 2, by_reference, under way, at resize_cluster, ",
        "(drain)",
        "policy on, evaluated now: 120 rows/s [of all] arrive",
        "last error generation 1, now: MissingFileError: found no [file] (log: /logs/1.log)",
        "log /logs/2.log",
        "what to do manual__1 is changing the job: leave it alone until that run has ended",
        "1 of 2 workers of local are ready",
    ):
        assert part in told, f"{part}\n{done.stdout}"
    assert "hidden" not in done.stdout


@pytest.mark.parametrize(
    ("observe", "enabled", "said"), [(True, True, "observes"), (False, True, "on"), (True, False, "off")]
)
def test_a_policy_whose_decisions_change_nothing_observes(
    catalog: Catalog, job: str, observe: bool, enabled: bool, said: str
) -> None:
    policy = catalog.policies.set(job, {"max_parallelism": 8, "observe": observe}, enabled=enabled)
    assert f"policy {said}, not evaluated yet" in " ".join(run("status", job).stdout.split())
    catalog.policies.save_memory(policy, {}, "would scale out: 120 rows/s arrive")
    told = re.sub(r"\b\d s ago", "now", " ".join(run("status", job).stdout.split()))
    assert f"policy {said}, evaluated now: would scale out: 120 rows/s arrive" in told
    # Programs find it where it has always been.
    found = json.loads(run("status", job, "--json").stdout)["policy"]
    assert (found["enabled"], found["settings"]["observe"]) == (enabled, observe)


def test_programs_see_the_same_and_no_configuration(catalog: Catalog, busy: str) -> None:
    done = run("status", busy, "--json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    told = json.loads(done.stdout)
    assert (told["driver"], told["backlog_records"], told["workers"]) == (
        "running",
        244_776,
        {"ready": 1, "desired": 2},
    )
    assert (told["newest_epoch"]["epoch"], told["savepoint"]["epoch"]) == (41, 30)
    assert (told["lease"]["owner"], told["rescale"]["run_id"]) == ("manual__1", "manual__1")
    assert any("leave it alone" in line for line in told["advice"])
    assert "hidden" not in done.stdout


def test_a_job_that_never_ran_has_little_to_tell(job: str) -> None:
    done = run("status", job)
    assert done.returncode == 0
    assert done.stdout.startswith("orders  NEVER STARTED  (it should be stopped)")
    told = " ".join(done.stdout.split())
    for part in (
        "newest epoch none committed yet",
        "lease none",
        "policy none",
        "last error –",
        "what to do nothing",
    ):
        assert part in told


def test_a_job_nobody_registered_is_refused(job: str) -> None:
    assert_refused(run("status", "typo"), "'typo' is not registered", "known jobs: orders")


@pytest.fixture
def healthy(catalog: Catalog, job: str, monkeypatch: pytest.MonkeyPatch) -> JobStatus:
    """A job about which nothing is to do; time stands still."""
    now_ms = int(time.time() * 1000)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_ms)
    catalog.jobs.set_desired(job, state="running")
    catalog.generations.claim(job, log_path="/logs/1.log")
    catalog.generations.heartbeat(job, 1)
    catalog.epochs.record(EpochRecord(job, 1, 0, 1, 2, 10, 10, now_ms, now_ms, 100, memory_share=0.5))
    catalog.epochs.record_backlog(job, 1, [SourceBacklog("in", 10)])
    return job_status(catalog, catalog.jobs.get(job))


def later(healthy: JobStatus, ms: int, **changes: Any) -> JobStatus:
    return dataclasses.replace(healthy, now_ms=healthy.now_ms + ms, **changes)


def test_when_all_is_well_there_is_nothing_to_do(healthy: JobStatus) -> None:
    assert advice(healthy) == []
    # Nothing waits: a stream without input commits nothing.
    assert healthy.figures.backlog is not None
    none_wait = dataclasses.replace(healthy.figures.backlog, sources=(SourceBacklog("in", 0),))
    idle = dataclasses.replace(healthy.figures, backlog=none_wait)
    assert advice(later(healthy, 10**7, figures=idle)) == []


def test_a_driver_that_is_missing_or_fails_is_the_supervisors(healthy: JobStatus) -> None:
    (one,) = healthy.generations
    failed = dataclasses.replace(one, state="failed", ended_ms=healthy.now_ms, error="x", settled_ms=None)
    assert "run `statecore supervisor" in advice(later(healthy, 61_000, generations=(), alive=False))[0]
    assert advice(later(healthy, 1_000, generations=(), alive=False)) == []
    assert "last heard of 1 min" in advice(later(healthy, 61_000, alive=False))[0]
    (line,) = advice(later(healthy, 0, generations=(failed, one), alive=False))
    assert line.startswith("x (the driver of generation 1 failed): the supervisor starts the next driver in 1 s; if")
    assert line.endswith("the log is /logs/1.log")


def failures(healthy: JobStatus, count: int) -> list[GenerationRecord]:
    """Drivers that failed without a new epoch, newest first: one a minute, the last one just now."""
    (one,) = healthy.generations
    return [
        dataclasses.replace(
            one, generation=count - n, state="failed", ended_ms=healthy.now_ms - n * 60_000,
            error="orders.py:13: ValueError: negative\nmore", log_path=f"/logs/{count - n}.log", settled_ms=None,
        )
        for n in range(count)
    ]  # fmt: skip


def test_a_crash_loop_is_named_with_its_reason_and_the_next_start(healthy: JobStatus) -> None:
    failed = failures(healthy, 4)
    (line,) = advice(later(healthy, 1_000, generations=failed, alive=False))
    for part in (
        "orders.py:13: ValueError: negative (crash loop: 4 drivers failed in a row, the first 3 min 1 s ago): correct",
        "`statecore register orders --artifact …`; the log is /logs/4.log",
        "`statecore stop orders`",
        "the supervisor starts the next driver in 7 s",
    ):
        assert part in line
    assert "no supervisor starts the next driver: run `statecore supervisor" in advice(
        later(healthy, 100_000, generations=failed, alive=False)
    )[0]  # fmt: skip


@pytest.mark.parametrize("state", ["launching", "running"])
def test_a_crash_loop_goes_on_while_the_next_driver_starts(healthy: JobStatus, state: Any) -> None:
    (one,) = healthy.generations
    new = dataclasses.replace(one, generation=3, state=state, started_ms=healthy.now_ms, settled_ms=None)
    looping = later(healthy, 10_000, generations=[new, *failures(healthy, 2)])
    assert f"generation 3 is {state}" in advice(looping)[0]
    assert (summary(looping).error, summary(looping).log) == ("orders.py:13: ValueError: negative\nmore", "/logs/2.log")
    # One failure is no loop, and a driver that has settled ends it; to run for long does not.
    assert not later(healthy, 10_000, generations=[new, *failures(healthy, 1)]).crash_loops
    assert later(healthy, 10**6, generations=[new, *failures(healthy, 2)]).crash_loops
    settled = dataclasses.replace(new, state="running", settled_ms=healthy.now_ms)
    over = later(healthy, 10_000, generations=[settled, *failures(healthy, 2)])
    assert not over.crash_loops and summary(over).error is None


def test_a_crash_loop_stands_in_the_headline(catalog: Catalog, job: str) -> None:
    catalog.jobs.set_desired(job, state="running")
    for number in (1, 2):
        catalog.generations.claim(job, log_path="/logs/{generation}.log")
        catalog.generations.end(job, number, state="failed", error="orders.py:13: ValueError: negative")
    catalog.generations.claim(job, log_path="/l")
    assert run("status", job).stdout.startswith("orders  CRASH LOOP: 2 failures in a row, launching again")
    listed = run("jobs").stdout
    assert "launching (crash loop)" in listed
    assert "orders, generation 2: orders.py:13: ValueError: negative (log: /logs/2.log)" in listed


def test_a_driver_of_another_release_than_the_supervisor_is_named_with_what_to_do(catalog: Catalog, job: str) -> None:
    catalog.jobs.set_desired(job, state="running")
    catalog.generations.claim(job, log_path="/l")
    catalog.generations.heartbeat(job, 1, version="0.0.9")
    told = " ".join(run("status", job).stdout.split())
    assert f"the driver runs release 0.0.9 of statecore, the supervisor runs {RELEASE}: upgrade " in told
    assert f"to one release, then restart the job: `statecore stop {job}`, then `statecore start {job}`" in told


def test_a_stopped_job_that_still_runs_is_waited_for(healthy: JobStatus) -> None:
    stopped = dataclasses.replace(healthy.job, desired_state="stopped")
    assert "still runs" in advice(later(healthy, 0, job=stopped))[0]
    assert advice(later(healthy, 0, job=stopped, alive=False)) == []


def test_a_lease_is_left_alone_until_it_expires(healthy: JobStatus) -> None:
    lease = LeaseRecord(
        "orders", "run-1", 0, 0, healthy.now_ms + 10, JobBefore(healthy.job, workers=None, generation=1)
    )
    assert "run-1 is changing the job" in advice(later(healthy, 9, lease=lease))[0]
    assert "has expired: the supervisor takes it back" in advice(later(healthy, 10, lease=lease))[0]


def test_a_failed_rescale_is_started_again_unless_the_job_got_there_since(healthy: JobStatus) -> None:
    run = RescaleRunRecord(
        "r", "orders", 2, 4, None, None, "live", "", "failed", None, None, {"live": StepTimes(1)}, "no quota", 1, 2
    )
    assert "the last rescale failed (no quota)" in advice(later(healthy, 0, rescales=[run]))[0]
    there = dataclasses.replace(healthy.job, parallelism=4)
    assert advice(later(healthy, 0, rescales=[run], job=there)) == []


def test_a_policy_that_does_not_look_is_seen(catalog: Catalog, healthy: JobStatus) -> None:
    policy = catalog.policies.set("orders", {"max_parallelism": 8})
    assert advice(later(healthy, 200_000, policy=policy)) == advice(later(healthy, 200_000))
    assert "was not evaluated for 5 min" in advice(later(healthy, 310_000, policy=policy))[0]
    off = dataclasses.replace(policy, enabled=False)
    assert advice(later(healthy, 310_000, policy=off)) == advice(later(healthy, 310_000))


def test_a_stream_that_stands_still_or_fills_its_memory_is_seen(healthy: JobStatus) -> None:
    assert advice(later(healthy, 59_000)) == []
    assert "no epoch was committed for 1 min 1 s" in advice(later(healthy, 61_000))[0]
    assert healthy.figures.epoch is not None
    full = dataclasses.replace(healthy.figures.epoch, memory_share=0.9)
    (line,) = advice(later(healthy, 0, figures=dataclasses.replace(healthy.figures, epoch=full)))
    assert "90% of its memory" in line and "`statecore rescale orders" in line
