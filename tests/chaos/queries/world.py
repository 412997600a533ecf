"""A query of Spark's own as a job, what it was fed, and what its sink has."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from statecore.operations.kinds.spark_query import SparkQuery
from statecore.queries.job.heads import Heads
from tests.chaos.processes import JOB, ChaosError, DifferenceError, Processes, until
from tests.chaos.truth import Verdict
from tests.e2e import query

_KEYS, _ROWS = 23, 60
_TO_END_S = 600


class QueryWorld(Processes):
    """One query in an unquiet world, from its first to its last process.

    Its sink takes a batch by its number. A batch that is computed again must have the rows that the sink has of it.

    Args:
        folder: Of its own, for everything that is no process.
        seed: Of the input.

    """

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, f"sqlite:///{folder}/catalog.db", SparkQuery.program)
        for name in ("input", "output"):
            (folder / name).mkdir()
        self._query = folder / "query.py"
        self._query.write_text(Path(query.__file__).read_text())
        self._random = Random(f"{seed}-input")
        self._files = 0
        self._fed: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> QueryWorld:
        self.catalog.create_schema()
        return self

    def __exit__(self, *_: object) -> None:
        self.end_processes()
        self.catalog.close()

    def register(self, ground: str, parallelism: int) -> None:
        """Say where the query runs next; its number of state partitions is the one that it is born with."""
        master = f"--master={self.master_url(ground)}"
        if any(job.name == JOB for job in self.catalog.jobs.all()):
            self.run("register", JOB, master)
            return
        conf = [f"--conf={key}={value}" for key, value in self.conf().items()]
        settings = [f"--setting={name}={self.folder / name}" for name in ("input", "output")]
        self.run(
            "register", JOB, "--query", self._query, "--checkpoint", self.folder / "checkpoint", "--store",
            self.folder / "store", "--parallelism", parallelism, master, *conf, *settings,
        )  # fmt: skip

    def spawn(self, *arguments: object) -> subprocess.Popen[bytes]:
        """Start a command of the shell."""
        with self.environment(), (self.folder / "logs/shell.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.chaos.queries.shell", *map(str, arguments)]
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def run(self, *arguments: object) -> None:
        """Run a command of the shell, which must succeed.

        Raises:
            ChaosError: It failed; its words are in the log.

        """
        code = self.spawn(*arguments).wait(_TO_END_S)
        if code != 0:
            raise ChaosError(f"`statecore {' '.join(map(str, arguments))}` ended with {code}; see logs/shell.log")

    def feed(self) -> None:
        """Feed files; the query reads one in a batch."""
        for _ in range(self._random.randint(1, 3)):
            rows = [(f"k{self._random.randrange(_KEYS)}", self._random.randrange(100)) for _ in range(_ROWS)]
            made = self.folder / "made.parquet"
            pq.write_table(pa.table({"k": [k for k, _ in rows], "n": [n for _, n in rows]}), made)
            made.rename(self.folder / f"input/{self._files:05}.parquet")
            self._files += 1
            for k, n in rows:
                count, total = self._fed.get(k, (0, 0))
                self._fed[k] = count + 1, total + n

    def begin_epoch(self) -> None:
        """Feed, and wait until a batch has begun."""
        before = self.begun()
        self.feed()
        until(lambda: self.begun() > before, "a batch to begin", self)

    def begun(self) -> int:
        """Return the newest batch that was begun; -1 before the first."""
        return self._newest("offsets")

    def in_flight(self) -> bool:
        """Return whether a batch is begun and not committed."""
        return self.begun() > self._newest("commits")

    def settle(self) -> None:
        """Wait until the sink has all that was fed.

        Raises:
            DifferenceError: It has something else.

        """
        try:
            until(lambda: self._found() == self._fed, "the sink to have all that was fed", self)
        except ChaosError as error:
            raise DifferenceError(self.verdict()) from error

    def stop_with_savepoint(self, name: str) -> str | None:
        """Stop the query with a savepoint, and return the savepoint's path."""
        self.run("stop", JOB)
        return self.catalog.savepoints.of(JOB)[0].path

    def backup(self) -> Path:
        """Copy the catalog."""
        copy = self.folder / f"backup-{self._files}.db"
        self._copy_database(self.folder / "catalog.db", copy)
        return copy

    def restore(self, copy: Path) -> None:
        """Take the catalog back to a copy."""
        self._copy_database(copy, self.folder / "catalog.db")

    def reached(self, step: str) -> bool:
        """Return whether the newest run has begun a step."""
        runs = self.catalog.runs.of(JOB, limit=1)
        return bool(runs) and step in runs[0].steps

    def verdict(self) -> Verdict:
        """Compare what the sink has with the truth."""
        counts = [Counter({k: count for k, (count, _) in each.items()}) for each in (self._fed, self._found())]
        lost, doubled = (counts[0] - counts[1]).total(), (counts[1] - counts[0]).total()
        differences = [] if self._found() == self._fed else [f"{lost} rows are lost and {doubled} doubled, by counts"]
        return Verdict(differences, lost, doubled, len(list(Heads(str(self.folder / "store")))))

    def _found(self) -> dict[str, tuple[int, int]]:
        batches = {int(each.stem): json.loads(each.read_text()) for each in (self.folder / "output").glob("[0-9]*")}
        return {k: (count, total) for number in sorted(batches) for k, count, total in batches[number]}

    def _newest(self, folder: str) -> int:
        checkpoint = self.catalog.jobs.get(JOB).checkpoint
        assert checkpoint is not None
        names = (path.name for path in (Path(checkpoint) / folder).glob("[0-9]*"))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    @staticmethod
    def _copy_database(source: Path, target: Path) -> None:
        with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target, timeout=60)) as write:
            read.backup(write)
