"""The history that ``upkeep_growth`` measures is one that a job leaves: whole, thinned out, and cleaned up."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from benchmarks.rows.upkeep import STATES, History
from statecore.runtime.driver.upkeep import pause_s
from statecore.snapshot.settings import DriverSettings

MINUTES = 10
SETTINGS = DriverSettings(retained_checkpoints=5, clean_up_grace=timedelta(minutes=MINUTES))


def test_after_a_clean_up_a_history_has_a_checkpoint_a_minute_and_the_files_that_these_need(tmp_path: Path) -> None:
    history = History(tmp_path, 2, SETTINGS)
    history.advance(1081)
    removed = history.clean_up()

    # All but the files of bases and of changelogs that were not merged yet.
    made = 480 * 2 * len(STATES)
    assert made / 2 < removed.files < 2 * made
    minutes = [entry.modified_ms // 60_000 for entry in history.store.checkpoints()[:-5]]
    assert len(minutes) == len({*minutes})
    assert MINUTES <= len(minutes) <= MINUTES + 1
    assert history.store.committed()[-1] == (1, 1080)

    history.advance(60)
    assert history.clean_up().files < removed.files

    # What it measures is reported part by part.
    assert history.upkeep_ms() > 0
    assert [part in history.note for part in ("checkpoints", "merges", "files")] == [True] * 3


def test_looks_for_merges_come_every_five_seconds_or_take_a_thousandth_of_the_time_and_come_every_minute() -> None:
    assert [pause_s(took_s) for took_s in (0.0, 0.001, 0.02, 3.0)] == [5.0, 5.0, 20.0, 60.0]
