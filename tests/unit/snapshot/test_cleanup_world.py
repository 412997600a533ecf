"""Clean-ups among everything that happens to a job, at random."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.model import key_group_range
from statecore.snapshot.checkpoints import CheckpointStore, epoch_of
from statecore.snapshot.claims import claimed
from statecore.snapshot.cleanup import CleanUp
from statecore.snapshot.compaction import Merge, Merged, carry_out, with_merged
from statecore.snapshot.manifest import (
    FileKind,
    KeyedFile,
    Manifest,
    ProgressFile,
    StagedOutput,
    SubtaskState,
)
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.savepoints import drop_savepoint
from tests.support.examples import examples
from tests.support.handmade import MAX_PARALLELISM, keyed_file, manifest, operator, operator_file
from tests.unit.snapshot.cleaning import (
    age,
    assert_whole,
    copied,
    listing,
    named_by,
    ref,
)

MINUTE = 60_000
GRACE = 60 * MINUTE


class World:
    """A job that runs, is asked for savepoints, is rolled back and rescaled, and whose store is cleaned up.

    Attributes:
        now_ms: The time, also of files as they are written.
        newest: What the job goes on from.
        in_flight: Files of the epoch that is not committed yet.
        merged: Merges that are carried out and that no manifest names yet.

    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = CheckpointStore.at(str(root))
        self.now_ms = 100 * GRACE
        self.newest = manifest(epoch=-1)
        self.next_lineage = 1
        self.in_flight: tuple[KeyedFile, ...] = ()
        self.merged: list[Merged] = []
        self.claims: list[ExitStack] = []
        self.number = 0
        # One that goes on for as long as the job, and so remembers.
        self.clean_ups = CleanUp(self.store, retained=2)
        self.do("commit", 0)

    def do(self, what: str, choice: int) -> None:
        before = {path: modified_ms(self.root / path) for path in listing(self.root)}
        getattr(self, what)(*([choice] if what in CHOOSING else []))
        after = listing(self.root)
        self.stand_ins = {minute_of(path, before[path]) for path in before.keys() & after if is_checkpoint(path)}
        for path in after:
            if before.get(path) != modified_ms(self.root / path):
                age(self.root, self.now_ms, path)
        for path in before.keys() - after:
            self.check_removal(what, path, before[path])
        assert_whole(self.store)

    def check_removal(self, what: str, path: str, modified: int) -> None:
        assert what in ("clean_up", "late_clean_up", "drop", "release"), f"{what} removed {path}"
        if what.endswith("clean_up"):
            # A checkpoint that is young may go if another one of its lineage and minute stays.
            thinned_out = is_checkpoint(path) and minute_of(path, modified) in self.stand_ins
            assert modified < self.now_ms - GRACE or thinned_out, f"{path} was young"
            assert path not in {item.file.path for item in self.in_flight}
            assert path not in {each.output.file.path for each in self.merged}

    def begin(self) -> None:
        """Write the files of the next epoch; those of an attempt before are lost."""
        self.number += 1
        folder = f"state/totals/{self.next_lineage:06d}-{self.newest.epoch + 1:012d}"
        token = f"a{self.number}"
        made = []
        for index in range(self.newest.parallelism):
            own = key_groups_of(self.newest, index)
            path = f"{folder}/{index:05d}-{token}-total.arrow"
            made.append(keyed_file(self.store, path, {own[0]: self.number}, own, kind=FileKind.CHANGELOG, token=token))
        self.in_flight = tuple(made)

    def commit(self) -> None:
        if not self.in_flight:
            self.begin()
        self.number += 1
        epoch, lineage = self.newest.epoch + 1, self.next_lineage
        subtasks = []
        for index, (before, written) in enumerate(zip(self.newest.operators[0].subtasks, self.in_flight, strict=True)):
            merged = [each for each in self.merged if each.merge.subtask == index]
            elements = before.operator
            if self.number % 3 == 0:
                path = f"state/totals/{lineage:06d}-{epoch:012d}/{index:05d}-o{self.number}-operator-waiting.arrow"
                elements = (operator_file(self.store, path, [1, 2]),)
            subtasks.append(SubtaskState(keyed=(*with_merged(before.keyed, merged), written), operator=elements))
        progress = [item for item in self.newest.progress if item.name == "metadata"] or [
            ProgressFile(name="metadata", file=ref(self.store, f"progress/000001/{lineage:06d}-{epoch:012d}-metadata"))
        ]
        offsets = ref(self.store, f"progress/{self.number:06d}/{lineage:06d}-{epoch:012d}-offsets-{epoch}")
        staged = ref(self.store, f"_staged/{lineage}-{epoch}-alerts-00000-s{self.number}.parquet")
        self.newest = manifest(
            lineage=lineage, epoch=epoch, parallelism=len(subtasks), operators=(operator(subtasks),),
            progress=(*progress, ProgressFile(name=f"offsets/{epoch}", file=offsets)),
            outputs=(StagedOutput(sink="alerts", file=staged, rows=1),),
            artifact=self.store.keep_artifact("job.py", f"program {self.number // 8}".encode()),
        )  # fmt: skip
        self.store.commit(self.newest)
        self.clean_ups.committed(self.newest)
        self.in_flight, self.merged = (), []

    def merge(self, choice: int) -> None:
        index = choice % self.newest.parallelism
        files = self.newest.operators[0].subtasks[index].keyed
        own = key_groups_of(self.newest, index)
        if len(files) < 2 or files[-1].key_groups != own:
            return
        of_job = self.newest.operators[0]
        tail = files[-2:]
        changelogs = all(item.kind is FileKind.CHANGELOG and item.key_groups == own for item in tail)
        kind = FileKind.CHANGELOG if changelogs and choice % 2 else FileKind.BASE
        due = Merge(
            uid=of_job.uid, subtask=index, state=of_job.states[0], key_fields=of_job.key_fields, key_groups=own,
            max_parallelism=MAX_PARALLELISM, inputs=tail if kind is FileKind.CHANGELOG else files, kind=kind, now_ms=0,
        )  # fmt: skip
        folder = f"state/totals/{self.newest.lineage:06d}-{self.newest.epoch:012d}"
        self.merged.append(carry_out(self.store, due, folder))

    def savepoint(self) -> None:
        self.number += 1
        self.store.write_savepoint(self.newest, f"sp{self.number}", reason="", now_ms=0)

    def copy(self) -> None:
        self.number += 1
        copied(self.store, self.newest, f"copy{self.number}")

    def drop(self, choice: int) -> None:
        there = self.unclaimed()
        if there:
            drop_savepoint(self.store, there[choice % len(there)])

    def unclaimed(self) -> list[str]:
        return [path for path in self.store.savepoints() if path not in self.store.claimed()]

    def claim(self, choice: int) -> None:
        there = [*self.store.savepoints(), *(entry.path for entry in self.store.checkpoints())]
        stack = ExitStack()
        stack.enter_context(claimed(self.store.files, there[choice % len(there)], "somebody"))
        self.claims.append(stack)

    def release(self) -> None:
        if self.claims:
            self.claims.pop(0).close()

    def roll_back(self, choice: int) -> None:
        """Go on from a savepoint in a new lineage, as a new generation does."""
        there = [self.store.manifest(path) for path in self.store.savepoints()]
        asked = [each for each in there if each.root != "."]
        if asked:
            self.next_generation(asked[choice % len(asked)], len(asked[0].operators[0].subtasks))
            self.next_lineage = max(lineage for lineage, _ in self.store.committed()) + 1
            # The savepoint is claimed until this is done.
            self.commit()

    def rescale(self, choice: int) -> None:
        self.next_generation(self.newest, choice % 3 + 1)
        self.commit()

    def next_generation(self, made: Manifest, parallelism: int) -> None:
        self.newest = rescale_by_reference(made, parallelism)
        self.in_flight, self.merged = (), []

    def tick(self, choice: int) -> None:
        self.now_ms += [5 * MINUTE, 40 * MINUTE, 90 * MINUTE][choice % 3]

    def clean_up(self, choice: int) -> None:
        self._clean_up(self.store.committed()[-1], choice, {each.output.file.path for each in self.merged})

    def late_clean_up(self, choice: int) -> None:
        """Another driver cleans up, which woke up after its successor committed."""
        committed = self.store.committed()
        if len(committed) > 1:
            self._clean_up(committed[choice % (len(committed) - 1)], choice, set())

    def _clean_up(self, newest: tuple[int, int], choice: int, keep: set[str]) -> None:
        clean_ups = self.clean_ups if choice % 2 else CleanUp(self.store, retained=choice % 3 + 1)
        if choice % 4 == 1:
            clean_ups.thin_out(before_ms=self.now_ms - GRACE)
        clean_ups.run(newest=newest, before_ms=self.now_ms - GRACE, keep=keep)

    def end(self) -> None:
        """Let go of everything but the newest epoch."""
        while self.claims:
            self.release()
        for path in self.store.savepoints():
            drop_savepoint(self.store, path)
        self.in_flight, self.merged = (), []
        self.now_ms += 2 * GRACE
        self._clean_up((self.next_lineage, self.newest.epoch + 1), 0, set())


CHOOSING = ("merge", "drop", "claim", "roll_back", "rescale", "tick", "clean_up", "late_clean_up")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["begin", *["commit"] * 4, *["merge"] * 2, "savepoint", "copy", "drop", "claim", "release", "roll_back",
             "rescale", *["tick"] * 3, *["clean_up"] * 3, "late_clean_up"]
        ),
        st.integers(0, 11),
    ),
    min_size=20,
    max_size=40,
)  # fmt: skip


def is_checkpoint(path: str) -> bool:
    return path.startswith("manifests/")


def minute_of(path: str, modified_ms: int) -> tuple[int, int]:
    return epoch_of(path)[0], modified_ms // MINUTE


def modified_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000


def key_groups_of(made: Manifest, index: int) -> tuple[int, int]:
    own = key_group_range(made.max_parallelism, made.parallelism, index)
    return own.start, own.end


@examples(25)
@given(STEPS)
def test_whatever_happens_every_manifest_has_its_files_and_in_the_end_nothing_else_is_left(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    world = World(tmp_path_factory.mktemp("world"))
    for what, choice in steps:
        world.do(what, choice)
    world.end()
    assert listing(world.root) == {
        *named_by(world.newest),
        world.store.manifest_path(world.newest.lineage, world.newest.epoch),
    }
