"""Changelogs that are sizes alone, and merges of files, for the tests of compaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from statecore.snapshot.compaction import Merge
from statecore.snapshot.manifest import (
    FieldRef,
    FileKind,
    FileRef,
    KeyedFile,
    StateSchema,
)
from tests.support.handmade import MAX_PARALLELISM, STATES

ALL = (0, MAX_PARALLELISM - 1)
KIB, MIB = 1024, 1024 * 1024


def changelog(name: str, size: int, groups: tuple[int, int] = ALL, kind: FileKind = FileKind.CHANGELOG) -> KeyedFile:
    file = FileRef(path=name, size=size, sha256="0" * 64)
    return KeyedFile(file=file, state="total", kind=kind, token=name, key_groups=groups, rows=1)


def changelogs(*sizes: int) -> list[KeyedFile]:
    return [changelog(f"c{number}", size) for number, size in enumerate(sizes)]


def named(files: Iterable[KeyedFile]) -> list[str]:
    return [item.token for item in files]


def merge(
    inputs: Sequence[KeyedFile],
    kind: FileKind = FileKind.CHANGELOG,
    *,
    state: StateSchema = STATES[0],
    subtask: int = 0,
    key_groups: tuple[int, int] = ALL,
    now_ms: int = 0,
) -> Merge:
    return Merge(
        uid="totals", subtask=subtask, state=state, key_fields=(FieldRef(name="k", type="string"),),
        key_groups=key_groups, max_parallelism=MAX_PARALLELISM, inputs=tuple(inputs), kind=kind, now_ms=now_ms,
    )  # fmt: skip
