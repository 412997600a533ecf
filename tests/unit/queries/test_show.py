"""What is shown of a checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from statecore.errors import CheckpointDamagedError
from statecore.queries import show as module
from statecore.queries.copying.clone import clone
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.files import files_below
from statecore.queries.show import ShownCheckpoint, show
from statecore.storage import FileEntry
from tests.unit.queries.handmade import (
    HDFS,
    JOIN,
    JOIN_STORES,
    ROCKSDB,
    Handmade,
    Operator,
    commit,
    delta,
    make,
    rows_of,
)

COUNTED = [(HDFS, False), (ROCKSDB, False), (ROCKSDB, True)]


def shown(made: Handmade) -> ShownCheckpoint:
    return show(open_checkpoint(str(made.root)))


@pytest.mark.parametrize(("provider", "unique_ids"), COUNTED, ids=["hdfs", "rocksdb", "format 2"])
def test_rows_are_those_of_all_stores_of_a_partition(tmp_path: Path, provider: str, unique_ids: bool) -> None:
    made = make(
        tmp_path / "checkpoint",
        Operator(partitions=3),
        Operator(JOIN, JOIN_STORES, partitions=3),
        provider=provider,
        unique_ids=unique_ids,
    )
    aggregation, join = shown(made).operators
    rows = [rows_of(partition) for partition in range(3)]
    assert aggregation.rows == tuple(rows)
    assert join.rows == tuple(4 * each for each in rows)
    assert aggregation.skew == join.skew == max(rows) * 3 / sum(rows)


@pytest.mark.parametrize("provider", [HDFS, ROCKSDB])
def test_an_operator_without_keys_has_one_partition_and_no_skew(tmp_path: Path, provider: str) -> None:
    (operator,) = shown(make(tmp_path / "checkpoint", Operator(keyless=True), provider=provider)).operators
    assert (operator.kind, operator.rows, operator.skew) == ("global aggregation", (1, 0), None)


def test_rows_of_a_changelog_are_unknown(tmp_path: Path) -> None:
    made = make(tmp_path / "checkpoint", Operator(), provider=ROCKSDB)
    made.remove("state/0/1/2.zip")
    made.write("state/0/1/2.changelog", "changes")
    (operator,) = shown(made).operators
    assert (operator.rows, operator.skew) == ((1, None), None)


@pytest.mark.parametrize(
    ("conf", "provider"),
    [({"spark.sql.streaming.stateStore.compression.codec": "new"}, HDFS), ({}, "org.example.Store")],
)
def test_what_is_not_covered_is_shown_without_rows(tmp_path: Path, conf: dict[str, str], provider: str) -> None:
    made = make(tmp_path / "checkpoint", Operator(), conf=conf)
    made.change_conf(1, spark__sql__streaming__stateStore__providerClass=provider)
    (operator,) = shown(made).operators
    assert operator.rows == (None, None)


def test_a_state_file_that_is_not_whole_is_an_error(tmp_path: Path) -> None:
    made = make(tmp_path / "checkpoint", Operator())
    file = made.root / "state/0/1/2.delta"
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(CheckpointDamagedError, match=r"state/0/1/2\.delta"):
        shown(made)


def test_bytes_are_those_of_each_partition(tmp_path: Path) -> None:
    made = make(tmp_path / "checkpoint", Operator(), provider=ROCKSDB)
    (operator,) = shown(made).operators
    for partition, size in enumerate(operator.bytes):
        mine = [data for path, data in made.files().items() if path.startswith(f"state/0/{partition}/")]
        assert size == sum(map(len, mine)) > 0


@pytest.mark.parametrize(
    ("offset", "kind"),
    [
        ('{"logOffset":3}', "files"),
        ('{"orders":{"0":3,"1":4},"returns":{"0":1}}', "Kafka (orders, returns)"),
        ("17", "rate, socket or memory"),
        ('{"of":"another"}', "unknown"),
        ("not JSON", "unknown"),
        ("-", "unknown"),
    ],
)
def test_sources_as_far_as_their_offsets_tell(tmp_path: Path, offset: str, kind: str) -> None:
    made = make(tmp_path / "checkpoint", Operator())
    version, metadata, _ = (made.root / "offsets/1").read_text().split("\n")
    made.write("offsets/1", "\n".join((version, metadata, offset)))
    (source,) = shown(made).sources
    assert (source.kind, source.offset) == (kind, None if offset == "-" else offset)
    made.write("offsets/1", "\n".join(("v2", metadata, f"clicks:{offset}")))
    (source,) = shown(made).sources
    assert (source.kind, source.offset) == (f"clicks: {kind}", None if offset == "-" else offset)


def test_a_query_without_state_and_one_of_an_older_spark(tmp_path: Path) -> None:
    stateless = shown(make(tmp_path / "stateless"))
    assert (stateless.operators, stateless.partitions) == ((), 2)
    assert stateless.refusal is not None and "needs no rescale" in stateless.refusal
    old = make(tmp_path / "old", Operator())
    old.remove("state/0/_metadata/metadata")
    found = shown(old)
    assert [(each.kind, each.rows, each.partitions) for each in found.operators] == [("unknown", (), 0)]
    assert found.refusal is not None and "Spark before 4.0" in found.refusal


def test_progress_is_told(tmp_path: Path) -> None:
    made, told = make(tmp_path / "checkpoint", Operator(), Operator(JOIN, JOIN_STORES)), list[tuple[int, int]]()
    show(open_checkpoint(str(made.root)), lambda *each: told.append(each))
    assert told == [(done, 5) for done in range(1, 6)]


@pytest.mark.parametrize("ids", [{"7": [["a"], ["b"]]}, {"0": [["a"]]}, {"0": [[], []]}], ids=str)
def test_rows_are_unknown_where_the_commit_names_no_state_file(tmp_path: Path, ids: dict[str, list[list[str]]]) -> None:
    made = make(tmp_path / "checkpoint", Operator(), provider=ROCKSDB)
    made.write("commits/1", f"v2\n{json.dumps({'nextBatchWatermarkMs': 1, 'stateUniqueIds': ids})}")
    (operator,) = show(open_checkpoint(str(made.root))).operators
    assert operator.rows == (None, None)


def test_a_commit_of_spark_4_0_with_no_ids_is_one_of_format_1(tmp_path: Path) -> None:
    made = make(tmp_path / "checkpoint", Operator(), provider=ROCKSDB)
    made.write("commits/1", 'v1\n{"nextBatchWatermarkMs":1,"stateUniqueIds":{}}')
    shown = show(open_checkpoint(str(made.root)))
    assert (shown.checkpoint_format, None in shown.operators[0].rows) == (1, False)


@pytest.mark.parametrize("provider", [HDFS, ROCKSDB])
def test_a_limit_which_has_all_its_state_in_one_partition_is_shown_and_cloned(tmp_path: Path, provider: str) -> None:
    made = make(tmp_path / "checkpoint", Operator("globalLimit"), provider=provider)
    shutil.rmtree(made.root / "state/0/1")
    checkpoint = open_checkpoint(str(made.root))
    assert show(checkpoint).operators[0].rows == (None, None)
    assert "limit" in str(show(checkpoint).refusal)
    assert clone(checkpoint, str(tmp_path / "clone")).partitions == 2


class TestRunning:
    """A query that goes on while its checkpoint is shown."""

    def go_on(self, made: Handmade, batch: int) -> None:
        """Commit a batch, and remove the state of the ones before."""
        made.write(f"offsets/{batch}", (made.root / f"offsets/{batch - 1}").read_text())
        made.write(f"commits/{batch}", commit(batch))
        for partition in range(2):
            made.write(f"state/0/{partition}/{batch + 1}.snapshot", delta(5))
            for old in (made.root / f"state/0/{partition}").glob("*.delta"):
                made.remove(str(old.relative_to(made.root)))

    def test_it_is_shown_at_its_newest_batch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made = make(tmp_path / "checkpoint", Operator())

        def listed(url: str) -> list[FileEntry]:
            found = files_below(url)
            if not (made.root / "commits/2").exists():
                self.go_on(made, 2)
            return found

        monkeypatch.setattr(module, "files_below", listed)
        found = shown(made)
        assert (found.batch, found.operators[0].rows) == (2, (5, 5))

    def test_what_is_missing_while_no_query_runs_is_damage(self, tmp_path: Path) -> None:
        made = make(tmp_path / "checkpoint", Operator())
        made.remove("state/0/1/2.delta")
        with pytest.raises(CheckpointDamagedError, match=r"state/0/1/2\.delta"):
            shown(made)
