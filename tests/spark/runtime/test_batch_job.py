"""A chain of functions over batches on Spark: exact over restarts, rescales and a change to records and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from statecore.runtime import read_savepoint
from tests.support.bench import Bench
from tests.support.jobs import batches


class Truth:
    """What an uninterrupted run would have given."""

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self.largest: dict[int, int] = {}
        self.sums: Counter[tuple[Any, ...]] = Counter()
        self.newest_largest: Counter[tuple[int, int]] = Counter()

    def epoch(self, records: Iterable[tuple[str, int]], *, by_record: bool) -> None:
        given: list[tuple[str, int, int]] = []
        for k, n in records:
            self.totals[k] += n
            given.append((k, int(k[1:]) & 3, self.totals[k]))
        # Numbers are positive, so the last sum of a key is the largest, and the one that a batch gives.
        self.sums.update(given if by_record else {k: row for row in given for k in row[:1]}.values())
        for _, bucket, total in given:
            self.largest[bucket] = max(total, self.largest.get(bucket, 0))
        self.newest_largest.update((bucket, self.largest[bucket]) for bucket in {row[1] for row in given})


def test_sums_over_batches_are_exact_whatever_happens_between_epochs(spark: Any, bench: Bench, tmp_path: Path) -> None:
    bench.register(artifact=Path(batches.__file__))
    truth, by_record = Truth(), tmp_path / "by_record"
    for parallelism, records_now in [(3, False), (2, True), (4, False)]:
        by_record.touch() if records_now else by_record.unlink(missing_ok=True)
        with bench.running(parallelism):
            for _ in range(2):
                fed = len(bench.fed)
                bench.feed(120)
                bench.wait_done()
                truth.epoch(bench.fed[fed:], by_record=records_now)
    assert bench.published("sums", ("k", "bucket", "total")) == truth.sums
    assert bench.published("largest", ("bucket", "largest")) == truth.newest_largest
    assert bench.published("big", ("k", "n")) == Counter(
        record for record in bench.fed if record[1] >= batches.BIG_FROM
    )
    path = bench.store / bench.checkpoints.manifest_path(bench.newest().lineage, bench.newest().epoch)
    totals = read_savepoint(spark, path, "sums", "total").collect()
    assert {row.k: row.value for row in totals} == truth.totals
    largest = read_savepoint(spark, path, "largest", "largest").collect()
    assert {row.bucket: row.value for row in largest} == truth.largest
