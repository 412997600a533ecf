"""Whatever happens to a query as a job, each batch that its sink has was computed once, from one history."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from statecore.catalog import Catalog
from statecore.errors import CheckpointError, LeaseHeldError, MissingFileError, UnknownRecordError
from tests.support.examples import examples
from tests.unit.queries.job.played_query import JOB, PlayedQuery

UNTIL = ("lease", "savepoint", "copy", "head", "restart")


class Life(RuleBasedStateMachine):
    """A query whose drivers, shells and machines die, whose runs are rolled back, and whose catalog is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.query: PlayedQuery
        self.checkpoint: Path | None = None
        self.lost: Path | None = None
        self.run: str | None = None

    @initialize()
    def begin(self) -> None:
        shutil.copy(_empty_catalog(), self.root / "catalog.db")
        self.query = PlayedQuery(self.root, f"sqlite:///{self.root}/catalog.db")
        self.savepoints: list[str] = []
        self.backup()

    @rule()
    def starts(self) -> None:
        """The supervisor starts a driver; an earlier one of this host is dead then."""
        if self.query.job.desired_state == "running":
            self.checkpoint, self.lost = self.query.start(), None

    @rule(dies=st.sampled_from(["no", "logged", "computed"]))
    def runs_a_batch(self, dies: str) -> None:
        if self.checkpoint is not None:
            self.query.batch(self.checkpoint, computes=dies != "logged", commits=dies == "no")
            if dies != "no":
                self.checkpoint = None

    @rule()
    def is_lost(self) -> None:
        """The driver sends no heartbeat any more, and may commit another batch."""
        if self.checkpoint is not None:
            self.checkpoint, self.lost = None, self.checkpoint

    @rule()
    def commits_late(self) -> None:
        if self.lost is not None:
            self.query.batch(self.lost)
            self.lost = None

    @rule(partitions=st.integers(1, 5), until=st.sampled_from(UNTIL))
    def is_rescaled(self, partitions: int, until: str) -> None:
        self.checkpoint = None
        with suppress(LeaseHeldError, MissingFileError):
            self.run = self.query.rescaled(partitions, until=until)
            run = self.query.catalog.runs.get(self.run)
            if run.savepoint is not None:
                self.savepoints.append(f"{self.query.job.store}/{run.savepoint}")

    @rule()
    def is_done(self) -> None:
        if self.run is not None and self.query.job.desired_state == "running":
            with suppress(UnknownRecordError):
                self.query.finish(self.run)
            self.run = None

    @rule()
    def is_rolled_back(self) -> None:
        if self.run is not None:
            self.checkpoint = None
            with suppress(UnknownRecordError, LeaseHeldError):
                self.query.roll_back(self.run)
            self.run = None

    @rule()
    def is_abandoned(self) -> None:
        self.checkpoint = None
        self.query.abandon()

    @rule(which=st.integers(0, 9))
    def begins_elsewhere(self, which: int) -> None:
        if self.savepoints and self.query.catalog.leases.find(JOB) is None:
            self.checkpoint = None
            self.query.catalog.jobs.set_desired(JOB, state="stopped")
            with suppress(CheckpointError):
                self.query.start_from(self.savepoints[which % len(self.savepoints)])
            self.query.catalog.jobs.set_desired(JOB, state="running")

    @rule()
    def backup(self) -> None:
        with (
            closing(sqlite3.connect(self.root / "catalog.db")) as now,
            closing(sqlite3.connect(self.root / "backup.db")) as kept,
        ):
            now.backup(kept)

    @rule()
    def loses_its_catalog(self) -> None:
        self.query.catalog.close()
        for file in self.root.glob("catalog.db*"):
            file.unlink()
        shutil.copy(self.root / "backup.db", self.root / "catalog.db")
        self.query.reopen()
        self.checkpoint = self.run = None

    @invariant()
    def every_batch_is_of_one_history(self) -> None:
        histories = [self.query.sink[batch].split() for batch in sorted(self.query.sink)]
        assert sorted(self.query.sink) == list(range(len(self.query.sink)))
        for shorter, longer in pairwise(histories):
            assert longer[:-1] == shorter

    def teardown(self) -> None:
        self.query.catalog.close()
        shutil.rmtree(self.root)


@cache
def _empty_catalog() -> Path:
    file = Path(tempfile.mkdtemp()) / "catalog.db"
    with Catalog(f"sqlite:///{file}") as catalog:
        catalog.create_schema()
    return file


def test_every_batch_that_a_sink_has_was_computed_once_from_one_history() -> None:
    short = settings(examples(), max_examples=30, derandomize=True, database=None, stateful_step_count=25)
    run_state_machine_as_test(Life, settings=short)


@pytest.mark.nightly
def test_it_was_so_in_a_thousand_lives() -> None:
    run_state_machine_as_test(Life, settings=settings(examples(1_000), stateful_step_count=25))
