"""Manages the driver processes on this host, including those of the previous supervisor."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from statecore.catalog import GenerationRecord, Generations, JobRecord
from statecore.cluster.processes import SessionLeader, spawn
from statecore.errors import GenerationClaimedError
from statecore.operations.kinds import kind_of
from statecore.operations.submit import driver_environment

log = logging.getLogger(__name__)

Launch = Callable[[JobRecord, GenerationRecord], Sequence[str]]
"""Returns the command that runs a generation of a job."""

_OVERDUE_MS = 60_000
_EARLIER = 5


class Drivers:
    """Starts drivers, collects their exits, and kills those that hang.

    Drivers of two jobs may be handled at once.

    Args:
        generations: Records the generations and their processes.
        logs_dir: Directory for the drivers' output.
        launch: Returns the command that runs a driver.

    """

    def __init__(self, generations: Generations, logs_dir: Path, launch: Launch) -> None:
        self._generations = generations
        self._logs_dir = logs_dir.absolute()
        self._launch = launch
        self._host = socket.gethostname()
        self._children: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
        self._gone: dict[str, set[int]] = {}

    def start(self, job: JobRecord) -> None:
        """Start a job's next driver, if the job has none and should have one."""
        log_path = str(self._logs_dir / f"{job.name}-{{generation}}.log")
        try:
            claimed = self._generations.claim(job.name, log_path=log_path, if_wanted=True)
        except GenerationClaimedError as refusal:
            log.info("%s", refusal)
            return
        number = claimed.generation
        if kind_of(job).ends_earlier_drivers:
            self._end_earlier(job.name, number)
        try:
            command = self._launch(job, claimed)
            driver = spawn(command, environment=driver_environment(job.name), log_path=Path(claimed.log_path))
        except Exception as error:
            self._generations.end(job.name, number, state="failed", error=str(error))
            log.error("job %r: generation %d cannot be started: %s", job.name, number, error)
            return
        self._children[job.name, number] = driver
        log.info(
            "job %r: generation %d started, parallelism %d, pid %d, log %s",
            job.name,
            number,
            claimed.parallelism,
            driver.pid,
            claimed.log_path,
        )
        leader = SessionLeader.of(driver.pid)
        self._generations.record_driver(
            job.name, number, host=self._host, pid=leader.pid, process_started_ms=leader.started_ms
        )

    def collect(self, job: str) -> None:
        """Collect the exits of a job's drivers that this process started."""
        for name, generation in list(self._children):
            if name == job:
                self._collect(job, generation)

    def kill_overdue(self, history: Sequence[GenerationRecord], now_ms: int) -> None:
        """Kill drivers whose generation ended long ago: they hold executors that their successor needs."""
        overdue = [each for each in history if each.ended_ms is not None and now_ms - each.ended_ms > _OVERDUE_MS]
        for each in overdue:
            # Looking for a session's processes takes milliseconds; a session that is gone stays gone.
            gone = self._gone.setdefault(each.job, set())
            if each.generation in gone:
                continue
            if self.kill(each):
                log.warning("job %r: driver of generation %d was still running; killed", each.job, each.generation)
            else:
                gone.add(each.generation)
                gone.intersection_update(old.generation for old in overdue)

    def kill(self, generation: GenerationRecord) -> bool:
        """Kill the driver of a generation if it runs on this host; return whether it ran."""
        leader = self._leader(generation)
        if leader is None or not leader.members():
            return False
        leader.kill()
        return True

    def _end_earlier(self, job: str, generation: int) -> None:
        for each in self._generations.of(job, limit=_EARLIER):
            if each.generation < generation and self.kill(each):
                log.warning("job %r: driver of generation %d was still running; killed", job, each.generation)

    def _leader(self, generation: GenerationRecord) -> SessionLeader | None:
        child = self._children.get((generation.job, generation.generation))
        if child is not None:
            return SessionLeader.of(child.pid)
        if generation.host != self._host or generation.pid is None or generation.process_started_ms is None:
            return None
        return SessionLeader(generation.pid, generation.process_started_ms)

    def _collect(self, job: str, generation: int) -> None:
        driver = self._children[job, generation]
        if driver.returncode is None:
            if not _has_exited(driver):
                return
            # spark-submit may have died while the Python program still runs. Kill it before collecting the exit: until
            # then, no other process can have this pid.
            SessionLeader.of(driver.pid).kill()
            driver.wait()
        self._fail_exited(job, generation, driver.returncode)
        del self._children[job, generation]

    def _fail_exited(self, job: str, generation: int, exit_code: int) -> None:
        """Mark the generation failed at once if its driver exited without recording an end.

        Heartbeats decide liveness; this is a shortcut for the parent process, which collected the exit. An error here
        is safe: if two drivers run at once, only one can commit the manifest, and the next heartbeat stops the other.
        """
        newest = self._generations.newest(job)
        if newest is None or newest.generation != generation or newest.ended:
            why = newest.error if newest is not None and newest.generation == generation else None
            log.info(
                "job %r: driver of generation %d exited with %d%s",
                job,
                generation,
                exit_code,
                f": {why}" if why else "",
            )
            return
        error = _exit_words(exit_code)
        self._generations.end(job, generation, state="failed", error=error)
        log.warning("job %r: generation %d failed: %s", job, generation, error)


def _exit_words(code: int) -> str:
    """Return how a driver ended; a negative code is the signal that ended its JVM."""
    how, also = f"ended with exit code {code}", ""
    if code < 0:
        how = f"ended, its JVM killed by {signal.Signals(-code).name}"
        also = ", and whether the machine ran out of memory (`dmesg`)" if -code == signal.SIGKILL else ""
    return f"found the driver {how}; expected it to run until the job is stopped; see the end of its log{also}"


def _has_exited(driver: subprocess.Popen[bytes]) -> bool:
    """Return whether a child has ended, without collecting its exit."""
    return psutil.Process(driver.pid).status() == psutil.STATUS_ZOMBIE
