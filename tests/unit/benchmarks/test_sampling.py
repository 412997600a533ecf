"""What ``sampling_share`` measures runs epoch after epoch, and sampling is a part of it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.rows.sampling import Subtask, clocked, seconds_per_look
from statecore.model import KeyGroupRange
from statecore.runtime.worker.call_times import CallTimes
from statecore.state import HeapKeyedStateBackend
from statecore.testing import ManualClock


def test_sampling_takes_a_part_of_each_epoch(tmp_path: Path) -> None:
    subtask = Subtask(tmp_path, 500, per_look_s=0)
    for _ in range(3):
        sampled_s, took_s = subtask.epoch()
        assert 0 < sampled_s < took_s


def test_looks_are_counted_by_their_cost(tmp_path: Path) -> None:
    with clocked(per_look_s=10) as spent:
        times = CallTimes(HeapKeyedStateBackend(1, KeyGroupRange(0, 0), ManualClock(0)))
        times.looks = 3
        times.end()
    assert 30 <= sum(spent) < 31
    assert 0 <= seconds_per_look() < 0.01
