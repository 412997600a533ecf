"""The Spark job of a rewrite from a shell: it has an end."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from statecore.catalog import Catalog
from statecore.cli import rewrite
from statecore.errors import RequestFailedError
from tests.support.supervised import until

# Says whether it heeds being asked to end, and has a child that would outlive it.
_HANGS = """
import signal, subprocess, sys, time
if sys.argv[1] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[2], "w").write(str(subprocess.Popen(["sleep", "300"]).pid))
time.sleep(300)
"""


@pytest.mark.parametrize("manner", ["obedient", "stubborn"])
def test_a_rewrite_that_takes_too_long_is_ended_with_all_it_started(
    catalog: Catalog, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manner: str
) -> None:
    child = tmp_path / "child"
    monkeypatch.setattr(rewrite, "submit_command", lambda *_: [sys.executable, "-c", _HANGS, manner, str(child)])
    monkeypatch.setattr(rewrite, "_END_S", 0.5)
    with pytest.raises(RequestFailedError, match=r"still rewriting /sp after 3 s; .*look at its output in /"):
        rewrite.rewritten(catalog.job(job), "/sp", "name", 4, None, 3.0)
    until(lambda: not _lives(int(child.read_text())))


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
