"""The Spark job of a rewrite from a shell: it has an end."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import psutil
import pytest

from statecore.catalog import Catalog
from statecore.cli.steps import ShellLog, shell_change
from statecore.errors import StepFailedError
from statecore.operations.changes import rewriting, spark_program
from tests.support.waiting import wait

# Is told whether to heed being asked to end, and has a child that would outlive it. A shell is there at once.
_HANGS = '[ "$0" = stubborn ] && trap "" TERM; sleep 300 & echo $! >"$1"; wait'


@pytest.mark.parametrize("manner", ["obedient", "stubborn"])
def test_a_rewrite_that_takes_too_long_is_ended_with_all_it_started(
    catalog: Catalog, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manner: str
) -> None:
    child = tmp_path / "child"
    monkeypatch.setattr(rewriting, "submit_command", lambda *_: ["sh", "-c", _HANGS, manner, str(child)])
    monkeypatch.setattr(spark_program, "_END_S", 0.5)
    change = dataclasses.replace(shell_change(catalog, job), lease_ttl_ms=1_000)
    catalog.leases.acquire(job, change.run_id, 60_000)
    started = rewriting.Rewrite(catalog.jobs.get(job), "/sp", "name", 4, 16)
    with pytest.raises(StepFailedError, match="running for longer than 3 s") as failed:
        started.run(3.0, change)
    assert not failed.value.is_retryable
    wait(lambda: not _lives(int(child.read_text())), "what it has started to end")


def test_a_shell_says_how_far_a_rewrite_is_and_nothing_else_of_what_it_prints(
    catalog: Catalog, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = "echo WARN 100 % slow; echo progress: 1.2 MB written of about 3.0 MB"
    monkeypatch.setattr(rewriting, "submit_command", lambda *_: ["sh", "-c", printed])
    change, told = shell_change(catalog, job), list[str]()
    catalog.leases.acquire(job, change.run_id, 60_000)
    assert isinstance(change.log, ShellLog)
    change.log.tell = told.append
    rewriting.Rewrite(catalog.jobs.get(job), "/sp", "name", 4, 16).run(60.0, change)
    assert told == ["1.2 MB written of about 3.0 MB"]


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
