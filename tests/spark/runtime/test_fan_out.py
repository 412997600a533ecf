"""An operator whose outputs two others read runs once an epoch, also without a key."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from statecore.runtime import read_savepoint
from tests.support.bench import Bench
from tests.support.jobs import fan_out


def test_two_operators_read_what_one_without_a_key_gives(spark: Any, bench: Bench) -> None:
    bench.register(artifact=Path(fan_out.__file__))
    for parallelism in (3, 2):
        with bench.running(parallelism):
            for _ in range(2):
                bench.feed(60)
            bench.wait_done()
    path = bench.store / bench.checkpoints.manifest_path(1, bench.newest().epoch)
    for name, fed in (("all", bench.fed), ("odd", [(k, n) for k, n in bench.fed if n % 2])):
        assert bench.published(name, ("k", "n")) == Counter(fed)
        expected: Counter[str] = Counter()
        for k, n in fed:
            expected[k] += n
        sums = read_savepoint(spark, path, f"sum_{name}", "sum").collect()
        assert {row.k: row.value for row in sums} == dict(expected)
