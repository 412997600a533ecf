"""The programs on a job's Spark end with 2 where another attempt would find the same, else with 1."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from statecore.queries.programs import rescale, trial
from tests.unit.queries.handmade import Operator, make


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    made = make(tmp_path / "checkpoint", Operator(), batches=2)
    made.remove("state/0/1/2.delta")
    query, settings = tmp_path / "query.py", tmp_path / "settings.json"
    query.write_text("def build(spark, settings): ...")
    settings.write_text("{}")
    return ["--checkpoint", str(made.root), "--query", str(query), "--settings", str(settings)]


@pytest.mark.parametrize("program", [trial, rescale])
@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ([], 2, "error: found no state of version 2 in state/0/1"),
        (["--checkpoint", "ftp://somewhere/else"], 1, "error: found"),
    ],
    ids=["damaged", "not a place of checkpoints"],
)
def test_an_error_ends_a_program(
    arguments: list[str],
    tmp_path: Path,
    program: ModuleType,
    more: list[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = ["--target", str(tmp_path / "to"), "--partitions", "3"] if program is rescale else []
    monkeypatch.setattr(sys, "argv", ["program", *arguments, *own, *more])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == code
    assert capsys.readouterr().err.startswith(said)
    assert not (tmp_path / "to").exists()
