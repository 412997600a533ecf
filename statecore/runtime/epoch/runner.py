"""The driver's side of an epoch: run, commit, publish, report.

::

    subtasks ─► manifest of (lineage, epoch), put if absent ─► publish staged outputs ─► report
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

from statecore.errors import CommitForbiddenError
from statecore.runtime.epoch.committer import CommitGate, Committer, Upkeep
from statecore.runtime.epoch.first_offsets import FirstOffsets
from statecore.runtime.epoch.idleness import Idleness
from statecore.runtime.epoch.input_files import InputFiles
from statecore.runtime.epoch.lineage import Lineage
from statecore.runtime.epoch.progress import EpochTimes
from statecore.runtime.epoch.publishing import publish
from statecore.runtime.epoch.report import EpochReport, Timing, epoch_report
from statecore.runtime.epoch.subtasks import Subtasks
from statecore.runtime.epoch.ticks import Ticks
from statecore.runtime.faults import FaultPoint, fault_point
from statecore.runtime.job import Job
from statecore.snapshot.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


class Recorder(Protocol):
    """Records the figures of epochs."""

    def committed(self, report: EpochReport) -> None:
        """Record a committed and published epoch soon; neither waits nor raises."""


class EpochRunner:
    """Runs, commits and publishes epochs; one object per generation, called by foreachBatch.

    Args:
        plan: The job's sources, operators and sinks.
        lineage: The epochs before.
        subtasks: Run an epoch.
        committer: Commits an epoch.
        times: The times of epochs.
        inputs: Checks that an epoch finds its files.
        ticks: Triggers an epoch when timers are due; None for a job without timers.
        gate: Checked before an epoch.
        recorder: Records committed epochs.
        upkeep: Merges state files of committed epochs.

    Attributes:
        boundary: Lock that an epoch in flight holds; another holder delays the next epoch.
        failure: The error that an epoch failed with; a refusal because the job is stopping does not count.

    """

    def __init__(
        self,
        *,
        plan: Job,
        lineage: Lineage,
        subtasks: Subtasks,
        committer: Committer,
        times: EpochTimes,
        inputs: InputFiles,
        first_offsets: FirstOffsets,
        ticks: Ticks | None,
        gate: CommitGate,
        recorder: Recorder,
        upkeep: Upkeep,
    ) -> None:
        self._sinks = plan.sinks
        self._lineage = lineage
        self._subtasks = subtasks
        self._committer = committer
        self._times = times
        self._inputs = inputs
        self._first_offsets = first_offsets
        self._ticks = ticks
        self._idleness = Idleness(plan.sources, int(time.time() * 1000))
        self._gate = gate
        self._recorder = recorder
        self._upkeep = upkeep
        self.boundary = threading.Lock()
        self.failure: BaseException | None = None
        self._schedule_ticks()

    def __call__(self, df: DataFrame, epoch: int) -> None:
        """Process one micro-batch; repeated calls process it only once."""
        try:
            with self.boundary:
                # A stop waits only for the epoch in flight, not for those after it.
                self._gate.check_open()
                self._epoch(df, epoch)
        except CommitForbiddenError:
            raise
        except BaseException as error:
            # Spark passes on only the text of an error, so the driver reports the error itself. The text must be short:
            # Spark searches it with a regular expression that overflows the stack on a long text, and then the query
            # would end as if it had not failed.
            self.failure = error
            raise RuntimeError(f"the epoch failed with {type(error).__name__}") from None

    def _epoch(self, df: DataFrame, epoch: int) -> None:
        lineage, store = self._lineage, self._lineage.store
        there = store.find(lineage.number, epoch)
        if there is not None:
            lineage.check_own(there)
            log.info("epoch %d is already committed; publishing only", epoch)
            publish(self._sinks, there, store, df.sparkSession)
            self._advance(there, store.files.read(store.manifest_path(lineage.number, epoch)))
            return
        started = time.time()
        clock = time.monotonic()
        now_ms = self._times.of(epoch, lineage.newest)
        self._inputs.check(epoch)
        self._first_offsets.keep()
        try:
            ran = self._subtasks.run(df, epoch, now_ms)
        except Exception as error:
            self._inputs.failed(epoch, error)
            raise
        ran_s = time.monotonic()
        idle = self._idleness.note(ran.read.rows_of, now_ms)
        manifest, encoded = self._committer.commit(epoch, now_ms, ran, idle)
        fault_point(FaultPoint.MANIFEST_WRITTEN, epoch)
        committed_s = time.monotonic()
        publish_ms = publish(self._sinks, manifest, store, df.sparkSession)
        fault_point(FaultPoint.PUBLISHED, epoch)
        self._advance(manifest, encoded)
        done_s = time.monotonic()
        timing = Timing(int(started * 1000), ran_s - clock, committed_s - ran_s, done_s - committed_s, publish_ms)
        report = epoch_report(manifest, ran.commits, timing, ran.read, idle)
        self._gate.committed(report)
        self._recorder.committed(report)
        self._upkeep.committed(manifest)

    def _advance(self, manifest: Manifest, encoded: bytes) -> None:
        self._lineage.advance(manifest, encoded)
        self._schedule_ticks()

    def _schedule_ticks(self) -> None:
        newest = self._lineage.newest
        if self._ticks is not None and newest is not None:
            self._ticks.committed(newest, self._idleness.next_ms(newest.batch_timestamp_ms))
