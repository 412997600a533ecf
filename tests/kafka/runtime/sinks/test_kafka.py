"""KafkaSink: each committed epoch once, whatever was killed in between, and no epoch of a zombie."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from stack.kafka import Record
from statecore.errors import MissingFileError, SinkError
from statecore.runtime import KafkaSink
from statecore.runtime.sinks import kafka_publisher
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import encode_manifest
from tests.support.epochs import Epochs
from tests.support.kafka import KafkaBroker
from tests.support.waiting import wait


@pytest.fixture
def epochs(tmp_path: Path, topic: str) -> Epochs:
    """A job of its own: markers are by name."""
    return Epochs(CheckpointStore.at(str(tmp_path / "store")), job=f"job-{topic}")


@pytest.fixture
def sink(kafka: KafkaBroker, topic: str) -> KafkaSink:
    return KafkaSink(topic, kafka.servers, key="k")


def objects(records: list[Record] | Any) -> Counter[tuple[Any, Any]]:
    return Counter((row["n"], row["k"]) for row in (json.loads(record.value or b"null") for record in records))


def again(sink: KafkaSink, kafka: KafkaBroker) -> KafkaSink:
    """Return the sink as another driver has it."""
    return KafkaSink(sink.topic, kafka.servers, key="k")


def test_an_epoch_is_a_transaction_and_published_again_it_is_none(
    epochs: Epochs, sink: KafkaSink, kafka: KafkaBroker
) -> None:
    committed = epochs.committed(epochs.staged(sink, [(1, "a"), (2, None)]), 2, 5)
    for driver in (sink, sink, again(sink, kafka)):
        epochs.publish(driver, committed)
        # As after a driver that was killed before it wrote its own marker.
        epochs.forget()
    assert objects(kafka.read(sink.topic)) == Counter([(1, "a"), (2, None)])
    markers = {record.key: json.loads(record.value or b"") for record in kafka.read("statecore-published")}
    marker = markers[f"{epochs.job}/seen".encode()]
    assert (marker["lineage"], marker["epoch"]) == (2, 5)
    assert kafka.topics()["statecore-published"].partitions.keys() == {0}
    assert kafka.setting("statecore-published", "cleanup.policy") == "compact"


def test_markers_that_would_expire_are_refused(epochs: Epochs, sink: KafkaSink, kafka: KafkaBroker) -> None:
    epochs.run(sink, [(1, "a")], 1, 5)
    kafka.alter("statecore-published", "cleanup.policy", "compact,delete")
    try:
        with pytest.raises(SinkError, match=r"cleanup\.policy=compact,delete .*; expected compact"):
            epochs.run(again(sink, kafka), [(2, "a")], 1, 6)
    finally:
        kafka.alter("statecore-published", "cleanup.policy", "compact")
    epochs.run(again(sink, kafka), [(3, "a")], 1, 7)
    assert objects(kafka.read(sink.topic)) == Counter([(1, "a"), (3, "a")])


def test_two_sinks_of_a_job_do_not_fence_each_other(
    epochs: Epochs, sink: KafkaSink, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[dict[str, Any]]()

    class Told(Producer):
        def __init__(self, settings: dict[str, Any], **more: Any) -> None:
            begun.append(settings)
            super().__init__(settings, **more)

    monkeypatch.setattr(kafka_publisher, "Producer", Told)
    for epoch in range(5, 8):
        for name in ("seen", "rejected"):
            epochs.run(sink, [(epoch, name)], 1, epoch, name=name)
    assert [each["transactional.id"] for each in begun] == [f"statecore/{epochs.job}/{n}" for n in ("seen", "rejected")]
    # What docs/kafka.md says of a driver's memory.
    queues = {(each["queue.buffering.max.kbytes"], each["queue.buffering.max.messages"]) for each in begun}
    assert queues == {(64 * 1024, 200_000)}
    assert objects(kafka.read(sink.topic)) == Counter(
        (epoch, name) for epoch in range(5, 8) for name in ("seen", "rejected")
    )


def test_keys_values_and_headers_come_from_columns(epochs: Epochs, kafka: KafkaBroker, topic: str) -> None:
    sink = KafkaSink(topic, kafka.servers, key="k", value="v", headers=("trace", "kind"))
    rows = [("a", b"\x00\xff", "t1", b"x"), ("b", None, None, b"y"), (None, b"", "t3", None)]
    epochs.run(sink, rows, schema="k string, v binary, trace string, kind binary")
    assert sorted((record[1:] for record in kafka.read(topic)), key=str) == sorted(
        [
            (b"a", b"\x00\xff", (("trace", b"t1"), ("kind", b"x"))),
            # A tombstone.
            (b"b", None, (("kind", b"y"),)),
            (None, b"", (("trace", b"t3"),)),
        ],
        key=str,
    )


def test_rows_of_a_key_keep_their_order_in_the_partition_that_kafkas_own_clients_choose(
    epochs: Epochs, sink: KafkaSink, kafka: KafkaBroker
) -> None:
    keys = [f"k{n}" for n in range(20)]
    for epoch in range(5, 10):
        epochs.run(sink, [(epoch * 1000 + n, keys[n % 20]) for n in range(400)], 1, epoch)
    found: dict[str, list[int]] = {}
    places: dict[str, set[int]] = {}
    for record in kafka.read(sink.topic):
        row = json.loads(record.value or b"")
        found.setdefault(row["k"], []).append(row["n"])
        places.setdefault(row["k"], set()).add(record.partition)
    assert all(numbers == sorted(numbers) and len(numbers) == 100 for numbers in found.values())
    # Of murmur2, which is what Java's producer uses.
    assert (places["k0"], places["k1"], places["k2"]) == murmur2("k0", "k1", "k2")


def murmur2(*keys: str) -> tuple[set[int], ...]:
    return tuple({(_murmur2(key.encode()) & 0x7FFFFFFF) % 3} for key in keys)


def _murmur2(data: bytes) -> int:
    """Hash as ``org.apache.kafka.common.utils.Utils.murmur2`` is specified: seed 0x9747b28c, 32 bits."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    for at in range(0, len(data) // 4 * 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ (k >> 24)) * m & mask)
    rest = data[len(data) // 4 * 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


KILLED = """
import os, signal, sys
from statecore.runtime import KafkaSink
from statecore.runtime.sinks import kafka_publisher
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import decode_manifest
from tests.support.epochs import Epochs

store, manifest, topic, servers, job, where = sys.argv[1:]
produce = kafka_publisher._produce

def killed(producer, topic, records):
    # Before the marker, when the rows are with the broker.
    if where == "within" and topic == kafka_publisher.MARKERS:
        producer.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    produce(producer, topic, records)

kafka_publisher._produce = killed
epochs = Epochs(CheckpointStore.at(store), job=job)
epochs.publish(KafkaSink(topic, servers, key="k"), decode_manifest(open(manifest, "rb").read(), manifest))
"""


@pytest.mark.parametrize("where", ["within", "after"])
def test_a_driver_killed_within_or_after_the_transaction_leaves_every_row_once(
    epochs: Epochs, sink: KafkaSink, kafka: KafkaBroker, tmp_path: Path, where: str
) -> None:
    epochs.run(sink, [(0, "before")], 1, 4)
    committed = epochs.committed(epochs.staged(sink, [(1, "a")]) + epochs.staged(sink, [(1, "a"), (2, "b")]))
    manifest = tmp_path / "manifest.json"
    manifest.write_bytes(encode_manifest(committed))
    environment = dict(os.environ)
    if where == "after":
        environment |= {"STATECORE_FAULTS": "sink_published@5", "STATECORE_FAULT_DIR": str(tmp_path)}
    store = epochs.store.files.url.removeprefix("file://")
    arguments = [store, str(manifest), sink.topic, kafka.servers, epochs.job, where]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    expected = Counter([(0, "before"), (1, "a"), (1, "a"), (2, "b")])
    assert len(kafka.read(sink.topic, isolation="read_uncommitted")) == 4
    assert objects(kafka.read(sink.topic)) == (expected if where == "after" else Counter([(0, "before")]))

    # The next driver; and one before it, which wakes up and takes the epoch for unpublished.
    for driver in (again(sink, kafka), sink):
        driver.publish(epochs.of(driver, committed))
    assert objects(kafka.read(sink.topic)) == expected
    epochs.run(sink, [(3, "c")], 1, 6)
    assert objects(kafka.read(sink.topic)) == expected + Counter([(3, "c")])


@pytest.mark.parametrize("at", ["rows", "marker", "commit"])
def test_a_zombie_that_goes_on_within_its_transaction_publishes_nothing(
    epochs: Epochs, sink: KafkaSink, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    epochs.run(sink, [(0, "before")], 1, 4)
    committed = epochs.committed(epochs.staged(sink, [(1, "a")]))
    later = epochs.committed(epochs.staged(sink, [(2, "b")], 1, 6), 1, 6)
    produce, hits = kafka_publisher._produce, iter(["overtake"])

    def successor() -> None:
        other = again(sink, kafka)
        for manifest in (committed, later):
            other.publish(epochs.of(other, manifest))

    def overtaken(producer: Producer, topic: str, records: kafka_publisher.Records) -> None:
        produce(producer, topic, records)
        if at != "commit" and (topic == kafka_publisher.MARKERS) == (at == "marker") and next(hits, None):
            # Its rows are with the broker, in a transaction that is open.
            producer.flush()
            successor()

    class Overtaken(Producer):
        def commit_transaction(self, *arguments: Any) -> None:
            if at == "commit" and next(hits, None):
                successor()
            super().commit_transaction(*arguments)

    monkeypatch.setattr(kafka_publisher, "_produce", overtaken)
    monkeypatch.setattr(kafka_publisher, "Producer", Overtaken)
    zombie = again(sink, kafka)
    with pytest.raises(SinkError, match=r"found epoch 6 of lineage 1 .* already published.*let this one stop"):
        zombie.publish(epochs.of(zombie, committed))
    assert objects(kafka.read(sink.topic)) == Counter([(0, "before"), (1, "a"), (2, "b")])


def test_an_answer_that_was_lost_publishes_nothing_twice(
    epochs: Epochs, sink: KafkaSink, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = iter(["lost"])

    class Lost(Producer):
        def commit_transaction(self, *arguments: Any) -> None:
            super().commit_transaction(*arguments)
            if next(lost, None):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(kafka_publisher, "Producer", Lost)
    epochs.run(sink, [(1, "a")], 1, 5)
    epochs.run(sink, [(2, "b")], 1, 6)
    assert next(lost, None) is None
    assert objects(kafka.read(sink.topic)) == Counter([(1, "a"), (2, "b")])


@pytest.fixture
def open_transaction(kafka: KafkaBroker) -> Iterator[Producer]:
    """A transaction of another job, whose marker lies before those of others."""
    kafka.topics()
    other = Producer({"bootstrap.servers": kafka.servers, "transactional.id": "another job"})
    other.init_transactions(30)
    other.begin_transaction()
    yield other
    other.abort_transaction(30)


def test_a_marker_behind_another_jobs_open_transaction_is_found(
    epochs: Epochs, sink: KafkaSink, kafka: KafkaBroker, open_transaction: Producer
) -> None:
    epochs.run(sink, [(0, "before")], 1, 4)
    open_transaction.produce("statecore-published", b"{}", b"another/sink")
    assert open_transaction.flush(30) == 0
    committed = epochs.run(sink, [(1, "a")])
    epochs.forget()
    successor = threading.Thread(target=epochs.publish, args=(again(sink, kafka), committed), daemon=True)
    successor.start()
    # It waits: what it could read now ends before the marker.
    successor.join(2)
    assert successor.is_alive()
    open_transaction.commit_transaction(30)
    open_transaction.begin_transaction()
    successor.join(60)
    assert not successor.is_alive()
    assert len(kafka.read(sink.topic)) == 2


@pytest.mark.parametrize(("lineage", "epoch", "found"), [(1, 4, "epoch 5"), (1, 5, "epoch 5 of lineage 1 with other")])
def test_an_earlier_epoch_and_the_same_one_with_other_rows_are_refused(
    epochs: Epochs, sink: KafkaSink, kafka: KafkaBroker, lineage: int, epoch: int, found: str
) -> None:
    epochs.run(sink, [(1, "a")])
    epochs.forget()
    with pytest.raises(SinkError, match=rf"found {found}.*'{epochs.job}/seen'.*expected epoch {epoch} .*; if"):
        epochs.run(sink, [(9, "z")], lineage, epoch)
    assert objects(kafka.read(sink.topic)) == Counter([(1, "a")])


def test_a_new_lineage_follows_whatever_its_epoch(epochs: Epochs, sink: KafkaSink, kafka: KafkaBroker) -> None:
    epochs.run(sink, [(1, "a")], 1, 900)
    epochs.run(sink, [(2, "b")], 7, 3)
    assert objects(kafka.read(sink.topic)) == Counter([(1, "a"), (2, "b")])


def test_a_staged_file_that_is_gone_is_named_and_nothing_is_committed(
    epochs: Epochs, sink: KafkaSink, kafka: KafkaBroker
) -> None:
    outputs = epochs.staged(sink, [(1, "a")]) + epochs.staged(sink, [(2, "b")])
    epochs.store.files.delete(outputs[1].file.path)
    with pytest.raises(MissingFileError, match=rf"unpublished rows of epoch 5 missing.*{outputs[1].file.path}"):
        epochs.publish(sink, epochs.committed(outputs))
    assert kafka.read(sink.topic) == []


def test_a_topic_that_is_missing_is_refused_and_not_made(epochs: Epochs, kafka: KafkaBroker) -> None:
    with pytest.raises(SinkError, match=r"there is no topic nosuch, or .* describe; expected .*; create the topic"):
        epochs.run(KafkaSink("nosuch", kafka.servers), [(1, "a")])
    assert "nosuch" not in kafka.topics()


@pytest.mark.parametrize("side", ["client", "topic", "topic, while rows are still produced"])
def test_a_row_that_is_too_large_is_refused_with_the_limits(epochs: Epochs, kafka: KafkaBroker, side: str) -> None:
    topic = kafka.create(f"small-{epochs.job}", max_message_bytes="1000")
    size = 2_000_000 if side == "client" else 2_000
    with pytest.raises(SinkError, match=r"MSG_SIZE_TOO_LARGE.*raise message\.max\.bytes .* or put out smaller rows"):
        rows = [(1, "x" * size)] + [(n, "a") for n in range(0 if side in ("client", "topic") else 300_000)]
        epochs.run(KafkaSink(topic, kafka.servers), rows)
    assert kafka.read(topic) == []


def test_a_broker_that_answers_again_gets_the_epoch_once(epochs: Epochs, sink: KafkaSink, kafka: KafkaBroker) -> None:
    epochs.run(sink, [(0, "before")], 1, 4)
    with kafka.paused():
        driver = threading.Thread(target=epochs.run, args=(sink, [(1, "a")]), daemon=True)
        driver.start()
        driver.join(3)
        assert driver.is_alive()
    driver.join(60)
    assert not driver.is_alive()
    assert objects(kafka.read(sink.topic)) == Counter([(0, "before"), (1, "a")])


def test_brokers_that_are_not_there_are_named(epochs: Epochs, monkeypatch: pytest.MonkeyPatch, sink: KafkaSink) -> None:
    monkeypatch.setattr(kafka_publisher, "_RETRY_S", 0.1)
    monkeypatch.setattr(kafka_publisher, "_CALL_S", 0.5)
    with pytest.raises(SinkError, match=r"KafkaSink\('orders', '127\.0\.0\.1:9'\) does not .*; check brokers"):
        epochs.run(KafkaSink("orders", "127.0.0.1:9"), [(1, "a")])


def test_a_transaction_time_that_brokers_refuse_is_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, kafka: KafkaBroker, topic: str, epochs: Epochs
) -> None:
    monkeypatch.setenv("STATECORE_KAFKA_CLIENT", '{"transaction.timeout.ms": 9000000}')
    with pytest.raises(SinkError, match=r"INVALID_TRANSACTION_TIMEOUT.*; lower transaction\.timeout\.ms"):
        epochs.run(KafkaSink(topic, kafka.servers), [(1, "a")])


def test_an_epoch_that_takes_longer_than_its_transaction_may_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, kafka: KafkaBroker, topic: str, epochs: Epochs
) -> None:
    monkeypatch.setenv("STATECORE_KAFKA_CLIENT", '{"transaction.timeout.ms": 3000}')
    monkeypatch.setattr(kafka_publisher, "_RETRY_S", 0.1)
    aborted: list[str] = []

    class Slow(Producer):
        def commit_transaction(self, *arguments: Any) -> None:
            self.flush()
            # Behind its row, the brokers write that the transaction is aborted.
            wait(lambda: kafka.ends(topic) == 2 * (len(aborted) + 1), "the transaction to be aborted")
            aborted.append(topic)
            super().commit_transaction(*arguments)

    monkeypatch.setattr(kafka_publisher, "Producer", Slow)
    with pytest.raises(SinkError, match=r"; raise transaction\.timeout\.ms .* if an epoch takes longer than that"):
        epochs.run(KafkaSink(topic, kafka.servers), [(1, "a")])
    assert len(aborted) == 2 and kafka.read(topic) == []


def test_a_broker_that_is_killed_and_started_again_gets_the_epoch_once(
    epochs: Epochs, sink: KafkaSink, kafka: KafkaBroker
) -> None:
    epochs.run(sink, [(1, "a")])
    kafka.stop(signal.SIGKILL)
    driver = threading.Thread(target=epochs.run, args=(sink, [(2, "b")], 1, 6), daemon=True)
    driver.start()
    kafka.start()
    wait(lambda: not driver.is_alive(), "the epoch to be published")
    assert objects(kafka.read(sink.topic)) == Counter([(1, "a"), (2, "b")])
