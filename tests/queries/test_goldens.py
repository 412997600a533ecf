"""The checkpoints that Spark's own tests restart queries from: each is shown, cloned, and rescaled or refused by name.

They are in the jars that ``make goldens`` fetches. Without these the tests are skipped.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statecore.errors import CheckpointError
from statecore.queries.copying.clone import clone
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.origin import ORIGIN
from statecore.queries.rescale import rescale
from statecore.queries.show import show
from tests.unit.queries.handmade import files_of

JARS = Path(sys.prefix) / "goldens"
PARTITIONS = 3

_ROOT = "structured-streaming/"
_LOG = re.compile(rf"{_ROOT}(?P<name>.+)/(?:offsets|commits)/\d+")


@dataclass(frozen=True)
class Golden:
    """What is expected of a checkpoint.

    Attributes:
        batch: Its newest committed batch.
        rows: Rows of state in each partition of each operator; None where Spark recorded none.
        rescaled: Rows that a rescale proves; None if it is refused.
        refused: Why it cannot be rescaled.
        unreadable: Why it cannot even be shown.
        removed: Files whose removal makes it readable, as the message says.

    """

    batch: int = 0
    rows: tuple[tuple[int | None, ...], ...] = ((),)
    rescaled: int | None = None
    refused: str = ""
    unreadable: str = ""
    removed: tuple[str, ...] = ()


OLD = "found no metadata of operator 0 .*, as Spark before 4.0 leaves it"
STATELESS = "found no stateful operator"
LIMIT = "found a limit"
EDITED = r"found offsets/1 .* its checksum file offsets/\.1\.crc; .* reads the file without comparing"
SIX, EIGHTEEN, UNKNOWN = ((0, 2, 1, 1, 2),), ((0, 0, 6, 6, 6),), ((None,) * 5,)

GOLDENS: Mapping[str, Golden] = {
    "checkpoint-test-offsetId-commitId-inconsistent": Golden(
        unreadable="found commits up to batch 2 and offsets up to batch 4"
    ),
    "checkpoint-version-2.1.0": Golden(unreadable="found no committed batch"),
    "checkpoint-version-2.3.1-flatMapGroupsWithState-state-format-1": Golden(1, refused=OLD),
    "checkpoint-version-2.3.1-for-multi-watermark-policy": Golden(1, (), refused=STATELESS),
    "checkpoint-version-2.3.1-streaming-aggregate-state-format-1": Golden(1, refused=OLD),
    "checkpoint-version-2.3.1-without-commit-log-metadata": Golden(1, refused=OLD),
    "checkpoint-version-2.4.0-streaming-join": Golden(refused=OLD),
    "checkpoint-version-2.4.3-kafka-include-headers-default": Golden(refused=OLD),
    "checkpoint-version-2.4.5-for-compatibility-test-common-functions": Golden(refused=OLD),
    "checkpoint-version-2.4.5-for-compatibility-test-deduplicate": Golden(refused=OLD),
    "checkpoint-version-2.4.5-for-compatibility-test-statistical-functions": Golden(refused=OLD),
    "checkpoint-version-2.4.5-for-compatibility-test-sum-decimal": Golden(refused=OLD),
    "checkpoint-version-3.0.0-streaming-statestore-codec": Golden(refused=OLD),
    "checkpoint-version-3.1.0-flatmapgroupswithstate-repartition": Golden(refused=OLD),
    "checkpoint-version-3.2.0-deduplication-with-repartition": Golden(1, refused=OLD),
    "checkpoint-version-3.2.0-flatmapgroupswithstate1-repartition": Golden(refused=OLD),
    "checkpoint-version-3.2.0-flatmapgroupswithstate2-repartition": Golden(refused=OLD),
    "checkpoint-version-3.2.0-session-window-with-repartition": Golden(1, refused=OLD),
    "checkpoint-version-3.2.0-streaming-aggregate-with-repartition": Golden(1, refused=OLD),
    "checkpoint-version-3.3.0-streaming-deduplication": Golden(1, refused=OLD),
    "checkpoint-version-3.5.1-streaming-deduplication": Golden(1, refused=OLD),
    "checkpoint-version-3.5.1-streaming-join": Golden(refused=OLD),
    "checkpoint-version-3.5.4": Golden(1, (), refused=STATELESS),
    "checkpoint-version-4.0.0/hdfs/agg": Golden(3, SIX, 6),
    "checkpoint-version-4.0.0/hdfs/dedup": Golden(3, SIX, 6),
    "checkpoint-version-4.0.0/hdfs/join1": Golden(4, EIGHTEEN, 18),
    "checkpoint-version-4.0.0/hdfs/join2": Golden(4, EIGHTEEN, 18),
    "checkpoint-version-4.0.0/hdfs/limit": Golden(3, UNKNOWN, refused=LIMIT),
    "checkpoint-version-4.0.0/rocksdb/agg": Golden(3, SIX, 6),
    "checkpoint-version-4.0.0/rocksdb/dedup": Golden(3, SIX, 6),
    "checkpoint-version-4.0.0/rocksdb/join1": Golden(4, UNKNOWN, 18),
    "checkpoint-version-4.0.0/rocksdb/join2": Golden(4, UNKNOWN, 18),
    "checkpoint-version-4.0.0/rocksdb/limit": Golden(3, UNKNOWN, refused=LIMIT),
    "checkpoint-version-4.0.0-checkpoint-v2/rocksdb/dedup": Golden(3, SIX, 6),
    "checkpoint-version-4.0.0-checkpoint-v2/rocksdb/join1": Golden(
        4, UNKNOWN, refused="found a stream-stream join of state format 1"
    ),
    "checkpoint-version-4.0.0-checkpoint-v2/rocksdb/join2": Golden(4, UNKNOWN, 18),
    "checkpoint-version-4.0.0-checkpoint-v2/rocksdb/limit": Golden(3, UNKNOWN, refused=LIMIT),
    # Their offsets were edited by hand. Metadata of a build before the release: Spark's own reader refuses it, too.
    "checkpoint-version-4.0.0-tws-avro": Golden(
        1, UNKNOWN, refused="found no schema files in the metadata", unreadable=EDITED, removed=("offsets/.1.crc",)
    ),
    "checkpoint-version-4.0.0-tws-unsaferow": Golden(
        1, UNKNOWN, refused="found no schema files in the metadata", unreadable=EDITED, removed=("offsets/.1.crc",)
    ),
    "checkpoint-version-4.0.1-dedup-spark-53942": Golden(0, ((0, 2, 1, 0, 1),), 4),
    "escaped-path-2.4.0/chk%252520%252525@%252523chk": Golden(0, (), refused=STATELESS),
}


@cache
def goldens() -> Mapping[str, list[dict[str, bytes]]]:
    """Return the files of each checkpoint, as each jar has them."""
    if not (JARS / ".fetched").exists():
        pytest.skip("found no checkpoints of Spark's own tests; run `make goldens`, which needs Maven")
    found: dict[str, list[dict[str, bytes]]] = defaultdict(list)
    for jar in sorted(JARS.glob("*.jar")):
        with zipfile.ZipFile(jar) as archive:
            files = [each for each in archive.namelist() if each.startswith(_ROOT) and not each.endswith("/")]
            for name in {match["name"] for each in files if (match := _LOG.fullmatch(each))}:
                root = f"{_ROOT}{name}/"
                found[name].append({each[len(root) :]: archive.read(each) for each in files if each.startswith(root)})
    return found


@pytest.fixture
def checkpoint(tmp_path: Path, name: str) -> Path:
    """Write a checkpoint out, without what must be removed from it."""
    root = tmp_path / "checkpoint"
    for path, data in goldens()[name][0].items():
        if path not in GOLDENS[name].removed:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
    return root


READABLE = [name for name, golden in GOLDENS.items() if golden.removed or not golden.unreadable]


def test_the_table_has_each_of_them() -> None:
    assert sorted(goldens()) == sorted(GOLDENS)


@pytest.mark.parametrize("name", GOLDENS)
def test_each_is_the_same_in_all_releases(name: str) -> None:
    first, *others = goldens()[name]
    assert all(other == first for other in others)


@pytest.mark.parametrize("name", [name for name, golden in GOLDENS.items() if golden.unreadable])
def test_what_cannot_be_read_is_refused_for_its_reason(tmp_path: Path, checkpoint: Path, name: str) -> None:
    for path in GOLDENS[name].removed:
        (checkpoint / path).write_bytes(goldens()[name][0][path])
    with pytest.raises(CheckpointError, match=GOLDENS[name].unreadable):
        open_checkpoint(str(checkpoint))


@pytest.mark.parametrize("name", READABLE)
def test_it_is_shown(checkpoint: Path, name: str) -> None:
    golden, found = GOLDENS[name], show(open_checkpoint(str(checkpoint)))
    assert (found.batch, found.pending) == (golden.batch, None)
    assert tuple(operator.rows for operator in found.operators) == golden.rows
    assert (found.refusal is None) == (golden.rescaled is not None)
    assert found.sources


@pytest.mark.parametrize("name", READABLE)
def test_it_is_cloned(tmp_path: Path, checkpoint: Path, name: str) -> None:
    before = files_of(checkpoint)
    clone(open_checkpoint(str(checkpoint)), str(tmp_path / "clone"))
    copied = files_of(tmp_path / "clone")
    assert copied.pop(ORIGIN)
    assert copied == before == files_of(checkpoint)
    shown, of_clone = (show(open_checkpoint(str(each))) for each in (checkpoint, tmp_path / "clone"))
    assert (of_clone.operators, of_clone.sources) == (shown.operators, shown.sources)


@pytest.mark.parametrize("name", READABLE)
def test_it_is_rescaled_or_refused_for_its_reason(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, name: str
) -> None:
    golden, before, target = GOLDENS[name], files_of(checkpoint), tmp_path / "rescaled"
    if golden.rescaled is None:
        with pytest.raises(CheckpointError, match=golden.refused):
            rescale(str(checkpoint), str(target), PARTITIONS, spark=spark)
        assert not target.exists()
    else:
        assert rescale(str(checkpoint), str(target), PARTITIONS, spark=spark).proof.rows == golden.rescaled
        assert {operator.partitions for operator in show(open_checkpoint(str(target))).operators} == {PARTITIONS}
    assert files_of(checkpoint) == before
