"""The Spark job of a rewrite from a shell: it has an end."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from statecore.catalog import Catalog
from statecore.cli import rewrite
from statecore.errors import RequestFailedError
from tests.waiting import wait

# Is told whether to heed being asked to end, and has a child that would outlive it. A shell is there at once.
_HANGS = '[ "$0" = stubborn ] && trap "" TERM; sleep 300 & echo $! >"$1"; wait'


@pytest.mark.parametrize("manner", ["obedient", "stubborn"])
def test_a_rewrite_that_takes_too_long_is_ended_with_all_it_started(
    catalog: Catalog, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manner: str
) -> None:
    child = tmp_path / "child"
    monkeypatch.setattr(rewrite, "submit_command", lambda *_: ["sh", "-c", _HANGS, manner, str(child)])
    monkeypatch.setattr(rewrite, "_END_S", 0.5)
    with pytest.raises(RequestFailedError, match=r"still rewriting /sp after 3 s; .*look at its output in /"):
        rewrite.rewritten(catalog.job(job), "/sp", "name", 4, None, 3.0)
    wait(lambda: not _lives(int(child.read_text())), "what it has started to end")


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
