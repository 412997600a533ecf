"""``jobs``."""

from __future__ import annotations

import json
import re
import time

import pytest

from statecore.catalog import Catalog, EpochRecord, Liveness, SourceBacklog
from statecore.cli.output import lag
from statecore.snapshot.checkpoints import CheckpointStore
from tests.support.shell import register, run


@pytest.mark.parametrize(
    ("backlog", "words"),
    [
        (SourceBacklog("in"), "–"),
        (SourceBacklog("in", records=9, event_time_lag_ms=83_000), "0:01:23"),
        (SourceBacklog("in", records=9, event_time_lag_ms=271 * 86_400_000 + 5), "replaying, events 271 days old"),
        (SourceBacklog("in", records=0, event_time_lag_ms=86_400_000), "events 1 days old"),
    ],
)
def test_a_lag_of_days_says_what_makes_it(backlog: SourceBacklog, words: str) -> None:
    assert lag(backlog) == words


class TestJobList:
    def test_programs_see_what_is_wanted_and_what_is(self, catalog: Catalog, job: str, store: CheckpointStore) -> None:
        register(catalog, store, "invoices")
        catalog.jobs.set_desired(job, state="running", parallelism=3)
        catalog.generations.claim(job, log_path="/logs/orders-1.log")
        catalog.epochs.record(EpochRecord(job, 2, 41, 1, 3, 10, 500, 0, 0, 0))
        catalog.epochs.record_backlog(job, 1, [SourceBacklog("in", bytes=9, files=1), SourceBacklog("rules")])
        (measured,) = catalog.epochs.backlogs(job)
        done = run("jobs", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        invoices, orders = json.loads(done.stdout)
        assert orders == {
            "job": job, "desired": "running", "driver": "launching", "generation": 1, "parallelism": 3,
            "max_parallelism": 16, "lineage": 2, "epoch": 41, "rows_total": 500, "error": None, "log": None,
            "checkpoint": None,
            "committed_ms": 0,
            "rows_per_second": 0.0, "backlog_records": None, "backlog_bytes": 9, "backlog_files": 1,
            "event_time_lag_ms": None, "backlog_measured_ms": measured.measured_ms,
            "sources": [
                {"name": "in", "records": None, "bytes": 9, "files": 1, "event_time_lag_ms": None,
                 "files_read": None, "partitions": None, "oldest_age_ms": None, "skew": None, "problem": None},
                {"name": "rules", "records": None, "bytes": None, "files": None, "event_time_lag_ms": None,
                 "files_read": None, "partitions": None, "oldest_age_ms": None, "skew": None, "problem": None},
            ],
        }  # fmt: skip
        assert (invoices["driver"], invoices["generation"], invoices["epoch"]) == ("never started", None, None)

    def test_people_see_whether_a_running_job_keeps_up_and_nothing_that_is_out_of_date(
        self, catalog: Catalog, job: str
    ) -> None:
        catalog.generations.claim(job, log_path="/l")
        catalog.generations.heartbeat(job, 1)
        now_ms = int(time.time() * 1000)
        catalog.epochs.record(EpochRecord(job, 1, 0, 1, 3, 90_000, 90_000, now_ms - 30_000, now_ms, 30_000))
        assert re.search(r"│ – +│ +– │$", run("jobs").stdout, re.MULTILINE)
        waiting = [
            SourceBacklog("in", bytes=2_500_000, files=3),
            SourceBacklog("rates", 1200, event_time_lag_ms=83_999),
        ]
        catalog.epochs.record_backlog(job, 1, waiting)
        table = run("jobs").stdout
        found = re.search(r"│ +([\d,]+) │ 1,200 records, 3 files, 2\.5 MB +│ 0:01:23 │$", table, re.MULTILINE)
        assert found is not None, table
        assert 2_000 < int(found[1].replace(",", "")) <= 3_000
        catalog.generations.end(job, 1, state="stopped")
        assert "records" not in run("jobs").stdout

    def test_why_a_driver_failed_and_where_its_log_is_stands_below_the_table(self, catalog: Catalog, job: str) -> None:
        catalog.generations.claim(job, log_path="/logs/orders-1.log")
        catalog.generations.end(job, 1, state="failed", error="MissingFileError: found no file")
        done = run("jobs")
        assert "failed" in done.stdout
        assert "orders, generation 1: MissingFileError: found no file (log: /logs/orders-1.log)" in done.stdout

    def test_a_driver_that_is_not_heard_of_is_lost_whatever_it_last_said(
        self, catalog: Catalog, job: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        catalog.generations.claim(job, log_path="/l")
        catalog.generations.heartbeat(job, 1, lineage=1, epoch=4)
        monkeypatch.setattr(Liveness, "is_alive", lambda *_: False)
        (orders,) = json.loads(run("jobs", "--json").stdout)
        # Its newest epoch is known though nobody recorded the figures.
        assert (orders["driver"], orders["lineage"], orders["epoch"]) == ("lost", 1, 4)
        assert "no supervisor runs" in orders["error"]
