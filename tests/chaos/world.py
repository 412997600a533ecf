"""The job and all that it stands on: processes, storage, input; and what can be seen of it from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import boto3
import pyarrow as pa
import pyarrow.parquet as pq

from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from tests.chaos import job
from tests.chaos.alone import SINKS, Fed, Record, Rule, read_so_far
from tests.chaos.clocks import has_clocks, make_clock
from tests.chaos.lineages import ForkError, Lineages, RollBack
from tests.chaos.network import network_to
from tests.chaos.processes import JOB, ChaosError, Processes, is_published, until
from tests.chaos.truth import MAX_PARALLELISM, Kept, Verdict, judge
from tests.support.postgres import Replicated
from tests.support.shell import Done, run

DRIVER = Path(__file__).with_name("driver.py")


class World(Processes):
    """One job in an unquiet world, from its first to its last process.

    Args:
        folder: Of its own, for everything that is no process.
        endpoint: Of the S3 server; the environment of this process leads boto3 there.
        seed: Of the input.
        postgres: Servers for the catalog; without them it is a SQLite file.

    """

    def __init__(self, folder: Path, endpoint: str, seed: int, postgres: Replicated | None = None) -> None:
        self.database = "" if postgres is None else postgres.primary.create_database()
        url = f"sqlite:///{folder}/catalog.db" if postgres is None else postgres.url(self.database)
        super().__init__(folder, url, DRIVER)
        self.postgres = postgres
        self.fed = Fed([], [])
        self.lineages = Lineages()
        self.kept: list[str] = []
        self._noted = 0
        self._seed = seed
        self._stack = ExitStack()
        for name in ("input/records", "input/rules"):
            (folder / name).mkdir(parents=True)
        bucket = f"chaos-{self._mark}"
        boto3.session.Session().client("s3", endpoint_url=endpoint).create_bucket(Bucket=bucket)
        self._bucket = f"s3://{bucket}"
        self.store = CheckpointStore.at(f"{self._bucket}/store")
        self.sinks = {
            name: f"{folder}/output/{name}" if name in ("tallied", "late") else f"{self._bucket}/output/{name}"
            for name in SINKS
        }
        self.network = self._stack.enter_context(network_to(endpoint))
        if has_clocks():
            make_clock(folder)

    def __enter__(self) -> World:
        self.catalog.create_schema()
        return self

    def __exit__(self, *_: object) -> None:
        self.end_processes()
        self.catalog.close()
        self._stack.close()

    def variables(self) -> Mapping[str, str]:
        """Lead the job's processes to the storage through the network."""
        return {"AWS_ENDPOINT_URL": self.network.url}

    # What the job is given.

    def feed(self, files: int = 1) -> None:
        """Give the job files of records, each of which becomes an epoch, and now and then rules."""
        for _ in range(files):
            index = len(self.fed.records)
            random = Random(f"{self._seed}-input-{index}")
            if index == 0 or random.random() < 0.4:
                self._feed_rules(random)
            first = index * 20
            numbers = [first + random.randrange(40) for _ in range(random.randint(20, 60))]
            numbers += [random.randrange(first + 1) for _ in range(random.randint(0, 6))]
            records = [Record(f"k{n * 7 % 23}", n, datetime.fromtimestamp(n, UTC)) for n in numbers]
            at = pa.array([record.at for record in records], pa.timestamp("us", "UTC"))
            n = pa.array(numbers, pa.int64())
            self._feed("records", index, pa.table({"k": [record.k for record in records], "n": n, "at": at}))
            self.fed.records.append(records)

    def _feed_rules(self, random: Random) -> None:
        index = len(self.fed.rules)
        # Odd numbers are unknown at first, and now and then again.
        chosen = [("even", 2)] if index == 0 else random.choices(_RULES, k=random.randint(1, 3))
        rules = [Rule(name, factor, 10 * index + i) for i, (name, factor) in enumerate(chosen)]
        columns = {"name": [rule.name for rule in rules]}
        factors = pa.array([rule.factor for rule in rules], pa.int64())
        versions = pa.array([rule.version for rule in rules], pa.int64())
        self._feed("rules", index, pa.table({**columns, "factor": factors, "version": versions}))
        self.fed.rules.append(rules)

    def _feed(self, folder: str, index: int, table: pa.Table) -> None:
        """Make a file visible, all at once."""
        staged = self.folder / "input" / f"staged-{folder}"
        pq.write_table(table, staged)
        # The file source goes by modification time, which must grow from file to file.
        stamp = time.time_ns() // 1_000_000_000 - 100_000 + index
        os.utime(staged, (stamp, stamp))
        staged.rename(self.folder / "input" / folder / f"{index:05d}.parquet")

    # What the job is.

    def register(self, ground: str, parallelism: int) -> None:
        """Say where the job runs next: on a Spark master's URL, or on the cluster."""
        self.catalog.jobs.register(
            JOB,
            artifact=job.__file__,
            store=self.store.files.url,
            master_url=self.master_url(ground),
            conf=self.conf(),
            settings={
                "input": f"{self.folder}/input",
                "lake": f"{self._bucket}/output",
                "disk": f"{self.folder}/output",
            },
            parallelism=parallelism,
            max_parallelism=MAX_PARALLELISM,
        )

    def stop_with_savepoint(self, name: str) -> str | None:
        """Ask the job to stop, wait until it has, and keep its savepoint; return its URL, or None when it died."""
        url = super().stop_with_savepoint(name)
        if url is not None:
            self.kept.append(url)
        return url

    def savepoint_folder(self, name: str) -> str:
        """Return a place for a self-contained savepoint."""
        return f"{self._bucket}/elsewhere/{name}"

    def roll_back(self, url: str, *options: str) -> None:
        """Start the stopped job from an older savepoint, as a person does."""
        self.note()
        to = open_savepoint(url).manifest
        self.lineages.roll_back(
            RollBack(to.lineage, to.epoch), published=is_published(self.store, self.lineages.newest)
        )
        self.shell("start", JOB, "--from", url, "--roll-back", *options)

    def shell(self, *arguments: str) -> Done:
        """Run a command of ``statecore`` on the job's catalog; ChaosError when it fails."""
        done = run(*arguments, STATECORE_CATALOG=self.catalog_url)
        if done.returncode:
            raise ChaosError(f"statecore {' '.join(arguments)} failed: {done.stderr}")
        return done

    @contextmanager
    def shell_beside(self, *arguments: str) -> Iterator[None]:
        """Run a command of ``statecore`` while the block runs, and wait for its end; ChaosError when it fails."""
        with self.environment(), (self.folder / "logs/shell.log").open("ab") as log:
            command = [sys.executable, "-m", "statecore", *arguments]
            shell = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        yield
        until(lambda: shell.poll() is not None, f"the end of statecore {' '.join(arguments)}", self)
        if shell.returncode:
            raise ChaosError(f"statecore {' '.join(arguments)} failed; see logs/shell.log")

    def lock_job(self) -> subprocess.Popen[str]:
        """Start a client of the catalog in a transaction that locks the job, until its input ends."""
        with self.environment():
            command, pipe = [sys.executable, "-m", "tests.chaos.client", JOB], subprocess.PIPE
            client = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert client.stdout is not None
        if client.stdout.readline() != "locked\n":
            raise ChaosError(f"the client could not lock the job: {client.communicate()[1]}")
        return client

    # What can be seen of it.

    def note(self) -> None:
        """Read the manifests that are new: clean-up will remove them."""
        put = self.network.manifests
        # To list them takes as much of the processor as the job does, when it is done all the time.
        if put == self._noted:
            return
        new = [self.store.find(*epoch) for epoch in self.store.committed() if not self.lineages.has(*epoch)]
        try:
            self.lineages.add(manifest for manifest in new if manifest is not None)
        except ForkError as error:
            raise ChaosError(str(error)) from error
        self._noted = put

    def in_flight(self) -> bool:
        """Return whether an epoch is begun and not committed, or committed and not published."""
        begun = self.begun()
        self.note()
        return begun > self.lineages.head or not is_published(self.store, self.lineages.newest)

    def is_settled(self) -> bool:
        """Return whether all that was fed is committed and published."""
        self.note()
        fed = (len(self.fed.records), len(self.fed.rules))
        newest = self.lineages.newest
        return newest is not None and read_so_far(newest) == fed and is_published(self.store, self.lineages.newest)

    def read_by(self, url: str) -> tuple[int, int]:
        """Return how many files of records, and of rules, the job had read when it took a savepoint."""
        return read_so_far(open_savepoint(url).manifest)

    def settle(self) -> None:
        """Wait until all that was fed is committed and published."""
        until(self.is_settled, "the records to be committed and published", self)

    def begin_epoch(self, files: int = 1) -> None:
        """Feed, and wait until the epoch has begun."""
        self.note()
        before = self.lineages.head
        self.feed(files)
        until(lambda: self.begun() > before, "an epoch to begin", self)

    def verdict(self) -> Verdict:
        """Compare all that the job has left with the truth."""
        savepoints = [Kept(*open_savepoint(url)[:2]) for url in self.kept]
        return judge(self.store, self.lineages, self.fed, self.sinks, savepoints)


_RULES = (("even", 3), ("even", 2), ("odd", 5), ("odd", 7), ("odd", 0), (job.FLUSH, 0), (job.FLUSH, 0))
