"""The cluster of all rows: two standalone workers of one core on this machine, and one Spark application."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
from pyspark.sql import SparkSession

from stack.kafka import CONNECTOR, has_jars
from statecore.cluster import StandaloneCluster, StandaloneMaster, StandaloneSettings
from statecore.cluster.spark_home import spark_environment

WORKERS = 2
PARALLELISM = WORKERS
MAX_PARALLELISM = 128

APPLICATION: Mapping[str, str] = MappingProxyType(
    {
        "spark.driver.memory": "2g",
        "spark.executor.memory": "3g",
        "spark.executor.cores": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(PARALLELISM),
        "spark.sql.session.timeZone": "UTC",
        # Our jobs get these two by themselves. They apply to the whole application, so the peers have them as well.
        "spark.shuffle.reduceLocality.enabled": "false",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **({"spark.jars": CONNECTOR} if has_jars() else {}),
    }
)
"""Configuration of the application, for both sides."""


@contextmanager
def application(folder: Path) -> Iterator[SparkSession]:
    """Start the cluster and the application; stop both after the block.

    First stop the processes and remove the files of an earlier run that was killed.
    """
    os.environ.update(spark_environment(), SPARK_LOCAL_IP="127.0.0.1")
    StandaloneMaster(folder / "master").stop()
    _workers(folder, "spark://none:0", "http://none").stop()
    shutil.rmtree(folder, ignore_errors=True)
    with StandaloneMaster(folder / "master") as master:
        workers = _workers(folder, master.master_url, master.web_url)
        try:
            workers.resize(WORKERS)
            until(lambda: workers.size().ready == WORKERS, "workers")
            builder = SparkSession.builder.master(master.master_url).appName("statecore-bench")
            spark = builder.config(map=dict(APPLICATION)).getOrCreate()
            try:
                spark.sparkContext.setLogLevel("ERROR")
                yield spark
            finally:
                spark.stop()
        finally:
            workers.stop()
    shutil.rmtree(folder, ignore_errors=True)


def _workers(folder: Path, master_url: str, master_web_url: str) -> StandaloneCluster:
    settings = StandaloneSettings(
        master_url=master_url,
        master_web_url=master_web_url,
        run_dir=str(folder / "workers"),
        log_dir=str(folder / "logs"),
        memory_per_worker=APPLICATION["spark.executor.memory"],
    )
    return StandaloneCluster("bench", settings)


def python_workers(folder: Path) -> list[psutil.Process]:
    """Return the Python workers of the application's executors."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            parent = process.parent()
            is_worker = parent is not None and _is_daemon(parent) and _is_daemon(process)
            if is_worker and folder in Path(process.cwd()).parents:
                found.append(process)
    return found


def _is_daemon(process: psutil.Process) -> bool:
    return "pyspark.daemon" in process.cmdline()


def until(condition: Callable[[], Any], what: str, *, timeout_s: float = 600, every_s: float = 0.02) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: It did not become true in time.

    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"found {what} missing after {timeout_s:g} s; expected it in that time; see the logs")
        time.sleep(every_s)
