"""Cost of finding the keys with most work, as a share of an epoch's time.

The epoch is that of a job on the cluster. What a subtask of it samples is measured in this process, where a subtask
runs as it does in a Python worker: the functions that sample are clocked where they run. What it costs that a thread
looks at the current key is too little for that: it is measured apart, with many looks, and counted by look.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from benchmarks.cluster import MAX_PARALLELISM, PARALLELISM
from benchmarks.epochs import seconds_of
from benchmarks.harness import Bench, Figure
from benchmarks.inputs import Input
from benchmarks.jobs.running_sum import UID, RunningSum
from benchmarks.ours import OurJob
from statecore.model import KeyGroupRange, key_group_for, parse_row
from statecore.runtime.epoch.operator import next_operator, subtask_specs
from statecore.runtime.messages import (
    ANCHOR,
    COMMIT,
    COMMIT_DECODER,
    KEY_GROUP,
    MAIN,
    SUBTASK,
    EpochSpec,
    InputSpec,
    OperatorSpec,
    StagedSink,
)
from statecore.runtime.worker import call_times
from statecore.runtime.worker.call_times import CallTimes
from statecore.runtime.worker.heavy_keys import HeavyKeys
from statecore.runtime.worker.key_sample import KeySample
from statecore.runtime.worker.subtask import EpochClock, subtask_runner
from statecore.snapshot.manifest import FieldRef, OperatorState
from statecore.state import HeapKeyedStateBackend
from statecore.storage import open_store

ROWS = (1_000, 20_000, 250_000)
KEYS = 100_000
_BATCH_ROWS = 10_000
_WARM_UP, _EPOCHS, _ROUNDS = 3, 5, 3
_ADDITIONS, _TRIES, _APART_S = 5_000_000, 9, 0.0001
_SAMPLING = (
    (HeavyKeys, "__init__"),
    (HeavyKeys, "key_shares"),
    (HeavyKeys, "key_group_shares"),
    (KeySample, "add"),
    (CallTimes, "_begin"),
    (CallTimes, "end"),
)


def sampling(bench: Bench) -> list[Figure]:
    """Measure the share of sampling in epochs of few, some and many rows a subtask; the largest counts."""
    per_look_s = seconds_per_look()
    with bench.workspace("sampling") as folder:
        sizes = {f"{rows:,} rows": _Size(bench, folder / str(rows), rows, per_look_s) for rows in ROWS}
        shares = bench.rounds(
            {name: size.percent for name, size in sizes.items()}, unit="% of an epoch", rounds=_ROUNDS
        )
    worst = max(shares, key=lambda name: median(shares[name]))
    sampled_ms, epoch_ms = sizes[worst].ms
    note = "\n".join(f"{name} a subtask: {median(shares[name]):.2f} %, {size.note}" for name, size in sizes.items())
    return [Figure("sampling_share", median(shares[worst]) / 100, f"{sampled_ms:.2f} ms", f"{epoch_ms:.0f} ms", note)]


class _Size:
    """Epochs of one size.

    Attributes:
        ms: What sampling took in the last round, and the epoch.

    """

    def __init__(self, bench: Bench, folder: Path, rows: int, per_look_s: float) -> None:
        self._bench, self._folder = bench, folder
        self._subtask = Subtask(folder / "subtask", rows, per_look_s)
        self._records = Input(folder / "input")
        self._records.feed(rows * PARALLELISM, KEYS, files=_WARM_UP + _EPOCHS)
        self._runs = 0
        self.ms = (0.0, 0.0)
        self.note = ""

    def percent(self) -> float:
        """Return the share of sampling, in per cent."""
        epoch_s = self._epoch_s()
        measured = [self._subtask.epoch() for _ in range(_WARM_UP + _EPOCHS)][_WARM_UP:]
        sampled_s, subtask_s = (median(each) for each in zip(*measured, strict=True))
        self.ms = (1000 * sampled_s, 1000 * epoch_s)
        self.note = f"last round {1000 * sampled_s:.2f} ms of {1000 * subtask_s:.0f} ms of the subtask's own work"
        return 100 * sampled_s / epoch_s

    def _epoch_s(self) -> float:
        self._runs += 1
        job = OurJob(self._bench.spark, self._folder / f"job-{self._runs}", self._records.folder)
        with job.running() as query:
            seconds = seconds_of(query, self._records.files)
        # First, because a worker may still write files.
        self._bench.forget_state()
        job.close()
        return median(seconds[_WARM_UP:])


class Subtask:
    """A subtask with all key groups, and its epochs.

    Args:
        folder: For its files.
        rows: Rows of an epoch.
        per_look_s: Cost of a look at the current key.

    """

    def __init__(self, folder: Path, rows: int, per_look_s: float) -> None:
        self._folder, self._rows, self._per_look_s = folder, rows, per_look_s
        self._random = np.random.default_rng(1)
        self._keys = pa.array([f"k{number:07d}" for number in range(KEYS)])
        groups = [key_group_for((key,), ["string"], MAX_PARALLELISM) for key in self._keys.to_pylist()]
        self._key_groups = pa.array(groups, pa.int32())
        self._state: OperatorState | None = None
        self._epoch = 0

    def epoch(self) -> tuple[float, float]:
        """Run an epoch; return the seconds that sampling took, and all seconds."""
        spec, batches = self._spec(), self._batches()
        with clocked(self._per_look_s) as spent:
            started = time.perf_counter()
            *_, last = subtask_runner(spec, self._epoch_spec())(iter(batches))
            took_s = time.perf_counter() - started
        commit = COMMIT_DECODER.decode(last.column(COMMIT)[0].as_py())
        self._state = next_operator(spec, None, self._state, [commit], ())
        self._epoch += 1
        return sum(spent), took_s

    def _spec(self) -> OperatorSpec:
        store = open_store(str(self._folder / "out"))
        return OperatorSpec(
            uid=UID,
            function=RunningSum(),
            max_parallelism=MAX_PARALLELISM,
            sinks=(StagedSink("totals", "", parse_row("k string, total bigint"), store),),
            crossings=(),
            store_url=str(self._folder / "store"),
            allow_non_restored_state=False,
            late=None,
            reads_operator=False,
            broadcast=(),
            key_fields=(FieldRef(name="k", type="string"),),
            inputs=(InputSpec(MAIN, (None,), ("k",)),),
        )

    def _epoch_spec(self) -> EpochSpec:
        return EpochSpec(
            lineage=1,
            epoch=self._epoch,
            now_ms=0,
            watermark_ms=None,
            watermark_before_ms=None,
            previous=None,
            restored=self._state,
            foreign_store=None,
            restores=self._epoch == 0,
            counts_state=False,
            subtasks=subtask_specs(self._state, 1, MAX_PARALLELISM),
        )

    def _batches(self) -> list[pa.RecordBatch]:
        """Return rows as Spark hands them over."""
        keys = pa.array(self._random.integers(0, KEYS, self._rows))
        numbers = pa.array(self._random.integers(0, 1_000, self._rows))
        records = pa.StructArray.from_arrays([self._keys.take(keys), numbers], names=["k", "n"])
        zeros = pa.array(np.zeros(self._rows, np.int32))
        columns = {MAIN: records, KEY_GROUP: self._key_groups.take(keys), SUBTASK: zeros, ANCHOR: zeros}
        batch = pa.RecordBatch.from_pydict(columns)
        return [batch.slice(start, _BATCH_ROWS) for start in range(0, self._rows, _BATCH_ROWS)]


@contextmanager
def clocked(per_look_s: float) -> Iterator[list[float]]:
    """Collect the seconds that the block spends on sampling."""
    spent: list[float] = []

    def end(times: CallTimes) -> None:
        clocked_end(times)
        spent.append(per_look_s * times.looks)

    with ExitStack() as patches:
        for owner, name in _SAMPLING:
            patches.enter_context(patch.object(owner, name, _clocked(getattr(owner, name), spent)))
        clocked_end = CallTimes.end
        patches.enter_context(patch.object(CallTimes, "end", end))
        yield spent


def _clocked(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    @wraps(function)
    def measured(*arguments: Any) -> Any:
        started = time.perf_counter()
        result = function(*arguments)
        spent.append(time.perf_counter() - started)
        return result

    return measured


def seconds_per_look() -> float:
    """Return by how much a look at the current key delays a thread that computes."""
    interval_s = sys.getswitchinterval()
    try:
        # So many looks that what they cost is more than noise.
        sys.setswitchinterval(_APART_S)
        with patch.object(call_times, "_APART_S", _APART_S):
            rounds = [(_computing()[0], *_computing(CallTimes(_backend()))) for _ in range(_TRIES)]
    finally:
        sys.setswitchinterval(interval_s)
    return median(max(0.0, watched_s - alone_s) / looks for alone_s, watched_s, looks in rounds)


def _computing(times: CallTimes | None = None) -> tuple[float, int]:
    """Return the seconds that a computation takes, and how often it was looked at."""
    started, total = time.perf_counter(), 0
    with nullcontext() if times is None else times.calling():
        for number in range(_ADDITIONS):
            total += number
    if times is None:
        return time.perf_counter() - started, 0
    times.end()
    return time.perf_counter() - started, times.looks


def _backend() -> HeapKeyedStateBackend:
    keyed = HeapKeyedStateBackend(1, KeyGroupRange(0, 0), EpochClock(0))
    keyed.set_current_key(("k",), 0)
    return keyed
