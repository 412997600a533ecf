"""Meters of pending input, from Spark's logs and progress; a source that does not report is unknown."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from statecore.catalog import SourceBacklog
from statecore.errors import StorageError
from statecore.runtime.backlog import monitor as backlog_module
from statecore.runtime.backlog.files import FileMeter, FileSourceOptions, ListedFile, logged_files, parsed_listing
from statecore.runtime.backlog.meters import UNKNOWN, Pending, ProgressMeter, RateMeter
from statecore.runtime.backlog.monitor import BacklogMonitor
from statecore.snapshot.manifest import SourcePositions
from tests.support.handmade import manifest
from tests.support.waiting import wait

DAY_MS = 86_400_000
NOW_MS = 1_795_264_377_003
# As Hadoop 3.4 describes files of the local file system and of S3.
LOCAL = (
    "LocatedFileStatus{path=file:/in/a b%c/f 1.json; isDirectory=false; length=80; replication=1; blocksize=33554432; "
    "modification_time=1795264377003; access_time=0; owner=; group=; permission=rw-rw-rw-; isSymlink=false; "
    "hasAcl=false; isEncrypted=false; isErasureCoded=false}"
)
S3 = (
    "S3AFileStatus{path=s3a://bucket/in/x; length=1; y; isDirectory=false; length=17; replication=1; "
    "blocksize=33554432; modification_time=1795264300000; access_time=0; owner=u; group=u; permission=rw-rw-rw-; "
    "isSymlink=false; hasAcl=false; isEncrypted=true; isErasureCoded=false} isEmptyDirectory=FALSE eTag=e"
)


class Folder:
    """A file source: its files, and Spark's log of the files read."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.log.mkdir()
        self.files: dict[str, ListedFile] = {}
        self.taken: list[list[tuple[str, int]]] = []

    def add(self, *names: str, size: int = 10, modified_ms: int = NOW_MS) -> None:
        self.files |= {f"file:/in/{name}": ListedFile(size, modified_ms) for name in names}

    def take(self, *names: str, compact: bool = False) -> None:
        """Write the log's next entry."""
        self.taken.append([(f"/in/{name}", self.files[f"file:/in/{name}"].modified_ms) for name in names])
        offset = len(self.taken) - 1
        batches = range(offset + 1) if compact else (offset,)
        lines = [
            json.dumps({"path": f"file://{quote(path)}", "timestamp": modified_ms, "batchId": batch})
            for batch in batches
            for path, modified_ms in self.taken[batch]
        ]
        entry = self.log / f"{offset}{'.compact' if compact else ''}"
        entry.write_text("\n".join(["v1", *lines]))

    def meter(self, *, max_age_ms: int | None = 7 * DAY_MS, by_name: bool = False) -> FileMeter:
        return FileMeter(lambda: dict(self.files), FileSourceOptions(max_age_ms, by_name, False), self.log)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "0")


def position(offset: int) -> str:
    return f'{{"logOffset":{offset}}}'


class TestFiles:
    def test_nothing_is_known_before_the_first_listing_and_all_waits_before_the_first_epoch(
        self, folder: Folder
    ) -> None:
        meter = folder.meter()
        assert meter.pending() == UNKNOWN
        folder.add("a", "b")
        meter.measure()
        assert meter.pending() == Pending(files=2, bytes=20, files_read=0)

    def test_files_of_committed_epochs_wait_no_more_and_those_of_a_running_one_still_do(self, folder: Folder) -> None:
        meter = folder.meter()
        folder.add("a", "b c%d", "é")
        meter.measure()
        folder.take("b c%d")
        folder.take("a")
        meter.committed(position(0))
        assert meter.pending().files == 2
        meter.measure()
        assert meter.pending().files == 2
        meter.committed(position(1))
        assert meter.pending() == Pending(files=1, bytes=10, files_read=2)
        folder.take("é")
        meter.committed(position(2))
        assert meter.pending() == Pending(files=0, bytes=0, files_read=3)

    def test_when_all_files_of_an_old_listing_are_read_nobody_knows_whether_any_wait(self, folder: Folder) -> None:
        now_s = [100.0]
        meter = FileMeter(
            lambda: dict(folder.files), FileSourceOptions(None, False, False), folder.log, lambda: now_s[0]
        )
        folder.add("a", "b")
        meter.measure()
        folder.take("a")
        meter.committed(position(0))
        now_s[0] += 31
        assert meter.pending() == Pending(files=1, bytes=10, files_read=1)
        folder.take("b")
        meter.committed(position(1))
        assert meter.pending() == Pending(files_read=2)
        meter.measure()
        assert meter.pending() == Pending(files=0, bytes=0, files_read=2)

    @pytest.mark.parametrize("resumed_at", [2, 9, 10, 12])
    def test_a_resumed_job_knows_what_was_read_from_any_entry_of_a_compacted_log(
        self, folder: Folder, resumed_at: int
    ) -> None:
        folder.add(*(f"f{n}" for n in range(13)), "new")
        for n in range(13):
            folder.take(f"f{n}", compact=n == 9)
        if resumed_at >= 9:
            # Spark deletes entries that a compaction contains.
            for n in range(9):
                (folder.log / str(n)).unlink()
        meter = folder.meter()
        meter.committed(position(resumed_at))
        meter.measure()
        assert meter.pending().files == 13 - resumed_at
        meter.committed(position(12))
        assert meter.pending().files == 1

    def test_a_meter_that_is_behind_catches_up_through_a_compaction(self, folder: Folder) -> None:
        meter = folder.meter()
        folder.add(*(f"f{n}" for n in range(21)))
        meter.measure()
        for n in range(20):
            folder.take(f"f{n}", compact=n in (9, 19))
            if n == 4:
                meter.committed(position(4))
        assert meter.pending().files == 16
        for n in range(19):
            (folder.log / f"{n}.compact").unlink(missing_ok=True)
            (folder.log / str(n)).unlink(missing_ok=True)
        meter.committed(position(19))
        assert meter.pending().files == 1

    def test_of_a_compaction_only_the_end_that_is_news_is_given(self, folder: Folder) -> None:
        folder.add(*(f"f{n}" for n in range(10)))
        for n in range(10):
            folder.take(f"f{n}", compact=n == 9)
        assert [path for path, _ in logged_files(folder.log, 7, 9)] == ["file:///in/f9", "file:///in/f8"]

    def test_files_that_are_too_old_to_be_read_do_not_wait(self, folder: Folder) -> None:
        folder.add("a", "b")
        folder.add("old", modified_ms=NOW_MS - 7 * DAY_MS - 1)
        meter, newest_first = folder.meter(), folder.meter(max_age_ms=None)
        folder.take("a")
        for each in (meter, newest_first):
            each.measure()
            assert each.pending().files == 3
            each.committed(position(0))
            each.measure()
        assert (meter.pending().files, newest_first.pending().files) == (1, 2)

    def test_a_source_that_goes_by_names_takes_files_of_one_name_for_one(self, folder: Folder) -> None:
        folder.add("day1/a", "day2/a", "day2/b")
        folder.take("day1/a")
        meter = folder.meter(by_name=True)
        meter.committed(position(0))
        meter.measure()
        assert meter.pending().files == 1

    def test_files_that_were_moved_away_are_not_there_to_wait(self, folder: Folder) -> None:
        folder.add("a", "b")
        meter = folder.meter()
        meter.measure()
        del folder.files["file:/in/a"]
        meter.measure()
        assert meter.pending().files == 1

    def test_a_listing_is_read_whatever_the_paths_have_in_them(self) -> None:
        assert parsed_listing(f"{LOCAL}\0{S3}") == {
            "file:/in/a b%c/f 1.json": ListedFile(80, NOW_MS),
            "s3a://bucket/in/x; length=1; y": ListedFile(17, 1_795_264_300_000),
        }
        with pytest.raises(StorageError, match=r"found 'FileStatus.*' in the listing.*; expected a path"):
            parsed_listing("FileStatus{path=file:/in/a}")


class TestRate:
    def test_it_owes_the_records_of_every_second_since_the_last_committed_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now_s = 1_800_000_000.0
        monkeypatch.setattr(time, "time", lambda: now_s)
        meter = RateMeter(50, tmp_path)
        meter.measure()
        assert meter.pending() == UNKNOWN
        (tmp_path / "0").write_text(f"v1\n{int(now_s * 1000) - 10_500}")
        meter.measure()
        assert meter.pending() == Pending(records=500)
        meter.committed("8")
        assert meter.pending() == Pending(records=100)
        meter.committed("11")
        assert meter.pending() == Pending(records=0)


class TestProgress:
    # As Spark's documentation has it of Kafka.
    KAFKA: Mapping[str, Any] = {
        "description": "KafkaV2[Subscribe[orders]]",
        "startOffset": {"orders": {"2": 0, "0": 1, "1": 0}},
        "endOffset": {"orders": {"2": 0, "0": 115, "1": 134}},
        "latestOffset": {"orders": {"2": 0, "0": 145, "1": 138, "3": 9}},
        "numInputRows": 10,
        "metrics": {"avgOffsetsBehindLatest": "14.0", "maxOffsetsBehindLatest": "30", "minOffsetsBehindLatest": "0"},
    }

    def test_kafka_is_behind_by_its_newest_offsets_less_the_committed_ones(self) -> None:
        meter = ProgressMeter(lambda: self.KAFKA)
        assert meter.pending() == UNKNOWN
        meter.measure()
        assert meter.pending() == Pending(records=34, partitions=4)
        meter.committed('{"orders":{"0":145,"1":130,"2":1}}')
        assert meter.pending() == Pending(records=8, partitions=4)

    def test_partitions_of_all_topics_count(self) -> None:
        latest = {"orders": {"0": 5, "1": 5}, "returns": {"0": 1}}
        meter = ProgressMeter(lambda: {**self.KAFKA, "latestOffset": latest, "endOffset": latest})
        meter.measure()
        assert meter.pending() == Pending(records=0, partitions=3)

    def test_a_table_tells_bytes_and_files(self) -> None:
        meter = ProgressMeter(lambda: {"metrics": {"numBytesOutstanding": "3456", "numFilesOutstanding": "8"}})
        meter.committed("not JSON")
        meter.measure()
        assert meter.pending() == Pending(bytes=3456, files=8)

    @pytest.mark.parametrize("said", [None, {}, {"latestOffset": {"a": {"b": 7}}, "endOffset": 3}, {"metrics": {}}])
    def test_a_source_that_says_nothing_cannot_tell(self, said: Mapping[str, Any] | None) -> None:
        meter = ProgressMeter(lambda: said)
        meter.measure()
        assert meter.pending() == UNKNOWN


class Notes:
    """The catalog's part for epochs, which records backlogs only."""

    def __init__(self) -> None:
        self.taken: list[tuple[SourceBacklog, ...]] = []
        self.is_away = False

    def record_backlog(self, job: str, generation: int, sources: Sequence[SourceBacklog]) -> None:
        if self.is_away:
            raise OSError("the catalog is away")
        self.taken.append(tuple(sources))


class Scripted:
    """A meter that returns given figures, or fails."""

    def __init__(self) -> None:
        self.there: int | None = 5
        self.read = 0
        self.blocked = threading.Event()
        self.blocked.set()

    def measure(self) -> None:
        self.blocked.wait(60)
        if self.there is None:
            raise OSError("no such folder")

    def committed(self, position: str) -> None:
        self.read = int(position)

    def pending(self) -> Pending:
        return Pending(files=(self.there or 0) - self.read)


class TestBacklog:
    @pytest.fixture(autouse=True)
    def _hurried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(backlog_module, "INTERVAL_S", 0.01)

    def after(self, epoch: int, offset: int, newest_event_ms: int | None = None) -> Any:
        source = SourcePositions(name="in", positions=(str(offset),), max_event_time_ms=newest_event_ms)
        gone = SourcePositions(name="gone", positions=())
        return manifest(epoch=epoch, sources=(source, gone))

    def test_what_fails_is_unknown_until_it_is_measured_again_and_the_others_go_on(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def warnings(text: str) -> list[str]:
            return [record.getMessage() for record in caplog.records if text in record.getMessage()]

        notes, broken, sound = Notes(), Scripted(), Scripted()
        backlog = BacklogMonitor(notes, "orders", 1, {"broken": broken, "in": sound}, self.after(0, 2))  # type: ignore[arg-type]
        assert backlog.committed(self.after(1, 3)) == ()
        backlog.start()
        try:
            for there, expected in ((5, 5), (None, None), (7, 7)):
                broken.there = there
                wait(lambda n=expected: notes.taken and notes.taken[-1][0].files == n, "the measurement")  # type: ignore[misc]
                assert notes.taken[-1][1].files == 2
                assert (notes.taken[-1][0].problem is None, notes.taken[-1][1].problem) == (expected is not None, None)
            notes.is_away = True
            wait(lambda: warnings("backlog of orders"), "the complaint")
            notes.is_away = False
            told = len(notes.taken)
            wait(lambda: len(notes.taken) > told, "the catalog to take more")
            assert [each.files for each in backlog.committed(self.after(2, 4))] == [7, 1]
        finally:
            backlog.close()
        assert (len(warnings("backlog of broken")), len(warnings("backlog of orders"))) == (1, 1)

    def test_lag_is_the_age_of_the_newest_event_time_that_was_read(self) -> None:
        newest_ms = int(time.time() * 1000) - 60_000
        resumed = self.after(0, 2, newest_ms)
        backlog = BacklogMonitor(Notes(), "orders", 1, {"in": Scripted(), "new": Scripted()}, resumed)  # type: ignore[arg-type]
        backlog.start()
        try:
            wait(lambda: backlog.committed(resumed), "the first measurement")
            old, new = backlog.committed(resumed)
            assert 60_000 <= (old.event_time_lag_ms or 0) < 90_000
            assert new.event_time_lag_ms is None
        finally:
            backlog.close()

    def test_a_listing_that_does_not_come_back_holds_up_neither_an_epoch_nor_the_end(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(backlog_module, "_JOIN_TIMEOUT_S", 0.1)
        stuck = Scripted()
        stuck.blocked.clear()
        backlog = BacklogMonitor(Notes(), "orders", 1, {"in": stuck}, None)  # type: ignore[arg-type]
        backlog.start()
        try:
            began = time.monotonic()
            backlog.committed(self.after(0, 1))
            backlog.close()
            # It would hold up whoever waits for it for a minute.
            assert time.monotonic() - began < 50
        finally:
            stuck.blocked.set()
