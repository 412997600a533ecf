"""The programs on a job's Spark end with 2 where another attempt would find the same."""

from __future__ import annotations

import sys
from pathlib import Path

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
def test_a_damaged_checkpoint_is_refused_for_good(
    arguments: list[str],
    tmp_path: Path,
    program: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ["--target", str(tmp_path / "to"), "--partitions", "3"] if program is rescale else []
    monkeypatch.setattr(sys, "argv", ["program", *arguments, *more])
    with pytest.raises(SystemExit) as ended:
        program.main()  # type: ignore[attr-defined]
    assert ended.value.code == 2
    assert "found no state of version 2 in state/0/1" in capsys.readouterr().err
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("program", [trial, rescale])
def test_storage_that_is_away_is_to_be_tried_again(
    arguments: list[str],
    tmp_path: Path,
    program: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ["--target", str(tmp_path / "to"), "--partitions", "3"] if program is rescale else []
    monkeypatch.setattr(sys, "argv", ["program", *arguments, *more, "--checkpoint", "ftp://somewhere/else"])
    with pytest.raises(SystemExit) as ended:
        program.main()  # type: ignore[attr-defined]
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("error: ")
