"""Sessions on Spark: exact across restarts at other parallelisms and a rewrite, while records come out of order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from statecore.runtime import read_savepoint, rewrite_savepoint
from tests.support.bench import Bench
from tests.support.jobs import visits
from tests.support.waiting import wait

GAP_S = int(visits.GAP.total_seconds())
LAST = 1_000_000


def expected(fed: list[tuple[str, int]]) -> Counter[tuple[str, int, int, int]]:
    """Sort, and split where nothing comes for longer than the gap."""
    found: Counter[tuple[str, int, int, int]] = Counter()
    for key in {k for k, _ in fed}:
        own = sorted(n for k, n in fed if k == key)
        cuts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(own)) if b - a > GAP_S), len(own)]
        for start, end in pairwise(cuts):
            part = own[start:end]
            found[key, 1000 * part[0], 1000 * (part[-1] + GAP_S), sum(part)] += 1
    return found


def test_sessions_are_exact_across_restarts_at_other_parallelisms_and_a_rewrite(spark: Any, bench: Bench) -> None:
    bench.register(artifact=Path(visits.__file__))
    random, sessions, wishes = Random(1), Counter[Any](), dict[str, Any]()
    for epoch, parallelism in enumerate((3, 2, 4)):
        with bench.running(parallelism, **wishes):
            for half in range(2):
                first = 100 * (2 * epoch + half)
                bench.feed(numbers=[first + random.randrange(200) for _ in range(120)])
            bench.wait_done()
            if parallelism == 2:
                savepoint = bench.store / str(bench.stop("narrow"))
                wide = rewrite_savepoint(spark, savepoint, name="wide", parallelism=4, max_parallelism=256)
                wishes = {"start_from": wide, "max_parallelism": 256}
            if parallelism == 4:
                sessions.update(expected(bench.fed))
                # A record long after all others closes their sessions; its own stays.
                bench.feed(numbers=[LAST])
                wait(lambda: bench.published("visits", ("total",)).total() == sessions.total(), "all sessions")
    assert bench.published("visits", ("k", "start", "end", "total")) == sessions
    assert max(end - start for _, start, end, _ in sessions) > 3 * 1000 * GAP_S
    newest = bench.newest()
    path = bench.store / bench.checkpoints.manifest_path(newest.lineage, newest.epoch)
    sums = read_savepoint(spark, path, "visits", visits.SUM.name).collect()
    assert [(row.window_start, row.window_end, row.value) for row in sums] == [
        (1000 * LAST, 1000 * (LAST + GAP_S), LAST)
    ]
