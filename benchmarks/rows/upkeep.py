"""Cost that must not grow with the number of subtasks: the driver's upkeep of checkpoints and files.

An hour of history is made without Spark: manifests in memory, files of a few bytes where a clean-up finds them. What
runs is the driver's own code: the choice of due merges after each epoch, checkpoints thinned out every minute, and a
clean-up every quarter of the grace period. Merges themselves are Spark jobs, and are not measured.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.harness import Bench, Figure, median_ratio
from statecore.model import StateKind, key_group_range
from statecore.runtime.driver.upkeep import pause_s
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.cleanup import CleanUp, Removed
from statecore.snapshot.compaction import Merge, Merged, due_merges, with_merged
from statecore.snapshot.manifest import (
    WRITER,
    FieldRef,
    FileKind,
    FileRef,
    KeyedFile,
    Manifest,
    OperatorState,
    ProgressFile,
    StateSchema,
    SubtaskState,
    encode_manifest,
)
from statecore.snapshot.settings import DriverSettings
from statecore.storage import LocalFileStore

FEW, MANY = 2, 200
MAX_PARALLELISM = 256
STATES = ("count", "total", "last")
HISTORY, WINDOW = 3600, 900
_THIN_OUT_EPOCHS = 60
_ROUNDS = 3
# A changelog of a thousand rows; and a base, which the changelogs of a few minutes outweigh.
_CHANGELOG_BYTES, _BASE_BYTES = 20_000, 5_000_000
_CHECKSUM, _UID = "0" * 64, "totals"

T = TypeVar("T")


def upkeep(bench: Bench) -> list[Figure]:
    """Measure the driver's time for the upkeep of an epoch, with many subtasks and with few."""
    with bench.workspace("upkeep") as folder:
        sides = {f"{subtasks} subtasks": History(folder / str(subtasks), subtasks) for subtasks in (FEW, MANY)}
        for name, history in sides.items():
            bench.say(f"making an hour of epochs of {name}")
            history.advance(HISTORY)
        taken = bench.rounds(
            {name: history.upkeep_ms for name, history in sides.items()}, unit="ms an epoch", rounds=_ROUNDS, warm_up=0
        )
    few, many = taken.values()
    note = "\n".join(f"{name}: {history.note}" for name, history in sides.items())
    return [Figure("upkeep_growth", median_ratio(many, few), _ms(many), _ms(few), note)]


def _ms(figures: list[float]) -> str:
    return f"{sorted(figures)[len(figures) // 2]:.2f} ms"


class History:
    """A job with an epoch a second, and its store.

    Args:
        folder: For the store.
        subtasks: The job's parallelism.
        settings: How much it keeps.

    Attributes:
        note: What the last measurement consists of.

    """

    def __init__(self, folder: Path, subtasks: int, settings: DriverSettings | None = None) -> None:
        self.note = ""
        self._settings = settings or DriverSettings()
        self._folder = folder
        self.store = CheckpointStore(LocalFileStore(folder))
        self._clean_up = CleanUp(self.store, retained=self._settings.retained_checkpoints)
        self._subtasks = [SubtaskState()] * subtasks
        self._manifest: Manifest | None = None
        # Per subtask; and the files of the merges after each epoch.
        self._merged: dict[int, list[Merged]] = defaultdict(list)
        self._outputs: dict[int, list[str]] = defaultdict(list)
        self._epoch = -1
        self._next_look = 0.0
        self._written = 0
        for path in ("manifests", "progress/000001"):
            (folder / path).mkdir(parents=True)
        self._seconds: dict[str, float] = defaultdict(float)

    def advance(self, epochs: int) -> None:
        """Commit epochs, with the upkeep that follows each."""
        for _ in range(epochs):
            made = self._commit()
            self._timed("checkpoints", partial(self._clean_up.committed, made))
            if self._epoch >= self._next_look:
                self._look(made)
            if self._epoch % _THIN_OUT_EPOCHS == 0:
                self._timed("checkpoints", lambda: self._clean_up.thin_out(before_ms=self._before_ms()))

    def _look(self, made: Manifest) -> None:
        before_s = self._seconds["merges"]
        floor = self._settings.base_floor_bytes
        for merge in self._timed("merges", partial(due_merges, made, base_floor_bytes=floor)):
            self._merge(merge)
        self._next_look = self._epoch + pause_s(self._seconds["merges"] - before_s)

    def clean_up(self) -> Removed:
        """Clean up after the newest epoch."""
        self._write_old_files()
        newest = (1, self._epoch)
        return self._timed("files", lambda: self._clean_up.run(newest=newest, before_ms=self._before_ms()))

    def upkeep_ms(self) -> float:
        """Return the driver's time for the upkeep of an epoch: of all epochs between two clean-ups, and of one."""
        self._seconds.clear()
        self.advance(WINDOW)
        removed = self.clean_up()
        assert self._manifest is not None
        ms = {what: seconds * 1000 / WINDOW for what, seconds in self._seconds.items()}
        parts = ", ".join(f"{what} {each:.3f} ms" for what, each in ms.items())
        size = len(encode_manifest(self._manifest)) / 1e6
        self.note = f"{parts}; a manifest has {size:.1f} MB, a clean-up removed {removed.files:,} files"
        return sum(ms.values())

    def _timed(self, what: str, action: Callable[[], T]) -> T:
        started = time.perf_counter()
        result = action()
        self._seconds[what] += time.perf_counter() - started
        return result

    def _before_ms(self) -> int:
        return _time_ms(self._epoch) - int(self._settings.clean_up_grace.total_seconds() * 1000)

    def _commit(self) -> Manifest:
        """Commit an epoch in which every state of every subtask changes."""
        self._epoch += 1
        self._subtasks = [
            SubtaskState(
                keyed=(
                    *with_merged(before.keyed, self._merged[index]),
                    *(self._changelog(index, state) for state in STATES),
                )
            )
            for index, before in enumerate(self._subtasks)
        ]
        self._merged.clear()
        self._manifest = made = _manifest(self._epoch, self._subtasks)
        (self._folder / _folder(self._epoch)).mkdir(parents=True)
        # A driver never reads its own manifests.
        self._write(self.store.manifest_path(1, self._epoch), self._epoch)
        for name in ("offsets", "commits"):
            self._write(f"progress/000001/000001-{self._epoch:012d}-{name}-{self._epoch}", self._epoch)
        return made

    def _changelog(self, index: int, state: str) -> KeyedFile:
        return KeyedFile(
            file=FileRef(path=_path(self._epoch, index, state), size=_CHANGELOG_BYTES, sha256=_CHECKSUM),
            state=state,
            kind=FileKind.CHANGELOG,
            token=_token(self._epoch, index),
            key_groups=self._key_groups(index),
            rows=1000,
        )

    def _key_groups(self, index: int) -> tuple[int, int]:
        own = key_group_range(MAX_PARALLELISM, len(self._subtasks), index)
        return own.start, own.end

    def _merge(self, merge: Merge) -> None:
        """Have the next epoch name the result of a merge."""
        suffix = "parquet" if merge.kind is FileKind.BASE else "arrow"
        path = f"{_folder(self._epoch)}/{merge.subtask:05d}-{uuid.uuid4().hex}-{merge.state.name}.{suffix}"
        size = sum(item.file.size for item in merge.inputs)
        output = msgspec.structs.replace(
            merge.inputs[-1],
            file=FileRef(path=path, size=min(size, _BASE_BYTES), sha256=_CHECKSUM),
            kind=merge.kind,
        )
        self._merged[merge.subtask].append(Merged(merge=merge, output=output))
        self._outputs[self._epoch].append(path)

    def _write_old_files(self) -> None:
        """Write the state files that the next clean-up finds old; younger ones it does not look at."""
        while _time_ms(self._written) < self._before_ms():
            epoch = self._written
            paths = [_path(epoch, index, state) for index in range(len(self._subtasks)) for state in STATES]
            for path in (*paths, *self._outputs.pop(epoch, ())):
                self._write(path, epoch)
            self._written += 1

    def _write(self, path: str, epoch: int) -> None:
        with (self._folder / path).open("xb") as file:
            os.utime(file.fileno(), ns=(_time_ms(epoch) * 1_000_000,) * 2)


def _time_ms(epoch: int) -> int:
    return (1_700_000_000 + epoch) * 1000


def _folder(epoch: int) -> str:
    return f"state/{_UID}/000001-{epoch:012d}"


def _token(epoch: int, index: int) -> str:
    return f"{epoch:016x}{index:016x}"


def _path(epoch: int, index: int, state: str) -> str:
    return f"{_folder(epoch)}/{index:05d}-{_token(epoch, index)}-{state}.arrow"


def _manifest(epoch: int, subtasks: Sequence[SubtaskState]) -> Manifest:
    schemas = tuple(StateSchema(name=name, scope="keyed", kind=StateKind.VALUE, type="bigint") for name in STATES)
    key_fields = (FieldRef(name="k", type="string"),)
    progress = tuple(
        ProgressFile(
            name=f"{name}/{epoch}",
            file=FileRef(path=f"progress/000001/000001-{epoch:012d}-{name}-{epoch}", size=1, sha256=_CHECKSUM),
        )
        for name in ("offsets", "commits")
    )
    return Manifest(
        writer=WRITER,
        job="upkeep",
        lineage=1,
        epoch=epoch,
        generation=1,
        root="..",
        parent=None,
        parallelism=len(subtasks),
        max_parallelism=MAX_PARALLELISM,
        batch_timestamp_ms=_time_ms(epoch),
        committed_ms=_time_ms(epoch),
        rows=1000,
        rows_total=1000 * (epoch + 1),
        operators=(OperatorState(uid=_UID, key_fields=key_fields, states=schemas, subtasks=tuple(subtasks)),),
        outputs=(),
        progress=progress,
    )
