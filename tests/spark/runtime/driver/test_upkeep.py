"""State files are laid together and cleaned up while the stream runs, and nobody notices."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.support.bench import Bench
from tests.support.programs import eager
from tests.support.waiting import wait

EAGER = msgspec.structs.replace(eager.EAGER, retained_checkpoints=2)


def test_bases_are_written_beside_the_stream_and_what_they_replace_is_removed(spark: Any, bench: Bench) -> None:
    with bench.running(2, settings=EAGER):
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
    with bench.running(3, settings=EAGER):
        bench.feed()
        bench.wait_done()
    bench.assert_exact(spark)
    with bench.running(2, start_from="savepoints/early", roll_back=True) as third:
        wait(lambda: bench.newest().lineage == third.generation, "the epochs after the savepoint, once more")
    assert bench.newest().generation == third.generation == 3
