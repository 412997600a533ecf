"""What CONTRIBUTING.md shows of the environment, Airflow and its Spark provider included."""

from __future__ import annotations

import subprocess
import sys

from tests.support.paths import REPO


def test_pip_check_prints_what_is_written() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    printed = done.stdout.strip()
    assert printed and printed in (REPO / "CONTRIBUTING.md").read_text()
