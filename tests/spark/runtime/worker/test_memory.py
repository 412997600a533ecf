"""A job warns before a worker is killed for the memory of its state."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statecore.runtime.worker.memory import NEARLY_FULL
from statecore.supervisor import CATALOG_VARIABLE
from tests.support.bench import JOB, Bench
from tests.support.jobs import hoard
from tests.support.supervision import supervising
from tests.support.waiting import wait


def test_a_job_warns_with_subtask_and_bytes_and_says_what_to_do(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark limits the address space of each worker to it.
    bench.register(artifact=Path(hoard.__file__), conf={"spark.executor.pyspark.memory": "4g"})
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    bench.catalog.jobs.set_desired(JOB, state="running", parallelism=1)

    def warned() -> bool:
        hoarded(bench, 128)
        bench.wait_done()
        return bool(warnings(tmp_path / "logs"))

    with supervising(bench.catalog, tmp_path / "logs"):
        try:
            hoarded(bench, 1)
            wait(lambda: bench.rows_done() >= len(bench.fed), "the first epoch")
            assert warnings(tmp_path / "logs") == []
            wait(warned, "the warning", 400)
            assert bench.generation().generation == 1
        finally:
            bench.catalog.jobs.set_desired(JOB, state="stopped")
            bench.stop("end")
    (warning, *_) = warnings(tmp_path / "logs")
    found = re.search(r"the worker of subtask 0 of 'hoard' with (\d\.\d) of (\d\.\d) GiB in use; expected", warning)
    assert found is not None, warning
    assert NEARLY_FULL * 4 - 0.1 <= float(found[1]) <= float(found[2]) == 4.0
    assert "less than 80 %" in warning
    for remedy in ("rescale to a higher parallelism", "more memory", "let state expire"):
        assert remedy in warning
    shares = [epoch.memory_share or 0 for epoch in bench.catalog.epochs.of(JOB)]
    assert 0 < shares[0] < NEARLY_FULL <= max(shares) < 1


def hoarded(bench: Bench, mib: int) -> None:
    """Feed one record of one more key, which the state grows by."""
    key = f"k{len(bench.fed)}"
    bench.feed_table(pa.table({"k": [key], "n": pa.array([mib], pa.int64())}))
    bench.fed.append((key, mib))


def warnings(logs: Path) -> list[Any]:
    lines = [line for log in logs.glob("*.log") for line in log.read_text().splitlines()]
    return [line for line in lines if "found the worker of subtask" in line]
