"""A thread that plays the other side of the catalog: supervisor and driver, without Spark."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from statecore.catalog import Catalog, EpochRecord, GenerationRecord
from statecore.model import DistributionMode, key_group_range
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import (
    FieldRef,
    FileKind,
    KeyedFile,
    Manifest,
    OperatorFile,
    OperatorState,
    PartitionsRef,
    StateSchema,
    SubtaskState,
)

STEP_S = 0.1


def commit_epoch(
    store: CheckpointStore, job: str, *, epoch: int, parallelism: int, max_parallelism: int, lineage: int = 1
) -> Manifest:
    """Commit an epoch of one operator with a keyed and an operator file per subtask."""
    subtasks = []
    for index in range(parallelism):
        groups = key_group_range(max_parallelism, parallelism, index)
        folder = f"state/by_tail/{lineage:06d}-{epoch:012d}"
        keyed = store.write_file(f"{folder}/{index}-keyed", b"keyed" * (index + 1))
        listed = store.write_file(f"{folder}/{index}-operator", b"operator")
        subtasks.append(
            SubtaskState(
                keyed=(
                    KeyedFile(
                        file=keyed,
                        state="totals",
                        kind=FileKind.BASE,
                        token=f"t{index}",
                        key_groups=(groups.start, groups.end),
                        rows=1,
                    ),
                ),
                operator=(
                    OperatorFile(
                        file=listed,
                        state="rejects",
                        partitions=PartitionsRef(mode=DistributionMode.SPLIT, offsets=(0, 1, 2)),
                    ),
                ),
            )
        )
    operator = OperatorState(
        uid="by_tail",
        key_fields=(FieldRef(name="tail", type="string"),),
        states=(
            StateSchema(name="totals", scope="keyed", kind="value", type="bigint"),
            StateSchema(name="rejects", scope="operator", kind="list", type="string", mode=DistributionMode.SPLIT),
        ),
        subtasks=tuple(subtasks),
    )
    manifest = Manifest(
        writer="test",
        job=job,
        lineage=lineage,
        epoch=epoch,
        generation=1,
        root="..",
        parent=None,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        batch_timestamp_ms=0,
        committed_ms=0,
        rows=10,
        rows_total=10,
        operators=(operator,),
        outputs=(),
        progress=(),
    )
    store.commit(manifest)
    return manifest


class ScriptedDriver:
    """Launches a generation whenever the job should run, sends heartbeats, and stops with a savepoint when asked.

    Attributes:
        fail_next: Error with which the next generation fails while it starts.
        mute: Stop taking part: no heartbeat, no answer, as after ``kill -9``.
        resize: Whether to bring the cluster to the size wanted.

    """

    def __init__(self, url: str, job: str, store: CheckpointStore) -> None:
        self._catalog = Catalog(url)
        self._job = job
        self._store = store
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._mine: GenerationRecord | None = None
        self.fail_next: str | None = None
        self.mute = False
        self.resize = True

    def wait_running(self, timeout_s: float = 10) -> GenerationRecord:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            newest = self._catalog.newest_generation(self._job)
            if newest is not None and newest.state == "running":
                return newest
            time.sleep(STEP_S)
        raise AssertionError("no generation runs")

    def __enter__(self) -> Self:
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
            if self.mute:
                continue
            if self.resize:
                cluster = self._catalog.cluster("local")
                self._catalog.report_cluster("local", ready_workers=cluster.desired_workers)
            if self._mine is not None:
                self._drive(self._mine)
            elif self._catalog.job(self._job).desired_state == "running":
                self._launch()

    def _launch(self) -> None:
        claimed = self._catalog.claim_generation(self._job, log_path="driver-{generation}.log")
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            self._catalog.end_generation(self._job, claimed.generation, state="failed", error=error)
            return
        self._mine = claimed

    def _drive(self, mine: GenerationRecord) -> None:
        if not self._catalog.heartbeat(self._job, mine.generation):
            self._mine = None
            return
        now_ms = time.time_ns() // 1_000_000
        self._catalog.record_epoch(
            EpochRecord(self._job, mine.generation, 8, mine.generation, mine.parallelism, 10, 10, now_ms, now_ms, 0)
        )
        request = self._catalog.next_request(self._job)
        if request is None:
            return
        manifest = self._store.newest()
        assert manifest is not None
        path = self._store.write_savepoint(
            manifest, request.arguments["name"], reason=request.arguments["reason"], now_ms=now_ms
        )
        result = {"savepoint": path, "lineage": manifest.lineage, "epoch": manifest.epoch}
        self._catalog.finish_request(request.id, result=result)
        self._catalog.end_generation(self._job, mine.generation, state="stopped")
        self._mine = None
