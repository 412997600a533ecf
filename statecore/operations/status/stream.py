"""Findings on a stream that runs: it stalls, its sources are silent, its workers' memory is full."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from statecore.catalog import ArrivalsRecord, EpochRecord, GenerationRecord, JobRecord, some_wait
from statecore.operations.status.causes import SOURCE
from statecore.operations.status.finding import Alert, Finding, span
from statecore.operations.status.job_status import JobStatus
from statecore.snapshot.settings import DriverSettings

_SLOW_EPOCHS = 10
_STREAM_STALLED_MS = 60_000
# It may read all that lies in the source, and no epoch before it says how long that takes.
_FIRST_EPOCH_MS = 300_000
_FULL_MEMORY, _ENOUGH_MEMORY = 0.8, 0.7
# A week has a weekend: by then, the longest silence is known.
_HISTORY_MS = 7 * 86_400_000
_SILENCES = 3
_SHORTEST_SILENCE_MS = 600_000


def stream_findings(status: JobStatus) -> Iterator[Finding]:
    """Yield findings on a stream that runs, or is being restarted after a failure."""
    newest, driver = status.figures.epoch, status.generation
    if driver is None or status.job.desired_state == "stopped" or not (status.driver == "running" or status.failures):
        return
    if (waited_ms := _waits_in_vain_for_ms(status, driver)) is not None:
        yield Finding(
            f"records wait, but no epoch was committed for {span(waited_ms)}",
            f"look at Spark's page; the log is {driver.log_path}",
            Alert.STREAM_STALLED,
            # The failures say why.
            only_keeps=status.crash_loops,
        )
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
    # Rows that wait have arrived.
    if arrivals is None or some_wait(sources):
        return
    silent_ms = status.now_ms - max(arrivals.newest_ms, driver.started_ms)
    usual_ms = _longest_silence_ms(status.job, arrivals)
    if usual_ms is not None and silent_ms > usual_ms:
        yield Finding(
            f"nothing has arrived for {span(silent_ms)}; expected something within {span(usual_ms)}",
            "look whether what writes the source runs; for input that comes in bursts, `statecore register "
            f"{status.job.name} --conf statecore.source.silent=off`",
            Alert.SOURCE_SILENT,
        )


def _longest_silence_ms(job: JobRecord, arrivals: ArrivalsRecord) -> int | None:
    """Return how long a job's sources may be silent, by its setting or its history; None if that is not known."""
    allowed = DriverSettings.from_conf(job.conf).silent_after
    if allowed is not None:
        return allowed // timedelta(milliseconds=1)
    if arrivals.newest_ms - arrivals.first_ms < _HISTORY_MS:
        return None
    return max(_SILENCES * arrivals.longest_ms, _SHORTEST_SILENCE_MS)


def _memory(job: str, newest: EpochRecord) -> Iterator[Finding]:
    """Yield the finding on a worker's memory, or on its host's, where that is its limit."""
    own, host = newest.memory_share or 0.0, newest.host_share or 0.0
    if own >= _ENOUGH_MEMORY:
        yield Finding(
            f"a worker used {own:.0%} of its memory",
            "give the job more workers and a higher parallelism before the worker is killed, "
            f"`statecore rescale {job} --parallelism … --workers …`",
            Alert.MEMORY_FULL,
            only_keeps=own < _FULL_MEMORY,
        )
    elif host >= _ENOUGH_MEMORY:
        yield Finding(
            f"all programs on a worker's host used {host:.0%} of its memory, the worker itself {own:.0%}",
            "look what else runs there: without a limit of its own, the worker may be killed for it",
            Alert.MEMORY_FULL,
            only_keeps=host < _FULL_MEMORY,
        )


def _waits_in_vain_for_ms(status: JobStatus, driver: GenerationRecord) -> int | None:
    """Return for how long rows have waited without a commit; None if none wait, or not for longer than epochs take."""
    newest, backlog = status.figures.epoch, status.figures.backlog
    if backlog is None or not some_wait(backlog.sources):
        return None
    # An epoch's own measurement does not say since when: the epoch was committed just then.
    since_ms = backlog.measured_ms if backlog.waiting_since_ms is None else backlog.waiting_since_ms
    # Drivers that fail one after the other are one attempt.
    began_ms = (status.failures or (driver,))[-1].started_ms
    since_ms = max(since_ms, began_ms, 0 if newest is None else newest.committed_ms)
    expected_ms = _FIRST_EPOCH_MS if newest is None else _SLOW_EPOCHS * newest.duration_ms
    waited_ms = status.now_ms - since_ms
    return waited_ms if waited_ms > max(_STREAM_STALLED_MS, expected_ms) else None
