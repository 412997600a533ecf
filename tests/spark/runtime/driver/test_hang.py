"""A driver whose JVM hangs is ended and followed by another; one whose epoch takes long is not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from statecore.cluster.processes import kill_session
from statecore.operations.supervising import drivers
from statecore.supervisor import CATALOG_VARIABLE
from tests.support.bench import ARTIFACT, JOB, Bench
from tests.support.jobs import long_epoch
from tests.support.supervision import supervising
from tests.support.waiting import wait

# The first driver alone: its successor may be kept from the processor for longer.
_IMPATIENT = """

import os, signal
from statecore.runtime.generation import watchdog

if not os.path.exists({marker!r}):
    open({marker!r}, "w").close()
    watchdog.ANSWER_S = 8
    {more}
"""

# The driver loads the job file before it asks for a session; spark-submit's JVM is its parent.
_STOPS_ITS_JVM = "os.kill(os.getppid(), signal.SIGSTOP)"


@pytest.fixture
def supervised(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A supervisor, and at the end no driver."""
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    try:
        with supervising(bench.catalog, tmp_path / "logs"):
            yield
            bench.stop("end")
    finally:
        # A process that was stopped would outlive the tests.
        for generation in bench.catalog.generations.of(JOB):
            if generation.pid is not None:
                kill_session(generation.pid)


def impatient(tmp_path: Path, more: str = "pass") -> Path:
    """Return a job file whose first driver waits less for its JVM than usual, and does something more as it begins."""
    job_file = tmp_path / "job.py"
    job_file.write_text(ARTIFACT.read_text() + _IMPATIENT.format(marker=str(tmp_path / "impatient"), more=more))
    return job_file


def start(bench: Bench, job_file: Path) -> None:
    bench.register(artifact=job_file)
    bench.catalog.jobs.set_desired(JOB, state="running", parallelism=2)
    bench.feed()


def test_a_driver_whose_jvm_hangs_is_ended_and_its_successor_goes_on(
    spark: Any, bench: Bench, tmp_path: Path, supervised: None
) -> None:
    start(bench, impatient(tmp_path))
    wait(lambda: bench.rows_done() >= len(bench.fed), "the first epoch")
    pid = bench.generation().pid
    assert pid is not None and "java" in psutil.Process(pid).name()
    os.kill(pid, signal.SIGSTOP)
    bench.feed()
    wait(lambda: bench.rows_done() >= len(bench.fed), "the records, by the next driver")
    wait(lambda: bench.generation().state != "launching", "its heartbeat")
    newest, hung = bench.catalog.generations.of(JOB)
    assert (newest.state, hung.state) == ("running", "failed")
    assert "found no answer from the driver's JVM" in str(hung.error)
    wait(lambda: not psutil.pid_exists(pid), "the end of the process that hung")
    bench.assert_exact(spark)


def test_a_driver_whose_jvm_hangs_before_there_is_a_session_is_ended_and_its_successor_goes_on(
    spark: Any, bench: Bench, tmp_path: Path, supervised: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "_OVERDUE_MS", 5_000)
    start(bench, impatient(tmp_path, _STOPS_ITS_JVM))
    wait(lambda: bench.rows_done() >= len(bench.fed), "the records, by the next driver")
    wait(lambda: bench.generation().state != "launching", "its heartbeat")
    newest, hung = bench.catalog.generations.of(JOB)
    assert (newest.state, hung.state) == ("running", "failed")
    assert "found no answer from the driver's JVM" in str(hung.error)
    pid = hung.pid
    assert pid is not None
    wait(lambda: not psutil.pid_exists(pid), "the end of the process that hung")
    bench.assert_exact(spark)


def test_a_driver_whose_epoch_takes_long_lives(bench: Bench, supervised: None) -> None:
    start(bench, Path(long_epoch.__file__))
    called = bench.output / "called"
    wait(called.exists, "the epoch that takes long")
    began_ms = bench.generation().heartbeat_ms
    wait(
        lambda: bench.generation().heartbeat_ms - began_ms > 1_500 * long_epoch.LIMIT_S,
        "heartbeats of a patient driver",
    )
    assert bench.rows_done() == 200 and bench.generation().state == "running"
    called.unlink()
    bench.feed()
    wait(lambda: bench.rows_done() >= len(bench.fed), "the records")
    assert bench.generation().generation == 1
