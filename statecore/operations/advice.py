"""What to do about a job, for the person on call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from statecore.catalog import GenerationRecord
from statecore.operations.restarts import HISTORY
from statecore.operations.standing import Standing
from statecore.policy import BLOCKS_AFTER, blocked_words

_SUPERVISOR = "statecore supervisor --logs …"
_REASON = 200
"""Characters of an error's first line."""
_SLOW_EPOCHS = 10
_STREAM_STALLED_MS = 60_000
_STARTS_WITHIN_MS = 60_000
_FULL_MEMORY = 0.8
# A policy is evaluated every few seconds.
_POLICY_STALLED_MS = 300_000


def advice(found: Standing) -> list[str]:
    """Return what to do, the most urgent first; an empty list when all is well."""
    return [*_driver(found), *_lease(found), *_cluster(found), *_rescale(found), *_policy(found), *_stream(found)]


def span(ms: int) -> str:
    """Return a length of time in its two largest units."""
    seconds = max(0, ms) // 1000
    units = [("d", seconds // 86_400), ("h", seconds // 3600 % 24), ("min", seconds // 60 % 60), ("s", seconds % 60)]
    first = next((index for index, (_, count) in enumerate(units) if count), len(units) - 1)
    return " ".join(f"{count} {unit}" for unit, count in units[first : first + 2] if count) or "0 s"


def _driver(found: Standing) -> Iterator[str]:
    job, newest = found.job, found.generation
    if job.desired_state == "stopped":
        if found.alive and found.lease is None:
            log = newest.log_path if newest else ""
            yield f"the job is stopping, but its driver still runs: wait, or read its log {log}"
        return
    if newest is None or found.driver == "stopped":
        if found.now_ms - job.updated_ms > _STARTS_WITHIN_MS:
            yield f"the job should run, but no supervisor starts it: run `{_SUPERVISOR}`"
    elif found.driver == "lost":
        yield (
            f"the driver was last heard of {span(found.now_ms - newest.heartbeat_ms)} ago: the supervisor starts the "
            f"next one from the newest epoch; if it does not, check that `{_SUPERVISOR}` runs"
        )
    elif found.crash_loops:
        yield _crash_loop(found, found.failures)
    elif found.driver == "failed":
        yield f"the driver failed: {_next_start(found)}; if that one fails too, read {newest.log_path}"


def _crash_loop(found: Standing, failures: Sequence[GenerationRecord]) -> str:
    last, first_ms = failures[0], failures[-1].ended_ms or failures[-1].started_ms
    count = f"{len(failures)}{' or more' if len(failures) >= HISTORY - 1 else ''}"
    reason = (last.error or "no reason given").splitlines()[0]
    return (
        f"crash loop: {count} drivers failed in a row, the first {span(found.now_ms - first_ms)} ago, the last with "
        f"{reason[:_REASON]}: read {last.log_path}, remove the cause, and register a corrected job file with "
        f"`statecore register {found.job.name} --artifact …`, or `statecore stop {found.job.name}`; committed state "
        f"is kept; {_next_start(found)}"
    )


def _next_start(found: Standing) -> str:
    start_ms, newest = found.next_start_ms, found.generation
    if start_ms is None:
        return f"generation {newest.generation if newest else 1} is {found.driver}"
    left_ms = start_ms - found.now_ms
    if left_ms < -_STARTS_WITHIN_MS:
        return f"no supervisor starts the next driver: run `{_SUPERVISOR}`"
    return f"the supervisor starts the next driver {f'in {span(left_ms)}' if left_ms >= 1_000 else 'now'}"


def _lease(found: Standing) -> Iterator[str]:
    lease = found.lease
    if lease is None:
        return
    if found.now_ms >= lease.expires_ms:
        yield (
            f"the lease of {lease.owner} has expired: the supervisor takes it back and restarts the job from its "
            f"newest epoch; if it does not, check that `{_SUPERVISOR}` runs"
        )
    else:
        run, end = found.rescale, ""
        if run is not None and (run.run_id, run.state) == (lease.owner, "running"):
            end = f", or end and undo it with `statecore rescale {run.job} --abort`"
            if run.aborted_by is not None:
                end = f"; {run.aborted_by} has aborted it, and it is being rolled back"
        yield f"{lease.owner} is changing the job: leave it alone until that run has ended{end}"


def _cluster(found: Standing) -> Iterator[str]:
    cluster = found.cluster
    if cluster is not None and cluster.ready_workers != cluster.desired_workers:
        why = f": {cluster.message}" if cluster.message else ", which may take a minute"
        yield f"{cluster.ready_workers} of {cluster.desired_workers} workers of {cluster.name} are ready{why}"


def _rescale(found: Standing) -> Iterator[str]:
    run = found.rescale
    if run is not None and run.state == "failed" and found.job.parallelism != run.to_parallelism:
        yield f"the last rescale failed ({run.error}): remove the cause and start another one"


def _policy(found: Standing) -> Iterator[str]:
    policy, failed = found.policy, found.failed_rescales
    if policy is None or not policy.enabled:
        return
    if len(failed) >= BLOCKS_AFTER:
        reason = (failed[0].error or "").splitlines()[:1]
        yield f"the policy is blocked: {blocked_words(policy.job, len(failed), ''.join(reason)[:_REASON])}"
    if found.driver != "running":
        return
    idle_ms = found.now_ms - max(policy.updated_ms, policy.looked_ms or 0)
    if idle_ms > _POLICY_STALLED_MS:
        yield (
            f"the policy was not evaluated for {span(idle_ms)}: check in Airflow that the DAG autoscale is "
            "not paused and that the triggerer runs"
        )


def _stream(found: Standing) -> Iterator[str]:
    """Yield advice on a running stream."""
    newest, waiting = found.figures.epoch, found.waiting
    if found.driver != "running" or newest is None:
        return
    idle_ms = found.now_ms - newest.committed_ms
    some_wait = any(count for count in (waiting.records, waiting.files, waiting.bytes))
    if some_wait and idle_ms > max(_STREAM_STALLED_MS, _SLOW_EPOCHS * newest.duration_ms):
        log = "" if found.generation is None else f"; its log is {found.generation.log_path}"
        yield f"records wait, but no epoch was committed for {span(idle_ms)}: look at Spark's page{log}"
    if newest.memory_share is not None and newest.memory_share >= _FULL_MEMORY:
        yield (
            f"a worker used {newest.memory_share:.0%} of its memory: give the job more workers and a higher "
            f"parallelism before the worker is killed, `statecore rescale {found.job.name} --parallelism … "
            "--workers …`"
        )
