"""Findings about a job and what to do, for the person on call; some findings are alerts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from statecore.catalog import HISTORY, GenerationRecord, SupervisorRecord
from statecore.operations.status.causes import CODE, cause_of
from statecore.operations.status.finding import Alert, Finding, span
from statecore.operations.status.job_status import JobStatus
from statecore.operations.status.stream import stream_findings
from statecore.policy import BLOCKS_AFTER, BOTTLENECKS, blocked_words

_SUPERVISOR = "statecore supervisor --logs …"
_REASON = 1_000
"""Characters of an error's first line."""
_STARTS_WITHIN_MS = 60_000
# A policy is evaluated every few seconds.
_POLICY_STALLED_MS = 300_000
_TAKEN_BACK_MS = 3_600_000


def advice(status: JobStatus) -> list[str]:
    """Return the advice on a job, the most urgent first; empty when all is well."""
    return [each.text for each in findings(status) if not each.only_keeps]


def findings(status: JobStatus) -> list[Finding]:
    """Return problems of a job and work in progress, the most urgent first."""
    return [
        *_supervisor(status),
        *_driver(status),
        *_lease(status),
        *_cluster(status),
        *_rescale(status),
        *_policy(status),
        *stream_findings(status),
        *_releases(status),
    ]


def _supervisor(status: JobStatus) -> Iterator[Finding]:
    """Yield findings on a supervisor that is dead, or waits for this job or its cluster."""
    job, supervisor = status.job, status.supervisor
    if job.desired_state == "running" and not status.supervised:
        since = "" if supervisor is None else f", since {span(status.now_ms - supervisor.heartbeat_ms)}"
        # No alert of each job: it is one of all jobs.
        yield Finding(f"no supervisor runs{since}", f"nobody restarts the driver if it fails; run `{_SUPERVISOR}`")
    if supervisor is not None and status.supervised:
        for what in (f"job {job.name!r}", f"cluster {job.cluster!r}"):
            if what in supervisor.hung:
                yield Finding(
                    f"the supervisor has waited for {what} for {span(supervisor.hung[what] * 1000)}, and looks after "
                    "everything else",
                    f"see its log on {supervisor.host}",
                    Alert.SUPERVISOR_WAITS,
                )


def _driver(status: JobStatus) -> Iterator[Finding]:
    job, newest = status.job, status.generation
    if job.desired_state == "stopped":
        if status.alive and status.lease is None:
            log = newest.log_path if newest else ""
            yield Finding("the job is stopping, but its driver still runs", f"wait, or read its log {log}")
        return
    if status.driver == "failed" and (late_ms := status.now_ms - (status.next_start_ms or 0)) > _STARTS_WITHIN_MS:
        yield Finding(
            f"for {span(late_ms)} no supervisor starts the next driver", f"run `{_SUPERVISOR}`", Alert.DRIVER_MISSING
        )
    if newest is None or status.driver == "stopped":
        waited_ms = status.now_ms - job.updated_ms
        if waited_ms > _STARTS_WITHIN_MS:
            yield Finding(
                f"the job should run, but for {span(waited_ms)} no supervisor has started it",
                f"run `{_SUPERVISOR}`",
                Alert.DRIVER_MISSING,
            )
    elif status.driver == "lost":
        yield Finding(
            f"the driver was last heard of {span(status.now_ms - newest.heartbeat_ms)} ago",
            "the supervisor starts the next one from the newest epoch; if it does not, check that "
            f"`{_SUPERVISOR}` runs",
            Alert.DRIVER_LOST,
        )
    elif status.crash_loops:
        yield _crash_loop(status, status.failures)
    elif status.failures and status.failures[0].was_lost:
        yield _lost(status, status.failures[0])
    elif status.failures:
        yield _failed(status, status.failures[0])
    elif newest.settled_ms is None:
        yield Finding(_starting(status.generations, status.now_ms))


def _starting(generations: Sequence[GenerationRecord], now_ms: int) -> str:
    """Return which phase of its start the newest driver is in and for how long, beside how long that took before."""
    newest, older = generations[0], generations[1:]
    took: Iterator[tuple[GenerationRecord, int | None, int | None]]
    if newest.running_ms is None:
        phase, began_ms = "is launching Spark and finding its state", newest.started_ms
        took = ((each, each.started_ms, each.running_ms) for each in older)
    else:
        phase, began_ms = "runs, and has committed no epoch yet", newest.running_ms
        took = ((each, each.running_ms, each.settled_ms) for each in older)
    known = next(((each, end_ms - start_ms) for each, start_ms, end_ms in took if start_ms and end_ms), None)
    before = "" if known is None else f"; in generation {known[0].generation} that took {span(known[1])}"
    return f"generation {newest.generation} {phase}, for {span(now_ms - began_ms)}{before}"


def _crash_loop(status: JobStatus, failures: Sequence[GenerationRecord]) -> Finding:
    last, first_ms = failures[0], failures[-1].ended_ms or failures[-1].started_ms
    count = f"{len(failures)}{' or more' if len(failures) >= HISTORY - 1 else ''}"
    cause, name = cause_of(last), status.job.name
    how = f" with `statecore register {name} --artifact …`" if cause is CODE else ""
    return Finding(
        f"{reason(last)} (crash loop: {count} drivers failed in a row, the first {span(status.now_ms - first_ms)} ago)",
        f"{cause.todo}{how}; the log is {last.log_path}; committed state is kept, and `statecore stop {name}` ends the "
        f"attempts; {_next_start(status)}",
        Alert.CRASH_LOOP,
    )


def _failed(status: JobStatus, last: GenerationRecord) -> Finding:
    """Return the finding of a driver that failed, until the next one has settled."""
    return Finding(f"{reason(last)} (the driver of generation {last.generation} failed)", _after_failure(status, last))


def reason(failed: GenerationRecord) -> str:
    """Return why a driver ended: the first line of its error."""
    line = (failed.error or "no reason given").splitlines()[0]
    return line if len(line) <= _REASON else f"{line[:_REASON].rpartition(' ')[0]} …"


def _lost(status: JobStatus, last: GenerationRecord) -> Finding:
    """Return the finding of a driver that the supervisor has given up, until the next one has settled."""
    silent_ms = (last.ended_ms or last.heartbeat_ms) - last.heartbeat_ms
    return Finding(
        f"the driver of generation {last.generation} was lost after {span(silent_ms)} without a heartbeat",
        _after_failure(status, last),
        Alert.DRIVER_LOST,
    )


def _after_failure(status: JobStatus, last: GenerationRecord) -> str:
    return f"{_next_start(status)}; if that one fails too, {cause_of(last).todo}; the log is {last.log_path}"


def _next_start(status: JobStatus) -> str:
    start_ms, newest = status.next_start_ms, status.generation
    if start_ms is None:
        return f"generation {newest.generation if newest else 1} is {status.driver}"
    left_ms = start_ms - status.now_ms
    if left_ms < -_STARTS_WITHIN_MS:
        return "the next driver is overdue"
    return f"the supervisor starts the next driver {f'in {span(left_ms)}' if left_ms >= 1_000 else 'now'}"


def _lease(status: JobStatus) -> Iterator[Finding]:
    lease, back = status.lease, status.taken_back
    if lease is None:
        if back is not None and status.now_ms - back.taken_ms < _TAKEN_BACK_MS:
            yield Finding(
                f"the lease of {back.owner} was taken back {span(status.now_ms - back.taken_ms)} ago, and its change "
                "rolled back",
                "find out in its log why that run ended, then start it again",
                Alert.LEASE_TAKEN_BACK,
            )
    elif status.now_ms >= lease.expires_ms:
        yield Finding(
            f"the lease of {lease.owner} has expired",
            "the supervisor takes it back and restarts the job from its newest epoch; if it does not, check that "
            f"`{_SUPERVISOR}` runs",
        )
    else:
        run, end = status.rescale, ""
        if run is not None and (run.run_id, run.state) == (lease.owner, "running"):
            end = f", or end and undo it with `statecore rescale {run.job} --abort`"
            if run.aborted_by is not None:
                end = f"; {run.aborted_by} has aborted it, and it is being rolled back"
        yield Finding(f"{lease.owner} is changing the job", f"leave it alone until that run has ended{end}")


def _cluster(status: JobStatus) -> Iterator[Finding]:
    cluster = status.cluster
    if cluster is None or cluster.ready_workers == cluster.desired_workers:
        return
    ready = f"{cluster.ready_workers} of {cluster.desired_workers} workers of {cluster.name} are ready"
    if not cluster.message:
        yield Finding(f"{ready}, which may take a minute")
        return
    yield Finding(
        f"{ready}, because of: {cluster.message}",
        "remove the cause, or rescale to the workers that are there",
        Alert.WORKERS_MISSING,
    )


def _rescale(status: JobStatus) -> Iterator[Finding]:
    run, back = status.rescale, status.taken_back
    if run is None or (back is not None and back.owner == run.run_id):
        # Its lease was taken back, which is found already.
        return
    if run.state == "failed" and status.job.parallelism != run.to_parallelism:
        yield Finding(
            f"the last rescale failed ({run.error})", "remove the cause and start another one", Alert.RESCALE_FAILED
        )


def _policy(status: JobStatus) -> Iterator[Finding]:
    policy, failed = status.policy, status.failed_rescales
    if policy is None or not policy.enabled:
        return
    if len(failed) >= BLOCKS_AFTER:
        first = (failed[0].error or "").splitlines()[:1]
        why, todo = blocked_words(policy.job, len(failed), "".join(first)[:_REASON])
        yield Finding(f"the policy is blocked: {why}", todo, Alert.POLICY_BLOCKED)
    if status.driver != "running":
        return
    idle_ms = status.now_ms - max(policy.updated_ms, policy.looked_ms or 0)
    if idle_ms > _POLICY_STALLED_MS:
        yield Finding(
            f"the policy was not evaluated for {span(idle_ms)}",
            "check in Airflow that the DAG autoscale is not paused and that the triggerer runs",
            Alert.POLICY_IDLE,
        )
    elif policy.diagnosis in BOTTLENECKS:
        yield Finding(
            f"{policy.diagnosis.replace('_', ' ')}: {policy.finding}",
            f"`statecore policy show {policy.job}` draws what each size would do",
            Alert.JOB_BOTTLENECK,
        )


def releases_differ(who: str, release: str, supervisor: SupervisorRecord) -> Finding:
    """Return the finding that a program on the catalog runs another release than the supervisor."""
    return Finding(
        f"{who} runs release {release} of statecore, the supervisor on {supervisor.host} runs {supervisor.version}",
        "install one release everywhere: the supervisor's first, then Airflow's and the shells', then restart the jobs",
    )


def _releases(status: JobStatus) -> Iterator[Finding]:
    """Yield findings on programs of different releases; a restarted driver has the release of its supervisor."""
    supervisor, driver = status.supervisor if status.supervised else None, status.generation
    if supervisor is not None and supervisor.version != status.release:
        # No alert of each job: it is one of all jobs.
        yield releases_differ("this program", status.release, supervisor)
    if driver is None or driver.version is None or not status.alive:
        return
    who, release = ("this program", status.release) if supervisor is None else ("the supervisor", supervisor.version)
    if driver.version != release:
        name = status.job.name
        yield Finding(
            f"the driver runs release {driver.version} of statecore, {who} runs {release}",
            "upgrade supervisor and Airflow to one release, then restart the job: "
            f"`statecore stop {name}`, then `statecore start {name}`",
            None if supervisor is None else Alert.RELEASES_DIFFER,
        )
