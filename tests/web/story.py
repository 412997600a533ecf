"""A catalog with a past, told through its own API with a clock that is turned.

Five jobs and a query of Spark's own. One of them had an outage, a backlog and a rescale within the last three quarters
of an hour. Its policy would have done the same, but was refused.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from statecore.catalog import (
    Catalog,
    DataflowNode,
    DataflowRecord,
    EpochRecord,
    KeyGroupsRecord,
    OperatorFigures,
    RescaleRunRecord,
    SourceBacklog,
    SourceTime,
    SourceTopics,
    StateFigures,
    SystemClock,
)
from statecore.model import StateKind, key_group_for, key_group_range
from statecore.model.key_groups import MAX_KEY_GROUPS
from statecore.model.metrics import MetricFigure, MetricKind
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import KeyedRows, encode_base, key_schema, rows_table
from statecore.snapshot.manifest import FieldRef, FileKind, KeyedFile, OperatorState, StateSchema, SubtaskState
from statecore.testing import ManualClock
from statecore.topics.lag import PartitionLag
from tests.support.handmade import TOTAL, manifest
from tests.support.supervised import supervise
from tests.unit.queries.handmade import Operator, make

FLIGHTS = "flight_delays"
KNOWN_TAIL = "N14228"
"""A key that has state where a look-up finds it."""
QUERY = "visits"
MAX_PARALLELISM = 128
REASON = "drain 280,776 records & stay under 60 s"
MARKUP = "drain <b>280,776</b> records & stay under 60 s"
"""Free text with markup, which pages must not render."""
STEPS = {
    "grow_cluster": 6.1, "stop_with_savepoint": 1.2, "resize_cluster": 0.1, "rescale_state": 0.1, "restart": 27.3,
    "verify": 2.0,
}  # fmt: skip
DOWNTIME_MS = 28_700
REFUSED = "autoscale__1"
DATAFLOW = (
    DataflowNode("source", "flights", "kafka"),
    DataflowNode("source", "rules", "FileSource[/in/rules]"),
    DataflowNode("operator", "by_tail", "DelaysByTail", (("source", "flights"), ("source", "rules"))),
    DataflowNode("sink", "alerts", "KafkaSink", (("operator", "by_tail"),)),
    DataflowNode("sink", "late", "ParquetSink of 'late'", (("operator", "by_tail"),)),
)
_EPOCH_MS = 5_000
_MINUTE_MS = 60_000


class Story:
    """Tells it up to now.

    Args:
        url: SQLAlchemy URL of the catalog.
        folder: Where the jobs' stores and logs are.
        reason: Of the rescale.

    """

    def __init__(self, url: str, folder: Path, reason: str = REASON) -> None:
        self._clock = ManualClock()
        self._catalog = Catalog(url, clock=self._clock)
        self._folder = folder
        self._reason = reason
        self._chance = random.Random(7)
        self._now_ms = SystemClock().now_ms()
        self._epoch = 0
        self._rows_total = 0
        self._waiting = 0.0
        self._newest_event_ms = 0

    def tell(self) -> None:
        """Write the whole history."""
        catalog = self._catalog
        self._at(-3 * 24 * 60)
        catalog.create_schema()
        settings = {"master_url": "spark://127.0.0.1:7077", "master_web_url": "http://127.0.0.1:8080"}
        catalog.clusters.register("local", "standalone", settings, workers=1)
        catalog.clusters.report("local", ready_workers=1)
        for name in (FLIGHTS, "orders", "clicks", "sessions", "payments"):
            self._register(name)
        self._failed_job()
        self._flights()
        self._others()
        self._query()
        catalog.close()

    def _register(self, name: str) -> None:
        self._catalog.jobs.register(
            name,
            artifact=f"/jobs/{name}.py",
            store=str(self._folder / name),
            master_url="spark://127.0.0.1:7077",
            cluster="local" if name == FLIGHTS else None,
            settings={"password": "never shown"},
            parallelism=2,
            max_parallelism=MAX_PARALLELISM,
        )

    def _at(self, minutes: float) -> None:
        self._clock.set(int(self._now_ms + minutes * _MINUTE_MS))

    def _generation(self, job: str) -> int:
        path = self._folder / f"{job}-{{generation}}.log"
        number = self._catalog.generations.claim(job, log_path=str(path)).generation
        log = self._folder / f"{job}-{number}.log"
        log.write_text("".join(f"INFO epoch {n}: committed <{job}>\n" for n in range(200)))
        self._catalog.generations.heartbeat(job, number)
        return number

    def _failed_job(self) -> None:
        self._at(-9)
        self._catalog.jobs.set_desired("orders", state="running")
        number = self._generation("orders")
        self._clock.advance(20_000)
        error = "found PostgreSQL at db:5432 refusing the connection; expected it to answer; look whether it is up"
        self._catalog.generations.end("orders", number, state="failed", error=error)

    def _others(self) -> None:
        catalog = self._catalog
        self._at(-200)
        number = self._generation("clicks")
        catalog.savepoints.record("s/manifest.json", job="clicks", lineage=1, epoch=9, parallelism=2, reason="weekend")
        catalog.generations.end("clicks", number, state="stopped")
        self._at(-3)
        for name in ("sessions", "payments"):
            catalog.jobs.set_desired(name, state="running")
            self._generation(name)
        self._at(-0.2)
        catalog.generations.heartbeat("payments", 1)
        catalog.leases.acquire("payments", "manual__payments", 3_600_000)
        catalog.runs.start("manual__payments", "payments", from_parallelism=2, to_parallelism=8)
        catalog.runs.mark_step("manual__payments", "stop_with_savepoint", started=True)

    def _query(self) -> None:
        """A query of Spark's own, which has run two batches."""
        checkpoint = make(self._folder / "visits-checkpoint", Operator(partitions=3), batches=2)
        self._at(-300)
        self._catalog.jobs.register(
            QUERY, artifact="/jobs/visits.py", store=str(self._folder / QUERY), master_url="local[2]",
            parallelism=3, max_parallelism=MAX_KEY_GROUPS, checkpoint=str(checkpoint.root),
        )  # fmt: skip
        number = self._generation(QUERY)
        now_ms = self._clock.now_ms()
        state = StateFigures("0 stateStoreSave", rows=12, memory_bytes=40_000)
        self._catalog.epochs.record(
            EpochRecord(
                job=QUERY, lineage=1, epoch=1, generation=number, parallelism=3, rows=9, rows_total=9,
                started_ms=now_ms - 900, committed_ms=now_ms, duration_ms=900, state_rows=12, state=(state,),
            )
        )  # fmt: skip
        self._catalog.generations.end(QUERY, number, state="stopped")

    def _flights(self) -> None:
        """Steady load, a pause, an overload, a rescale, drained."""
        catalog = self._catalog
        for days, seconds in ((2, 27.5), (1, 31.0)):
            self._at(-days * 24 * 60)
            self._rescale(f"scheduled__{days}", 2, 2, steps={**STEPS, "restart": seconds - 1.4})
        self._at(-46)
        catalog.jobs.set_desired(FLIGHTS, state="running")
        generation = self._generation(FLIGHTS)
        self._newest_event_ms = self._clock.now_ms()
        self._epochs(generation, until=-40, rate=2_100, parallelism=2)
        self._rescale("manual__too_much", 2, 512, error="found parallelism 512; expected 1 to 128; choose another")
        self._epochs(generation, until=-32, rate=2_100, parallelism=2)
        self._epochs(generation, until=-22, rate=0, parallelism=2)
        self._waiting = 5_600_000
        self._epochs(generation, until=-21.5, rate=4_100, parallelism=2)
        self._decision()
        self._epochs(generation, until=-14, rate=4_100, parallelism=2)
        self._rescale("manual__drain", 2, 4, reason=self._reason)
        catalog.jobs.set_desired(FLIGHTS, parallelism=4)
        catalog.clusters.set_desired_workers("local", 2)
        catalog.clusters.report("local", ready_workers=2)
        catalog.generations.end(FLIGHTS, generation, state="stopped")
        generation = self._generation(FLIGHTS)
        catalog.epochs.record_dataflow(DataflowRecord(FLIGHTS, generation, DATAFLOW, "http://driver:4040"))
        self._epochs(generation, until=0, rate=8_200, parallelism=4)
        self._commit(self._epoch - 1, 4)
        policy = catalog.policies.find(FLIGHTS)
        assert policy is not None
        finding = "2,000 rows/s arrive, 0 rows wait, lag 2 s; the job can do 8,200 rows/s at parallelism 4"
        catalog.policies.save_memory(policy, {}, f"{finding}: enough")

    def _decision(self) -> None:
        """Record a decision of the policy that another run forestalls."""
        policy = self._catalog.policies.set(FLIGHTS, {"max_parallelism": 8, "min_parallelism": 2})
        reason = (
            f"2,000 rows/s arrive, {self._waiting:,.0f} rows wait, lag 2,800 s, epochs run 99% of the time; "
            "the job can do 4,100 rows/s at parallelism 2, 8,200 at 4 (scaling assumed linear)"
        )
        decision = self._catalog.policies.record_decision(
            policy, {}, from_parallelism=2, to_parallelism=4, from_workers=1, to_workers=2, method="by_reference",
            reason=reason, figures={},
        )  # fmt: skip
        assert decision is not None
        self._catalog.policies.claim_decision(decision.id, REFUSED)
        outcome = f"run {REFUSED} was refused before it changed anything; see its log"
        self._catalog.policies.end_decision(decision.id, "refused", outcome)

    def _rescale(
        self, run: str, old: int, new: int, *, reason: str = "", error: str | None = None,
        steps: dict[str, float] = STEPS,
    ) -> RescaleRunRecord:  # fmt: skip
        catalog = self._catalog
        catalog.runs.start(
            run, FLIGHTS, from_parallelism=old, to_parallelism=new, from_workers=1, to_workers=2, reason=reason
        )
        if error is None:
            for step, seconds in steps.items():
                catalog.runs.mark_step(run, step, started=True)
                self._clock.advance(round(seconds * 1000))
                catalog.runs.mark_step(run, step, ended=True)
            catalog.savepoints.record(
                f"s3://streams/{FLIGHTS}/savepoints/{run}/manifest.json", job=FLIGHTS, lineage=1, epoch=self._epoch,
                parallelism=new, reason=reason, bytes=61_000_000, asked_ms=self._clock.now_ms() - 1_200,
            )  # fmt: skip
        return catalog.runs.finish(run, error=error)

    def _epochs(self, generation: int, *, until: float, rate: float, parallelism: int) -> None:
        """Commit epochs up to a time, in minutes from now; with a rate of 0 only what waits is measured."""
        end_ms = self._now_ms + until * _MINUTE_MS
        while self._clock.now_ms() + _EPOCH_MS <= end_ms:
            began_ms = self._clock.now_ms()
            self._clock.advance(_EPOCH_MS)
            if rate == 0:
                self._catalog.epochs.record_backlog(FLIGHTS, generation, [self._backlog()])
                continue
            there = self._waiting + 2_000 * _EPOCH_MS / 1000
            rows = int(min(there, rate * _EPOCH_MS / 1000 * self._chance.uniform(0.9, 1.1)))
            self._waiting = there - rows
            self._newest_event_ms = self._clock.now_ms() - int(self._waiting / 2)
            record_epoch(
                self._catalog, self._epoch, generation, rows, self._rows_total, began_ms, parallelism, self._backlog()
            )
            self._epoch += 1
            self._rows_total += rows
        self._record_topics(generation)

    def _backlog(self) -> SourceBacklog:
        lag_ms = self._clock.now_ms() - self._newest_event_ms + 1_500
        waiting = int(self._waiting)
        # As _record_topics has it.
        return SourceBacklog(
            "flights", waiting, waiting * 96, None, lag_ms, partitions=3, oldest_age_ms=lag_ms - 1_500, skew=1.5
        )

    def _record_topics(self, generation: int) -> None:
        """Record what waits in three partitions, of which one has half of it; some has arrived since the epoch."""
        waiting = int(self._waiting) + 4_000
        shares = (waiting // 2, waiting // 4, waiting - waiting // 2 - waiting // 4)
        newest_ms = self._newest_event_ms
        found = (PartitionLag("flights", n, 9_000, 0, 9_000 + share, newest_ms) for n, share in enumerate(shares))
        self._catalog.epochs.record_topics(
            FLIGHTS, generation, [SourceTopics("flights", "broker:9092", False, tuple(found))]
        )

    def _commit(self, epoch: int, parallelism: int) -> None:
        """Commit an epoch with real files, so that there is something to plan with."""
        store = CheckpointStore.at(str(self._folder / FLIGHTS))
        rows = rows_of_key_groups()
        # The others are in key groups that make the distribution, and not where a look-up would find them.
        found_in = key_group_for((KNOWN_TAIL,), ["string"], MAX_PARALLELISM)
        subtasks = []
        for index in range(parallelism):
            own = key_group_range(MAX_PARALLELISM, parallelism, index)
            groups = [group for group in own for _ in range(rows[group] // 20)]
            entries = [(group, f"N{index}-{n}", 1) for n, group in enumerate(groups)]
            if found_in in own:
                entries = sorted([*entries, (found_in, KNOWN_TAIL, 7)])
            groups, tails, totals = (list(column) for column in zip(*entries, strict=True))
            keyed = KeyedRows([(tail,) for tail in tails], groups, totals)
            table = rows_table(keyed, key_schema([("k", "string")]), TOTAL, "total")
            file = store.write_file(f"state/by_tail/{index}.parquet", encode_base(table))
            base = KeyedFile(
                file=file, state="total", kind=FileKind.BASE, token="t", key_groups=(own.start, own.end),
                rows=len(entries),
            )  # fmt: skip
            subtasks.append(SubtaskState(keyed=(base,)))
        operator = OperatorState(
            uid="by_tail",
            key_fields=(FieldRef(name="k", type="string"),),
            states=(StateSchema(name="total", scope="keyed", kind=StateKind.VALUE, type="bigint"),),
            subtasks=tuple(subtasks),
        )
        size = {"parallelism": parallelism, "max_parallelism": MAX_PARALLELISM}
        store.commit(manifest(job=FLIGHTS, epoch=epoch, operators=(operator,), **size))


def rows_of_key_groups() -> tuple[int, ...]:
    """Return uneven rows per key group."""
    chance = random.Random(3)
    return tuple(int(chance.lognormvariate(6, 0.35)) for _ in range(MAX_PARALLELISM))


def record_epoch(
    catalog: Catalog, number: int, generation: int, rows: int, rows_total: int, began_ms: int, parallelism: int,
    backlog: SourceBacklog,
) -> None:  # fmt: skip
    """Record an epoch of the job with all that belongs to it; while rows wait, one follows the other."""
    end_ms = began_ms + _EPOCH_MS
    is_behind = (backlog.records or 0) > rows
    duration_ms = _EPOCH_MS - 40 if is_behind else 420 + rows // (9 * parallelism)
    run_ms = duration_ms * 0.86
    figures = OperatorFigures(
        "by_tail",
        rows=(rows // parallelism,) * parallelism,
        load_ms=(1,) * parallelism,
        process_ms=(int(run_ms * 0.6), *(int(run_ms * 0.4),) * (parallelism - 1)),
        write_ms=(int(run_ms * 0.2),) * parallelism,
        cached_key_groups=(MAX_PARALLELISM // parallelism,) * parallelism,
        key_groups=(MAX_PARALLELISM // parallelism,) * parallelism,
        read_ms=(int(run_ms * 0.05),) * parallelism,
    )
    spread = rows_of_key_groups()
    sizes = tuple(count * 31 for count in spread)
    sample = KeyGroupsRecord(FLIGHTS, 1, number, "by_tail", end_ms, spread, sizes)
    catalog.epochs.record(
        EpochRecord(
            job=FLIGHTS, lineage=1, epoch=number, generation=generation, parallelism=parallelism, rows=rows,
            rows_total=rows_total + rows, started_ms=end_ms - duration_ms, committed_ms=end_ms, duration_ms=duration_ms,
            phases={
                "run": run_ms, "commit": duration_ms * 0.04, "publish": duration_ms * 0.1, "read": run_ms * 0.15,
                "transfer": run_ms * 0.05, "process": run_ms * 0.6,
            },
            cache_hits=parallelism, subtasks=parallelism, backlog=(backlog,), rows_out=rows // 40,
            source_rows={"flights": rows, "rules": 0}, sink_rows={"alerts": rows // 40},
            watermark_ms=end_ms - 95_000,
            metrics={
                "by_tail": (
                    MetricFigure("cancelled", MetricKind.COUNTER, total=rows_total // 50),
                    MetricFigure("aircraft", MetricKind.GAUGE, parallelism, 4_100, 900, 1_150),
                    MetricFigure(
                        "delay_min", MetricKind.HISTOGRAM, 1_000, 21_500, -3, 611,
                        ((None, 300), (3, 200), (5, 350), (6, 140), (10, 10)),
                    ),
                )
            },
            source_times={
                "flights": SourceTime(end_ms - 20_000, moved_ms=end_ms),
                "rules": SourceTime(end_ms - 95_000, moved_ms=end_ms - 80_000),
            },
            publish_ms={"alerts": duration_ms * 0.1}, state_rows=sum(spread), state_bytes=sum(sizes),
        ),
        operators=[figures],
        key_groups=[sample] if number % 8 == 0 else [],
    )  # fmt: skip


class LivingDriver:
    """A thread that keeps the told job alive, by a heartbeat and an epoch every second, and the one being rescaled."""

    def __init__(self, url: str) -> None:
        self._catalog = Catalog(url)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        self._catalog.close()

    def _run(self) -> None:
        newest = self._catalog.epochs.of(FLIGHTS, limit=1)[0]
        number, total = newest.epoch, newest.rows_total
        while not self._end.is_set():
            number, total = number + 1, total + 2_000
            self._catalog.generations.heartbeat(FLIGHTS, newest.generation, lineage=1, epoch=number)
            self._catalog.generations.heartbeat("payments", 1)
            supervise(self._catalog)
            began_ms = SystemClock().now_ms() - _EPOCH_MS
            backlog = SourceBacklog("flights", 600, 600 * 96, None, 1_500, partitions=3, oldest_age_ms=1_200, skew=1.5)
            record_epoch(self._catalog, number, newest.generation, 2_000, total, began_ms, 4, backlog)
            self._end.wait(1.0)
