"""Rows on their way to a sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import SinkError
from statecore.model import parse_row
from statecore.runtime.messages import StagedSink
from statecore.runtime.worker.outputs import Outputs
from statecore.state.process import MAIN_OUTPUT
from statecore.storage import open_store


def test_a_place_that_takes_no_rows_is_told_as_the_sinks_and_not_as_the_jobs_store(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    outputs = Outputs([StagedSink("daily", MAIN_OUTPUT, parse_row("n bigint"), open_store(str(place)))])
    outputs.emit_all([(1,), (2,)])
    # As a failed mount leaves it.
    place.write_text("")
    with pytest.raises(SinkError, match=r"rows that sink 'daily' cannot stage: .*; expected its place to take them"):
        list(outputs.stage("1-1", "0-t"))
