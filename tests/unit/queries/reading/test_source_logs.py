"""What sources keep in a checkpoint is whole, or the checkpoint is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statecore.errors import CheckpointDamagedError
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.source_logs import require_whole_sources
from tests.unit.queries.handmade import Handmade, Operator, make


def checked(made: Handmade) -> None:
    require_whole_sources(open_checkpoint(str(made.root)))


def log_offsets(made: Handmade, batch: int, version: int, *offsets: str) -> None:
    lines = (made.root / f"offsets/{batch}").read_text().split("\n")
    made.write(f"offsets/{batch}", "\n".join((f"v{version}", lines[1], *offsets)))


@pytest.fixture
def made(tmp_path: Path) -> Handmade:
    return make(tmp_path / "checkpoint", Operator(), batches=13, pending=True)


def compact(made: Handmade) -> None:
    """Do as the file source does with entry 9, and remove those before."""
    (made.root / "sources/0/9").rename(made.root / "sources/0/9.compact")
    for number in range(9):
        (made.root / f"sources/0/{number}").unlink()


def test_whole_logs_pass(made: Handmade) -> None:
    checked(made)
    compact(made)
    checked(made)


@pytest.mark.parametrize("number", [0, 7, 13])
def test_an_entry_that_is_gone_is_named(made: Handmade, number: int) -> None:
    (made.root / f"sources/0/{number}").unlink()
    with pytest.raises(CheckpointDamagedError, match=rf"found no file {number} in sources/0 .* from 0 to 13"):
        checked(made)


@pytest.mark.parametrize("name", ["9.compact", "10", "13"])
def test_an_entry_since_the_newest_compaction_is_needed(made: Handmade, name: str) -> None:
    compact(made)
    (made.root / f"sources/0/{name}").unlink()
    with pytest.raises(CheckpointDamagedError, match=r"found no file \d+ in sources/0"):
        checked(made)


def test_the_log_of_each_source_is_looked_at(made: Handmade) -> None:
    log_offsets(made, 13, 1, '{"logOffset":13}', '{"logOffset":1}')
    made.write("sources/1/0", "v1\n")
    with pytest.raises(CheckpointDamagedError, match="found no file 1 in sources/1"):
        checked(made)
    made.write("sources/1/1", "v1\n")
    checked(made)


def test_sources_with_names_have_folders_by_name(made: Handmade) -> None:
    (made.root / "sources/0").rename(made.root / "sources/orders")
    log_offsets(made, 13, 2, 'orders:{"logOffset":13}', "clicks:-")
    checked(made)
    (made.root / "sources/orders/12").unlink()
    with pytest.raises(CheckpointDamagedError, match="found no file 12 in sources/orders"):
        checked(made)


@pytest.mark.parametrize(
    "offsets",
    [
        pytest.param(['{"clicks":{"0":5}}'], id="kafka"),
        pytest.param(["7"], id="rate"),
        pytest.param(["-"], id="nothing read"),
    ],
)
def test_what_may_be_no_log_of_files_is_not_looked_at_for_gaps(made: Handmade, offsets: list[str]) -> None:
    (made.root / "sources/0/5").unlink()
    log_offsets(made, 13, 1, *offsets)
    checked(made)


def test_the_log_of_a_source_that_the_query_uses_twice_is_looked_at(made: Handmade) -> None:
    log_offsets(made, 13, 1, '{"logOffset":13}', '{"logOffset":13}')
    checked(made)
    (made.root / "sources/0/5").unlink()
    with pytest.raises(CheckpointDamagedError, match="found no file 5 in sources/0"):
        checked(made)


def test_a_folder_that_may_be_of_kafka_is_not_looked_at(made: Handmade) -> None:
    made.write("sources/2/0", "v1\n")
    log_offsets(made, 13, 1, '{"logOffset":13}', '{"clicks":{"0":5}}')
    checked(made)


def test_a_newline_at_the_end_of_the_offsets_is_no_further_source(made: Handmade) -> None:
    log_offsets(made, 13, 1, '{"logOffset":13}\n')
    (made.root / "sources/0/5").unlink()
    with pytest.raises(CheckpointDamagedError, match="found no file 5 in sources/0"):
        checked(made)


def test_an_entry_that_differs_from_its_checksum_is_named(made: Handmade) -> None:
    made.write("sources/0/4.crc", json.dumps({"mainFileSize": 3, "value": 1}))
    with pytest.raises(CheckpointDamagedError, match=r"found sources/0/4 in the checkpoint .* its checksum file"):
        checked(made)
