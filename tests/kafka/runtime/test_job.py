"""A job from topic to topic: killed while it publishes, stopped, rescaled under load, given more partitions."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from stack.kafka import CONNECTOR
from statecore.runtime.faults import FaultPoint
from statecore.supervisor import CATALOG_VARIABLE
from tests.support.bench import JOB, KEYS, Bench, bench
from tests.support.jobs import topics
from tests.support.kafka import KafkaBroker
from tests.support.shell import run
from tests.support.supervision import supervised
from tests.support.waiting import wait

__all__ = ["bench"]


class Stream:
    """The job, what it was fed and what it has put out."""

    def __init__(self, bench: Bench, kafka: KafkaBroker, incoming: str, **settings: str) -> None:
        self.bench, self.kafka, self.incoming = bench, kafka, incoming
        self.outgoing = kafka.create(f"{incoming}-numbered", 2)
        self.fed: list[tuple[str, int]] = []
        bench.register(
            artifact=Path(topics.__file__),
            # Subtasks that sleep need no core each.
            master="local[4]",
            conf={"spark.jars": CONNECTOR},
            settings=settings
            | {"servers": kafka.servers, "from": incoming, "to": self.outgoing, "sink": self.outgoing},
        )

    def feed(self, rows: int = 250) -> None:
        records = [(f"k{n * 7 % KEYS}", n) for n in range(len(self.fed), len(self.fed) + rows)]
        self.kafka.produce(self.incoming, [(k, str(n)) for k, n in records], headers=[("origin", b"shop")])
        self.fed += records

    def numbered(self) -> list[dict[str, Any]]:
        return [json.loads(record.value or b"") for record in self.kafka.read(self.outgoing)]

    def settle(self) -> None:
        """Wait until what was fed is put out, and compare it with the truth."""
        wait(lambda: len(self.numbered()) >= len(self.fed), "all records", 240)
        seen: dict[str, int] = defaultdict(int)
        expected: Counter[Any] = Counter()
        for k, n in self.fed:
            seen[k] += 1
            expected[k, n, seen[k], "shop"] += 1
        found = self.numbered()
        assert Counter(tuple(row.values()) for row in found) == expected
        last: dict[str, int] = defaultdict(int)
        for row in found:
            assert row["seen"] == last[row["k"]] + 1, "the order of a key"
            last[row["k"]] += 1

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Feed a few records again and again while the block runs."""
        enough = threading.Event()

        def feed() -> None:
            while not enough.wait(0.25):
                self.feed(10)

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()

    def rescale(self, parallelism: int, method: str) -> None:
        """Rescale as a person does, until the job keeps up."""
        arguments = ("rescale", JOB, "--parallelism", parallelism, "--method", method)
        done = run(*arguments, STATECORE_CATALOG=self.bench.catalog_url)
        assert done.returncode == 0, done

    def parallelisms(self) -> list[int]:
        """Return what epochs ran at, one after the other, each time that it changed."""
        epochs = self.bench.catalog.epochs.of(JOB, limit=5_000)
        return [parallelism for parallelism, _ in groupby(each.parallelism for each in epochs)]


def test_every_record_is_counted_and_put_out_once_over_kills_a_stop_new_partitions_and_a_rescale(
    bench: Bench, kafka: KafkaBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits = tmp_path / "hits"
    hits.mkdir()
    monkeypatch.setenv("STATECORE_FAULTS", f"{FaultPoint.MANIFEST_WRITTEN}@1,{FaultPoint.SINK_PUBLISHED}@2")
    monkeypatch.setenv("STATECORE_FAULT_DIR", str(hits))
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    stream = Stream(bench, kafka, topic)
    stream.feed(350)
    bench.catalog.jobs.set_desired(JOB, state="running", parallelism=2)
    with supervised(bench, tmp_path / "logs"):
        stream.settle()
        assert bench.generation().generation == 3, "one generation more than there were kills"
        assert bench.stop("noon") is not None
        (source,) = bench.newest().sources
        offsets = json.loads(source.positions[0])[topic]
        assert sum(offsets.values()) == 350 and len(offsets) == 3
        assert source.max_event_time_ms is not None

        stream.feed()
        bench.catalog.jobs.set_desired(JOB, state="running", parallelism=3)
        stream.settle()
        assert bench.newest().parallelism == 3
        # Keys go to other partitions now: what was sent before has to be read, or their order is lost.
        kafka.grow(topic, 5)
        stream.feed()
        stream.settle()
        assert len(json.loads(bench.newest().sources[0].positions[0])[topic]) == 5
        wait(lambda: [each.records for each in bench.catalog.epochs.backlogs(JOB)[-1].sources] == [0], "no backlog")


@pytest.mark.nightly
def test_under_load_the_job_is_rescaled_live_and_by_reference_and_puts_out_every_record_once(
    bench: Bench, kafka: KafkaBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    stream = Stream(bench, kafka, topic, most="500")
    bench.catalog.jobs.set_desired(JOB, state="running", parallelism=2)
    with supervised(bench, tmp_path / "logs"):
        with stream.loaded():
            wait(lambda: bench.catalog.epochs.of(JOB, limit=1), "an epoch")
            stream.rescale(4, "live")
            stream.rescale(1, "live")
            assert bench.generation().generation == 1
            stream.rescale(3, "by_reference")
        stream.settle()
    assert stream.parallelisms() == [2, 4, 1, 3]
    assert bench.generation().generation == 2
