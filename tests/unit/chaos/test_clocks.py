"""A clock that is set wrongly shows another time of day, and waits as long as any other."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.clocks import has_clocks, make_clock, with_clock

PROGRAM = """
import time, datetime
begun = time.monotonic()
time.sleep(0.2)
print(time.time(), datetime.datetime.now().timestamp(), time.time_ns() / 1e9, time.monotonic() - begun)
"""


@pytest.mark.skipif(not has_clocks(), reason="found no C compiler")
@pytest.mark.parametrize("ahead_s", [0, 90, -3600])
def test_a_process_has_another_time_of_day_and_no_other_waits(tmp_path: Path, ahead_s: int) -> None:
    clock = make_clock(tmp_path)
    command = with_clock([sys.executable, "-c", PROGRAM], clock, ahead_s)
    # Of the parent, whose own clock it must not inherit.
    begun = time.time()
    done = subprocess.run(with_clock(command, clock, 7200), capture_output=True, text=True, check=True)
    *times, waited_s = map(float, done.stdout.split())
    for shown in times:
        assert begun <= shown - ahead_s <= time.time()
    assert waited_s >= 0.2
