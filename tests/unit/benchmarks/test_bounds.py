"""Benchmarks run, and what they bound holds; both sides of a ratio meet the same moment of the machine."""

from __future__ import annotations

import pytest

from benchmarks import state_files, value_state


@pytest.mark.no_cover  # the measuring of coverage would be what is measured
def test_a_read_modify_write_costs_at_most_6_of_a_dict_and_10_with_a_time_to_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(value_state, "RECORDS", 150_000)
    monkeypatch.setattr(value_state, "RUNS", 5)
    ratios = value_state.ratios()
    assert ratios["value state"] <= 6
    assert ratios["value state with TTL"] <= 10


def test_the_benchmark_of_state_files_restores_what_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_files, "ROWS", 10_000)
    monkeypatch.setattr(state_files, "RUNS", 1)
    state_files.main()
