"""Both sides of a comparison come to the same sums."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import peers
from benchmarks.epochs import seconds_of
from benchmarks.inputs import EVENTS, JOIN_WITHIN_S, MAX_LATENESS_S, SESSION_GAP_S, Input
from benchmarks.jobs.interval_join import RIGHT
from benchmarks.ours import INTERVAL_JOIN, SESSION_SUM, OurJob
from tests.support.published import published_files
from tests.support.waiting import wait


def test_all_sides_come_to_the_same_sums(spark: Any, tmp_path: Path) -> None:
    records = Input(tmp_path / "input")
    records.feed(400, 50, files=2)
    expected: dict[str, int] = defaultdict(int)
    for row in _rows(records.folder):
        expected[row["k"]] += row["n"]
    job = OurJob(spark, tmp_path / "ours", records.folder)
    with job.running() as query:
        assert len(seconds_of(query, 2)) == 2
    outputs = {"ours": job.folder / "output"}
    for operator in (peers.grouped_sum, peers.tws_row, peers.tws_pandas):
        folder = outputs[operator.__name__] = tmp_path / operator.__name__
        with peers.running(peers.peer_session(spark), operator, records.folder, folder) as query:
            assert len(seconds_of(query, 2)) == 2
    for side, folder in outputs.items():
        # Sums only grow, so the last one of a key is its largest.
        largest: dict[str, int] = defaultdict(int)
        for row in _rows(folder):
            largest[row["k"]] = max(largest[row["k"]], row["total"])
        assert largest == expected, side


def test_both_sides_emit_the_sums_of_the_sessions_that_have_ended(spark: Any, tmp_path: Path) -> None:
    events = Input(tmp_path / "input")
    events.feed_events(400, 200, files=3)
    expected = _ended_sessions(_rows(events.folder))
    assert 200 < len(expected) < 1200

    def emitted(folder: Path) -> bool:
        return Counter((row["k"], row["total"]) for row in _rows(folder)) == Counter(expected)

    job = OurJob(spark, tmp_path / "ours", events.folder, artifact=SESSION_SUM)
    with job.running():
        wait(lambda: emitted(job.folder / "output"), "our sums of all sessions that have ended")
    folder = tmp_path / "peer"
    session = peers.peer_session(spark)
    with peers.running(session, peers.session_sum, events.folder, folder, schema=EVENTS, output_mode="append"):
        wait(lambda: emitted(folder / "output"), "Spark's sums of all sessions that have ended")


def test_both_sides_of_an_interval_join_emit_each_pair_that_is_near_enough(spark: Any, tmp_path: Path) -> None:
    left, right = Input(tmp_path / "left"), Input(tmp_path / RIGHT, seed=1)
    for events in (left, right):
        events.feed_events(300, 50, files=2)
    within = timedelta(seconds=JOIN_WITHIN_S)
    expected = Counter(
        (one["k"], one["n"], other["n"])
        for one in _rows(left.folder)
        for other in _rows(right.folder)
        if one["k"] == other["k"] and abs(one["ts"] - other["ts"]) <= within
    )
    assert expected.total() > 300

    def emitted(folder: Path) -> bool:
        return Counter((row["k"], row["n"], row["other"]) for row in _rows(folder)) == expected

    job = OurJob(spark, tmp_path / "ours", left.folder, artifact=INTERVAL_JOIN)
    with job.running():
        wait(lambda: emitted(job.folder / "output"), "our pairs")

    session, join = peers.peer_session(spark), peers.interval_join(right.folder)
    with peers.running(session, join, left.folder, tmp_path / "peer", schema=EVENTS, output_mode="append"):
        wait(lambda: emitted(tmp_path / "peer" / "output"), "Spark's pairs")


def _ended_sessions(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Return key and sum of each session that ends before the watermark after all events."""
    gap, times = timedelta(seconds=SESSION_GAP_S), defaultdict[str, list[tuple[datetime, int]]](list)
    for event in events:
        times[event["k"]].append((event["ts"], event["n"]))
    watermark = max(event["ts"] for event in events) - timedelta(seconds=MAX_LATENESS_S)
    sessions = []
    for key, of_key in times.items():
        before = None
        for at, n in sorted(of_key):
            if before is None or at - before > gap:
                sessions.append((key, at, 0))
            sessions[-1] = (key, at, sessions[-1][2] + n)
            before = at
    return [(key, total) for key, last, total in sessions if last + gap < watermark]


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [row for file in published_files(folder) for row in pq.ParquetFile(file).read().to_pylist()]
