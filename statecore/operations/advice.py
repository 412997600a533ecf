"""Advice to the engineer on call about a job."""

from __future__ import annotations

from collections.abc import Iterator

from statecore.operations.standing import Standing

# From this number of failures in a row a person must look.
_MANY_FAILURES = 3
_SLOW_EPOCHS = 10
_STREAM_STALLED_MS = 60_000
_STARTS_WITHIN_MS = 60_000
_FULL_MEMORY = 0.8
# A policy is evaluated every few seconds.
_POLICY_STALLED_MS = 300_000


def advice(found: Standing) -> list[str]:
    """Return what to do, the most urgent first; nothing when all is well."""
    return [*_driver(found), *_lease(found), *_cluster(found), *_rescale(found), *_policy(found), *_stream(found)]


def span(ms: int) -> str:
    """Return a length of time in the two largest units that it has."""
    seconds = max(0, ms) // 1000
    units = [("d", seconds // 86_400), ("h", seconds // 3600 % 24), ("min", seconds // 60 % 60), ("s", seconds % 60)]
    first = next((index for index, (_, count) in enumerate(units) if count), len(units) - 1)
    return " ".join(f"{count} {unit}" for unit, count in units[first : first + 2] if count) or "0 s"


def _driver(found: Standing) -> Iterator[str]:
    job, newest = found.job, found.generation
    if job.desired_state == "stopped":
        if found.alive and found.lease is None:
            yield f"it is to stop and still runs: wait, or look at its log {newest.log_path if newest else ''}"
        return
    if newest is None or found.driver == "stopped":
        if found.now_ms - job.updated_ms > _STARTS_WITHIN_MS:
            yield "it should run and nothing starts it: run `python -m statecore supervisor --logs …`"
    elif found.driver == "lost":
        yield (
            f"its driver was last heard of {span(found.now_ms - newest.heartbeat_ms)} ago: the supervisor starts the "
            "next one from the newest epoch; if none comes, see that `python -m statecore supervisor` runs"
        )
    elif found.failures >= _MANY_FAILURES:
        yield (
            f"{found.failures} drivers failed in a row: read {newest.log_path}, remove the cause; meanwhile the "
            f"supervisor goes on trying, every 30 s at most; `stop {job.name}` ends that, no state is lost"
        )
    elif found.driver == "failed":
        yield f"its driver failed: the supervisor starts the next one; if it fails again, read {newest.log_path}"


def _lease(found: Standing) -> Iterator[str]:
    lease = found.lease
    if lease is None:
        return
    if found.now_ms >= lease.expires_ms:
        yield (
            f"the lease of {lease.owner} has expired: the supervisor takes it back and brings the job up from its "
            "newest epoch; if nothing happens, see that `python -m statecore supervisor` runs"
        )
    else:
        yield f"{lease.owner} is changing the job: leave it alone until that has ended"


def _cluster(found: Standing) -> Iterator[str]:
    cluster = found.cluster
    if cluster is not None and cluster.ready_workers != cluster.desired_workers:
        why = f": {cluster.message}" if cluster.message else ", which may take a minute"
        yield f"{cluster.ready_workers} of {cluster.desired_workers} workers of {cluster.name} are ready{why}"


def _rescale(found: Standing) -> Iterator[str]:
    run = found.rescale
    if run is not None and run.state == "failed" and found.job.parallelism != run.to_parallelism:
        yield f"its last rescale failed ({run.error}): remove the cause and start another one"


def _policy(found: Standing) -> Iterator[str]:
    policy = found.policy
    if policy is None or not policy.enabled or found.driver != "running":
        return
    idle_ms = found.now_ms - max(policy.updated_ms, policy.looked_ms or 0)
    if idle_ms > _POLICY_STALLED_MS:
        yield (
            f"its policy has not looked for {span(idle_ms)}: see in Airflow that the DAG autoscale is not paused and "
            "that the triggerer runs"
        )


def _stream(found: Standing) -> Iterator[str]:
    """Yield what is wrong with a stream that runs."""
    newest, waiting = found.figures.epoch, found.waiting
    if found.driver != "running" or newest is None:
        return
    idle_ms = found.now_ms - newest.committed_ms
    some_wait = any(count for count in (waiting.records, waiting.files, waiting.bytes))
    if some_wait and idle_ms > max(_STREAM_STALLED_MS, _SLOW_EPOCHS * newest.duration_ms):
        log = "" if found.generation is None else f"; its log is {found.generation.log_path}"
        yield f"records wait, and no epoch was committed for {span(idle_ms)}: look at Spark's page{log}"
    if newest.memory_share is not None and newest.memory_share >= _FULL_MEMORY:
        yield (
            f"a worker used {newest.memory_share:.0%} of its memory: give the job more workers and a higher "
            f"parallelism before it is killed, `rescale {found.job.name} --parallelism … --workers …`"
        )
