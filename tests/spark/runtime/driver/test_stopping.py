"""A stop falls between two epochs, unless the one in flight is stuck."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from statecore.catalog import RequestRecord
from statecore.runtime.generation import patience
from tests.support.bench import JOB, Bench
from tests.support.jobs import two_sources
from tests.support.waiting import wait

FILES = 3


@pytest.fixture
def hold(bench: Bench) -> Iterator[Path]:
    """A file that holds up the first epoch while it is there; input for that one and two others."""
    made = bench.input.parent / "hold"
    made.touch()
    bench.register(artifact=Path(two_sources.__file__))
    at = pa.array([0], pa.timestamp("us", "UTC"))
    for n in range(FILES):
        bench.feed_table(pa.table({"k": ["k"], "n": pa.array([n], pa.int64()), "at": at}))
    yield made
    made.unlink(missing_ok=True)


@contextmanager
def stuck_and_asked_to_stop(bench: Bench) -> Iterator[RequestRecord]:
    with bench.running(2):
        wait((bench.input.parent / "held").exists, "an epoch to be held up")
        bench.catalog.jobs.set_desired(JOB, state="stopped")
        yield bench.catalog.requests.send(JOB, "stop_with_savepoint", {"name": "end", "reason": "test"}, "end")


def test_a_stop_waits_for_the_epoch_in_flight_and_lets_no_other_begin(bench: Bench, hold: Path) -> None:
    with stuck_and_asked_to_stop(bench) as asked:
        beat = bench.generation().heartbeat_ms
        wait(lambda: bench.generation().heartbeat_ms > beat + 2_000, "heartbeats, which go on")
        assert bench.generation().state == "running"
        hold.unlink()
        wait(lambda: bench.generation().ended, "the driver to end")
    result = bench.catalog.requests.get(asked.id).result
    assert bench.generation().state == "stopped"
    assert result is not None
    kept = bench.checkpoints.manifest(result["savepoint"])
    assert (kept.epoch, bench.newest().epoch) == (0, 0)


def test_a_stop_cuts_off_an_epoch_that_is_stuck(bench: Bench, hold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LEAST_PATIENCE_SECONDS", 1.0)
    with stuck_and_asked_to_stop(bench) as asked:
        wait(lambda: bench.generation().ended, "the driver to end")
    assert bench.generation().state == "stopped"
    assert "found no committed epoch" in str(bench.catalog.requests.get(asked.id).error)
    assert bench.checkpoints.newest() is None
