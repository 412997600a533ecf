"""The report of a campaign says what came of it, also when it could not be carried out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from tests.chaos.report import Report, Round, read, show


def test_a_campaign_that_is_refused_ends_with_an_error_and_a_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "tests.chaos", "--seed", "5", "--victim", "storm", "--report", str(report)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1, done.stderr
    found = read(report)
    assert (found.seed, found.rounds, found.lost) == (5, [], None)
    assert [each for each in found.differences if "no strike here strikes at 'storm'" in each]


def test_reports_are_added_up(tmp_path: Path) -> None:
    strike = Round("driver", "after a while", None, True, 3.5)
    counted = Report(1, rounds=[strike, strike], lost=2, doubled=1, differences=["two rows are lost"])
    cut_off = Report(2, rounds=[strike])
    with (tmp_path / "shown").open("w") as file:
        show([counted, cut_off], Console(file=file, width=200))
    shown = (tmp_path / "shown").read_text()
    assert "two rows are lost" in shown
    assert "rows lost: 2, rows doubled: 1; not counted in 1 of 2" in shown
    (row,) = [line for line in shown.splitlines() if "after a while" in line]
    assert row.split("│")[3].strip() == "3"
