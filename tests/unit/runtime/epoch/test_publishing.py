"""Publishing an epoch: sinks and files in parallel, every sink tried, and none twice."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statecore.errors import MissingFileError, SinkError, StorageError
from statecore.runtime import ParquetSink, StagedEpoch
from statecore.runtime.epoch import publishing
from statecore.runtime.epoch.publishing import publish
from statecore.runtime.job import SinkBinding
from statecore.runtime.sinks.base import Threaded
from statecore.snapshot.manifest import Manifest
from statecore.storage import FileStore, LocalFileStore
from statecore.storage.parallel import in_parallel
from tests.support.epochs import SCHEMA, Epochs, epochs

__all__ = ["epochs"]

# Far longer than two threads need to meet; without parallel work they never do.
MEET_S = 20.0


class Collected:
    """A sink that uses the epoch's thread; it keeps what it is given, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.rows: list[Any] = []
        self.threads: set[threading.Thread] = set()

    def staging(self, job_store: FileStore) -> FileStore:
        return job_store

    def publish(self, staged: StagedEpoch) -> None:
        self.threads.add(threading.current_thread())
        if self.failure is not None:
            raise self.failure
        for batch in staged.batches():
            self.rows += batch.to_pylist()


class Meeting(Collected, Threaded):
    """A sink that ends only while others publish, too."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self._barrier = barrier

    def publish(self, staged: StagedEpoch) -> None:
        self._barrier.wait(MEET_S)
        super().publish(staged)


class FailingThread(Collected, Threaded):
    """A sink that fails in its thread."""


def committed(epochs: Epochs, sinks: dict[str, Any], epoch: int = 5) -> Manifest:
    outputs = [
        each for name, sink in sinks.items() for each in epochs.staged(sink, [(epoch, name)], 1, epoch, name=name)
    ]
    return epochs.committed(outputs, 1, epoch)


def published(epochs: Epochs, sinks: dict[str, Any], manifest: Manifest) -> dict[str, float]:
    return publish([SinkBinding(name, "", SCHEMA, sink) for name, sink in sinks.items()], manifest, epochs.store, None)  # type: ignore[arg-type]


def markers(epochs: Epochs) -> list[str]:
    return [entry.path for entry in epochs.store.files.list("_published")]


def test_sinks_are_published_at_the_same_time(epochs: Epochs) -> None:
    barrier = threading.Barrier(3)
    sinks = {name: Meeting(barrier) for name in ("a", "b", "c")}
    published(epochs, sinks, committed(epochs, sinks))
    assert [sink.rows for sink in sinks.values()] == [[{"n": 5, "k": name}] for name in sinks]
    assert markers(epochs) == ["_published/a/1-5", "_published/b/1-5", "_published/c/1-5"]
    assert epochs.store.files.list("_staged") == []


def test_sinks_that_may_use_spark_take_turns_in_the_epochs_own_thread(epochs: Epochs) -> None:
    sinks = {"a": Collected(), "b": FailingThread(), "c": Collected()}
    published(epochs, sinks, committed(epochs, sinks))
    assert sinks["a"].threads == sinks["c"].threads == {threading.current_thread()}
    assert threading.current_thread() not in sinks["b"].threads


def test_a_sink_of_the_job_that_derives_from_ours_stays_in_the_epochs_own_thread(epochs: Epochs) -> None:
    class Derived(FailingThread):
        pass

    sinks = {"a": Derived()}
    published(epochs, sinks, committed(epochs, sinks))
    assert sinks["a"].threads == {threading.current_thread()}


def test_rows_of_a_large_epoch_come_in_batches_and_are_never_all_in_memory(epochs: Epochs) -> None:
    rows = 100_000
    outputs = [output for _ in range(4) for output in epochs.staged(Collected(), [(n, "k" * 100) for n in range(rows)])]
    decoded = rows * 100
    before, seen, most = pa.total_allocated_bytes(), 0, 0
    for batch in epochs.of(Collected(), epochs.committed(outputs)).batches():
        assert len(batch) <= 16 * 1024
        seen += len(batch)
        most = max(most, pa.total_allocated_bytes() - before)
    assert seen == 4 * rows
    assert most < decoded


@pytest.mark.parametrize("repeats", [True, False])
def test_large_rows_come_in_small_batches(epochs: Epochs, repeats: bool) -> None:
    rng = np.random.default_rng(0)
    first = rng.bytes(150_000).hex()
    rows = [(n, first if repeats else rng.bytes(150_000).hex()) for n in range(200)]
    large = epochs.committed(epochs.staged(Collected(), rows))
    sizes = [(len(batch), batch.nbytes) for batch in epochs.of(Collected(), large).batches()]
    assert sum(length for length, _ in sizes) == 200
    assert max(size for _, size in sizes) < 20 * 1024 * 1024


def test_the_time_of_each_sink_with_outputs_is_told(epochs: Epochs, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]

    class Slow(Collected):
        def publish(self, staged: StagedEpoch) -> None:
            now_s[0] += 0.25
            super().publish(staged)

    monkeypatch.setattr(publishing, "time", SimpleNamespace(monotonic=lambda: now_s[0], time=lambda: now_s[0]))
    sinks = {"a": Slow(), "b": Collected()}
    manifest = committed(epochs, sinks)
    assert published(epochs, {**sinks, "without outputs": Collected()}, manifest) == {"a": 250.0, "b": 0.0}
    # It was published before, and its time is that of a look at its marker.
    assert published(epochs, sinks, manifest) == {"a": 0.0, "b": 0.0}


def test_staged_files_that_cannot_be_removed_stop_no_job(
    epochs: Epochs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(store: LocalFileStore, paths: Iterable[str]) -> None:
        raise StorageError("found a full day; expected an empty one; wait")

    sinks = {"a": Collected()}
    manifest = committed(epochs, sinks)
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileStore, "delete_all", refuse)
        published(epochs, sinks, manifest)
    assert (sinks["a"].rows, markers(epochs)) == ([{"n": 5, "k": "a"}], ["_published/a/1-5"])
    assert "staged files of sink a are kept for now" in caplog.text
    assert len(epochs.store.files.list("_staged")) == 1
    # They go after a later epoch.
    published(epochs, sinks, committed(epochs, sinks, 6))
    assert epochs.store.files.list("_staged") == []


@pytest.mark.parametrize("kind", [Collected, FailingThread])
def test_a_sink_that_fails_keeps_no_other_from_the_epoch(epochs: Epochs, kind: type[Collected]) -> None:
    sinks = {"a": kind(SinkError("a is full")), "b": FailingThread(), "c": Collected()}
    manifest = committed(epochs, sinks)
    for _ in range(2):
        with pytest.raises(SinkError, match=r"^a is full$"):
            published(epochs, sinks, manifest)
        assert [sinks[name].rows for name in "bc"] == [[{"n": 5, "k": "b"}], [{"n": 5, "k": "c"}]]
        assert markers(epochs) == ["_published/b/1-5", "_published/c/1-5"]

    sinks["a"].failure = None
    published(epochs, sinks, manifest)
    assert [sink.rows for sink in sinks.values()] == [[{"n": 5, "k": name}] for name in sinks]


def test_errors_of_several_sinks_are_all_told(epochs: Epochs) -> None:
    sinks = {"a": FailingThread(SinkError("a is full")), "b": Collected(OSError("b is gone")), "c": Collected()}
    with pytest.raises(SinkError) as raised:
        published(epochs, sinks, committed(epochs, sinks))
    assert str(raised.value).startswith("found 2 sinks that failed to publish epoch 5: ")
    assert "'a': SinkError: a is full" in str(raised.value)
    assert "'b': OSError: b is gone" in str(raised.value)
    assert raised.value.__cause__ in (sinks["a"].failure, sinks["b"].failure)
    assert markers(epochs) == ["_published/c/1-5"]


@contextmanager
def moves_that_meet(parties: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    barrier, move = threading.Barrier(parties), LocalFileStore.move

    def meeting(store: LocalFileStore, source: str, target: str) -> None:
        barrier.wait(MEET_S)
        move(store, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileStore, "move", meeting)
        yield


def test_files_of_a_parquet_sink_are_moved_at_the_same_time(
    epochs: Epochs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ParquetSink(tmp_path / "seen")
    outputs = [each for n in range(8) for each in epochs.staged(sink, [(n, "a")])]
    with moves_that_meet(4, monkeypatch):
        epochs.publish(sink, epochs.committed(outputs))
    assert len(list((tmp_path / "seen").rglob("lineage=1/epoch=5/*.parquet"))) == 8


def test_a_file_that_is_gone_leaves_the_epoch_unpublished_and_repeatable(epochs: Epochs, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "seen")
    outputs = [each for n in range(20) for each in epochs.staged(sink, [(n, "a")])]
    staging = sink.staging(epochs.store.files)
    data = staging.read(outputs[3].file.path)
    staging.delete(outputs[3].file.path)
    with pytest.raises(MissingFileError, match=outputs[3].file.path):
        epochs.publish(sink, epochs.committed(outputs))
    assert markers(epochs) == []
    assert not (tmp_path / "seen/_published").exists()

    staging.write(outputs[3].file.path, data)
    for _ in range(2):
        epochs.publish(sink, epochs.committed(outputs))
        assert len(list((tmp_path / "seen").rglob("lineage=1/epoch=5/*.parquet"))) == 20


def test_parallel_work_keeps_the_order_and_its_bound() -> None:
    lock, running, most, begun = threading.Lock(), 0, 0, 0

    def work(item: int) -> int:
        nonlocal running, most, begun
        with lock:
            running, begun = running + 1, begun + 1
            most = max(most, running)
        with lock:
            running -= 1
        return item

    results = in_parallel(work, iter(range(100)), threads=4)
    for expected in range(100):
        assert next(results) == expected
        # No result is made long before it is asked for: each takes memory.
        assert begun <= expected + 5
    assert most <= 4
