"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from stack.kafka import CONNECTOR
from stack.quick_start import QUICK_START
from tests.support.examples import examples

pytest_plugins = [
    "tests.support.marks",
    "tests.support.untraced",
    "tests.support.core_seconds",
    "tests.support.teardowns",
    "tests.support.postgres",
    "tests.support.s3",
]

settings.register_profile("tests", examples())
settings.load_profile("tests")

# Modules and thousands of tests stay: the garbage collector need not go through them again and again.
gc.disable()

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", QUICK_START)
if CONNECTOR:
    # A JVM has the jars that it is started with, whichever test starts it.
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--jars {CONNECTOR} pyspark-shell")


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """One local Spark for the whole test run, with the settings a job needs."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("statecore-tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", QUICK_START)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.shuffle.reduceLocality.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    # It logs each connection that it closes, also after pytest has closed the stream that logs go to.
    logging.getLogger("py4j").setLevel(logging.ERROR)
    yield session
    session.stop()


_LONGEST = ("test_demo.py", "test_chaos.py", "test_faults.py", "test_chain.py", "test_job.py", "test_s3_job.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest: at the end one would run alone, while the other worker has nothing left to do."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)


def pytest_collection_finish() -> None:
    """Let the garbage collector look at what tests make, and at nothing else."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped test fails the run: nobody would see that it was never run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
