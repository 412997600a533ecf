"""A supervisor for the length of a block, which starts drivers of the job again when they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statecore.operations.submit import SparkSubmit
from statecore.supervisor import Supervisor
from tests.support.bench import Bench


@contextmanager
def supervised(bench: Bench, logs: Path) -> Iterator[None]:
    """Keep the job running, and stop it at the end."""
    supervisor = Supervisor(bench.catalog, logs, launch=SparkSubmit(), poll_interval_s=0.2)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        yield
    finally:
        if not bench.generation().ended:
            bench.stop(f"end-{bench.generation().generation}")
        supervisor.stop()
        thread.join(30)
