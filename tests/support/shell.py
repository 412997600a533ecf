"""The command line as a shell meets it, and a driver without a stream to talk to."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, NamedTuple, Self
from unittest.mock import patch

import pytest
import typer.main

from statecore.catalog import Catalog
from statecore.cli import main
from statecore.runtime.driver.control import Control
from statecore.runtime.driver.lifecycle import Lifecycle
from statecore.runtime.driver.savepoints import SavepointWriter
from statecore.runtime.driver.side_jobs import SideJobs
from statecore.runtime.generation.heartbeats import heartbeats
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest, SourcePositions
from tests.support.handmade import written
from tests.support.waiting import wait

LONG_POSITION = json.dumps({"flights": {str(partition): 10**9 for partition in range(40)}})


_get_command = lru_cache(typer.main.get_command)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str | Path | float, **environment: str) -> Done:
    """Run the command line as a pipe sees it, in this process: a hundred interpreters take minutes to start."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["statecore", *map(str, arguments)]
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch.object(sys, "argv", argv),
        patch.dict(os.environ, environment),
        # Typer builds all commands anew for each call, which takes longer than most of them.
        patch("typer.main.get_command", _get_command),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def assert_refused(done: Done, *parts: str | Path) -> None:
    """A refusal is exit code 1 and an error of three parts on stderr, without a traceback."""
    assert done.returncode == 1, done
    for line in done.stderr.splitlines():
        assert line.startswith("error: ")
        assert line.count(";") >= 2, line
    assert "Traceback" not in done.stderr
    for part in parts:
        assert str(part) in done.stderr


def committed(store: CheckpointStore, epoch: int = 7, parallelism: int = 2, **changes: Any) -> Manifest:
    """Commit an epoch with state, sources and a job file."""
    made = written(
        store,
        parallelism,
        epoch=epoch,
        watermark_ms=1_700_000_000_000,
        artifact=store.keep_artifact("orders.py", b"def build(job): ...\n"),
        sources=(
            SourcePositions(name="flights", positions=(LONG_POSITION,)),
            SourcePositions(name="rules", positions=()),
        ),
        **changes,
    )
    store.commit(made)
    return made


class Driver:
    """All of a driver but the stream: its heartbeats, what it answers, and what it leaves behind."""

    def __init__(self, url: str, store: CheckpointStore, job: str = "orders") -> None:
        self.catalog = Catalog(url)
        self._store = store
        self._job = job
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._end, daemon=True)

    def stop(self) -> None:
        """End the query; what Control does on a request to stop."""
        self._stopped.set()

    def __enter__(self) -> Self:
        claimed = self.catalog.generations.claim(self._job, log_path="/logs/driver-{generation}.log")
        self.generation = claimed.generation
        no_spark: Any = None
        self._savepoints = SavepointWriter(self.catalog, self._job, self._store, no_spark, no_spark)
        self._lifecycle = Lifecycle()
        self._lifecycle.started(self._store.newest())
        wired: Any = SimpleNamespace(
            runner=SimpleNamespace(boundary=threading.Lock()), savepoints=self._savepoints, side_jobs=SideJobs(no_spark)
        )
        query: Any = self
        self._control = Control(self.catalog.requests, self._job, query, self._lifecycle, wired)
        self._thread.start()
        wait(lambda: self.catalog.generations.newest(self._job).state == "running", "the first heartbeat")  # type: ignore[union-attr]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._thread.join()
        self.catalog.close()

    def _end(self) -> None:
        with heartbeats(self.catalog, self._job, self.generation, self._lifecycle):
            with self._control:
                self._stopped.wait()
            if self._control.request is not None:
                self._savepoints.write(self._control.request, self._store.newest())
                # Spark takes its time.
                time.sleep(0.3)
        self.catalog.generations.end(self._job, self.generation, state="stopped")


def register(catalog: Catalog, store: CheckpointStore, name: str = "orders", **changes: Any) -> None:
    definition: dict[str, Any] = {"artifact": "/jobs/orders.py", "master_url": "local[2]", "parallelism": 2}
    catalog.jobs.register(name, **{**definition, "store": store.files.url, "max_parallelism": 16, **changes})


@contextmanager
def running(url: str, store: CheckpointStore, job: str = "orders") -> Iterator[Driver]:
    with Catalog(url) as catalog:
        catalog.jobs.set_desired(job, state="running")
    with Driver(url, store, job) as driver:
        yield driver
