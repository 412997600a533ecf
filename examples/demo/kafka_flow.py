"""The demo with Kafka: flights come through a topic; alerts and rejects go into topics, each epoch in a transaction."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from examples.demo.feeder import ORDER
from examples.demo.flow import OUT, Demo, words
from examples.demo.topic_feeder import TopicFeeder
from examples.demo.verdict import Difference
from examples.flight_delays import FLIGHTS
from stack.airflow_client import AirflowClient
from stack.kafka import CONNECTOR, KafkaBroker, Record
from stack.stack import Stack
from statecore.catalog import Catalog, EpochRecord

INCOMING, OUTGOING = "flights", "delays"
PARTITIONS = 4
# So few that the backlog outlasts the DAG's first steps.
ROWS_PER_EPOCH = 3_000
_CATCH_UP_S = 480.0
_ALERTS = "alerts"


class KafkaDemo(Demo):
    """One run of the demo with Kafka, on a stack and a broker that it starts.

    Args:
        stack: A stack in an empty folder, not started yet.
        console: Console for progress.

    Raises:
        StackError: There is no broker to start.

    """

    def __init__(self, stack: Stack, console: Console) -> None:
        folder = stack.run_dir / "kafka"
        folder.mkdir(parents=True)
        self._broker = KafkaBroker(folder, stack.environment)
        self._truth = stack.run_dir / "flights.parquet"
        super().__init__(stack, console, TopicFeeder(self._broker.servers, INCOMING))

    def run(self, flights: pa.Table, *, rows_per_epoch: int = ROWS_PER_EPOCH, **how: Any) -> bool:
        """Run the demo and return whether the verdict is exact; see ``Demo.run``."""
        # What is fed; the truth is not read from the topic.
        pq.write_table(flights, self._truth)
        return super().run(flights, rows_per_epoch=rows_per_epoch, **how)

    def _start_job(self, rows_per_epoch: int) -> None:
        self._broker.start()
        for topic in (INCOMING, f"{OUTGOING}-{_ALERTS}", f"{OUTGOING}-rejects"):
            self._broker.create(topic, PARTITIONS)
        super()._start_job(rows_per_epoch)

    def _conf(self) -> Mapping[str, str]:
        return {"spark.jars": CONNECTOR}

    def _settings(self, rows_per_epoch: int) -> Mapping[str, str]:
        return {
            "servers": self._broker.servers,
            "from": INCOMING,
            "to": OUTGOING,
            "max_rows_per_epoch": str(rows_per_epoch),
        }

    def _feed_backlog(self, rows: pa.Table, rows_per_epoch: int) -> None:
        self._feeder.feed(rows)

    def _scale(
        self, airflow: AirflowClient, on_larger: Callable[[], None], on_stopped: Callable[[], None] | None
    ) -> None:
        """Have the DAG ``catch_up`` do all of it, by Kafka's lag."""
        if on_stopped is not None:
            # The DAG would have the rescale tried twice more, and its error would not name the file.
            super()._scale(airflow, on_larger, on_stopped)
            return
        airflow.wait_dag("rescale")
        airflow.unpause("rescale")
        conf = {**OUT, "backlog": 0, "hold_seconds": 0}
        size = f"{words(OUT)}, and back once nothing waits"
        self._run_dag(airflow, "catch_up", conf, size, {"scale_out": on_larger}, _CATCH_UP_S)

    def _waiting(self, catalog: Catalog, newest: EpochRecord) -> str:
        measured = catalog.overviews.figures(self._job).backlog
        lag = measured.sources[0].records if measured else None
        return "Kafka's lag is unknown" if lag is None else f"Kafka's lag is {lag:,}"

    def _fed_flights(self, spark: SparkSession) -> DataFrame:
        return spark.read.schema(FLIGHTS).parquet(str(self._truth))

    def _published(self, spark: SparkSession, sink: str, schema: str) -> DataFrame:
        path = self._output / f"{sink}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"".join((record.value or b"") + b"\n" for record in self._records(sink)))
        return spark.read.schema(schema).json(str(path), mode="FAILFAST")

    def _further(self) -> tuple[Difference, ...]:
        return (order_of_alerts(self._records(_ALERTS)),)

    def _records(self, sink: str) -> Iterable[Record]:
        return self._broker.read(f"{OUTGOING}-{sink}")


def order_of_alerts(records: Iterable[Record]) -> Difference:
    """Compare the order of each aircraft's alerts in the topic with that of its flights.

    Args:
        records: The topic's, those of a partition in order.

    Returns:
        Aircraft, and how many of them lack an order: alerts are in another one, or in two partitions.

    """
    alerts: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    partitions: dict[str, set[int]] = defaultdict(set)
    for record in records:
        alert = json.loads(record.value or b"")
        alerts[alert["tailnum"]].append(tuple(alert[name] for name in ORDER))
        partitions[alert["tailnum"]].add(record.partition)
    # No two flights are equal in these columns.
    wrong = [each for each, legs in alerts.items() if legs != sorted(set(legs)) or len(partitions[each]) > 1]
    return Difference(
        "alerts in order, by aircraft",
        expected_rows=len(alerts),
        actual_rows=len(alerts) - len(wrong),
        missing=len(wrong),
        extra=0,
        examples=tuple(f"expected the alerts of {each} in one partition, in order of departure" for each in wrong[:5]),
    )
