"""A thread that plays supervisor and driver of a job, without Spark: launches, answers, and fails on demand."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from statecore.catalog import Catalog, GenerationRecord, RequestRecord, SourceBacklog
from statecore.operations.supervising.job_file_checks import JobFileChecks
from statecore.release import RELEASE
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.resume_point import find_resume_point
from tests.support.waiting import wait

CLUSTER = "local"


def supervise(catalog: Catalog) -> None:
    """Send the heartbeat of a supervisor, which lasts for half a minute of the catalog's time."""
    catalog.supervisors.lead("of the tests", host="tests", pid=1, process_started_ms=0, version=RELEASE)


class Supervised:
    """The other side of the catalog.

    Attributes:
        fail_at: Parallelism at which every driver fails while it starts.
        fail_with: Job file with which every driver fails while it starts.
        deaf: Whether a driver answers no requests.
        cluster_error: Why the cluster cannot be resized.
        limits: Fewest and most workers that the cluster allows.
        stuck_workers: Fewest workers that are left when the cluster shrinks.
        waiting: Rows that wait; no epoch is committed, so a job for which some wait does not keep up.
        sizes: Workers and parallelism of the job, each time one of them changed.

    """

    def __init__(self, url: str, job: str, store: CheckpointStore) -> None:
        self._catalog = Catalog(url)
        self._job = job
        self._store = store
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._mine: GenerationRecord | None = None
        self.fail_at: int | None = None
        self.fail_with: str | None = None
        self._checks = JobFileChecks(self._catalog, ["/"])
        self.deaf = False
        self.cluster_error: str | None = None
        self.limits: tuple[int | None, int | None] = (None, None)
        self.stuck_workers = 0
        self.waiting = 0
        self.sizes: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        supervise(self._catalog)
        self._catalog.jobs.set_desired(self._job, state="running")
        self._thread.start()
        self.wait_running(2)
        wait(lambda: any(parallelism for _, parallelism in self.sizes), "its first look at the cluster")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._catalog.close()

    def wait_running(self, parallelism: int) -> None:
        def runs() -> bool:
            newest = self._catalog.generations.newest(self._job)
            return self._mine is not None and newest is not None and newest.parallelism == parallelism

        wait(runs, f"a driver at parallelism {parallelism}")

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            supervise(self._catalog)
            self._checks.answer()
            self._resize()
            if self._mine is None:
                if self._catalog.jobs.get(self._job).desired_state == "running":
                    self._launch()
                continue
            if not self._catalog.generations.heartbeat(self._job, self._mine.generation, lineage=1, epoch=7):
                self._mine = None
                continue
            self._catalog.epochs.record_backlog(self._job, self._mine.generation, [SourceBacklog("in", self.waiting)])
            request = None if self.deaf else self._catalog.requests.take_next(self._job)
            if request is not None:
                self._answer(self._mine, request)

    def _resize(self) -> None:
        workers = self._catalog.clusters.get(CLUSTER).desired_workers
        newest = self._catalog.generations.newest(self._job)
        size = (workers, 0 if newest is None else newest.parallelism)
        # Before it is reported: who waits for the report looks at these next.
        if not self.sizes or self.sizes[-1] != size:
            self.sizes.append(size)
        if self.cluster_error is not None and workers > 1:
            self._catalog.clusters.report(CLUSTER, ready_workers=1, message=self.cluster_error)
        else:
            least, most = self.limits
            ready = max(workers, self.stuck_workers)
            self._catalog.clusters.report(CLUSTER, ready_workers=ready, min_workers=least, max_workers=most)

    def _launch(self) -> None:
        claimed = self._catalog.generations.claim(self._job, log_path="/logs/{generation}.log")
        if claimed.parallelism == self.fail_at or self._catalog.jobs.get(self._job).artifact == self.fail_with:
            self._catalog.generations.end(self._job, claimed.generation, state="failed", error="out of memory")
        else:
            self._mine = claimed

    def _answer(self, mine: GenerationRecord, request: RequestRecord) -> None:
        if request.kind == "rescale":
            wanted = request.arguments["parallelism"]
            result = {"parallelism": wanted, "from_parallelism": mine.parallelism, "after_epoch": 7}
            self._catalog.generations.apply_parallelism(self._job, mine.generation, wanted, request.id, result)
            return
        # As a driver that has committed nothing: it pins what it has resumed from.
        point = find_resume_point(self._store, self._catalog.jobs.get(self._job), mine.generation)
        assert point.manifest is not None
        path = self._store.write_savepoint(point.manifest, request.arguments["name"], reason="", now_ms=0)
        self._catalog.requests.finish(request.id, result={"savepoint": path, "url": self._store.describe(path)})
        self._catalog.generations.end(self._job, mine.generation, state="stopped")
        self._mine = None
