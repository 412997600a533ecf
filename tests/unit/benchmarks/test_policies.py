"""The goals of make policies, its shapes, and its report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.policies.arrivals import steps
from benchmarks.policies.foresight import Foresight
from benchmarks.policies.goals import Goal, goals
from benchmarks.policies.picture import write_picture
from benchmarks.policies.random_shapes import random_shapes
from benchmarks.policies.report import kinds, misses, table, write_json
from benchmarks.policies.shapes import SHAPES, Expected, Shape
from benchmarks.policies.simulations import OURS, PEERS, VARIANTS
from statecore.policy import Ailment
from statecore.simulator import Outcome, SimulatedDecision, Trace, World, simulate, simulation
from statecore.simulator.job import SimulatedJob
from statecore.simulator.players.statecore import settings_for
from statecore.simulator.simulation import Sample

ANY = replace(SHAPES["ramp"], expected=Expected())
PEER = Outcome(slo_minutes=5, core_hours=10)


def _missed(shape: Shape, ours: Outcome, **peers: Outcome) -> list[str]:
    outcomes = {OURS: ours, **dict.fromkeys(PEERS, PEER), **peers}
    return [goal.name for goal in goals(shape, outcomes) if not goal.holds]


def _expecting(expected: Expected) -> Shape:
    return replace(ANY, expected=expected)


def _rescales(*at_s: float) -> list[SimulatedDecision]:
    return [SimulatedDecision(each, 2, 3, "") for each in at_s]


def test_late_minutes_may_be_one_more_than_those_of_the_best_peer() -> None:
    best = Outcome(slo_minutes=1, core_hours=10)
    assert _missed(ANY, Outcome(slo_minutes=2), ds2=best) == []
    assert _missed(ANY, Outcome(slo_minutes=2.1), ds2=best) == ["SLO"]


def test_core_hours_are_compared_with_the_cheapest_peer_that_is_as_timely() -> None:
    late = Outcome(slo_minutes=50, core_hours=1)
    assert _missed(ANY, Outcome(core_hours=11), ds2=late) == []
    assert _missed(ANY, Outcome(core_hours=11.1), ds2=late) == ["core-hours"]


def test_a_goal_says_what_its_peer_pays_and_of_two_as_timely_ones_names_the_cheaper() -> None:
    dear, best = Outcome(slo_minutes=1, core_hours=20), Outcome(slo_minutes=1, core_hours=15)
    late = Outcome(slo_minutes=2, core_hours=10)
    outcomes = {OURS: Outcome(slo_minutes=3, core_hours=12), "flink": dear, "ds2": best, "aws": late}
    slo, core_hours = goals(ANY, outcomes)
    assert slo.found == "3.0 min for 12.0 core-hours"
    assert slo.expected == "at most 2.0 min, 1 more than ds2, which takes 15.0 core-hours"
    assert core_hours.found == "12.0, and 3.0 min late"
    assert core_hours.expected == "at most 11.0, 1.1 × aws, which is late for 2.0 min"


def test_a_peer_that_breaks_the_limit_on_rescales_is_no_measure_of_core_hours() -> None:
    restless = Outcome(core_hours=1, decisions=_rescales(10, 20, 30))
    shape = _expecting(Expected(levels=(0,)))
    assert _missed(shape, Outcome(core_hours=11), ds2=replace(restless, slo_minutes=5)) == []
    assert _missed(ANY, Outcome(core_hours=11), ds2=replace(restless, slo_minutes=5)) == ["core-hours"]


def test_where_no_rescale_helps_none_may_come_and_a_peer_that_rescales_there_is_no_measure() -> None:
    shape = _expecting(Expected(stays=(100, 200)))
    assert _missed(shape, Outcome(slo_minutes=6, decisions=_rescales(50, 200))) == []
    assert _missed(shape, Outcome(decisions=_rescales(100))) == ["rescales"]
    restless = Outcome(decisions=_rescales(150))
    assert _missed(shape, Outcome(slo_minutes=6), ds2=restless) == []
    assert _missed(shape, Outcome(slo_minutes=7, core_hours=12), ds2=restless) == ["SLO", "core-hours"]
    assert _missed(shape, Outcome(slo_minutes=99), **dict.fromkeys(PEERS, restless)) == []


def test_each_level_has_two_rescales() -> None:
    shape = _expecting(Expected(levels=(0, 100)))
    assert _missed(shape, Outcome(decisions=_rescales(1, 2, 100, 101))) == []
    assert _missed(shape, Outcome(decisions=_rescales(1, 100, 101, 102))) == ["rescales"]


@pytest.mark.parametrize(("at_s", "missed"), [(220, []), (221, ["scale-out"]), (None, ["scale-out"])])
def test_a_scale_out_comes_in_time(at_s: float | None, missed: list[str]) -> None:
    shape = _expecting(Expected(levels=(0, 100), grows=120))
    assert _missed(shape, Outcome(decisions=_rescales(*([] if at_s is None else [at_s])))) == missed


@pytest.mark.parametrize(
    ("diagnoses", "missed"),
    [
        ([(10, "hot_key")], []),
        ([(10, "healthy"), (400, "hot_key")], []),
        ([(10, "healthy"), (401, "hot_key")], ["diagnosis"]),
        ([(10, "hot_key"), (99, "healthy")], ["diagnosis"]),
        ([], ["diagnosis"]),
    ],
)
def test_the_right_diagnosis_holds_within_five_minutes(diagnoses: list[tuple[float, str]], missed: list[str]) -> None:
    shape = _expecting(Expected(diagnoses=((100, (Ailment.HOT_KEY,)),)))
    assert _missed(shape, Outcome(diagnoses=diagnoses)) == missed


def test_without_all_peers_there_is_no_comparison() -> None:
    assert goals(ANY, {OURS: PEER, "ds2": PEER}) == []
    assert goals(SHAPES["step"], {"ds2": PEER}) == []


def test_foresight_sees_the_largest_rate_of_the_next_ten_minutes() -> None:
    world = World()
    job = SimulatedJob(steps(3600, (0, 1_000), (1_500, 9_000)), world, 2, now_s=800.0)
    plays = Foresight(settings_for(world))
    assert plays.figures(job).arriving is None
    job.arrived = [(float(at_s), 1_000.0 * at_s) for at_s in range(0, 801, 5)]
    assert plays.figures(job).arriving == pytest.approx(1_000)
    job.now_s = 1_000.0
    job.arrived += [(float(at_s), 1_000.0 * at_s) for at_s in range(805, 1_001, 5)]
    assert plays.figures(job).arriving == pytest.approx(9_000, rel=0.2)


def test_every_shape_fits_its_world() -> None:
    for shape in (*SHAPES.values(), *random_shapes(100, 1).values()):
        hours = shape.trace.end_s / 3600
        assert 4 <= hours <= 12, shape.name
        assert shape.world.parallelism <= shape.world.max_parallelism, shape.name
        assert shape.trace.arrived(shape.trace.end_s) > 0, shape.name


def test_random_shapes_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    found = random_shapes(20, 1)
    assert len({name.rpartition("_")[0] for name in found}) == 20
    assert random_shapes(40, 1).items() >= found.items()
    others = random_shapes(20, 2)
    assert all(found[name].trace != others[name].trace for name in found)


def test_the_goals_that_hold_are_counted_by_kind() -> None:
    judged = {"a": [Goal("SLO", True, "", ""), Goal("rescales", True, "", "")], "b": [Goal("SLO", False, "", "")]}
    assert kinds(judged) == "SLO 1 of 2, rescales 1 of 1"


def test_the_report_has_all_figures_and_names_what_is_missed(tmp_path: Path) -> None:
    ours = Outcome(slo_minutes=7, core_hours=10, samples=[Sample(5, 2, 0, 0), Sample(10, 3, 9, 90)])
    outcomes = {"ramp": {OURS: ours, **dict.fromkeys(PEERS, PEER)}}
    judged = {"ramp": goals(SHAPES["ramp"], outcomes["ramp"])}
    console = Console(width=120, record=True)
    console.print(table(outcomes, judged))
    assert "MISSED: SLO" in console.export_text()
    assert "found 7.0 min for 10.0 core-hours; expected at most 6.0 min" in " ".join(misses(SHAPES, judged))
    write_json(SHAPES, outcomes, judged, tmp_path / "policies.json")
    written = json.loads((tmp_path / "policies.json").read_text())["ramp"]
    assert [goal["holds"] for goal in written["goals"]] == [False, True]
    assert written["policies"]["ds2"]["core_hours"] == 10
    write_picture(SHAPES, outcomes, tmp_path / "policies.png")
    assert (tmp_path / "policies.png").read_bytes().startswith(b"\x89PNG")


def test_a_window_has_its_size_ready_when_the_load_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "LOOK_S", 60.0)
    shape = SHAPES["shifts"]
    jumps_s = shape.trace.times_s[1]
    outcome = simulate(Trace((0.0, jumps_s), shape.trace.rates[:1]), shape.world, VARIANTS["scheduled"](shape))
    assert outcome.end_parallelism == 8 and outcome.decisions[-1].t_s >= jumps_s - 360
