"""The time to look up what a key has in state must not grow with the state."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.harness import Bench, Figure, in_seconds, median_ratio
from benchmarks.inputs import key_column
from benchmarks.ours import written_savepoint
from statecore.snapshot.checkpoints import open_savepoint
from statecore.snapshot.lookup import keyed_states, state_of_key

FEW_KEYS, MANY_KEYS = 50_000, 5_000_000
_LOOKED_UP = 50


def growth(bench: Bench) -> list[Figure]:
    """Measure the median time of a key, its manifest read anew, among few keys and among many."""
    with bench.workspace("lookup") as folder:
        sides = {}
        for keys in (FEW_KEYS, MANY_KEYS):
            bench.say(f"writing a savepoint of {keys:,} keys")
            sides[f"{keys:,} keys"] = _timed(bench, folder / f"{keys}", keys)
        few, many = bench.rounds(sides, unit="s a key").values()
        return [Figure("state_lookup_growth", median_ratio(many, few), in_seconds(many), in_seconds(few))]


def _timed(bench: Bench, folder: Path, keys: int) -> Callable[[], float]:
    savepoint = written_savepoint(bench.spark, folder, keys)
    ids = bench.spark.range(0, keys, keys // _LOOKED_UP)
    texts = [row.k for row in ids.select(key_column(ids.id).alias("k")).collect()]

    def seconds() -> float:
        taken = []
        for text in texts:
            started = time.monotonic()
            store, _, manifest = open_savepoint(savepoint)
            (operator,) = manifest.operators
            found = state_of_key(store, manifest, operator, (text,), keyed_states(operator))
            taken.append(time.monotonic() - started)
            assert len(found) == 1, text
        return median(taken)

    return seconds
