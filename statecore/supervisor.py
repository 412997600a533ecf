"""The supervisor: brings jobs and clusters to their desired state, in repeated passes.

A pass checks every cluster, every expired lease and every job. All its state is in the catalog, so it may be killed and
restarted at any time; drivers and workers keep running without it.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec

import psutil

from statecore.catalog import Catalog, Clock, ClusterRecord, GenerationRecord, JobRecord, LeaseRecord, SystemClock
from statecore.catalog.job_names import job_names_file, write_job_names
from statecore.cluster import Cluster, ClusterSize, cluster_for
from statecore.cluster.processes import kill_session, spawn
from statecore.cluster.spark_home import spark_environment
from statecore.errors import CatalogError, ClusterError, GenerationClaimedError, StatecoreError
from statecore.operations.job_file_checks import JobFileChecks
from statecore.operations.rescaling import Finisher
from statecore.operations.restarts import HISTORY, next_start_ms
from statecore.operations.submit import SparkSubmit

log = logging.getLogger(__name__)

P = ParamSpec("P")

Launch = Callable[[JobRecord, GenerationRecord], Sequence[str]]
"""Returns the command that runs a generation of a job."""

CATALOG_VARIABLE = "STATECORE_CATALOG"
_OVERDUE_MS = 60_000
# Drivers report every half second, and a command renews its lease every ten.
_SETTLING_MS = 15_000


class Supervisor:
    """Starts missing drivers, and brings clusters to their desired size.

    Args:
        catalog: Desired and actual state.
        logs_dir: Directory for the drivers' output.
        launch: Returns the command that runs a driver.
        clock: The same clock as the catalog's.
        poll_interval_s: Pause between two passes.
        names_file: File to write the names of all jobs to, for readers without access to the catalog.

    """

    def __init__(
        self,
        catalog: Catalog,
        logs_dir: Path,
        *,
        launch: Launch,
        clock: Clock | None = None,
        poll_interval_s: float = 1.0,
        names_file: Path | None = None,
    ) -> None:
        self._catalog = catalog
        self._logs_dir = logs_dir.absolute()
        self._launch = launch
        self._clock = clock or SystemClock()
        self._poll_interval_s = poll_interval_s
        self._names_file = names_file
        self._stopping = threading.Event()
        self._catalog_failed_ms: int | None = None
        self._drivers: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
        self._clusters: dict[str, tuple[ClusterRecord, Cluster]] = {}
        self._checks = JobFileChecks(catalog)
        self._finisher = Finisher(catalog, self._clock)

    def run(self) -> None:
        """Make passes until ``stop`` is called."""
        log.info("supervisor started, pid %d, logs in %s", os.getpid(), self._logs_dir)
        while True:
            self._guarded("pass", self.step)
            if self._stopping.wait(self._poll_interval_s):
                break
        log.info("supervisor stops; drivers and workers keep running")

    def stop(self) -> None:
        """Make ``run`` return after its current pass; drivers and workers keep running."""
        self._stopping.set()

    def step(self) -> None:
        """Make one pass; a failure is logged, and the next pass retries.

        Raises:
            CatalogError: The catalog cannot be reached.

        """
        try:
            self._pass()
        except CatalogError:
            self._catalog_failed_ms = self._clock.now_ms()
            raise

    def _pass(self) -> None:
        for key in list(self._drivers):
            self._guarded(f"driver of {key[0]!r}", self._collect_driver, key)
        for cluster in self._catalog.clusters():
            self._guarded(f"cluster {cluster.name!r}", self._tend_cluster, cluster)
        for lease in self._catalog.expired_leases():
            if not self._catalog_was_away():
                self._guarded(f"lease on {lease.job!r}", self._recover_lease, lease)
        for name in self._finisher.jobs():
            self._guarded(f"verification of {name!r}", self._finisher.go_on, name)
        self._guarded("checks of job files", self._checks.answer)
        jobs = self._catalog.jobs()
        for job in jobs:
            self._guarded(f"job {job.name!r}", self._tend_job, job)
        if self._names_file is not None:
            self._guarded("names of the jobs", write_job_names, self._names_file, [job.name for job in jobs])

    def _catalog_was_away(self) -> bool:
        """Tell whether the catalog was recently unreachable: missing heartbeats then prove nothing yet."""
        return self._catalog_failed_ms is not None and self._clock.now_ms() - self._catalog_failed_ms < _SETTLING_MS

    def _collect_driver(self, key: tuple[str, int]) -> None:
        """Collect the exit of a driver that this process started."""
        driver = self._drivers[key]
        if driver.returncode is None:
            if not _has_exited(driver):
                self._kill_overdue(driver.pid, *key)
                return
            # spark-submit may have died and left the Python program behind. Kill it before collecting the exit: until
            # then, no other process can have this pid.
            kill_session(driver.pid)
            driver.wait()
        self._fail_exited(*key, driver.returncode)
        del self._drivers[key]

    def _kill_overdue(self, pid: int, job: str, generation: int) -> None:
        """Kill a driver whose generation ended long ago: it would keep the executors that its successor needs."""
        mine = [each for each in self._catalog.generations(job, limit=HISTORY) if each.generation == generation]
        if mine and mine[0].ended_ms is not None and self._clock.now_ms() - mine[0].ended_ms > _OVERDUE_MS:
            log.warning("job %r: driver of generation %d is still running; killed", job, generation)
            kill_session(pid)

    def _fail_exited(self, job: str, generation: int, exit_code: int) -> None:
        """Mark the generation failed at once if its driver exited without recording an end.

        Heartbeats decide liveness; this is a shortcut for the parent process, which collected the exit. An error here
        is safe: if two drivers run at once, only one can put the manifest, and the next heartbeat stops the other.
        """
        newest = self._catalog.newest_generation(job)
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
        self._catalog.end_generation(job, generation, state="failed", error=error)
        log.warning("job %r: generation %d failed: %s", job, generation, error)

    def _tend_cluster(self, record: ClusterRecord) -> None:
        size, message = ClusterSize(running=0, ready=0), None
        try:
            cluster = self._cluster(record)
            try:
                cluster.resize(record.desired_workers)
            except (ClusterError, OSError) as error:
                # Existing workers stay even if, for example, a quota prevents the resize.
                message = str(error)
            size = cluster.size()
        except (ClusterError, OSError) as error:
            message = message or str(error)
        if message is not None and message != record.message:
            log.error("cluster %r: %s", record.name, message)
        if size.ready != record.ready_workers:
            log.info("cluster %r: %d of %d workers ready", record.name, size.ready, record.desired_workers)
        self._catalog.report_cluster(
            record.name,
            ready_workers=size.ready,
            min_workers=size.smallest,
            max_workers=size.largest,
            message=message,
        )

    def _cluster(self, record: ClusterRecord) -> Cluster:
        known = self._clusters.get(record.name)
        if known is not None and (known[0].kind, known[0].settings) == (record.kind, record.settings):
            return known[1]
        cluster = cluster_for(record)
        if known is not None:
            known[1].close()
        self._clusters[record.name] = (record, cluster)
        return cluster

    def _recover_lease(self, expired: LeaseRecord) -> None:
        if self._finisher.take_up(expired):
            return
        lease = self._catalog.recover_expired_lease(expired.job)
        if lease is not None:
            log.warning(
                "job %r: lease of %r expired; job rolled back to its state before the lease", lease.job, lease.owner
            )

    def _tend_job(self, job: JobRecord) -> None:
        history = self._catalog.generations(job.name, limit=HISTORY)
        if history and not history[0].ended:
            if self._catalog.is_alive(history[0]) or self._catalog_was_away():
                return
            self._fail_lost(job.name)
            history = self._catalog.generations(job.name, limit=HISTORY)
        if job.desired_state == "running" and self._clock.now_ms() >= next_start_ms(history):
            self._start_driver(job)

    def _fail_lost(self, job: str) -> None:
        lost = self._catalog.fail_lost_generation(job)
        if lost is not None:
            log.warning("job %r: generation %d failed: %s", job, lost.generation, lost.error)
            self._kill_own(lost)

    def _kill_own(self, lost: GenerationRecord) -> None:
        """Kill a hanging driver: it would keep the executors that its successor needs."""
        driver = self._drivers.get((lost.job, lost.generation))
        if driver is not None:
            kill_session(driver.pid)

    def _start_driver(self, job: JobRecord) -> None:
        log_path = str(self._logs_dir / f"{job.name}-{{generation}}.log")
        try:
            claimed = self._catalog.claim_generation(job.name, log_path=log_path, if_wanted=True)
        except GenerationClaimedError as refusal:
            log.info("%s", refusal)
            return
        try:
            command = self._launch(job, claimed)
            driver = spawn(command, environment=spark_environment(), log_path=Path(claimed.log_path))
        except Exception as error:
            self._catalog.end_generation(job.name, claimed.generation, state="failed", error=str(error))
            log.error("job %r: generation %d cannot be started: %s", job.name, claimed.generation, error)
            return
        self._drivers[job.name, claimed.generation] = driver
        log.info(
            "job %r: generation %d started, parallelism %d, pid %d, log %s",
            job.name,
            claimed.generation,
            claimed.parallelism,
            driver.pid,
            claimed.log_path,
        )

    def _guarded(self, what: str, action: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            action(*args, **kwargs)
        except StatecoreError as error:
            log.error("%s: %s", what, error)
        except Exception:
            # The other jobs and clusters still need their supervisor.
            log.exception("%s: unexpected error", what)


def run_supervisor(
    catalog_url: str, logs_dir: Path, *, entry_point: Path | None = None, poll_interval_s: float = 1.0
) -> None:
    """Run a supervisor in this process until SIGTERM or SIGINT; call from the main thread.

    Args:
        catalog_url: Catalog to watch; the tables are created in a new database.
        logs_dir: Directory for the drivers' output.
        entry_point: The driver's program; None for the default of ``SparkSubmit``.
        poll_interval_s: Pause between two passes.

    Raises:
        ConfigurationError: The URL is not one of a supported database.
        CatalogError: The catalog cannot be reached at the start, or its tables belong to another release.

    """
    # Drivers inherit it. A command line would show its password to every user of the machine.
    os.environ[CATALOG_VARIABLE] = catalog_url
    with Catalog(catalog_url) as catalog:
        catalog.create_schema(only_if_new=True)
        supervisor = Supervisor(
            catalog,
            logs_dir,
            launch=SparkSubmit(entry_point),
            poll_interval_s=poll_interval_s,
            names_file=job_names_file(),
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: supervisor.stop())
        supervisor.run()


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
