"""A real stack of one job: a supervisor with a webhook, drivers, and the shell that a person on call has."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from statecore_airflow.web.answers import Finding, JobSummary
from statecore_airflow.web.overview import sent_alerts, summary

from statecore.catalog import Catalog
from statecore.cluster.processes import spawn
from statecore.operations.kinds.statecore_job import StatecoreJob
from statecore.operations.status.alerts import Severity
from statecore.operations.status.job_status import job_status
from statecore.operations.submit import driver_environment
from statecore.operations.supervising.alert_loop import CHANNEL, WEBHOOK_VARIABLE
from tests.chaos.processes import JOB, ChaosError, Processes, until
from tests.drills import job
from tests.support.webhook import Webhook

PATIENCE_S = 420
"""Longer than an alert takes from its cause to its message, on a slow machine."""
_KEYS, _ROWS = 5, 40
_SCHEMA = pa.schema({"k": pa.string(), "n": pa.int64(), "count": pa.int64()})


class DrillWorld(Processes):
    """One job and all that it stands on.

    Args:
        folder: Of its own, for everything that is no process.
        webhook: Receives what people are sent.

    """

    def __init__(self, folder: Path, webhook: Webhook) -> None:
        super().__init__(folder, f"sqlite:///{folder}/catalog.db", StatecoreJob.program)
        # The liveness that people have, not that of campaigns.
        self.catalog = Catalog(self.catalog_url)
        self.input, self.output, self.store = (folder / name for name in ("input", "output", "store"))
        self.artifact = folder / "job.py"
        self.artifact.write_text(Path(job.__file__).read_text())
        self.input.mkdir()
        self._webhook = webhook
        self._fed: Counter[tuple[str, int]] = Counter()
        self._files = 0

    def __enter__(self) -> DrillWorld:
        self.catalog.create_schema()
        self.run(
            "register", JOB, "--artifact", self.artifact, "--store", self.store, "--master", "local[2]",
            "--parallelism", 2, f"--setting=input={self.input}", f"--setting=output={self.output}",
            *(f"--conf={key}={value}" for key, value in self.conf().items()),
        )  # fmt: skip
        self.start_supervisor()
        self.run("start", JOB)
        self.feed()
        self.settle()
        return self

    def __exit__(self, *_: object) -> None:
        self.end_processes()
        self.catalog.close()

    def variables(self) -> Mapping[str, str]:
        """Have the supervisor send its alerts."""
        return {WEBHOOK_VARIABLE: self._webhook.url}

    def start_supervisor(self, **_: int) -> subprocess.Popen[bytes]:
        """Start the supervisor as people do."""
        logs = self.folder / "logs"
        with self.environment():
            command = [sys.executable, "-m", "statecore", "supervisor", "--logs", str(logs)]
            environment = {**driver_environment(JOB), **self.variables()}
            self.supervisor = spawn(command, environment=environment, log_path=logs / "supervisor.log")
        return self.supervisor

    def run(self, *arguments: object) -> None:
        """Run a command of the shell, which must succeed.

        Raises:
            ChaosError: It failed.

        """
        done = self.shell(*arguments)
        _, told = done.communicate()
        if done.returncode != 0:
            raise ChaosError(f"`statecore {' '.join(map(str, arguments))}` failed: {told.decode()}")

    def shell(self, *arguments: object) -> subprocess.Popen[bytes]:
        """Start a command of the shell."""
        command = [sys.executable, "-m", "statecore", *map(str, arguments)]
        with self.environment():
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)

    # What the job is given, and what it makes of it.

    def feed(self) -> None:
        """Give the job a file of records."""
        first = self._files * _ROWS
        self._feed([(f"k{n % _KEYS}", n) for n in range(first, first + _ROWS)])

    def feed_bad(self) -> None:
        """Give the job a file with a record that it fails on, and that a corrected job leaves out."""
        self._feed([("k0", -1)])
        del self._fed["k0", -1]

    def _feed(self, rows: list[tuple[str, int]]) -> None:
        made = self.folder / "made.parquet"
        pq.write_table(pa.table({"k": [k for k, _ in rows], "n": [n for _, n in rows]}), made)
        made.rename(self.input / f"{self._files:05}.parquet")
        self._files += 1
        self._fed.update(rows)

    def is_settled(self) -> bool:
        """Return whether the sink has all that was fed, once."""
        return _rows(self._published()) == self._fed

    def settle(self) -> None:
        """Wait until the sink has all that was fed."""
        until(self.is_settled, "the sink to have all that was fed", self, PATIENCE_S)

    def check_exact(self) -> None:
        """Check that each record was counted once.

        Raises:
            ChaosError: One is missing, or was counted twice.

        """
        table = self._published()
        per_key = Counter(k for k, _ in self._fed.elements())
        numbers = set(zip(table["k"].to_pylist(), table["count"].to_pylist(), strict=True))
        expected = {(k, number) for k, count in per_key.items() for number in range(1, count + 1)}
        found = _rows(table)
        if found != self._fed or numbers != expected:
            raise ChaosError(
                f"found {found - self._fed} too much, {self._fed - found} too little, and the counts "
                f"{numbers ^ expected} wrong"
            )

    def _published(self) -> pa.Table:
        """Return what readers of the sink find: nothing in a folder whose name begins with a dot or an underscore."""
        paths = (path.relative_to(self.output) for path in self.output.rglob("*.parquet"))
        files = [self.output / path for path in paths if not any(part[0] in "._" for part in path.parts)]
        return ds.dataset(files, schema=_SCHEMA).to_table() if files else _SCHEMA.empty_table()

    # What a person on call sees.

    @property
    def heads(self) -> list[str]:
        """How each message so far begins: severity and alert."""
        return [" ".join(each["text"].split()[:2]).rstrip(",") for each in self._webhook.messages]

    def findings(self) -> list[Finding]:
        """Return what the job's page shows."""
        return self._page().findings

    def colour(self) -> Severity | None:
        """Return the colour of the job on the pages: that of its worst finding."""
        return self._page().severity

    def is_quiet(self) -> bool:
        """Return whether nothing is found, and nothing is about to be sent."""
        told = self.catalog.alerts.told(CHANNEL)
        return self.colour() is None and not any(each.firing or each.changed_ms is not None for each in told)

    def _page(self) -> JobSummary:
        return summary(job_status(self.catalog, self.catalog.jobs.get(JOB)), sent_alerts(self.catalog))

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something that people see."""
        until(condition, what, self, PATIENCE_S)


def _rows(table: pa.Table) -> Counter[tuple[str, int]]:
    return Counter(zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True))
