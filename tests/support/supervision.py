"""A supervisor for the length of a block, which starts drivers again when they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statecore.catalog import Catalog
from statecore.operations.submit import SparkSubmit
from statecore.supervisor import Supervisor
from tests.support.bench import Bench


@contextmanager
def supervising(catalog: Catalog, logs: Path, launch: SparkSubmit | None = None) -> Iterator[None]:
    """Run a supervisor, and stop it whatever happens; its drivers are the caller's to stop."""
    supervisor = Supervisor(catalog, logs, launch=launch or SparkSubmit(), poll_interval_s=0.2)
    # The end of the tests waits for no thread that a failure left behind.
    thread = threading.Thread(target=supervisor.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        supervisor.stop()
        thread.join(60)


@contextmanager
def supervised(bench: Bench, logs: Path) -> Iterator[None]:
    """Keep the job running, and stop it at the end."""
    with supervising(bench.catalog, logs):
        try:
            yield
        finally:
            if not bench.generation().ended:
                bench.stop(f"end-{bench.generation().generation}")
