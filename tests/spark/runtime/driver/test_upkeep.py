"""State files are laid together and cleaned up while the stream runs, and nobody notices."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from statecore.errors import ConfigurationError
from statecore.runtime.settings import RuntimeSettings
from statecore.snapshot.compaction import BASE_FLOOR_BYTES
from tests.support.bench import Bench
from tests.support.waiting import wait

EAGER = {
    "statecore.compaction.floor": "0",
    # Longer than an epoch takes on a busy machine.
    "statecore.cleanup.grace": "5s",
    "statecore.checkpoints.retained": "2",
}


def test_bases_are_written_beside_the_stream_and_what_they_replace_is_removed(spark: Any, bench: Bench) -> None:
    bench.register(conf=EAGER)
    with bench.running(2):
        bench.feed()
        bench.wait_done()
        kept = bench.savepoint("early")
        assert kept.result is not None
        first_files = {ref.path for ref in bench.newest().files()}

        def bases() -> int:
            keyed = [item for subtask in bench.newest().operators[0].subtasks for item in subtask.keyed]
            return sum(item.kind == "base" for item in keyed)

        def stored() -> set[str]:
            return {entry.path for entry in bench.checkpoints.files.list("state")}

        def removed() -> bool:
            bench.feed(20)
            bench.wait_done()
            # Nobody needs the files of the epoch after the savepoint.
            return bases() == 4 and not [path for path in stored() if "-000000000001/" in path]

        wait(removed, "a base of each state and subtask, and a clean-up")
        assert len(bench.checkpoints.checkpoints()) < bench.newest().epoch
        assert {path for path in first_files if path.startswith("state/")} <= stored()
    with bench.running(3):
        bench.feed()
        bench.wait_done()
    bench.assert_exact(spark)
    bench.register(conf={})
    with bench.running(2, start_from="savepoints/early", roll_back=True) as third:
        wait(lambda: bench.newest().lineage == third.generation, "the epochs after the savepoint, once more")
    assert bench.newest().generation == third.generation == 3


def test_settings_are_read_from_the_jobs_configuration_and_refused_by_name() -> None:
    assert RuntimeSettings.from_conf({"spark.ui.enabled": "false"}) == RuntimeSettings(
        retained_checkpoints=10, clean_up_grace=timedelta(hours=1), base_floor_bytes=BASE_FLOOR_BYTES
    )
    read = RuntimeSettings.from_conf(EAGER)
    assert (read.retained_checkpoints, read.clean_up_grace, read.base_floor_bytes) == (2, timedelta(seconds=5), 0)
    for wrong in (
        {"statecore.checkpoints.retain": "2"},
        {"statecore.checkpoints.retained": "0"},
        {"statecore.cleanup.grace": "soon"},
    ):
        with pytest.raises(ConfigurationError, match=rf"found .*{next(iter(wrong))}.*; expected .*grace.*; `register"):
            RuntimeSettings.from_conf(wrong)
