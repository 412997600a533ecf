"""DeltaSink: each committed epoch once, whatever was killed in between, and no epoch of a zombie."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from statecore.errors import MissingFileError, SinkError
from statecore.runtime import DeltaSink
from statecore.runtime.epoch.publishing import staged_sinks
from statecore.runtime.job import SinkBinding
from statecore.runtime.sinks import delta
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import encode_manifest
from tests.support.epochs import SCHEMA, Epochs

APPLICATION = "statecore/orders/seen"


@pytest.fixture(params=["local", "s3"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Path or URL of the table."""
    if request.param == "local":
        return str(tmp_path / "tables" / "seen")
    # The server of the tests speaks no TLS.
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    return str(request.getfixturevalue("s3_url"))


def rows(path: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table().to_pylist())


def test_an_epoch_is_a_transaction_and_published_again_it_is_none(epochs: Epochs, path: str) -> None:
    committed = epochs.committed(epochs.staged(DeltaSink(path), [(1, "a"), (2, None)]), 2, 5)
    for _ in range(3):
        epochs.publish(DeltaSink(path), committed)
        # As after a driver that was killed before it wrote its own marker.
        epochs.forget()
    assert rows(path) == Counter([(1, "a"), (2, None)])
    table = DeltaTable(path)
    assert table.version() == 1
    assert table.transaction_version(APPLICATION) == 2_000_000_000_005


KILLED = """
import sys
from statecore.runtime import DeltaSink
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import decode_manifest
from tests.support.epochs import Epochs

store, manifest, table = sys.argv[1:]
epochs = Epochs(CheckpointStore.at(store))
epochs.publish(DeltaSink(table), decode_manifest(open(manifest, "rb").read(), manifest))
"""


def test_a_driver_killed_between_commit_and_acknowledgement_leaves_every_row_once(
    epochs: Epochs, path: str, tmp_path: Path
) -> None:
    sink = DeltaSink(path)
    epochs.run(sink, [(0, "before")], 1, 4)
    committed = epochs.committed(epochs.staged(sink, [(1, "a")]) + epochs.staged(sink, [(1, "a"), (2, "b")]))
    manifest = tmp_path / "manifest.json"
    manifest.write_bytes(encode_manifest(committed))
    environment = os.environ | {"STATECORE_FAULTS": "sink_published@5", "STATECORE_FAULT_DIR": str(tmp_path)}
    store = epochs.store.files.url.removeprefix("file://")
    killed = subprocess.run([sys.executable, "-c", KILLED, store, str(manifest), path], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    expected = Counter([(0, "before"), (1, "a"), (1, "a"), (2, "b")])
    assert rows(path) == expected

    epochs.publish(sink, committed)
    assert rows(path) == expected
    epochs.run(sink, [(3, "c")], 1, 6)
    assert rows(path) == expected + Counter([(3, "c")])


class Overtaken(DeltaTable):
    """A table that another driver writes to after this one has looked."""

    meanwhile: Any = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        meanwhile, Overtaken.meanwhile = Overtaken.meanwhile, None
        if meanwhile is not None:
            meanwhile()


@pytest.mark.parametrize(
    ("next_epoch", "refused"), [(None, None), ((1, 6), "epoch 6 of lineage 1"), ((2, 5), "epoch 5")]
)
def test_a_zombie_that_commits_late_publishes_nothing(
    epochs: Epochs, path: str, monkeypatch: pytest.MonkeyPatch, next_epoch: tuple[int, int] | None, refused: str | None
) -> None:
    sink = DeltaSink(path)
    epochs.run(sink, [(0, "before")], 1, 4)
    committed = epochs.committed(epochs.staged(sink, [(1, "a")]))
    later = None if next_epoch is None else epochs.committed(epochs.staged(sink, [(2, "b")], *next_epoch), *next_epoch)
    expected = Counter([(0, "before"), (1, "a")])

    def successor() -> None:
        publisher = Epochs(epochs.store)
        sink.publish(publisher.of(sink, committed))
        if later is not None:
            sink.publish(publisher.of(sink, later))

    Overtaken.meanwhile = successor
    monkeypatch.setattr(delta, "DeltaTable", Overtaken)
    if refused is None:
        sink.publish(epochs.of(sink, committed))
    else:
        with pytest.raises(SinkError, match=rf"found {refused}.* already in the table .*let this one stop"):
            sink.publish(epochs.of(sink, committed))
        expected += Counter([(2, "b")])
    assert rows(path) == expected


def test_another_writer_of_the_table_only_delays_an_epoch(
    epochs: Epochs, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = DeltaSink(path)
    epochs.run(sink, [(0, "before")], 1, 4)
    committed = epochs.committed(epochs.staged(sink, [(1, "a")]))
    foreign = pa.table({"n": pa.array([7], pa.int32()), "k": ["another writer's"]})
    Overtaken.meanwhile = lambda: write_deltalake(path, foreign, mode="append")
    monkeypatch.setattr(delta, "DeltaTable", Overtaken)
    sink.publish(epochs.of(sink, committed))
    assert rows(path) == Counter([(0, "before"), (7, "another writer's"), (1, "a")])


def test_two_sinks_and_two_jobs_share_a_table(epochs: Epochs, path: str, tmp_path: Path) -> None:
    other = Epochs(CheckpointStore.at(str(tmp_path / "other")), job="returns")
    for publisher, name in [(epochs, "seen"), (epochs, "again"), (other, "seen")]:
        publisher.run(DeltaSink(path), [(1, publisher.job)], name=name)
    assert rows(path) == Counter({(1, "orders"): 2, (1, "returns"): 1})


@pytest.mark.parametrize(("lineage", "epoch", "found"), [(1, 4, "epoch 5"), (1, 5, "epoch 5 of lineage 1 with other")])
def test_an_earlier_epoch_and_the_same_one_with_other_rows_are_refused(
    epochs: Epochs, path: str, lineage: int, epoch: int, found: str
) -> None:
    sink = DeltaSink(path)
    epochs.run(sink, [(1, "a")])
    epochs.forget()
    with pytest.raises(SinkError, match=rf"found {found}.*'statecore/orders/seen'.*expected epoch {epoch}.*; if"):
        epochs.run(sink, [(9, "z")], lineage, epoch)
    assert rows(path) == Counter([(1, "a")])


def test_a_new_lineage_follows_whatever_its_epoch(epochs: Epochs, path: str) -> None:
    sink = DeltaSink(path)
    epochs.run(sink, [(1, "a")], 1, 900)
    epochs.run(sink, [(2, "b")], 7, 3)
    assert rows(path) == Counter([(1, "a"), (2, "b")])


EVERY_TYPE: Sequence[tuple[str, Any]] = [
    ("boolean", True), ("tinyint", -3), ("smallint", 4), ("int", 5), ("bigint", 2**60), ("float", 0.5),
    ("double", float("inf")), ("decimal(12,2)", Decimal("10.25")), ("string", "ß"), ("binary", b"\0x"),
    ("date", date(2026, 3, 2)), ("timestamp", datetime(2026, 3, 2, 9, tzinfo=UTC)),
    ("timestamp_ntz", datetime(2026, 3, 2, 9)), ("array<int>", [1, None]), ("map<string,bigint>", [("a", 1)]),
    ("struct<a:int,b:array<string>>", {"a": 1, "b": ["x"]}),
]  # fmt: skip


def test_every_type_arrives_as_it_was_put_out(epochs: Epochs, path: str) -> None:
    schema = ", ".join(f"c{index} {kind}" for index, (kind, _) in enumerate(EVERY_TYPE))
    row = tuple(dict(value) if kind.startswith("map") else value for kind, value in EVERY_TYPE)
    for epoch in (5, 6):
        epochs.run(DeltaSink(path), [row, (None,) * len(row)], 1, epoch, schema=schema)
    found = [list(each.values()) for each in DeltaTable(path).to_pyarrow_table().to_pylist()]
    expected = [[value for _, value in EVERY_TYPE], [None] * len(row)] * 2
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("schema", ["n int", "n int, k string, more int", "n bigint, k string", "k string, n int"])
def test_a_table_of_other_columns_is_refused_with_both(epochs: Epochs, path: str, schema: str) -> None:
    epochs.run(DeltaSink(path), [(1, "a")])
    row = {"n int": (1,), "n int, k string, more int": (1, "a", 2), "k string, n int": ("a", 1)}.get(schema, (1, "a"))
    with pytest.raises(SinkError, match=r"found the columns n int32, k string in the table .*; expected .*; alter"):
        epochs.run(DeltaSink(path), [row], 1, 6, schema=schema)
    assert rows(path) == Counter([(1, "a")])


def test_a_staged_file_that_is_gone_is_named_and_nothing_is_committed(epochs: Epochs, path: str) -> None:
    sink = DeltaSink(path)
    outputs = epochs.staged(sink, [(1, "a")]) + epochs.staged(sink, [(2, "b")])
    epochs.store.files.delete(outputs[1].file.path)
    with pytest.raises(MissingFileError, match=rf"unpublished rows of epoch 5 missing.*{outputs[1].file.path}"):
        epochs.publish(sink, epochs.committed(outputs))
    assert rows(path) == Counter()


def test_a_folder_that_cannot_be_written_is_refused_with_the_remedy(epochs: Epochs, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    sink = DeltaSink(tmp_path / "file" / "table")
    with pytest.raises(
        SinkError, match=r"found that DeltaSink\(.*\) refuses epoch 5 of sink 'seen'.*; restart|restart"
    ):
        epochs.run(sink, [(1, "a")])


def test_rows_are_staged_in_the_jobs_own_store(epochs: Epochs, path: str) -> None:
    (staged,) = staged_sinks([SinkBinding("seen", "", SCHEMA, DeltaSink(path))], epochs.store)
    assert staged.store.url == epochs.store.files.url
