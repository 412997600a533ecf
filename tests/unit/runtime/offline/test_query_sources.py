"""Where a query stands, taken over from its checkpoint: files and positions, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statecore.errors import ConfigurationError
from statecore.runtime.offline.query_sources import query_position, require_at
from statecore.snapshot.checkpoints import CheckpointStore
from tests.unit.queries.handmade import PARTITIONS, Handmade, Operator, make


@pytest.fixture
def made(tmp_path: Path) -> Handmade:
    return make(tmp_path / "checkpoint", Operator(), batches=3)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path / "savepoint"))


def test_position_watermark_and_files_are_those_after_the_newest_committed_batch(
    made: Handmade, store: CheckpointStore
) -> None:
    before = made.files()
    made.write("offsets/3", (made.root / "offsets/2").read_bytes())
    found = query_position(str(made.root), ["clicks"], store)
    (source,) = found.sources
    assert (found.batch, source.name, source.positions) == (2, "clicks", ('{"logOffset":2}',))
    # Spark's watermark of 2 s ends the window before it; a job's is the last millisecond of that window.
    assert found.watermark_ms == 1_999
    assert {each.name for each in found.progress} == {
        "metadata", "offsets/1", "offsets/2", "commits/1", "sources/0/0", "sources/0/1", "sources/0/2",
    }  # fmt: skip
    logged = next(store.read_file(each.file) for each in found.progress if each.name == "offsets/2").decode()
    metadata = json.loads(logged.splitlines()[1])
    # The query's number of partitions would be set in the job's session.
    assert PARTITIONS not in metadata["conf"]
    assert metadata["conf"]
    assert metadata["batchWatermarkMs"] == 0
    assert {
        path: data for path, data in made.files().items() if "offsets/3" not in path and "offsets/.3" not in path
    } == before


def test_the_first_batch_has_none_before_it(tmp_path: Path, store: CheckpointStore) -> None:
    made = make(tmp_path / "young", Operator(), batches=1)
    found = query_position(str(made.root), ["clicks"], store)
    assert (found.batch, found.watermark_ms) == (0, None)


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("offsets/2", "v2\n{}\nclicks:5", "of version v2"),
        ("offsets/2", "v1\n{", "that cannot be read"),
        ("offsets/2", 'v1\n{"conf":{}}\n{"logOffset":2}\n{"logOffset":2}', "2 sources"),
    ],
    ids=["sources by name", "damaged", "another number of sources"],
)
def test_other_logs_are_refused(made: Handmade, store: CheckpointStore, path: str, content: str, said: str) -> None:
    made.write(path, content)
    with pytest.raises(ConfigurationError, match=said):
        query_position(str(made.root), ["clicks"], store)


def test_a_source_that_is_read_twice_is_refused(made: Handmade, store: CheckpointStore) -> None:
    made.write("offsets/2", 'v1\n{"conf":{}}\n{"logOffset":2}\n{"logOffset":2}')
    with pytest.raises(ConfigurationError, match="a source that the query uses twice"):
        query_position(str(made.root), ["clicks", "again"], store)


def test_a_missing_log_is_refused(made: Handmade, store: CheckpointStore) -> None:
    made.remove("offsets/2")
    with pytest.raises(ConfigurationError, match="that cannot be read"):
        query_position(str(made.root), ["clicks"], store)


def test_a_query_that_goes_on_is_noticed(made: Handmade) -> None:
    require_at(str(made.root), 2)
    with pytest.raises(ConfigurationError, match=r"found batch 2 committed in .* and 1 when this began"):
        require_at(str(made.root), 1)
