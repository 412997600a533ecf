"""What a test costs is what all processes use that it starts, whoever waits for them."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.support.core_seconds import FRESH_S, Meter
from tests.support.waiting import wait

SECONDS = 1.5
BURN = f"import time\nwhile time.process_time() < {SECONDS}: pass\nprint('burnt', flush=True)\ninput()\n"
STARTED = {
    "waited for": BURN,
    "detached": f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}], start_new_session=True)",
    "ignored by its parent": "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    f"child = subprocess.Popen([sys.executable, '-c', {BURN!r}])\n"
    "child.wait()\n",
}


@pytest.mark.parametrize("how", STARTED)
def test_a_process_costs_what_it_uses_before_and_after_its_end(how: str) -> None:
    meter = Meter()
    before = meter.read()

    def cost() -> float:
        return meter.read() - before

    with subprocess.Popen(
        [sys.executable, "-c", STARTED[how]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None and started.stdout.readline() == "burnt\n"
        wait(lambda: cost() >= 0.9 * SECONDS, "the cost of a process that lives")
        started.communicate("\n")
    ended = time.monotonic()
    wait(lambda: time.monotonic() - ended > FRESH_S, "a sample after its end")
    assert cost() >= 0.9 * SECONDS
