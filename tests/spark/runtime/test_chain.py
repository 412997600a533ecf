"""A chain of operators with a broadcast connection gives what its functions give alone, over rescales and restarts."""

from __future__ import annotations

import ast
from collections import Counter, namedtuple
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statecore.cluster import StandaloneMaster
from statecore.runtime import read_savepoint
from statecore.supervisor import CATALOG_VARIABLE
from statecore.testing import BroadcastOperatorHarness, KeyedOperatorHarness
from tests.spark.runtime.driver.test_live_rescale import ask
from tests.support.alone import history
from tests.support.bench import JOB, Bench
from tests.support.jobs import chain
from tests.support.supervision import supervised
from tests.support.waiting import wait

Record = namedtuple("Record", ["k", "n", "at"])
Rule = namedtuple("Rule", ["name", "factor", "version"])
Weighed = namedtuple("Weighed", ["bucket", "amount", "what", "at"])
Step = tuple[list[Rule], list[Record]]


def offer(bench: Bench, rules: list[Rule], records: list[Record]) -> Step:
    """Put one epoch's input where the sources read. Both kinds at once only while no driver may see the first alone."""
    if rules:
        folder = bench.input.parent / "rules"
        staged = bench.input.parent / "staged-rules"
        pq.write_table(pa.Table.from_pylist([rule._asdict() for rule in rules]), staged)
        staged.rename(folder / f"{rules[-1].version}.parquet")
    if records:
        at = pa.array([record.at for record in records], pa.timestamp("us", "UTC"))
        columns = {"k": [record.k for record in records], "n": pa.array([record.n for record in records], pa.int64())}
        bench.feed_table(pa.table({**columns, "at": at}))
    return rules, records


def taken(bench: Bench, steps: list[Step]) -> None:
    """Wait until all that was offered is committed."""
    rows = sum(len(rules) + len(records) for rules, records in steps)

    def committed() -> bool:
        assert bench.generation().state != "failed", bench.generation().error
        return bench.rows_done() == rows

    wait(committed, "the epoch")


def records(*numbers: int) -> list[Record]:
    return [Record(f"k{n % 7}", n, datetime.fromtimestamp(n, UTC)) for n in numbers]


class Alone:
    """The two functions without an engine."""

    def __init__(self) -> None:
        self.weighed = BroadcastOperatorHarness(chain.Weighed(), broadcast=[chain.FACTORS], key=lambda v: (v.k,))
        self.sums = KeyedOperatorHarness(chain.BucketSums(), key=lambda v: (v.bucket,))
        self.numbers: list[int] = []

    def epoch(self, step: Step, watermark_ms: int | None) -> None:
        rules, records = step
        self._sum(self._fired(watermark_ms))
        if watermark_ms is not None:
            self.sums.watermark(watermark_ms)
        for rule in rules:
            self.weighed.process_broadcast(rule)
        start = len(self.weighed.output)
        for record in sorted(records, key=lambda record: record.n):
            self.weighed.process(record, timestamp_ms=record.n * 1000)
        self.numbers += [record.n for record in records]
        self._sum(self.weighed.output[start:])

    def _fired(self, watermark_ms: int | None) -> Sequence[Any]:
        start = len(self.weighed.output)
        if watermark_ms is not None:
            self.weighed.watermark(watermark_ms)
        return self.weighed.output[start:]

    def _sum(self, outputs: Sequence[Any]) -> None:
        for output in sorted((Weighed(*output) for output in outputs), key=lambda w: (w.amount, w.what, w.at)):
            self.sums.process(output, timestamp_ms=output.at)


def assert_as_alone(spark: Any, bench: Bench, steps: list[Step]) -> None:
    alone, before = Alone(), None
    manifests, fed = history(bench), iter(steps)
    for manifest in manifests:
        # Timers have fired in epochs of their own, too.
        alone.epoch(next(fed) if manifest.rows else ([], []), before)
        before = manifest.watermark_ms
    assert next(fed, None) is None
    assert bench.published("weighed", ("bucket", "amount", "what", "at")) == Counter(map(tuple, alone.weighed.output))
    assert bench.published("sums", ("bucket", "sum", "what")) == Counter(map(tuple, alone.sums.output))
    unknown = Counter(map(tuple, alone.weighed.side_output(chain.UNKNOWN)))
    assert bench.published("unknown", ("k", "n")) == unknown
    kinds = Counter(output[2] for output in alone.sums.output)
    assert min(kinds[what] for what in ("record in time", "timer in time", "timer late", "due")) > 0 and unknown
    path = bench.store / bench.checkpoints.manifest_path(1, manifests[-1].epoch)
    sums = {row.bucket: row.value for row in read_savepoint(spark, path, "sums", "sum").collect()}
    newest = {output[0]: output[1] for output in alone.sums.output}
    assert sums == newest
    factors = read_savepoint(spark, path, "weighed", "factors").collect()
    assert [row.value for row in factors] == [{"even": 3, "odd": 5}] * manifests[-1].parallelism


Feed = Callable[[list[Rule], list[Record]], None]


def begin(bench: Bench, master: str) -> tuple[list[Step], Feed]:
    """Register the job; return all that it was given, and how to give it one epoch more."""
    (bench.input.parent / "rules").mkdir()
    bench.register(artifact=Path(chain.__file__), master=master, conf={"spark.executor.memory": "512m"})
    steps: list[Step] = []

    def feed(rules: list[Rule], records: list[Record]) -> None:
        steps.append(offer(bench, rules, records))
        taken(bench, steps)

    return steps, feed


def test_two_keyed_operators_and_a_broadcast_give_what_the_functions_give_alone(spark: Any, bench: Bench) -> None:
    steps, feed = begin(bench, "local[2]")
    with bench.running(3):
        feed([Rule("even", 2, 1)], [])
        feed([], records(*range(100, 160)))
        feed([], records(*range(130, 200)))
        assert [operator.uid for operator in bench.newest().operators] == ["weighed", "sums"]
        assert [(s.name, s.max_event_time_ms) for s in bench.newest().sources] == [
            ("records", 199_000),
            ("rules", None),
        ]
        assert bench.newest().rows_total == 131
    # Read by one epoch: the rules come first.
    rules = [Rule("even", 9, 2), Rule("even", 3, 3), Rule("odd", 5, 4)]
    steps.append(offer(bench, rules, records(*range(150, 260))))
    with bench.running(2):
        taken(bench, steps)
        feed([], records(90, 300))
    with bench.running(4):
        feed([], records(*range(280, 330)))
        feed([], records(400))
        assert ask(bench, 1).error is None
        feed([Rule("odd", 5, 5)], [])
        feed([], records(*range(390, 420)))
        feed([], records(500))
    # One operator follows the job, the job file fixes the other's.
    subtasks = [[len(operator.subtasks) for operator in manifest.operators] for manifest in history(bench)]
    assert [counts for counts, _ in groupby(subtasks)] == [[3, 2], [2, 2], [4, 2], [1, 2]]
    assert bench.catalog.generations.newest(JOB).error is None  # type: ignore[union-attr]
    assert_as_alone(spark, bench, steps)


@contextmanager
def on_cluster(bench: Bench, master: StandaloneMaster, folder: Path) -> Iterator[None]:
    """Run a supervisor with a cluster; end the job, the workers and the supervisor."""
    addresses = {"master_url": master.master_url, "master_web_url": master.web_url}
    places = {"run_dir": str(folder / "workers"), "log_dir": str(folder / "logs"), "memory_per_worker": "512m"}
    bench.catalog.clusters.register("c", "standalone", {**addresses, **places}, workers=1)
    with supervised(bench, folder / "logs"):
        try:
            yield
        finally:
            if not bench.generation().ended:
                bench.stop("end")
            bench.catalog.clusters.set_desired_workers("c", 0)
            wait(lambda: not list((folder / "workers").glob("*.pid")), "the workers to end")


def test_it_runs_unchanged_on_a_cluster_that_grows_and_shrinks_under_it(
    spark: Any, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    with StandaloneMaster(tmp_path / "master") as master, on_cluster(bench, master, tmp_path):
        steps, feed = begin(bench, master.master_url)
        bench.catalog.jobs.set_desired(JOB, state="running", parallelism=1)
        wait(lambda: bench.catalog.generations.newest(JOB) is not None, "the driver")
        feed([Rule("even", 2, 1)], [])
        feed([], records(*range(100, 130)))
        feed([Rule("even", 3, 2), Rule("odd", 5, 3)], [])

        def log() -> str:
            return Path(bench.generation().log_path).read_text()

        def layouts() -> list[list[int]]:
            # The last line may be half there.
            lines = [line for line in log().splitlines(keepends=True) if "subtasks per executor:" in line]
            whole = [line for line in lines if line.endswith("\n")]
            return [sorted(ast.literal_eval(line.partition("per executor: ")[2]).values()) for line in whole]

        # One joins: the next epoch uses it.
        assert ask(bench, 4).error is None
        # An epoch of timers may use it before that of the records.
        before = len(layouts())
        bench.catalog.clusters.set_desired_workers("c", 2)
        wait(lambda: log().count("Registered executor") == 2, "the executor")
        feed([], records(*range(130, 160)))
        assert [2, 2] in layouts()[before:]
        # One leaves: it ends what it does, the next epoch is without it, and nothing fails by that.
        hold = tmp_path / "hold"
        hold.touch()
        steps.append(offer(bench, [], records(*chain.HELD)))
        wait((tmp_path / "held").exists, "the epoch to be held up")
        bench.catalog.clusters.set_desired_workers("c", 1)
        wait(lambda: "Decommission executors" in log(), "the executor to be told")
        before = len(layouts())
        hold.unlink()
        taken(bench, steps)
        feed([], records(170))
        assert [4] in layouts()[before:]
        wait(lambda: len(list((tmp_path / "workers").glob("*.pid"))) == 1, "the worker to end")
        assert ask(bench, 1).error is None
        feed([], records(90, 200))
        feed([], records(300))
        bench.stop("after")
    assert "Lost task" not in log() and "FetchFailed" not in log()
    assert {manifest.generation for manifest in history(bench)} == {1}
    assert_as_alone(spark, bench, steps)
