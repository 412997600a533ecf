"""``policy simulate``: the answer, the picture, and files that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.shell import assert_refused, run

TRACE = "t_s,rows_per_s\n0,3000\n300,30000\n900,0\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_the_answer_of_a_policy_is_json_or_a_table_with_its_reasons(trace: Path, tmp_path: Path) -> None:
    world = tmp_path / "world.json"
    world.write_text('{"min_parallelism": 2, "worker_start_s": 30}')
    told = json.loads(run("policy", "simulate", str(trace), "--world", str(world), "--json").stdout)
    first = told["decisions"][0]
    assert (first["from"], told["rescales"], first["to"] >= 6) == (2, 1, True) and 345 <= first["t_s"] <= 420
    assert first["reason"].startswith("30,000 rows/s arrive") and told["diagnoses"][1][1] == "too_small"
    shown = " ".join(run("policy", "simulate", str(trace), "--world", str(world)).stdout.split())
    assert "rescales 1" in shown and f"2 -> {first['to']}" in shown and "diagnosis: too_small" in shown


def test_files_may_begin_with_a_byte_order_mark_and_times_with_those_of_the_trace(tmp_path: Path) -> None:
    """As spreadsheets and editors on Windows write them."""
    trace, world = tmp_path / "trace.csv", tmp_path / "world.json"
    trace.write_text("t_s,rows_per_s\n1000,3000\n1300,30000\n1900,0\n", encoding="utf-8-sig")
    world.write_text('{"min_parallelism": 2, "worker_start_s": 30, "outages": [[1100, 1160]]}', encoding="utf-8-sig")
    told = json.loads(run("policy", "simulate", str(trace), "--world", str(world), "--json").stdout)
    assert 1_345 <= told["decisions"][0]["t_s"] <= 1_420
    assert next(at_s for at_s, name in told["diagnoses"] if name == "failing") == 1_105


def test_every_policy_plays_and_a_picture_is_drawn(trace: Path, tmp_path: Path) -> None:
    for policy in ("flink", "ds2", "aws", "fixed:3"):
        told = json.loads(run("policy", "simulate", str(trace), "--policy", policy, "--json").stdout)
        assert told["core_hours"] > 0 and told["diagnoses"] == []
    done = run("policy", "simulate", str(trace), "--policy", "fixed:3", "--plot", str(tmp_path / "sizes.png"))
    assert done.returncode == 0 and (tmp_path / "sizes.png").read_bytes().startswith(b"\x89PNG")


def test_what_does_not_fit_is_refused_with_the_reason(trace: Path, tmp_path: Path) -> None:
    simulate = ("policy", "simulate")
    assert_refused(run(*simulate, str(tmp_path / "none.csv")), "none.csv")
    trace.write_text(TRACE + "1,2\n")
    assert_refused(run(*simulate, str(trace)), "line 5: found time 1; expected a later time than 900")
    trace.write_text(TRACE)
    assert_refused(run(*simulate, str(trace), "--policy", "fixed:0"), "fixed:N")
    assert_refused(run(*simulate, str(trace), "--policy", "best"), "expected one of statecore, flink, ds2, aws")
    assert_refused(run(*simulate, str(trace), "--plot", str(tmp_path / "no" / "a.png")), "no folder")
    assert_refused(run(*simulate, str(trace), "--plot", str(tmp_path / "a.txt"), "--policy", "fixed:1"), "a.txt")
    (tmp_path / "w.json").write_text('{"speed": 1}')
    assert_refused(run(*simulate, str(trace), "--world", str(tmp_path / "w.json")), "speed")
