"""ParquetSink: readers see committed epochs, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from statecore.errors import JobDefinitionError, MissingFileError, SinkError, StateTypeError
from statecore.runtime import ParquetSink
from statecore.runtime.job import SinkBinding
from statecore.runtime.job.checks import check_sinks
from statecore.storage import FileStore, open_store
from tests.support.epochs import SCHEMA, Epochs


@pytest.fixture(params=["local", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    """Where the sink publishes."""
    return open_store(str(tmp_path / "seen") if request.param == "local" else request.getfixturevalue("s3_url"))


@pytest.fixture
def sink(folder: FileStore) -> ParquetSink:
    return ParquetSink(folder.url)


def visible(folder: FileStore) -> list[dict[str, Any]]:
    """Return the rows that a reader sees which skips names beginning with an underscore."""
    rows = []
    for entry in folder.list("lineage=1") + folder.list("lineage=2"):
        with folder.open_input(entry.path) as file:
            rows += pq.ParquetFile(file).read().to_pylist()
    return rows


def staged(folder: FileStore) -> list[str]:
    return [entry.path for entry in folder.list("_staged")]


def test_staged_rows_are_invisible_until_published_and_published_twice_count_once(
    epochs: Epochs, sink: ParquetSink, folder: FileStore
) -> None:
    committed = epochs.committed(epochs.staged(sink, [(1, "a"), (2, "b")]))
    assert visible(folder) == []

    for _ in range(3):
        epochs.publish(sink, committed)
        assert visible(folder) == [{"n": 1, "k": "a"}, {"n": 2, "k": "b"}]
        assert [entry.path for entry in folder.list("lineage=1")] == ["lineage=1/epoch=5/seen-00000-t1.parquet"]
    epochs.forget()
    epochs.publish(sink, committed)
    assert visible(folder) == [{"n": 1, "k": "a"}, {"n": 2, "k": "b"}]


def test_a_lost_attempt_is_never_published_and_removed(epochs: Epochs, sink: ParquetSink, folder: FileStore) -> None:
    epochs.staged(sink, [(1, "lost")])
    epochs.run(sink, [(1, "won")])
    assert visible(folder) == [{"n": 1, "k": "won"}]
    assert staged(folder) == []


def test_what_a_later_epoch_or_another_sink_has_staged_stays(
    epochs: Epochs, sink: ParquetSink, folder: FileStore
) -> None:
    for lineage, epoch in [(1, 3), (1, 5), (1, 6), (2, 3)]:
        epochs.staged(sink, [(1, "lost")], lineage, epoch)
    epochs.staged(sink, [(1, "lost")], name="seen-too")
    epochs.run(sink, [(1, "won")])
    assert staged(folder) == [
        "_staged/1-5-seen-too-00000-t5.parquet",
        "_staged/1-6-seen-00000-t3.parquet",
        "_staged/2-3-seen-00000-t4.parquet",
    ]


def test_publishing_goes_on_where_it_was_interrupted(epochs: Epochs, sink: ParquetSink, folder: FileStore) -> None:
    outputs = epochs.staged(sink, [(1, "a")]) + epochs.staged(sink, [(2, "b")])
    # The state after a driver was killed between two files.
    folder.move(outputs[0].file.path, "lineage=1/epoch=5/seen-00000-t1.parquet")
    epochs.publish(sink, epochs.committed(outputs))
    assert [row["n"] for row in visible(folder)] == [1, 2]


def test_files_that_a_reader_took_away_after_they_were_published_are_no_error(
    epochs: Epochs, sink: ParquetSink, folder: FileStore
) -> None:
    committed = epochs.run(sink, [(1, "a")])
    folder.delete("lineage=1/epoch=5/seen-00000-t1.parquet")
    epochs.publish(sink, committed)
    epochs.forget()
    epochs.publish(sink, committed)
    assert visible(folder) == []


def test_a_file_that_is_neither_staged_nor_published_is_an_error_with_its_path(
    epochs: Epochs, sink: ParquetSink, folder: FileStore
) -> None:
    outputs = epochs.staged(sink, [(1, "a")])
    folder.delete(outputs[0].file.path)
    with pytest.raises(MissingFileError, match=outputs[0].file.path):
        epochs.publish(sink, epochs.committed(outputs))


def test_the_same_epoch_of_another_lineage_is_another_place(
    epochs: Epochs, sink: ParquetSink, folder: FileStore
) -> None:
    epochs.run(sink, [(1, "a")], 1, 5)
    epochs.run(sink, [(2, "b")], 2, 5)
    assert [row["n"] for row in visible(folder)] == [1, 2]


def test_no_more_than_one_marker_stays(epochs: Epochs, sink: ParquetSink, folder: FileStore) -> None:
    for epoch in range(3, 8):
        epochs.run(sink, [(epoch, "a")], 1, epoch)
    epochs.run(sink, [(8, "a")], 2, 5)
    assert [entry.path for entry in folder.list("_published")] == ["_published/2-5"]
    assert [entry.path for entry in epochs.store.files.list("_published")] == ["_published/seen/2-5"]


@pytest.mark.parametrize("epoch", [4, 5])
def test_a_job_that_starts_anew_is_not_mixed_with_what_another_run_published(
    epochs: Epochs, sink: ParquetSink, folder: FileStore, epoch: int
) -> None:
    epochs.run(sink, [(1, "a")])
    epochs.forget()
    with pytest.raises(SinkError, match=r"found epoch 5 of lineage 1 .*expected .*; .*give the sink another path"):
        epochs.run(sink, [(1, "again")], epoch=epoch)
    assert visible(folder) == [{"n": 1, "k": "a"}]


def test_no_rows_make_no_file(epochs: Epochs, sink: ParquetSink, folder: FileStore) -> None:
    assert epochs.staged(sink, []) == []
    assert folder.list("_staged") == []


def test_an_output_that_does_not_fit_names_the_sink_and_its_columns(epochs: Epochs, tmp_path: Path) -> None:
    with pytest.raises(StateTypeError, match=r"sink 'seen', .*: 3 values for 2 fields; expected .* n int, k string"):
        epochs.staged(ParquetSink(tmp_path), [(1, "a", "too many")])


def test_two_sinks_in_one_folder_are_refused_when_the_job_is_built(tmp_path: Path) -> None:
    folders = (tmp_path, tmp_path / "other" / "..")
    sinks = [
        SinkBinding(name, "", SCHEMA, ParquetSink(each)) for name, each in zip(("seen", "late"), folders, strict=True)
    ]
    with pytest.raises(JobDefinitionError, match=r"found the sinks 'seen' and 'late' .*; expected .*; use separate"):
        check_sinks(sinks)


def test_a_name_that_engines_skip_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobDefinitionError, match=r"found the sink '_seen' .*; expected .*; rename"):
        check_sinks([SinkBinding("_seen", "", SCHEMA, ParquetSink(tmp_path))])
