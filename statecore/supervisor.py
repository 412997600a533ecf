"""The supervisor: makes what is wanted true, again and again.

One pass looks at every cluster, every expired lease and every job. All it knows is in the catalog, so that it may be
killed and started again at any moment; drivers and workers go on without it.
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

from statecore.catalog import Catalog, Clock, ClusterRecord, GenerationRecord, JobRecord, SystemClock
from statecore.catalog.job_names import job_names_file, write_job_names
from statecore.cluster import Cluster, cluster_for
from statecore.cluster.processes import kill_session, spawn
from statecore.cluster.spark_home import spark_environment
from statecore.errors import CatalogError, ClusterError, GenerationClaimedError, StatecoreError
from statecore.operations.submit import SparkSubmit

log = logging.getLogger(__name__)

P = ParamSpec("P")

Launch = Callable[[JobRecord, GenerationRecord], Sequence[str]]
"""Gives the command that runs a generation of a job."""

CATALOG_VARIABLE = "STATECORE_CATALOG"
_FIRST_BACKOFF_MS = 1_000
_LONGEST_BACKOFF_MS = 30_000
_OVERDUE_MS = 60_000
# Drivers report every half second, and a command renews its lease every ten.
_SETTLING_MS = 15_000
_HISTORY = 10  # generations to look back: more failures than it takes to reach the longest backoff


class Supervisor:
    """Starts drivers that should run and do not, and brings clusters to the size wanted.

    Args:
        catalog: Where all it knows is.
        logs_dir: Directory for the drivers' output.
        launch: Gives the command that runs a driver.
        clock: The same time as the catalog's.
        poll_interval_s: Pause between two passes.
        names_file: Kept up to date with the names of all jobs, for those who must not ask the catalog.

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

    def run(self) -> None:
        """Make one pass after the other until ``stop`` is called."""
        log.info("supervisor started, pid %d, logs in %s", os.getpid(), self._logs_dir)
        while True:
            self._guarded("pass", self.step)
            if self._stopping.wait(self._poll_interval_s):
                break
        log.info("supervisor ends; drivers and workers go on")

    def stop(self) -> None:
        """Let ``run`` return after its current pass; drivers and workers go on."""
        self._stopping.set()

    def step(self) -> None:
        """Make one pass; what fails is logged and tried again with the next one.

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
                self._guarded(f"lease on {lease.job!r}", self._recover_lease, lease.job)
        jobs = self._catalog.jobs()
        for job in jobs:
            self._guarded(f"job {job.name!r}", self._tend_job, job)
        if self._names_file is not None:
            self._guarded("names of the jobs", write_job_names, self._names_file, [job.name for job in jobs])

    def _catalog_was_away(self) -> bool:
        """Tell whether the catalog was away recently: then missing heartbeats prove nothing yet."""
        return self._catalog_failed_ms is not None and self._clock.now_ms() - self._catalog_failed_ms < _SETTLING_MS

    def _collect_driver(self, key: tuple[str, int]) -> None:
        """Collect a driver that this process started and that has ended."""
        driver = self._drivers[key]
        if driver.returncode is None:
            if not _has_exited(driver):
                self._kill_overdue(driver.pid, *key)
                return
            # Before its exit is collected, so that nobody else can have been given its pid: spark-submit may have
            # died alone and left the Python program behind.
            kill_session(driver.pid)
            driver.wait()
        self._fail_exited(*key, driver.returncode)
        del self._drivers[key]

    def _kill_overdue(self, pid: int, job: str, generation: int) -> None:
        """End a driver that does not heed its end: it would keep the executors its successor needs."""
        mine = [each for each in self._catalog.generations(job, limit=_HISTORY) if each.generation == generation]
        if mine and mine[0].ended_ms is not None and self._clock.now_ms() - mine[0].ended_ms > _OVERDUE_MS:
            log.warning("job %r: driver of generation %d is still there; killed", job, generation)
            kill_session(pid)

    def _fail_exited(self, job: str, generation: int, exit_code: int) -> None:
        """Mark a generation failed that ended without a word, instead of waiting for its heartbeat to grow old.

        Liveness is decided by heartbeat; this is a shortcut for the one process that can know better, the parent
        that collected the exit. It is safe even if it were wrong: two drivers that run at once are kept apart by
        the manifest, which only one of them can put, and the other one is told to stop by its next heartbeat.
        """
        newest = self._catalog.newest_generation(job)
        if newest is None or newest.generation != generation or newest.ended:
            log.info("job %r: driver of generation %d exited with %d", job, generation, exit_code)
            return
        error = f"the driver exited with {exit_code} before it ended its generation; see {newest.log_path}"
        self._catalog.end_generation(job, generation, state="failed", error=error)
        log.warning("job %r: generation %d failed: %s", job, generation, error)

    def _tend_cluster(self, record: ClusterRecord) -> None:
        ready, message = 0, None
        try:
            cluster = self._cluster(record)
            try:
                cluster.resize(record.desired_workers)
            except (ClusterError, OSError) as error:
                # Those that are there stay, whatever the account's quota is.
                message = str(error)
            ready = cluster.size().ready
        except (ClusterError, OSError) as error:
            message = message or str(error)
        if message is not None and message != record.message:
            log.error("cluster %r: %s", record.name, message)
        if ready != record.ready_workers:
            log.info("cluster %r: %d of %d workers ready", record.name, ready, record.desired_workers)
        self._catalog.report_cluster(record.name, ready_workers=ready, message=message)

    def _cluster(self, record: ClusterRecord) -> Cluster:
        known = self._clusters.get(record.name)
        if known is not None and (known[0].kind, known[0].settings) == (record.kind, record.settings):
            return known[1]
        cluster = cluster_for(record)
        if known is not None:
            known[1].close()
        self._clusters[record.name] = (record, cluster)
        return cluster

    def _recover_lease(self, job: str) -> None:
        lease = self._catalog.recover_expired_lease(job)
        if lease is not None:
            log.warning("job %r: lease of %r expired; brought back to what it was before", job, lease.owner)

    def _tend_job(self, job: JobRecord) -> None:
        history = self._catalog.generations(job.name, limit=_HISTORY)
        if history and not history[0].ended:
            if self._catalog.is_alive(history[0]) or self._catalog_was_away():
                return
            self._fail_lost(job.name)
            history = self._catalog.generations(job.name, limit=_HISTORY)
        if job.desired_state == "running" and self._clock.now_ms() >= _not_before_ms(history):
            self._start_driver(job)

    def _fail_lost(self, job: str) -> None:
        lost = self._catalog.fail_lost_generation(job)
        if lost is not None:
            log.warning("job %r: generation %d failed: %s", job, lost.generation, lost.error)
            self._kill_own(lost)

    def _kill_own(self, lost: GenerationRecord) -> None:
        """End a driver that hangs: it would keep the executors its successor needs."""
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
        except (StatecoreError, OSError) as error:
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
            # Whatever is wrong with one job or cluster, the others still need their supervisor.
            log.exception("%s: unexpected error", what)


def run_supervisor(
    catalog_url: str, logs_dir: Path, *, entry_point: Path | None = None, poll_interval_s: float = 1.0
) -> None:
    """Run a supervisor in this process until SIGTERM or SIGINT; call from the main thread.

    Args:
        catalog_url: Catalog to watch; in a new database its tables are created.
        logs_dir: Directory for the drivers' output.
        entry_point: The driver's program; None for the ``sparkjobs/stream.py`` beside this package.
        poll_interval_s: Pause between two passes.

    Raises:
        ConfigurationError: The URL is not one of a supported database.
        CatalogError: The catalog cannot be reached at the start, or has the tables of another release.

    """
    # Drivers inherit it: on their command line, everybody on the machine could read a password in it.
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


def _not_before_ms(history: Sequence[GenerationRecord]) -> int:
    """Return when the next driver may start: later and later after failures that brought no new epoch.

    Args:
        history: The job's newest generations, newest first, all ended.

    """
    failures = 0
    for index, generation in enumerate(history):
        if generation.state != "failed" or _progressed(generation, history[index + 1 :]):
            break
        failures += 1
    if failures == 0:
        return 0
    ended_ms = history[0].ended_ms or 0
    return ended_ms + min(_FIRST_BACKOFF_MS << (failures - 1), _LONGEST_BACKOFF_MS)


def _progressed(generation: GenerationRecord, older: Sequence[GenerationRecord]) -> bool:
    """Return whether a generation committed anything, and not only found what an older one had committed."""
    if generation.epoch is None:
        return False
    known = next(((each.lineage, each.epoch) for each in older if each.epoch is not None), None)
    return (generation.lineage, generation.epoch) != known


def _has_exited(driver: subprocess.Popen[bytes]) -> bool:
    """Return whether a child has ended, without collecting its exit."""
    return psutil.Process(driver.pid).status() == psutil.STATUS_ZOMBIE
