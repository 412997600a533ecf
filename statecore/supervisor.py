"""The supervisor: brings jobs and clusters to their desired state, in repeated passes.

A pass checks every cluster, every expired lease and every job, each in a call of its own: one that hangs is skipped
until it ends. All state is in the catalog, so the supervisor may be killed and restarted at any time; drivers and
workers keep running without it.

Several supervisors elect a leader in the catalog; another one takes over when it is silent for too long. A leader that
was paused, and does not know its successor yet, does no harm: a generation is claimed under the job's lock, and worker
processes belong to one host.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ParamSpec

from statecore.catalog import HISTORY, Catalog, LeaseRecord, SupervisorRecord, SystemClock
from statecore.catalog.job_names import job_names_file, write_job_names
from statecore.cluster.processes import is_running, started_ms
from statecore.errors import CatalogError, StatecoreError
from statecore.operations.changes import Finisher
from statecore.operations.restarts import next_start_ms
from statecore.operations.submit import CATALOG_VARIABLE as CATALOG_VARIABLE
from statecore.operations.submit import SparkSubmit
from statecore.operations.supervising.background_calls import BackgroundCalls
from statecore.operations.supervising.cleanup import Cleanup
from statecore.operations.supervising.cluster_size import ClusterTending
from statecore.operations.supervising.drivers import Drivers, Launch
from statecore.operations.supervising.job_file_checks import JobFileChecks
from statecore.operations.supervising.monitoring import monitoring
from statecore.operations.supervising.stopped_topics import StoppedTopics
from statecore.operations.supervising.watch import Pass
from statecore.release import RELEASE

log = logging.getLogger(__name__)

P = ParamSpec("P")

# Drivers report every half second, and a command renews its lease every ten.
_SETTLING_MS = 15_000
# One connection to the catalog for each; SQLAlchemy opens at most 15.
_CLUSTERS_AT_ONCE, _JOBS_AT_ONCE, _TOPICS_AT_ONCE = 4, 8, 2
_PASS_S = 2.0
"""A pass waits this long for its calls, so that an error is logged with its pass; those that hang go on."""
_HUNG_S = 10.0
_STOP_S = 2.0


class Supervisor:
    """Starts missing drivers, and brings clusters to their desired size.

    Args:
        catalog: Desired and actual state.
        logs_dir: Directory for the drivers' output.
        launch: Returns the command that runs a driver.
        poll_interval_s: Pause between two passes.
        names_file: File to write the names of all jobs to, for readers without access to the catalog.
        job_files: Folders that job files of upgrades may come from; see ``JobFileChecks``.

    Attributes:
        last_pass: The last pass that reached the catalog; None before the first, and while another supervisor acts.

    """

    def __init__(
        self,
        catalog: Catalog,
        logs_dir: Path,
        *,
        launch: Launch,
        poll_interval_s: float = 1.0,
        names_file: Path | None = None,
        job_files: Sequence[str] = (),
    ) -> None:
        self._catalog = catalog
        self._logs_dir = logs_dir.absolute()
        self._poll_interval_s = poll_interval_s
        self._names_file = names_file
        self.last_pass: Pass | None = None
        self._id = uuid.uuid4().hex
        self._host = socket.gethostname()
        self._leader: str | None = None
        self._stopping = threading.Event()
        self._catalog_failed = False
        self._beat_s = time.monotonic()
        self._silence_ms = 0
        self._settled_ms = 0
        self._drivers = Drivers(catalog.generations, logs_dir, launch)
        self._clusters = ClusterTending(catalog.clusters)
        self._checks = JobFileChecks(catalog, job_files)
        self._cluster_calls = BackgroundCalls(_CLUSTERS_AT_ONCE, "statecore-cluster")
        self._job_calls = BackgroundCalls(_JOBS_AT_ONCE, "statecore-job")
        self._cleanup = Cleanup(catalog, self._logs_dir)
        self._finisher = Finisher(catalog)
        # Separate calls: brokers that do not answer must not delay the start of drivers.
        self._topics = StoppedTopics(catalog)
        self._topic_calls = BackgroundCalls(_TOPICS_AT_ONCE, "statecore-topics")

    def run(self) -> None:
        """Make passes until ``stop`` is called."""
        log.info("supervisor started, pid %d, logs in %s", os.getpid(), self._logs_dir)
        while True:
            self._guarded("pass", self.step)
            if self._stopping.wait(self._poll_interval_s):
                break
        self.close()
        log.info("supervisor stops; drivers and workers keep running")

    def stop(self) -> None:
        """Make ``run`` return after its current pass; drivers and workers keep running."""
        self._stopping.set()

    def close(self) -> None:
        """Begin no further call, and let another supervisor act at once; drivers and workers keep running.

        Waits a few seconds for the calls under way. Those that hang end with the process.
        """
        self._cluster_calls.close(_STOP_S)
        self._job_calls.close(_STOP_S)
        self._topic_calls.close(_STOP_S)
        self._guarded("resignation", self._catalog.supervisors.resign, self._id)

    def step(self) -> None:
        """Make one pass; a failure is logged, and the next pass retries.

        Raises:
            CatalogError: The catalog cannot be reached.

        """
        begun_s = time.monotonic()
        try:
            if not self._leads():
                self._finisher.forget()
                self.last_pass = None
                return
            self._pass()
            self.last_pass = Pass(SystemClock().now_ms(), time.monotonic() - begun_s)
        except CatalogError:
            self._catalog_failed = True
            raise

    def _leads(self) -> bool:
        """Send a heartbeat; return whether this supervisor leads."""
        before = None if self._leader == self._id else self._catalog.supervisors.last()
        was_silent = before is not None and not self._catalog.supervisors.is_alive(before)
        leader = self._beat()
        if leader.id != self._id and self._has_died(leader):
            leader = self._beat(replacing=leader.id)
        silence_ms = round((time.monotonic() - self._beat_s) * 1000)
        self._beat_s, self._silence_ms = time.monotonic(), max(self._silence_ms, silence_ms)
        if leader.id != self._leader:
            self._leader = leader.id
            # What blocked the previous leader's heartbeats may have blocked those of drivers.
            self._catalog_failed = self._catalog_failed or was_silent
            if leader.id != self._id:
                log.info("supervisor on %s, pid %d, acts for this catalog; waiting", leader.host, leader.pid)
        return leader.id == self._id

    def _beat(self, replacing: str | None = None) -> SupervisorRecord:
        pid = os.getpid()
        calls = (self._cluster_calls, self._job_calls, self._topic_calls)
        hung = {what: seconds for each in calls for what, seconds in each.hung(_HUNG_S).items()}
        return self._catalog.supervisors.lead(
            self._id,
            host=self._host,
            pid=pid,
            process_started_ms=started_ms(pid),
            version=RELEASE,
            hung={what: round(seconds) for what, seconds in hung.items()},
            replacing=replacing,
        )

    def _has_died(self, other: SupervisorRecord) -> bool:
        """Return whether a supervisor is known to be dead, because it ran on this host."""
        return other.host == self._host and not is_running(other.pid, other.process_started_ms)

    def _pass(self) -> None:
        now_ms = self._catalog.now_ms()
        if self._catalog_failed or self._silence_ms > _SETTLING_MS:
            # Heartbeats could not arrive either, so missing ones prove nothing before drivers had as long to recover.
            self._settled_ms = now_ms + max(_SETTLING_MS, self._silence_ms)
            self._catalog_failed = False
        self._silence_ms = 0
        settled = now_ms >= self._settled_ms
        for cluster in self._catalog.clusters.all():
            what = f"cluster {cluster.name!r}"
            self._cluster_calls.begin(what, partial(self._guarded, what, self._clusters.tend, cluster.name))
        expired = {lease.job: lease for lease in self._catalog.leases.expired()} if settled else {}
        # Names alone: a job whose record is damaged hides no other.
        jobs = self._catalog.jobs.names()
        for job in jobs:
            what, tend = f"job {job!r}", partial(self._tend_job, job, expired.get(job), settled, now_ms)
            self._job_calls.begin(what, partial(self._guarded, what, tend))
            what = f"backlog of job {job!r}"
            self._topic_calls.begin(what, partial(self._guarded, what, self._topics.measure, job))
        self._guarded("checks of job files", self._checks.answer)
        what = "left-overs"
        self._job_calls.begin(what, partial(self._guarded, what, self._cleanup.remove, jobs))
        if self._names_file is not None:
            self._guarded("names of the jobs", write_job_names, self._names_file, jobs)
        self._job_calls.wait(_PASS_S)
        self._cluster_calls.wait(_PASS_S)
        self._topic_calls.wait(0.0)

    def _tend_job(self, name: str, expired: LeaseRecord | None, settled: bool, now_ms: int) -> None:
        self._guarded(f"driver of {name!r}", self._drivers.collect, name)
        if expired is not None:
            self._guarded(f"lease on {name!r}", self._recover_lease, expired)
        if settled:
            self._guarded(f"verification of {name!r}", self._finisher.go_on, name)
        history = self._catalog.generations.of(name, limit=HISTORY)
        self._drivers.kill_overdue(history, now_ms)
        if history and not history[0].ended:
            if not settled or self._catalog.generations.is_alive(history[0]):
                return
            self._fail_lost(name)
            history = self._catalog.generations.of(name, limit=HISTORY)
        if (
            history
            and history[0].ended_by_itself
            and self._catalog.generations.stop_ended_query(name, history[0].generation)
        ):
            log.info("job %r: its query has ended by itself; the job is stopped", name)
        job = self._catalog.jobs.get(name)
        if job.desired_state == "running" and self._catalog.now_ms() >= next_start_ms(history):
            self._drivers.start(job)

    def _recover_lease(self, expired: LeaseRecord) -> None:
        if self._finisher.take_up(expired):
            return
        lease = self._catalog.leases.recover_expired(expired.job)
        if lease is not None:
            log.warning(
                "job %r: lease of %r expired; job rolled back to its state before the lease", lease.job, lease.owner
            )

    def _fail_lost(self, job: str) -> None:
        lost = self._catalog.generations.fail_lost(job)
        if lost is not None:
            log.warning("job %r: generation %d failed: %s", job, lost.generation, lost.error)
            # A hanging driver would keep the executors that its successor needs.
            self._drivers.kill(lost)

    def _guarded(self, what: str, action: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            action(*args, **kwargs)
        except StatecoreError as error:
            log.error("%s: %s", what, error)
        except Exception:
            # The other jobs and clusters still need their supervisor.
            log.exception("%s: unexpected error", what)


def run_supervisor(
    catalog_url: str,
    logs_dir: Path,
    *,
    entry_point: Path | None = None,
    poll_interval_s: float = 1.0,
    metrics_host: str = "127.0.0.1",
    metrics_port: int | None = None,
    job_files: Sequence[str] = (),
) -> None:
    """Run a supervisor in this process until SIGTERM or SIGINT; call from the main thread.

    Args:
        catalog_url: Catalog to watch; the tables are created in a new database.
        logs_dir: Directory for the drivers' output.
        entry_point: The driver's program; None for the default of ``SparkSubmit``.
        poll_interval_s: Pause between two passes.
        metrics_host: Address to serve metrics at.
        metrics_port: Port to serve metrics at; None to serve none.
        job_files: Folders that job files of upgrades may come from; see ``JobFileChecks``.

    Raises:
        ConfigurationError: The metrics' address is taken; or the URL is not one of a supported database.
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
            job_files=job_files,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: supervisor.stop())
        with monitoring(catalog, host=metrics_host, port=metrics_port, last_pass=lambda: supervisor.last_pass):
            supervisor.run()
