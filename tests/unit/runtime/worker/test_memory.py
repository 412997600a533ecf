"""State that comes close to the memory of its worker is reported before the worker is killed."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

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

    def test_its_limit_counts_when_it_is_the_tightest(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.group(tmp_path, monkeypatch, current=str(10**15), max=str(10**15 + 50))
        found = worker_memory()
        # What files are kept in memory for speed is given back first.
        assert found == Memory(10**15 - 50, 10**15 + 50)

    def test_the_machine_counts_when_that_is_tighter(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.group(tmp_path, monkeypatch, current="51")
        assert worker_memory().limit > 1000

    @pytest.mark.parametrize(
        "files", [{"max": "max\n"}, {"current": ""}, {"stat": "anon 700\n"}, {"stat": "odd\n"}, {"max": "\0"}]
    )
    def test_one_without_a_limit_or_that_reads_oddly_fails_no_epoch(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]
    ) -> None:
        self.group(tmp_path, monkeypatch, **files)
        assert 0 < worker_memory().share < 1

    def test_where_there_is_none_the_machine_counts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "_CGROUP", tmp_path)
        monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert 0 < worker_memory().share < 1
