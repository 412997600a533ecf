"""Files that differ from a checksum beside them: what is said of them, and which of them are whole nevertheless.

What Spark 4.3.0 does with each was tried: tests/spark/queries/reading/test_what_spark_reads.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import CheckpointDamagedError
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.files import read_checked
from statecore.queries.show import show
from statecore.storage import open_store
from tests.unit.queries.handmade import Handmade, Operator, hadoop_checksum, make, spark_checksum

DATA = bytes(range(256)) * 5
READ_ANYWAY = "although Spark 4.3 reads the file without comparing them"
REFUSED_BY_SPARK = "because Spark 4.3 compares them and refuses the file"
IGNORED_IN_FORMAT_1 = "SPARK-56461"

FORMAT_1 = ("state/0/0/2.delta", "state/0/0/2.snapshot", "state/0/0/2.changelog", "state/0/0/2.zip")
FORMAT_2 = ("state/0/0/2_id.changelog", "state/0/0/2_id.zip")
OTHERS = (
    "metadata",
    "offsets/1",
    "commits/1",
    "sources/0/1",
    "state/0/_metadata/metadata",
    "state/0/0/_metadata/schema",
)


def hidden(path: str) -> str:
    folder, separator, name = path.rpartition("/")
    return f"{folder}{separator}.{name}.crc"


class Files:
    """A file, and checksums beside it: of it, of another one, or none."""

    def __init__(self, root: Path) -> None:
        self.made = Handmade(root, 1)

    def read(self, path: str, *, hadoop: bytes | None, spark: str | None, data: bytes = DATA) -> bytes:
        self.made.write(path, data, checksum=False)
        for name, content in ((hidden(path), hadoop), (f"{path}.crc", spark)):
            if content is not None:
                self.made.write(name, content, checksum=False)
        return read_checked(open_store(str(self.made.root)), path)

    def error(self, path: str, *, hadoop: bytes | None, spark: str | None) -> str:
        with pytest.raises(CheckpointDamagedError) as raised:
            self.read(path, hadoop=hadoop, spark=spark)
        message = str(raised.value)
        assert message.startswith(f"found {path} in the checkpoint {self.made.root} different from its checksum file ")
        return message


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


RIGHT, OF_ANOTHER = hadoop_checksum(DATA), hadoop_checksum(DATA[:-1])
SPARKS, SPARKS_OF_ANOTHER = spark_checksum(DATA), spark_checksum(DATA[:-1] + b"x")


@pytest.mark.parametrize("path", [*OTHERS, *FORMAT_1, *FORMAT_2])
def test_a_file_that_agrees_with_both_is_whole(files: Files, path: str) -> None:
    assert files.read(path, hadoop=RIGHT, spark=SPARKS) == DATA


@pytest.mark.parametrize("path", [*OTHERS, *(each for each in FORMAT_1 + FORMAT_2 if each != "state/0/0/2.zip")])
def test_hadoops_checksum_that_spark_does_not_look_at_is_named_with_both_ways_on(files: Files, path: str) -> None:
    message = files.error(path, hadoop=OF_ANOTHER, spark=None)
    assert f"its checksum file {hidden(path)}; " in message
    assert READ_ANYWAY in message
    assert f"remove {hidden(path)} if you know that the file is right, as after an edit; otherwise restore" in message


def test_hadoops_checksum_that_spark_compares(files: Files) -> None:
    message = files.error("state/0/0/2.zip", hadoop=OF_ANOTHER, spark=None)
    assert REFUSED_BY_SPARK in message
    assert "remove" not in message


@pytest.mark.parametrize("garbage", [b"", b"xx", b"garbage instead of checksums"])
def test_hadoops_checksum_that_is_none_is_not_compared(files: Files, garbage: bytes) -> None:
    assert READ_ANYWAY in files.error("state/0/0/2.zip", hadoop=garbage, spark=None)


@pytest.mark.parametrize("path", FORMAT_2)
@pytest.mark.parametrize("hadoop", [None, RIGHT])
@pytest.mark.parametrize("spark", [SPARKS_OF_ANOTHER, spark_checksum(DATA[:-1]), "garbage"])
def test_sparks_checksum_in_format_2_counts(files: Files, path: str, hadoop: bytes | None, spark: str) -> None:
    message = files.error(path, hadoop=hadoop, spark=spark)
    assert f"its checksum file {path}.crc" in message
    assert REFUSED_BY_SPARK in message


@pytest.mark.parametrize("path", FORMAT_1)
def test_sparks_checksum_in_format_1_may_be_of_another_attempt(files: Files, path: str) -> None:
    message = files.error(path, hadoop=None, spark=SPARKS_OF_ANOTHER)
    assert f"its checksum file {path}.crc" in message
    assert IGNORED_IN_FORMAT_1 in message
    assert f"remove {path}.crc if the batch was repeated; otherwise restore" in message


@pytest.mark.parametrize("path", FORMAT_1)
@pytest.mark.parametrize("spark", [SPARKS_OF_ANOTHER, "garbage"])
def test_in_format_1_a_file_that_agrees_with_hadoops_checksum_is_whole(files: Files, path: str, spark: str) -> None:
    assert files.read(path, hadoop=RIGHT, spark=spark) == DATA


@pytest.mark.parametrize("path", FORMAT_2)
def test_in_format_2_a_file_that_agrees_with_sparks_checksum_is_whole(files: Files, path: str) -> None:
    assert files.read(path, hadoop=OF_ANOTHER, spark=SPARKS) == DATA


def test_a_snapshot_of_rocksdb_that_spark_would_refuse_is_refused(files: Files) -> None:
    assert REFUSED_BY_SPARK in files.error("state/0/0/2.zip", hadoop=OF_ANOTHER, spark=SPARKS)


@pytest.mark.parametrize("path", [*FORMAT_1, *FORMAT_2])
def test_a_flipped_byte_of_state_is_refused(files: Files, path: str) -> None:
    flipped = DATA[:100] + bytes([DATA[100] ^ 1]) + DATA[101:]
    for hadoop, spark in ((RIGHT, None), (None, SPARKS), (RIGHT, SPARKS)):
        with pytest.raises(CheckpointDamagedError, match="different from its checksum file"):
            files.read(path, hadoop=hadoop, spark=spark, data=flipped)
        for each in (hidden(path), f"{path}.crc"):
            (files.made.root / each).unlink(missing_ok=True)


def test_an_edited_log_is_read_once_its_checksum_is_removed(tmp_path: Path) -> None:
    made = make(tmp_path / "checkpoint", Operator())
    log = made.root / "offsets/1"
    log.write_text(log.read_text().replace('{"logOffset":1}', '{"logOffset":0}'))
    with pytest.raises(CheckpointDamagedError, match=r"remove offsets/\.1\.crc if you know that the file is right"):
        open_checkpoint(str(made.root))
    (made.root / "offsets/.1.crc").unlink()
    assert show(open_checkpoint(str(made.root))).sources[0].offset == '{"logOffset":0}'
