"""Merges state files in parallel to the stream, and has unneeded ones removed.

Merges run in one thread of the driver, as Spark jobs of a few short tasks, so that an epoch does not wait long for a
free core. A failure is logged and retried, and never ends the stream. ``housekeeping`` removes files in another thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from statecore.runtime.driver.housekeeping import Housekeeping, Unnamed
from statecore.runtime.faults import FaultPoint, fault_point
from statecore.runtime.offline.compaction import carry_out_all
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.compaction import Merge, Merged, due_merges
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.settings import DriverSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_JOB_GROUP = "statecore-upkeep"
# One in this many cores works on merges, but at least one core.
_CORES_PER_MERGE = 8
# Shortest and longest pause between two searches for due merges, and their largest share of the time: with hundreds of
# subtasks a search takes ten milliseconds, and a few more changelogs do no harm.
_LOOK_S, _RAREST_LOOK_S, _LOOK_SHARE = 5.0, 60.0, 0.001


def pause_s(look_s: float) -> float:
    """Return the pause in seconds after a search for due merges that took ``look_s`` of processor time."""
    return min(max(_LOOK_S, look_s / _LOOK_SHARE), _RAREST_LOOK_S)


class BackgroundUpkeep:
    """Merges and cleans up after epochs of one generation.

    Args:
        spark: The session of the stream.
        store: The job's checkpoints.
        settings: How much to keep, and for how long.

    """

    def __init__(self, spark: SparkSession, store: CheckpointStore, settings: DriverSettings) -> None:
        self._spark = spark
        self._store = store
        self._settings = settings
        self._lock = threading.Lock()
        self._newest: Manifest | None = None
        self._merged: list[Merged] = []
        self._handed_out: list[Merged] = []
        self._under_way: tuple[int, int] | None = None
        self._pause_s = pause_s(0.0)
        self._housekeeping = Housekeeping(store, settings, self._unnamed)
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="statecore-upkeep", daemon=True)
        self._thread.start()

    def committed(self, manifest: Manifest) -> None:
        """Note a committed epoch; the threads handle the newest one when they are free."""
        with self._lock:
            self._newest = manifest
        self._wake.set()
        self._housekeeping.committed(manifest)

    def merged(self) -> list[Merged]:
        """Return the merges finished since the last call."""
        with self._lock:
            self._handed_out, self._merged = self._merged, []
            return self._handed_out

    def close(self) -> None:
        """End the threads and cancel the merges; a later clean-up removes their files."""
        self._closed.set()
        self._wake.set()
        self._housekeeping.close()
        while self._thread.is_alive():
            # Repeated: a merge that has just begun may have no job to cancel yet.
            self._spark.sparkContext.cancelJobGroup(_JOB_GROUP)
            self._thread.join(1)

    def _run(self) -> None:
        self._spark.sparkContext.setJobGroup(_JOB_GROUP, "merges state files", interruptOnCancel=True)
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._closed.is_set():
                return
            with self._lock:
                manifest = self._newest
            if manifest is not None:
                self._merge_guarded(manifest)
            self._closed.wait(self._pause_s)

    def _merge_guarded(self, manifest: Manifest) -> None:
        with self._lock:
            self._under_way = (manifest.lineage, manifest.epoch)
        try:
            self._merge(manifest)
        except Exception:
            if not self._closed.is_set():
                log.exception("merging state files failed; the stream continues, and the next epoch retries")
        finally:
            with self._lock:
                self._under_way = None

    def _merge(self, manifest: Manifest) -> None:
        # Not wall time, which counts other threads and a stopped process.
        began_s = time.thread_time()
        due = due_merges(manifest, base_floor_bytes=self._settings.base_floor_bytes)
        self._pause_s = pause_s(time.thread_time() - began_s)
        at_once = max(1, manifest.parallelism // _CORES_PER_MERGE)
        while due and not self._closed.is_set():
            with self._lock:
                known = (*self._merged, *self._handed_out)
            under_way = {item.file.path for each in known for item in each.merge.inputs}
            due = [merge for merge in due if under_way.isdisjoint(item.file.path for item in merge.inputs)]
            part, due = due[:at_once], due[at_once:]
            if part:
                self._carry_out(manifest, part)

    def _carry_out(self, manifest: Manifest, merges: Sequence[Merge]) -> None:
        done = carry_out_all(self._spark, self._store, merges, f"{manifest.lineage:06d}-{manifest.epoch:012d}")
        fault_point(FaultPoint.MERGED, manifest.epoch)
        with self._lock:
            self._merged += done
        for each in done:
            log.info(
                "%d files of state %r of subtask %d became one %s of %d rows",
                len(each.merge.inputs), each.merge.state.name, each.merge.subtask, each.merge.kind, each.output.rows,
            )  # fmt: skip

    def _unnamed(self) -> Unnamed:
        with self._lock:
            finished = {each.output.file.path for each in (*self._merged, *self._handed_out)}
            return Unnamed(finished, self._under_way)
