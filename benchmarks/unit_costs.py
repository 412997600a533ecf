"""Unit costs of a row, a key, an epoch and a subtask, and their projection to a terabyte of state.

python -m benchmarks.unit_costs

The costs are slopes, measured on the cluster of ``make bench``: the same job with few and many rows, keys and subtasks.
The projection is arithmetic.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median

import psutil
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.cluster import PARALLELISM, application
from benchmarks.epochs import seconds_of
from benchmarks.harness import Bench
from benchmarks.inputs import Input
from benchmarks.ours import OurJob, phases_ms, written_savepoint
from statecore.runtime.offline.rewrite import rewrite_savepoint
from statecore.snapshot.manifest import FileKind

ROWS = (50_000, 500_000)
KEYS = (200_000, 2_000_000)
SUBTASKS = (2, 32)
FEW_ROWS = 1_000
WARM_UP, EPOCHS = 2, 5
CORES = 2


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Unit costs, each per core.

    Attributes:
        row_us: Time of a record from the source's file to the sink's, Spark included.
        row_process_us, row_write_us: Parts of it: the function with its state; changelog and staged output.
        key_bytes: Memory of a key in a Python worker.
        key_file_bytes: Size of a key in a base.
        row_changelog_bytes: Size of a changed key in a changelog.
        load_keys_per_s: Keys loaded from files into memory per second.
        rewrite_keys_per_s: Keys rewritten per second.
        epoch_ms: Fixed time of an epoch without rows, before the first subtask.
        subtask_ms: Time per subtask and epoch on the core that runs it.
        subtask_driver_ms: Time per subtask and epoch on the driver, which handles them one after the other.

    """

    row_us: float
    row_process_us: float
    row_write_us: float
    key_bytes: float
    key_file_bytes: float
    row_changelog_bytes: float
    load_keys_per_s: float
    rewrite_keys_per_s: float
    epoch_ms: float
    subtask_ms: float
    subtask_driver_ms: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cluster of the projection, with one subtask per core."""

    state_bytes: float = 1e12
    executors: int = 200
    cores: int = 4

    @property
    def subtasks(self) -> int:
        """Number of subtasks."""
        return self.executors * self.cores


def projected(costs: UnitCosts, cluster: Cluster) -> list[tuple[str, str, str]]:
    """Return (name, formula, value) of each projected figure."""
    keys = cluster.state_bytes / costs.key_bytes
    keys_each = keys / cluster.subtasks
    fixed_s = (costs.epoch_ms + costs.subtask_ms + cluster.subtasks * costs.subtask_driver_ms) / 1000
    # An epoch of ten times the fixed part spends nine tenths of its time on rows.
    rows_per_s = 0.9 * cluster.subtasks / costs.row_us * 1e6
    changelog_per_s = rows_per_s * costs.row_changelog_bytes
    return [
        ("keys", "bytes / bytes a key", f"{keys / 1e9:,.1f} billion"),
        ("memory of an executor", "bytes / executors", f"{cluster.state_bytes / cluster.executors / 1e9:,.1f} GB"),
        ("files of a full checkpoint", "keys × bytes a key in files", f"{keys * costs.key_file_bytes / 1e9:,.0f} GB"),
        ("fixed part of an epoch", "epoch + subtask + subtasks × driver's share", f"{fixed_s:,.1f} s"),
        ("epoch of which that is a tenth", "10 × fixed part", f"{10 * fixed_s:,.0f} s"),
        ("rows a second in it", "0.9 × subtasks / row", f"{rows_per_s / 1e6:,.0f} million"),
        ("changelog a second", "rows a second × bytes a row", f"{changelog_per_s / 1e9:,.1f} GB"),
        ("load of all state", "keys of a subtask / keys a second", f"{keys_each / costs.load_keys_per_s:,.0f} s"),
        ("rewrite of all state", "keys of a subtask / keys a second", f"{keys_each / costs.rewrite_keys_per_s:,.0f} s"),
    ]


def measured(bench: Bench) -> UnitCosts:
    """Measure on the bench's cluster."""
    _with_rows(bench, ROWS[0])  # the JVMs compile what they run
    rows = [_with_rows(bench, count) for count in ROWS]
    keys = [_with_keys(bench, count) for count in KEYS]
    subtasks = [_with_subtasks(bench, count) for count in SUBTASKS]
    per_core = (ROWS[1] - ROWS[0]) / PARALLELISM
    subtask_ms = CORES * _slope(SUBTASKS, [each.run_ms for each in subtasks])
    driver_ms = _slope(SUBTASKS, [each.driver_ms for each in subtasks])
    keys_each = [count / PARALLELISM for count in KEYS]
    return UnitCosts(
        row_us=1e6 * _slope([count / CORES for count in ROWS], [each.epoch_s for each in rows]),
        row_process_us=1000 * (rows[1].process_ms - rows[0].process_ms) / per_core,
        row_write_us=1000 * (rows[1].write_ms - rows[0].write_ms) / per_core,
        key_bytes=_slope(KEYS, [each.memory for each in keys]),
        key_file_bytes=keys[1].file_bytes / KEYS[1],
        row_changelog_bytes=rows[1].changelog_bytes,
        load_keys_per_s=1 / _slope(keys_each, [each.load_s for each in keys]),
        rewrite_keys_per_s=1 / _slope(keys_each, [each.rewrite_s for each in keys]),
        epoch_ms=subtasks[0].epoch_ms - SUBTASKS[0] / CORES * subtask_ms,
        subtask_ms=subtask_ms,
        subtask_driver_ms=driver_ms,
    )


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    return (y[1] - y[0]) / (x[1] - x[0])


@dataclass(frozen=True, slots=True)
class _Rows:
    epoch_s: float
    process_ms: float
    write_ms: float
    changelog_bytes: float


def _with_rows(bench: Bench, rows: int) -> _Rows:
    with bench.workspace(f"rows-{rows}") as folder:
        records = Input(folder / "input")
        records.feed(rows, KEYS[0], files=WARM_UP + EPOCHS)
        job = OurJob(bench.spark, folder / "job", records.folder)
        with job.running() as query:
            seconds = seconds_of(query, WARM_UP + EPOCHS)
        phases = phases_ms(job.epochs()[WARM_UP:])
        newest = job.store.newest()
        assert newest is not None
        last = [subtask.keyed[-1] for subtask in newest.operators[0].subtasks]
        changelog_bytes = sum(item.file.size for item in last) / sum(item.rows for item in last)
        epoch_s = median(seconds[WARM_UP:])
        bench.say(f"{rows:,} rows: {epoch_s:.2f} s an epoch")
        bench.forget_state()
        return _Rows(epoch_s, phases["process"], phases["write"], changelog_bytes)


@dataclass(frozen=True, slots=True)
class _Keys:
    memory: float
    file_bytes: float
    load_s: float
    rewrite_s: float


def _with_keys(bench: Bench, keys: int) -> _Keys:
    with bench.workspace(f"keys-{keys}") as folder:
        records = Input(folder / "input")
        savepoint = written_savepoint(bench.spark, folder / "savepoint", keys)
        job = OurJob(bench.spark, folder / "job", records.folder, start_from=savepoint)
        # The first run copies the state into the job's own store; the second loads it from there.
        for _ in range(2):
            bench.forget_state()
            records.feed(FEW_ROWS, keys)
            with job.running() as query:
                seconds_of(query, 1)
                memory = sum(worker.memory_info().rss for worker in bench.python_workers())
        load_s = job.epochs()[-1].phases["load"] / 1000
        newest = job.store.newest()
        assert newest is not None
        files = [item for subtask in newest.operators[0].subtasks for item in subtask.keyed]
        started = time.monotonic()
        path = job.store.describe(job.store.manifest_path(newest.lineage, newest.epoch))
        rewrite_savepoint(bench.spark, path, name="rewritten", parallelism=PARALLELISM)
        rewrite_s = time.monotonic() - started
        bench.say(f"{keys:,} keys: {memory / 1e6:,.0f} MB, load {load_s:.2f} s, rewrite {rewrite_s:.2f} s")
        return _Keys(memory, sum(item.file.size for item in files if item.kind is FileKind.BASE), load_s, rewrite_s)


@dataclass(frozen=True, slots=True)
class _Subtasks:
    epoch_ms: float
    run_ms: float
    driver_ms: float


def _with_subtasks(bench: Bench, subtasks: int) -> _Subtasks:
    with bench.workspace(f"subtasks-{subtasks}") as folder:
        records = Input(folder / "input")
        records.feed(FEW_ROWS, FEW_ROWS, files=WARM_UP)
        job = OurJob(bench.spark, folder / "job", records.folder)
        with job.running(subtasks) as query:
            seconds_of(query, WARM_UP)
            before = _driver_cpu_s(bench)
            records.feed(FEW_ROWS, FEW_ROWS, files=EPOCHS)
            epoch_ms = 1000 * median(seconds_of(query, WARM_UP + EPOCHS)[WARM_UP:])
            driver_ms = 1000 * (_driver_cpu_s(bench) - before) / EPOCHS
        run_ms = phases_ms(job.epochs()[WARM_UP:])["run"]
        bench.say(f"{subtasks} subtasks: {epoch_ms:.0f} ms an epoch, {driver_ms:.0f} ms of them work of the driver")
        bench.forget_state()
        return _Subtasks(epoch_ms, run_ms, driver_ms)


def _driver_cpu_s(bench: Bench) -> float:
    """Return the CPU seconds of the driver: this process and its JVM."""
    gateway = bench.spark.sparkContext._gateway
    assert gateway is not None
    taken = [psutil.Process(pid).cpu_times() for pid in (None, gateway.proc.pid)]
    return sum(each.user + each.system for each in taken)


def main() -> None:
    """Measure, then print both tables."""
    console = Console()
    folder = Path(".run/unit-costs").absolute()
    with application(folder) as spark:
        costs = measured(Bench(spark, folder, lambda text: console.print(text, highlight=False)))
    units = [(field.name, "", f"{getattr(costs, field.name):,.3g}") for field in fields(costs)]
    console.print(_table("Unit costs, on one core", units))
    console.print(_table("1 TB of state on 200 executors of 4 cores", projected(costs, Cluster())))


def _table(title: str, rows: Sequence[tuple[str, str, str]]) -> Table:
    drawn = Table(title=title, box=box.SIMPLE_HEAD, show_header=False)
    for row in rows:
        drawn.add_row(*row)
    return drawn


if __name__ == "__main__":
    main()
