"""A query as a job, played by hand: a catalog, checkpoints, drivers that die, and a sink that skips batches."""

from __future__ import annotations

import shutil
from pathlib import Path

from statecore.catalog import Catalog, JobRecord
from statecore.model.key_groups import MAX_KEY_GROUPS
from statecore.operations.kinds import kind_of
from statecore.queries.job.driver import resuming
from statecore.queries.job.new_checkpoint import is_copied, new_checkpoint
from statecore.queries.progress import quiet
from statecore.queries.reading.checkpoint import newest_batches, open_checkpoint
from statecore.queries.reading.origin import origin_of, write_origin
from statecore.storage import open_store
from statecore.testing import ManualClock
from tests.unit.queries.handmade import HDFS, Handmade, Operator, make, write_state

JOB = "totals"
TTL_MS = 60_000


class StuckError(AssertionError):
    """The sink has a batch whose state the checkpoint has never computed: Spark cannot load its state after it."""


class PlayedQuery:
    """A query with its catalog and its sink.

    The state after a batch is the list of the ids of all batches that were computed before, in the file of partition 0.
    The sink keeps what came first under each batch's number, as Delta, files and an idempotent ``foreachBatch`` do.

    Attributes:
        sink: The history that each batch was computed from.
        generation: The generation of the driver that runs; 0 without one.

    """

    def __init__(self, root: Path, catalog_url: str) -> None:
        self.root, self._url = root, catalog_url
        self.clock = ManualClock(1_000_000)
        self.catalog = Catalog(catalog_url, clock=self.clock)
        self.sink: dict[int, str] = {}
        self.generation = 0
        self._computed = self._copies = 0
        first = root / "own"
        make(first, Operator(), batches=1)
        self._compute(first, 0)
        self.catalog.jobs.register(
            JOB, artifact="/q.py", store=str(root / "store"), master_url="local", parallelism=2,
            max_parallelism=MAX_KEY_GROUPS, checkpoint=str(first),
        )  # fmt: skip
        self.catalog.jobs.set_desired(JOB, state="running")

    def reopen(self) -> None:
        """Open the catalog again, from a file that was replaced."""
        self.catalog = Catalog(self._url, clock=self.clock)

    @property
    def job(self) -> JobRecord:
        """The job as the catalog has it."""
        return self.catalog.jobs.get(JOB)

    def start(self) -> Path:
        """Launch a driver, which selects its checkpoint; return that."""
        newest = self.catalog.generations.newest(JOB)
        if newest is not None and not newest.ended:
            self.catalog.generations.end(JOB, newest.generation, state="failed", error="killed")
        self.generation = self.catalog.generations.claim(JOB, log_path="/l").generation
        copy, resuming._copy = resuming._copy, self._copy_back
        try:
            job = resuming.resumed(self.catalog, self.job, self.generation)
        finally:
            resuming._copy = copy
        assert job.checkpoint == self.job.checkpoint
        assert open_checkpoint(str(job.checkpoint)).partitions == job.parallelism
        return Path(str(job.checkpoint))

    def batch(self, checkpoint: Path, *, logs: bool = True, computes: bool = True, commits: bool = True) -> None:
        """Run the next batch of a checkpoint: log it, compute it and give it to the sink, commit it; or die before."""
        committed, logged = newest_batches(open_store(str(checkpoint)))
        assert committed is not None
        number = committed + 1
        if not logs:
            return
        if logged != number:
            text = (checkpoint / f"offsets/{committed}").read_bytes()
            Handmade(checkpoint, 0).write(f"offsets/{number}", text)
        if not computes:
            return
        state = _state(checkpoint, number)
        if number not in self.sink:
            self._compute(checkpoint, number)
            self.sink[number] = state.read_text()
        elif not state.exists():
            raise StuckError(f"batch {number} in {checkpoint}")
        if commits:
            assert state.read_text() == self.sink[number], "the state has another batch than the sink"
            text = (checkpoint / f"commits/{committed}").read_bytes()
            Handmade(checkpoint, 0).write(f"commits/{number}", text)

    def copied(self, source: str, target: str, partitions: int) -> None:
        """Copy a checkpoint to another number of state partitions, as a rescale does: with what an attempt has left."""
        checkpoint = open_checkpoint(source)
        if Path(target).exists():
            shutil.rmtree(target)
        made = make(
            Path(target), Operator(partitions=partitions), batches=checkpoint.batch + 1,
            pending=checkpoint.pending is not None,
        )  # fmt: skip
        for batch in range(checkpoint.batch + 1):
            made.write(_path(batch), _state(Path(source), batch).read_bytes())
        attempted = _state(Path(source), checkpoint.batch + 1)
        if checkpoint.pending is not None and attempted.exists():
            write_state(made, 0, Operator(partitions=partitions), checkpoint.batch + 2, HDFS)
            made.write(_path(checkpoint.batch + 1), attempted.read_bytes())
        write_origin(open_store(target), origin_of(checkpoint, partitions))

    def rescaled(self, partitions: int, *, until: str = "restart") -> str:
        """Rescale the stopped query in a run, up to a step; return the run's id.

        ``until`` is ``lease``, ``savepoint``, ``copy``, ``head`` or ``restart``.
        """
        self._copies += 1
        run_id = f"run-{self._copies}"
        self.catalog.leases.acquire(JOB, run_id, TTL_MS)
        self.catalog.runs.start(
            run_id, JOB, from_parallelism=self.job.parallelism, to_parallelism=partitions, method="rewrite"
        )
        if until == "lease":
            return run_id
        self.catalog.jobs.set_desired(JOB, state="stopped")
        pinned = kind_of(self.job).savepoints.pin(self.catalog, run_id, "a test", self.generation)
        self.catalog.runs.update(run_id, savepoint=pinned["savepoint"])
        if until == "savepoint":
            return run_id
        source, target = pinned["url"], new_checkpoint(self.job, f"{run_id}-p{partitions}")
        if not is_copied(source, target):
            self.copied(source, target, partitions)
        run = self.catalog.runs.update(run_id, rescaled=target)
        if until == "copy":
            return run_id
        fields = kind_of(self.job).restarting(run, self.generation, None)
        if until == "head":
            return run_id
        self.catalog.jobs.set_desired(JOB, state="running", parallelism=partitions, **fields)
        return run_id

    def finish(self, run_id: str) -> None:
        """End a run as done."""
        self.catalog.runs.finish(run_id)
        self.catalog.leases.release(JOB, run_id)

    def roll_back(self, run_id: str) -> None:
        """Roll a run back."""
        self.catalog.leases.roll_back(JOB, run_id, TTL_MS, "a test")
        self.catalog.runs.finish(run_id, error="a test")
        self.catalog.leases.release(JOB, run_id)

    def abandon(self) -> None:
        """Let the lease of a run expire whose process has died, and the supervisor recover it."""
        self.clock.advance(TTL_MS + 1)
        self.catalog.leases.recover_expired(JOB)

    def start_from(self, savepoint: str, *, roll_back: bool = False) -> None:
        """Have the stopped job begin from a savepoint, as ``statecore start --from`` does."""
        self._copies += 1
        name = f"from-{self._copies}"
        fields = kind_of(self.job).beginning(
            savepoint, name, self.generation, roll_back=roll_back, claim=False, skip_unpublished=False, report=quiet
        )
        self.catalog.jobs.set_desired(JOB, state="running", **fields)

    def _copy_back(self, job: JobRecord, source: str, target: str) -> None:
        self.copied(source, target, job.parallelism)

    def _compute(self, checkpoint: Path, number: int) -> None:
        """Compute a batch from the state before it."""
        self._computed += 1
        history = f"{_state(checkpoint, number - 1).read_text()} {self._computed}" if number else str(self._computed)
        operator = Operator(partitions=len(list((checkpoint / "state/0").glob("[0-9]*"))))
        write_state(Handmade(checkpoint, 0), 0, operator, number + 1, HDFS)
        Handmade(checkpoint, 0).write(_path(number), history)
        if number == 0:
            self.sink[0] = history


def _path(batch: int) -> str:
    return f"state/0/0/{batch + 1}.delta"


def _state(checkpoint: Path, batch: int) -> Path:
    return checkpoint / _path(batch)
