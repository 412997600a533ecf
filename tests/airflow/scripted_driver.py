"""A thread that plays the other side of the catalog: supervisor and driver, without Spark."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import msgspec

from statecore.catalog import Catalog, EpochRecord, GenerationRecord, RequestRecord, SourceBacklog
from statecore.operations.supervising.job_file_checks import JobFileChecks
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.rescale import rescale_by_reference
from tests.support.handmade import written
from tests.support.supervised import supervise
from tests.support.waiting import PATIENCE_S, wait

STEP_S = 0.1


def commit_epoch(store: CheckpointStore, job: str, *, epoch: int, parallelism: int) -> Manifest:
    """Commit an epoch of one operator with a keyed and an operator file per subtask."""
    manifest = written(store, parallelism, job=job, epoch=epoch)
    store.commit(manifest)
    return manifest


class ScriptedDriver:
    """Launches a generation whenever the job should run; it commits epochs, and does what it is asked.

    Attributes:
        fail_next: Error with which the next generation fails while it starts.
        fail_at: By parallelism, the error with which every generation fails that starts at it.
        fail_once_at: By parallelism, the error with which one generation fails that starts at it.
        complaint: Why the cluster cannot grow.
        present: Workers that a cluster has which cannot grow.
        limits: Fewest and most workers that the cluster allows.
        idle: Commit no epochs.
        refuse: Error with which every request is answered.
        deaf: Answer no request.
        abort_at: A step; when it has begun, the user ``ann`` aborts the run.
        resize: Whether to bring the cluster to the size wanted.
        waiting: Records that wait; None when that is unknown.
        epoch_ms: How long an epoch takes, for its 10 rows.

    """

    def __init__(self, url: str, job: str, store: CheckpointStore) -> None:
        self._catalog = Catalog(url)
        self._job = job
        self._store = store
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._mine: GenerationRecord | None = None
        self._checks = JobFileChecks(self._catalog, ["/"])
        self.fail_next: str | None = None
        self.fail_at: dict[int, str] = {}
        self.fail_once_at: dict[int, str] = {}
        self.complaint: str | None = None
        self.present = 1
        self.limits: tuple[int | None, int | None] = (None, None)
        self._dead = threading.Event()
        self._buried = threading.Event()
        self.idle = False
        self.refuse: str | None = None
        self.deaf = False
        self.abort_at: str | None = None
        self.resize = True
        self.waiting: int | None = 0
        self.epoch_ms = 100

    def wait_running(self) -> GenerationRecord:
        def running() -> GenerationRecord | None:
            newest = self._catalog.generations.newest(self._job)
            return newest if newest is not None and newest.state == "running" else None

        found = wait(running, "a generation that runs")
        assert found is not None
        return found

    def die(self) -> None:
        """Stop taking part, supervisor and all: no heartbeat, no answer, as after ``kill -9``."""
        self._dead.set()
        assert self._buried.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        supervise(self._catalog)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        self._catalog.close()

    def _run(self) -> None:
        while not self._end.wait(STEP_S):
            if self._dead.is_set():
                self._buried.set()
                continue
            supervise(self._catalog)
            self._checks.answer()
            self._abort()
            if self.resize:
                self._resize()
            if self._mine is not None:
                self._drive(self._mine)
            elif self._catalog.jobs.get(self._job).desired_state == "running":
                self._launch()

    def _abort(self) -> None:
        runs = self._catalog.runs.of(self._job, limit=1)
        if runs and self.abort_at in runs[0].steps:
            self._catalog.runs.abort(self._job, "ann")
            self.abort_at = None

    def _resize(self) -> None:
        wanted, (least, most) = self._catalog.clusters.get("local").desired_workers, self.limits
        message = self.complaint if wanted > self.present else None
        ready = wanted if message is None else self.present
        self._catalog.clusters.report(
            "local", ready_workers=ready, min_workers=least, max_workers=most, message=message
        )

    def _launch(self) -> None:
        claimed = self._catalog.generations.claim(self._job, log_path="driver-{generation}.log")
        error = (
            self.fail_next or self.fail_once_at.pop(claimed.parallelism, None) or self.fail_at.get(claimed.parallelism)
        )
        self.fail_next = None
        if error is not None:
            self._catalog.generations.end(self._job, claimed.generation, state="failed", error=error)
            return
        self._mine = claimed

    def _drive(self, mine: GenerationRecord) -> None:
        if not self._catalog.generations.heartbeat(self._job, mine.generation):
            self._mine = None
            return
        newest = self._catalog.generations.newest(self._job)
        assert newest is not None
        if not self.idle:
            self._commit(newest)
        waiting = SourceBacklog("flights", records=self.waiting)
        self._catalog.epochs.record_backlog(self._job, mine.generation, [waiting])
        request = None if self.deaf else self._catalog.requests.take_next(self._job)
        if request is not None:
            self._answer(request, mine)

    def _commit(self, mine: GenerationRecord) -> None:
        newest = self._store.newest()
        assert newest is not None
        given = rescale_by_reference(newest, mine.parallelism)
        self._store.commit(msgspec.structs.replace(given, epoch=newest.epoch + 1, generation=mine.generation))
        now_ms = time.time_ns() // 1_000_000
        record = EpochRecord(
            self._job, 1, newest.epoch + 1, mine.generation, mine.parallelism, 10, 10, now_ms, now_ms, self.epoch_ms
        )
        self._catalog.epochs.record(record)

    def _answer(self, request: RequestRecord, mine: GenerationRecord) -> None:
        if self.refuse is not None:
            self._catalog.requests.finish(request.id, error=self.refuse)
            return
        if request.kind == "rescale":
            result = {"parallelism": request.arguments["parallelism"], "after_epoch": 8}
            self._catalog.generations.apply_parallelism(
                self._job, mine.generation, request.arguments["parallelism"], request.id, result
            )
            return
        manifest = self._store.newest()
        assert manifest is not None
        name, reason = request.arguments["name"], request.arguments["reason"]
        path = self._store.write_savepoint(manifest, name, reason=reason, now_ms=time.time_ns() // 1_000_000)
        url = self._store.describe(path)
        self._catalog.savepoints.record(
            url, job=self._job, lineage=1, epoch=manifest.epoch, parallelism=manifest.parallelism, reason=reason
        )
        answer = {"savepoint": path, "url": url, "lineage": manifest.lineage, "epoch": manifest.epoch}
        self._catalog.requests.finish(request.id, result=answer)
        if request.kind == "stop_with_savepoint":
            self._catalog.generations.end(self._job, mine.generation, state="stopped")
            self._mine = None
