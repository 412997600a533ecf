"""The job from topic to topic, and the broker that both topics are on."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, TopicPartition

from stack.kafka import CONNECTOR, Record
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest
from tests.chaos.kafka.moments import VARIABLE, Moments
from tests.chaos.kafka.truth import Numbered
from tests.chaos.processes import JOB, ChaosError, DifferenceError, Processes, is_published, until
from tests.chaos.truth import MAX_PARALLELISM, Verdict
from tests.support.jobs import topics
from tests.support.kafka import KafkaBroker

DRIVER = Path(__file__).with_name("driver.py")
TRANSACTION_S = 10
_INCOMING, _OUTGOING, _PARTITIONS, _KEYS = "fed", "numbered", 3, 23
# Brokers are killed often here, and transactions left open: neither waits for as long as it does in production.
_BROKER = """
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
"""
_VISIBLE_S = 60
"""How long a record may stay invisible that is published."""


class KafkaWorld(Processes):
    """One job from topic to topic in an unquiet world, from its first to its last process.

    Args:
        folder: Of its own, for everything that is no process.
        seed: Of the input.

    """

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, f"sqlite:///{folder}/catalog.db", DRIVER)
        for name in ("broker", "moments"):
            (folder / name).mkdir()
        self.moments = Moments(folder / "moments")
        self.store = CheckpointStore.at(f"{folder}/store")
        self._client = folder / "kafka.properties"
        self._client.write_text(f"transaction.timeout.ms={TRANSACTION_S * 1000}\n")
        self._random = Random(f"{seed}-input")
        self._fed: list[tuple[str, int]] = []
        self._numbered = Numbered()
        self.broker = KafkaBroker(folder / "broker")
        with (folder / "broker/server.properties").open("a") as settings:
            settings.write(_BROKER)
        self.broker.start()
        for topic in (_INCOMING, _OUTGOING):
            self.broker.create(topic, _PARTITIONS)
        self._reader = _Reader(self.broker.servers, _OUTGOING)

    def __enter__(self) -> KafkaWorld:
        self.catalog.create_schema()
        return self

    def __exit__(self, *_: object) -> None:
        self.end_processes()
        self._reader.close()
        self.broker.stop(signal.SIGKILL)
        self.catalog.close()

    def variables(self) -> Mapping[str, str]:
        """Let publishers wait at moments, with transactions that time out soon."""
        return {VARIABLE: f"{self.folder}/moments", "STATECORE_KAFKA_CLIENT": str(self._client)}

    def register(self, ground: str, parallelism: int) -> None:
        """Say where the job runs next: on a Spark master's URL, or on the cluster."""
        self.catalog.jobs.register(
            JOB,
            artifact=topics.__file__,
            store=self.store.files.url,
            master_url=self.master_url(ground),
            conf=self.conf() | {"spark.jars": CONNECTOR},
            settings={"servers": self.broker.servers, "from": _INCOMING, "to": _OUTGOING, "most": "200"},
            parallelism=parallelism,
            max_parallelism=MAX_PARALLELISM,
        )

    def feed(self) -> None:
        """Append records to the topic: of one epoch, or of several."""
        numbers = range(len(self._fed), len(self._fed) + self._random.randint(60, 280))
        records = [(f"k{self._random.randrange(_KEYS)}", n) for n in numbers]
        self.broker.produce(_INCOMING, [(k, str(n)) for k, n in records], headers=[("origin", b"shop")])
        self._fed += records
        self._numbered.feed(records)

    def begin_epoch(self) -> None:
        """Feed, and wait until an epoch has begun."""
        before = self._epoch()
        self.feed()
        until(lambda: self.begun() > before, "an epoch to begin", self)

    def in_flight(self) -> bool:
        """Return whether an epoch is begun and not committed, or committed and not published."""
        newest = self.store.newest()
        return self.begun() > _epoch_of(newest) or not is_published(self.store, newest)

    def settle(self) -> None:
        """Wait until all that was fed is published, and compare what a consumer sees with the truth.

        Raises:
            DifferenceError: A record is lost or doubled, or the order of a key is broken.

        """
        until(self._is_published, "the records to be committed and published", self)
        with suppress(ChaosError):
            until(self._is_found, "published records to be visible", self, _VISIBLE_S)
        verdict = self._numbered.verdict()
        if verdict.differences:
            raise DifferenceError(verdict)

    def verdict(self) -> Verdict:
        """Compare what a new consumer sees, from the first record on, with the truth."""
        numbered = Numbered()
        numbered.feed(self._fed)
        numbered.find(self.broker.read(_OUTGOING))
        return numbered.verdict()

    def _epoch(self) -> int:
        return _epoch_of(self.store.newest())

    def _is_published(self) -> bool:
        newest = self.store.newest()
        return newest is not None and newest.rows_total == len(self._fed) and is_published(self.store, newest)

    def _is_found(self) -> bool:
        self._numbered.find(self._reader.read())
        return self._numbered.found >= len(self._fed)


def _epoch_of(manifest: Manifest | None) -> int:
    return -1 if manifest is None else manifest.epoch


class _Reader:
    """Reads a topic with ``read_committed``, from its beginning on, through all that happens to its broker."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "campaign",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])

    def read(self) -> Iterable[Record]:
        """Return the records that are there now and were not read."""
        for message in self._consumer.consume(10_000, 0.3):
            # It says that the broker is away, and asks again.
            if message.error() is None:
                yield Record(message.partition() or 0, message.key(), message.value())

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()
