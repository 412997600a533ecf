"""Findings on a stream that runs: it stalls, its sources are silent, its workers' memory is full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

from statecore.catalog import ArrivalsRecord, EpochRecord, GenerationRecord, JobRecord, some_wait
from statecore.errors import ConfigurationError
from statecore.operations.status.causes import SOURCE
from statecore.operations.status.finding import Alert, Finding, span
from statecore.operations.status.job_status import JobStatus
from statecore.snapshot.settings import DriverSettings

_SLOW_EPOCHS = 10
_STREAM_STALLED_MS = 60_000
_FIRST_EPOCH_MS = 300_000
_FULL_MEMORY, _ENOUGH_MEMORY = 0.8, 0.7


def stream_findings(status: JobStatus) -> Iterator[Finding]:
    """Yield findings on a stream that runs, or is being restarted after a failure."""
    newest, driver = status.figures.epoch, status.generation
    if driver is None or status.job.desired_state == "stopped" or not (status.driver == "running" or status.failures):
        return
    yield from _stall(status, driver)
    if status.driver == "running":
        yield from _sources(status, driver)
    if newest is not None:
        yield from _memory(status.job.name, newest)


def _sources(status: JobStatus, driver: GenerationRecord) -> Iterator[Finding]:
    """Yield findings on sources that cannot be looked at, and on silence that is longer than usual."""
    backlog, arrivals = status.figures.backlog, status.figures.arrivals
    sources = () if backlog is None else backlog.sources
    for each in sources:
        if each.problem is not None:
            yield Finding(f"source {each.name} cannot be looked at: {each.problem}", SOURCE.todo, Alert.SOURCE_SILENT)
    # Rows that wait have arrived; of a source that cannot be looked at, nobody knows.
    if some_wait(sources) or any(each.problem is not None for each in sources):
        return
    newest_ms = 0 if arrivals is None else arrivals.newest_ms
    silent_ms = status.now_ms - max(newest_ms, driver.running_ms or status.now_ms)
    usual_ms = _usual_silence_ms(status.job, arrivals)
    if usual_ms is not None and silent_ms > usual_ms + (driver.trigger_ms or 0):
        yield Finding(
            f"nothing has arrived for {span(silent_ms)}; expected something within {span(usual_ms)}",
            "look whether what writes the source runs; for input that comes in bursts, `statecore register "
            f"{status.job.name} --conf statecore.source.silent=off`",
            Alert.SOURCE_SILENT,
        )


def _usual_silence_ms(job: JobRecord, arrivals: ArrivalsRecord | None) -> int | None:
    """Return how long a job's sources may be silent, by its setting or its history; None if that is not known."""
    with suppress(ConfigurationError):
        allowed = DriverSettings.from_conf(job.conf).silent_after
        if allowed is not None:
            return allowed // timedelta(milliseconds=1)
    return None if arrivals is None else arrivals.usual_silence_ms


def _stall(status: JobStatus, driver: GenerationRecord) -> Iterator[Finding]:
    """Yield the finding of rows that wait for longer than epochs take, without a commit."""
    newest, backlog = status.figures.epoch, status.figures.backlog
    if backlog is None or not some_wait(backlog.sources):
        return
    slow_ms = 0 if newest is None else _SLOW_EPOCHS * newest.duration_ms
    limit_ms = max(_STREAM_STALLED_MS, slow_ms) + (driver.trigger_ms or 0)
    # The first epoch of a driver loads the state, and may read all that an outage has left.
    is_first = newest is None or newest.generation != driver.generation
    first_ms = max(limit_ms, _FIRST_EPOCH_MS) if is_first else limit_ms
    # An epoch's own measurement does not say since when: the epoch was committed just then.
    since_ms = backlog.measured_ms if backlog.waiting_since_ms is None else backlog.waiting_since_ms
    since_ms = max(since_ms, 0 if newest is None else newest.committed_ms)
    runs_since_ms = max(since_ms, driver.running_ms or status.now_ms)
    # Drivers that fail one after the other are one attempt.
    tried_since_ms = max(since_ms, (status.failures or (driver,))[-1].started_ms)
    fires = status.now_ms - runs_since_ms > first_ms and not status.crash_loops
    if fires or (status.failures and status.now_ms - tried_since_ms > limit_ms):
        yield Finding(
            f"records wait, but no epoch was committed for {span(status.now_ms - tried_since_ms)}",
            f"look at Spark's page; the log is {driver.log_path}",
            Alert.STREAM_STALLED,
            # The failures say why.
            only_keeps=not fires,
        )


def _memory(job: str, newest: EpochRecord) -> Iterator[Finding]:
    """Yield the finding on a worker's memory, or on its host's, where that is its limit."""
    own, host = newest.memory_share or 0.0, newest.host_share or 0.0
    if own >= _ENOUGH_MEMORY and not (own < _FULL_MEMORY <= host):
        yield Finding(
            f"a worker used {own:.0%} of its memory",
            "give the job more workers and a higher parallelism before the worker is killed, "
            f"`statecore rescale {job} --parallelism … --workers …`",
            Alert.MEMORY_FULL,
            only_keeps=own < _FULL_MEMORY,
        )
    elif host >= _ENOUGH_MEMORY:
        yield Finding(
            f"all programs on a worker's host used {host:.0%} of its memory, the job's fullest worker {own:.0%}",
            "look what else runs there: the worker may be killed for it",
            Alert.MEMORY_FULL,
            only_keeps=host < _FULL_MEMORY,
        )
