"""The rows of make bench: targets, measurement, reports, and equal results on both sides."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks.harness import Bench, Figure, Target
from benchmarks.report import merged, notes, read_json, table, write_json, write_plot
from benchmarks.rows.live import Outage
from benchmarks.targets import FAMILIES, TARGETS
from statecore.catalog import EpochRecord

FIGURES = [Figure("record_vs_spark", 0.95, "a", "b"), Figure("epoch_growth", 1.5, "c", "d", "a note")]
RATIOS = {figure.name: figure.ratio for figure in FIGURES}


def test_every_row_has_a_target_and_one_measurement() -> None:
    measured = [row for family in FAMILIES for row in family.rows]
    assert sorted(measured) == sorted(TARGETS)


@pytest.mark.parametrize(("at_least", "good", "bad"), [(True, 2.0, 1.99), (False, 2.0, 2.01)])
def test_a_target_is_met_at_its_bound_and_missed_beyond_it(at_least: bool, good: float, bad: float) -> None:
    target = Target("name", "what", 2, at_least)
    assert target.met(good)
    assert not target.met(bad)


def test_programs_get_name_ratio_and_target_of_each_row(tmp_path: Path) -> None:
    write_json(RATIOS, TARGETS, tmp_path / "bench.json")
    assert json.loads((tmp_path / "bench.json").read_text()) == [
        {"name": "record_vs_spark", "ratio": 0.95, "target": 0.9},
        {"name": "epoch_growth", "ratio": 1.5, "target": 1.3},
    ]


def test_people_get_a_table_that_says_which_targets_were_missed_and_a_plot(tmp_path: Path) -> None:
    out = Console(file=io.StringIO(), width=200)
    out.print(table(FIGURES, TARGETS))
    met, missed = (line for line in out.file.getvalue().splitlines() if "_" in line and "." in line)  # type: ignore[attr-defined]
    assert "met" in met
    assert "MISSED" in missed
    assert "  a note" in list(notes(FIGURES, TARGETS))
    write_plot(RATIOS | {"live_vs_restart": 0.0}, TARGETS, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_of_some_rows_keeps_the_figures_of_the_others() -> None:
    earlier = {"epoch_growth": 1.2, "record_vs_spark": 0.8, "a row of an older release": 1.0}
    assert merged(earlier, FIGURES[:1], ["record_vs_spark"], TARGETS) == {"record_vs_spark": 0.95, "epoch_growth": 1.2}


def test_a_row_that_fails_keeps_no_figure_of_an_earlier_run() -> None:
    earlier = {"record_vs_spark": 0.8, "epoch_growth": 1.2}
    assert merged(earlier, FIGURES[:1], [*RATIOS], TARGETS) == {"record_vs_spark": 0.95}


def test_rows_stand_in_the_order_of_the_targets_whichever_was_measured_first() -> None:
    assert list(merged({"epoch_growth": 1.2}, FIGURES[:1], ["record_vs_spark"], TARGETS)) == [*RATIOS]
    assert list(merged({"record_vs_spark": 1.2}, FIGURES[1:], ["epoch_growth"], TARGETS)) == [*RATIOS]


def test_figures_of_an_earlier_run_are_read_and_damaged_ones_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    assert read_json(path) == {}
    write_json(RATIOS, TARGETS, path)
    assert read_json(path) == RATIOS
    path.write_text(path.read_text()[:-5])
    with pytest.raises(ValueError, match=r"found .*bench.json, which is damaged .*; expected .*; delete it"):
        read_json(path)


@pytest.mark.parametrize(
    ("option", "unknown", "known"), [("--only", "record_vs_flink", "record_vs_spark"), ("--group", "flink", "core")]
)
def test_a_row_or_group_that_is_not_there_is_refused_with_the_names_of_those_that_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str, unknown: str, known: str
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", option, unknown])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert known in capsys.readouterr().err


def test_a_run_measures_one_row_or_a_group_or_all_and_merges_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[set[str]] = []

    def measured(rows: set[str], console: Console) -> tuple[list[Figure], list[str]]:
        asked.append(rows)
        return [Figure(row, len(asked), "a", "b") for row in rows], []

    monkeypatch.setattr(command, "RUN", tmp_path)
    monkeypatch.setattr(command, "_measured", measured)
    # The second run has 2 for all rows of its group: simulated epochs are not like real ones.
    for arguments, code in (([], 0), (["--group", "core"], 1), (["--only", "epoch_growth"], 0)):
        monkeypatch.setattr("sys.argv", ["benchmarks", *arguments])
        assert command.main() == code
    core = {row for family in FAMILIES if family.group == "core" for row in family.rows}
    assert asked == [set(TARGETS), core, {"epoch_growth"}]
    ratios = read_json(tmp_path / "bench.json")
    assert ratios == dict.fromkeys(TARGETS, 1.0) | dict.fromkeys(core, 2.0) | {"epoch_growth": 3.0}
    assert (tmp_path / "bench.png").exists()


@pytest.mark.parametrize(
    ("name", "beyond", "code"), [("simulated_epochs", 0.0, 0), ("simulated_epochs", 0.1, 1), ("epoch_growth", 0.1, 0)]
)
def test_simulated_epochs_unlike_real_ones_fail_the_run_and_a_slow_row_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, beyond: float, code: int
) -> None:
    row = Figure(name, TARGETS[name].bound + beyond, "a", "b")
    monkeypatch.setattr(command, "RUN", tmp_path)
    monkeypatch.setattr(command, "_measured", lambda rows, console: ([row], []))
    monkeypatch.setattr("sys.argv", ["benchmarks", "--only", row.name])
    assert command.main() == code


def test_sides_take_turns_and_the_warm_up_does_not_count(tmp_path: Path) -> None:
    calls: list[str] = []

    def side(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    bench = Bench(None, tmp_path, lambda _: None)  # type: ignore[arg-type]
    taken = bench.rounds({"a": lambda: side("a"), "b": lambda: side("b")}, unit="s", rounds=2)
    assert calls == ["a", "b"] * 3
    assert taken == {"a": [3, 5], "b": [4, 6]}


def test_an_outage_is_the_gap_at_the_change_of_parallelism_beyond_the_usual_one() -> None:
    published_ms = [1000, 2000, 3000, 6500, 7500]
    epochs = [_epoch(number, ms, 2 if number < 3 else 4) for number, ms in enumerate(published_ms)]
    outage = Outage.of(epochs)
    assert (outage.gap_s, outage.usual_s, outage.stopped_s) == (3.5, 1.0, 2.5)
    assert Outage(gap_s=0.8, usual_s=1.0).stopped_s == 0


def _epoch(number: int, published_ms: int, parallelism: int) -> EpochRecord:
    return EpochRecord(
        job="job", lineage=1, epoch=number, generation=1, parallelism=parallelism, rows=1, rows_total=1,
        started_ms=published_ms - 100, committed_ms=published_ms - 50, duration_ms=100,
    )  # fmt: skip
