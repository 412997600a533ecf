"""A job with ``on_error`` goes on after poison, and holds what it would hold without."""

from __future__ import annotations

import json
from collections import Counter, namedtuple
from pathlib import Path
from typing import Any

from statecore.testing import KeyedOperatorHarness, physical
from tests.support.alone import history, restore
from tests.support.bench import Bench
from tests.support.jobs import poisoned

Row = namedtuple("Row", ["k", "n"])
COLUMNS = ("error", "uid", "key", "epoch", "record")


def test_poison_goes_to_the_side_output_and_leaves_nothing_else(bench: Bench) -> None:
    bench.register(artifact=Path(poisoned.__file__))
    with bench.running(3):
        bench.feed(120)
        bench.feed(120)
        bench.wait_done()
    # State comes from files now, and belongs to other subtasks.
    with bench.running(2):
        bench.feed(120)
        bench.wait_done()

    alone, letters, fed = KeyedOperatorHarness(poisoned.Sum()), Counter[Any](), iter(bench.fed)
    for manifest in history(bench):
        for k, n in sorted((next(fed) for _ in range(manifest.rows)), key=lambda record: record[1]):
            if poisoned.is_poison(n):
                record = json.dumps({"k": k, "n": n}, separators=(",", ":"))
                letters[f"ValueError: {n} is poison", "sums", f'["{k}"]', manifest.epoch, record] += 1
            else:
                alone.process(Row(k, n))
    assert letters.total() == 36
    assert bench.published("bad", COLUMNS) == letters
    assert bench.published("sums", ("k", "n", "sum", "last")) == Counter(alone.output)
    assert bench.published("seen", ("n",)) == Counter((n,) for n in alone.side_output(poisoned.SEEN))
    restored = restore(bench, bench.newest())
    for name in ("sum", "last", "__processing_timers"):
        assert physical(restored, name) == physical(alone.keyed_backend, name), name
