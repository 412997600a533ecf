"""Where sources begin that no epoch has read yet: as before, for the same job file and settings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from statecore.runtime.epoch.first_offsets import FirstOffsets
from statecore.runtime.epoch.progress import QuerySources
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import SourcePositions
from tests.support.handmade import manifest

SOURCES = QuerySources(("orders", "clicks"), ticks=False)
KAFKA = b'\0v1\n{"orders":{"0":7}}'
FILES = b'v1\n{"path":"a","timestamp":1,"batchId":0}'


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path / "store"))


def first_offsets(store: CheckpointStore, directory: Path, read: tuple[str, ...] = (), **settings: str) -> FirstOffsets:
    job: Any = SimpleNamespace(artifact="job.py", artifact_sha256="0" * 64, settings=settings)
    positions = tuple(SourcePositions(name=name, positions=()) for name in read)
    resumed = msgspec.structs.replace(manifest(), sources=positions) if read else None
    return FirstOffsets(store.files, job, directory, SOURCES, resumed)


def begin(directory: Path, source: int, content: bytes) -> None:
    path = directory / f"sources/{source}/0"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


def begins(directory: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in directory.glob("sources/*/0")}


def test_the_next_driver_begins_where_the_first_did(store: CheckpointStore, tmp_path: Path) -> None:
    begin(tmp_path / "1", 0, KAFKA)
    # What a file source has listed, it lists again.
    begin(tmp_path / "1", 1, FILES)
    first_offsets(store, tmp_path / "1").keep()
    first_offsets(store, tmp_path / "2").lay_down()
    assert begins(tmp_path / "2") == {"0": KAFKA}


def test_of_two_drivers_the_first_decides(store: CheckpointStore, tmp_path: Path) -> None:
    for number, content in enumerate((KAFKA, KAFKA.replace(b"7", b"9"))):
        begin(tmp_path / str(number), 0, content)
        first_offsets(store, tmp_path / str(number)).keep()
    first_offsets(store, tmp_path / "next").lay_down()
    assert begins(tmp_path / "next") == {"0": KAFKA}


def test_with_other_settings_a_source_begins_anew(store: CheckpointStore, tmp_path: Path) -> None:
    begin(tmp_path / "1", 0, KAFKA)
    first_offsets(store, tmp_path / "1").keep()
    first_offsets(store, tmp_path / "2", topic="another").lay_down()
    assert begins(tmp_path / "2") == {}


def test_a_source_that_an_epoch_has_read_is_left_to_its_manifest(store: CheckpointStore, tmp_path: Path) -> None:
    for number, source in enumerate(("orders", "clicks")):
        begin(tmp_path / "1", number, KAFKA + source.encode())
    first_offsets(store, tmp_path / "1").keep()
    first_offsets(store, tmp_path / "2", read=("orders",)).lay_down()
    assert begins(tmp_path / "2") == {"1": KAFKA + b"clicks"}
