"""State that comes close to the memory of its worker is reported before the worker is killed."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest

from statecore.runtime.worker import memory
from statecore.runtime.worker.memory import NEARLY_FULL, Memory, worker_memory
from tests.support.paths import REPO

MIB = 2**20

# Grows until the system refuses, and says when it would have been reported.
GROW = f"""
import json, resource, sys
import psutil
from statecore.runtime.worker.memory import NEARLY_FULL, worker_memory
from statecore.state import HeapKeyedStateBackend
from statecore import ValueStateDescriptor
from statecore.model import KeyGroupRange
from statecore.testing import ManualClock

room = int(sys.argv[1])
backend = HeapKeyedStateBackend(16, KeyGroupRange(0, 15), ManualClock())
state = backend.get_value_state(ValueStateDescriptor("hoard", "binary"))
base = psutil.Process().memory_info().vms
resource.setrlimit(resource.RLIMIT_AS, (base + room, base + room))
reported, key = None, 0
try:
    while True:
        backend.set_current_key((key,), key % 16)
        state.update(bytes(4 * {MIB}))
        key += 1
        found = worker_memory()
        if reported is None and found.share >= NEARLY_FULL:
            reported = [found.used, found.limit, key]
except MemoryError:
    backend = state = None
    print(json.dumps({{"limit": base + room, "reported": reported, "refused": key}}))
"""


HOARD = """
import sys
kept = b"x" * (int(sys.argv[1]) * 2**20)
print("has it", flush=True)
sys.stdin.read()
"""
# Forks two workers, as PySpark's daemon does; one says what it measures, once both have 64 MiB.
DAEMON = """
import os
from statecore.runtime.worker.memory import _executor, _resident

ready, tell = os.pipe()
over, end = os.pipe()
if os.fork() == 0:
    os.close(end)
    kept = b"x" * (64 * 2**20)
    os.write(tell, b".")
    os.read(over, 1)
    os._exit(0)
if os.fork() == 0:
    kept = b"x" * (64 * 2**20)
    os.read(ready, 1)
    print(sum(map(_resident, _executor())), flush=True)
    os._exit(0)
os.close(over)
os.waitpid(-1, 0)
os.close(end)
os.wait()
"""


def test_state_is_reported_before_the_limit_of_the_workers_address_space_refuses_more() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GROW, str(4 * 2**30)], capture_output=True, text=True, check=True, cwd=REPO, timeout=120
    )
    grown = json.loads(done.stdout)
    used, limit, key = grown["reported"]
    assert limit == grown["limit"]
    assert NEARLY_FULL <= used / limit < NEARLY_FULL + 0.05
    # There is a fifth left: time enough to read the report.
    assert grown["refused"] - key > 0.15 * limit / (4 * MIB)


class TestContainer:
    """A control group, version 2, as its files say."""

    def group(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
        whole = {"max": "1000\n", "current": "850\n", "stat": "anon 700\ninactive_file 50\nslab 10\n", **files}
        for name, text in whole.items():
            (folder / f"memory.{name}").write_text(text)
        monkeypatch.setattr(memory, "_CGROUP", folder)

    def test_it_is_the_limit_however_full_the_host_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.group(tmp_path, monkeypatch)
        # What files are kept in memory for speed is given back first.
        assert worker_memory() == Memory(800, 1000)

    def test_one_that_allows_more_than_the_host_has_limits_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.group(tmp_path, monkeypatch, max=str(10**15))
        found = worker_memory()
        assert found.limit == psutil.virtual_memory().total and found.host_share is not None

    @pytest.mark.parametrize(
        "files", [{"max": "max\n"}, {"current": ""}, {"stat": "anon 700\n"}, {"stat": "odd\n"}, {"max": "\0"}]
    )
    def test_one_without_a_limit_or_that_reads_oddly_fails_no_epoch(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]
    ) -> None:
        self.group(tmp_path, monkeypatch, **files)
        assert 0 < worker_memory().share < 1 and worker_memory().host_share is not None

    def test_without_one_the_host_is_the_limit_and_what_others_use_of_it_is_not_the_workers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(memory, "_CGROUP", tmp_path)
        monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        found = worker_memory()
        assert found.limit == psutil.virtual_memory().total and found.host_share is not None
        assert 0 < found.share < found.host_share < 1


def test_an_executor_is_its_jvm_its_daemon_and_all_its_workers_and_nothing_else() -> None:
    with subprocess.Popen([sys.executable, "-c", HOARD, "600"], stdin=PIPE, stdout=PIPE) as stranger:
        assert stranger.stdin is not None and stranger.stdout is not None
        assert stranger.stdout.readline()
        done = subprocess.run(
            # The shell stands for the JVM.
            ["sh", "-c", '"$0" -c "$1"; true', sys.executable, DAEMON], capture_output=True, text=True, check=True,
            cwd=REPO, timeout=120,
        )  # fmt: skip
        stranger.stdin.close()
    # The neighbour's 64 MiB count, the stranger's 600 do not.
    assert 128 * MIB < int(done.stdout) < 600 * MIB
