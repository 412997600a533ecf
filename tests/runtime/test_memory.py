"""State that comes close to the memory of its worker is reported before the worker is killed."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statecore.operations.submit import SparkSubmit
from statecore.runtime.worker import memory
from statecore.runtime.worker.memory import NEARLY_FULL, Memory, worker_memory
from statecore.supervisor import CATALOG_VARIABLE, Supervisor
from tests.conftest import REPO
from tests.runtime.conftest import JOB, Bench, wait
from tests.runtime.jobs import hoard

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


@pytest.mark.spark
def test_a_job_warns_with_subtask_and_bytes_and_says_what_to_do(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark limits the address space of each worker to it.
    bench.register(artifact=Path(hoard.__file__), conf={"spark.executor.pyspark.memory": "4g"})
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    bench.catalog.set_desired(JOB, state="running", parallelism=1)
    supervisor = Supervisor(bench.catalog, tmp_path / "logs", launch=SparkSubmit(), poll_interval_s=0.2)
    thread = threading.Thread(target=supervisor.run)
    thread.start()

    def warned() -> bool:
        hoarded(bench, 128)
        bench.wait_done()
        return bool(warnings(tmp_path / "logs"))

    try:
        hoarded(bench, 1)
        wait(lambda: bench.rows_done() >= len(bench.fed), "the first epoch")
        assert warnings(tmp_path / "logs") == []
        wait(warned, "the warning", 400)
        assert bench.generation().generation == 1
    finally:
        bench.catalog.set_desired(JOB, state="stopped")
        bench.stop("end")
        supervisor.stop()
        thread.join(30)
    (warning, *_) = warnings(tmp_path / "logs")
    found = re.search(r"the worker of subtask 0 of 'hoard' with (\d\.\d) of (\d\.\d) GiB in use; expected", warning)
    assert found is not None, warning
    assert NEARLY_FULL * 4 - 0.1 <= float(found[1]) <= float(found[2]) == 4.0
    assert "less than 80 %" in warning
    for remedy in ("rescale to a higher parallelism", "more memory", "let state expire"):
        assert remedy in warning
    shares = [epoch.memory_share or 0 for epoch in bench.catalog.epochs(JOB)]
    assert 0 < shares[0] < NEARLY_FULL <= max(shares) < 1


def hoarded(bench: Bench, mib: int) -> None:
    """Feed one record of one more key, which the state grows by."""
    key = f"k{len(bench.fed)}"
    bench.feed_table(pa.table({"k": [key], "n": pa.array([mib], pa.int64())}))
    bench.fed.append((key, mib))


def warnings(logs: Path) -> list[Any]:
    lines = [line for log in logs.glob("*.log") for line in log.read_text().splitlines()]
    return [line for line in lines if "found the worker of subtask" in line]
