"""Stores to clean up, and what tests ask of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.cleanup import CleanUp, Removed
from statecore.snapshot.manifest import (
    Artifact,
    FileKind,
    FileRef,
    KeyedFile,
    Manifest,
    ProgressFile,
    SavepointInfo,
    StagedOutput,
    SubtaskState,
    encode_manifest,
)
from statecore.storage import LocalFileStore
from tests.support.handmade import MAX_PARALLELISM, manifest, operator

ALL = (0, MAX_PARALLELISM - 1)
OLD, BEFORE, YOUNG = 1_000_000, 2_000_000, 2_000_001


def ref(store: CheckpointStore, path: str) -> FileRef:
    return store.write_file(path, f"content of {path}".encode())


def changelog(store: CheckpointStore, epoch: int, lineage: int = 1) -> KeyedFile:
    path = f"state/totals/{lineage:06d}-{epoch:012d}/00000-t{lineage}e{epoch}-total.arrow"
    return KeyedFile(
        file=ref(store, path), state="total", kind=FileKind.CHANGELOG, token=f"t{epoch}", key_groups=ALL, rows=1
    )


def checkpoint(
    store: CheckpointStore, epoch: int, before: Sequence[KeyedFile] = (), *, lineage: int = 1, **changes: Any
) -> Manifest:
    """Commit an epoch with a changelog, a staged output, Spark's bookkeeping and the job file."""
    staged = f"_staged/{lineage}-{epoch}-alerts-00000-t.parquet"
    offsets = ref(store, f"progress/000001/{lineage:06d}-{epoch:012d}-offsets-{epoch}")
    made = manifest(
        lineage=lineage,
        epoch=epoch,
        operators=(operator([SubtaskState(keyed=(*before, changelog(store, epoch, lineage)))]),),
        outputs=(StagedOutput(sink="alerts", file=ref(store, staged), rows=1),),
        progress=(ProgressFile(name=f"offsets/{epoch}", file=offsets),),
        artifact=Artifact(name="job.py", file=ref(store, "artifacts/abc/job.py")),
        **changes,
    )
    store.commit(made)
    return made


def keyed(made: Manifest) -> tuple[KeyedFile, ...]:
    return made.operators[0].subtasks[0].keyed


def age(root: Path, modified_ms: int, *paths: str) -> None:
    """Let files, or all there are, be as old as that."""
    for path in [root / path for path in paths] or [path for path in root.rglob("*") if path.is_file()]:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


def listing(root: Path) -> set[str]:
    return {f"{folder}/{name}".removeprefix(f"{root}/") for folder, _, names in os.walk(root) for name in names}


def clean(
    store: CheckpointStore,
    newest: tuple[int, int] | None = None,
    retained: int = 1,
    before_ms: int = BEFORE,
    keep: Sequence[str] = (),
    on_delete: Callable[[], None] = lambda: None,
) -> Removed:
    """Clean up; ``on_delete`` is called before each file that is deleted, also within a batch."""
    newest = newest or store.committed()[-1]
    watched = CheckpointStore(OneByOne(store.files.url, on_delete))
    return CleanUp(watched, retained=retained).run(newest=newest, before_ms=before_ms, keep=keep)


class OneByOne(LocalFileStore):
    """A kill may come between any two files of a batch."""

    def __init__(self, root: str, on_delete: Callable[[], None]) -> None:
        super().__init__(root)
        self._on_delete = on_delete

    def delete_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._on_delete()
            super().delete_all([path])


def assert_whole(store: CheckpointStore) -> None:
    """Check that every file that any manifest names is there, and whole."""
    whole: set[tuple[str, FileRef]] = set()
    for path in [*(entry.path for entry in store.checkpoints()), *store.savepoints()]:
        at, _, found = store.open(path)
        outputs = [output.file for output in found.outputs] if found.savepoint is None else []
        # Most are shared, and read once.
        needed = {(at.files.url, each) for each in [*found.files(), *outputs]} - whole
        for _, each in needed:
            at.read_file(each)
        whole |= needed


def named_by(made: Manifest) -> set[str]:
    return {each.path for each in [*made.files(), *(output.file for output in made.outputs)]}


def copied(store: CheckpointStore, made: Manifest, name: str) -> str:
    """Make a self-contained savepoint as ``copy_savepoint`` does; return its folder."""
    folder = f"savepoints/{name}"
    for each in made.files():
        store.files.write(f"{folder}/{each.path}", store.read_file(each))
    info = SavepointInfo(name=name, reason="", created_ms=0)
    contained = msgspec.structs.replace(made, root=".", savepoint=info, outputs=())
    store.files.write(f"{folder}/manifest.json", encode_manifest(contained))
    return folder
