"""What ``statecore check`` costs beside the start of Spark, without which no column can be resolved."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness import Bench, Figure, in_seconds, median_ratio
from statecore.cluster.spark_home import spark_environment

_JOB = Path(__file__).resolve().parents[2] / "examples" / "shape_rules.py"
_SESSION = """
from pyspark.sql import SparkSession

SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate().stop()
"""


def cost(bench: Bench) -> list[Figure]:
    """Measure a check of a job with two sources, and a program that starts a session and stops it."""
    with bench.workspace("check") as folder:
        settings = []
        for name in ("items", "rules"):
            (folder / name).mkdir()
            settings += ["--setting", f"{name}={folder / name}"]
        check = ["-m", "statecore", "check", str(_JOB), *settings, "--setting", f"output={folder}/out"]
        sides = {"check": _timed(check), "a session alone": _timed(["-c", _SESSION])}
        ours, theirs = bench.rounds(sides, unit="s").values()
        return [Figure("check_cost", median_ratio(ours, theirs), in_seconds(ours), in_seconds(theirs))]


def _timed(arguments: Sequence[str]) -> Callable[[], float]:
    def seconds() -> float:
        started = time.monotonic()
        subprocess.run([sys.executable, *arguments], env=spark_environment(), check=True, capture_output=True)
        return time.monotonic() - started

    return seconds
