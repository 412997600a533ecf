"""Removes unneeded checkpoints and files in a thread of the driver, in parallel to epochs and merges.

Checkpoints are thinned out every minute, from what this driver remembers of them. Files are listed and removed four
times in a grace period. A failure is logged and retried, and never ends the stream.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from statecore.runtime.faults import FaultPoint, fault_point
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.cleanup import CleanUp
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.settings import DriverSettings

log = logging.getLogger(__name__)

_THIN_OUT_S = 60.0
_RUNS_IN_GRACE = 4


@dataclass(frozen=True, slots=True)
class Unnamed:
    """Files of this driver that no manifest names yet.

    Attributes:
        paths: Finished files.
        since: Lineage and epoch from which on unfinished files may be in the epochs' folders; None without any.

    """

    paths: Collection[str]
    since: tuple[int, int] | None


class Housekeeping:
    """Cleans up after the epochs of one generation.

    Args:
        store: The job's checkpoints.
        settings: How much to keep, and for how long.
        unnamed: Returns the files that no manifest names yet.

    """

    def __init__(self, store: CheckpointStore, settings: DriverSettings, unnamed: Callable[[], Unnamed]) -> None:
        self._grace_s = settings.clean_up_grace.total_seconds()
        self._unnamed = unnamed
        self._newest: Manifest | None = None
        self._clean_up = CleanUp(
            store,
            retained=settings.retained_checkpoints,
            stopped=lambda: self._closed,
            on_delete=self._on_delete,
        )
        self._every_s = self._grace_s / _RUNS_IN_GRACE
        self._thin_out_every_s = min(self._every_s, _THIN_OUT_S)
        # Soon, because a driver that never lives long has to clean up as well.
        self._due = self._thin_out_due = time.monotonic() + self._thin_out_every_s
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="statecore-housekeeping", daemon=True)
        self._thread.start()

    def committed(self, manifest: Manifest) -> None:
        """Note a committed epoch; the thread cleans up after it when that is due."""
        self._clean_up.committed(manifest)
        self._newest = manifest
        self._wake.set()

    def close(self) -> None:
        """End the thread; a clean-up stops after its current listing or batch of deletions."""
        self._closed = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._closed:
                return
            try:
                self._step(time.monotonic())
            except Exception:
                if not self._closed:
                    log.exception("cleaning up failed; the stream continues, and a later epoch retries")

    def _step(self, now_s: float) -> None:
        newest, before_ms = self._newest, int((time.time() - self._grace_s) * 1000)
        assert newest is not None
        if now_s >= self._due:
            self._due, self._thin_out_due = now_s + self._every_s, now_s + self._thin_out_every_s
            # Asked before manifests are listed: what a manifest has named by then is in the listing.
            unnamed, last = self._unnamed(), (newest.lineage, newest.epoch)
            if unnamed.since is not None:
                last = min(last, (unnamed.since[0], unnamed.since[1] - 1))
            removed = self._clean_up.run(newest=last, before_ms=before_ms, keep=unnamed.paths)
            if removed.files:
                log.info(
                    "removed %d files, %d bytes, and %d manifests", removed.files, removed.bytes, removed.manifests
                )
        elif now_s >= self._thin_out_due:
            self._thin_out_due = now_s + self._thin_out_every_s
            self._clean_up.thin_out(before_ms=before_ms)

    def _on_delete(self) -> None:
        if self._newest is not None:
            fault_point(FaultPoint.CLEANING_UP, self._newest.epoch)
