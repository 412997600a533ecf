"""Parts of the runtime that need no Spark: where to go on from, Spark's bookkeeping, sinks, the job builder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from statecore import KeyedProcessFunction, MapStateDescriptor, OutputTag
from statecore.errors import (
    CorruptFileError,
    JobDefinitionError,
    ManifestError,
    MissingFileError,
    UnsupportedTypeError,
)
from statecore.runtime import Job, ParquetSink
from statecore.runtime.epoch.progress import (
    EpochTimes,
    QuerySources,
    capture_progress,
    lay_down_progress,
    source_positions,
)
from statecore.runtime.job import load_job
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import SourcePositions, encode_manifest
from statecore.snapshot.resume_point import ResumePoint, find_resume_point
from tests.support.handmade import manifest


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path / "store"))


class Starting(NamedTuple):
    name: str
    start_from: str | None
    start_after_generation: int
    roll_back: bool


class TestResumePoint:
    """Columns: what is committed, what is asked for, what to go on from."""

    def resume(
        self, store: CheckpointStore, start_from: str | None, *, roll_back: bool = False, after_generation: int = 1
    ) -> tuple[int, int | None, str | None]:
        job = Starting("orders", start_from, after_generation, roll_back)
        point = find_resume_point(store, job, after_generation + 1)
        assert isinstance(point, ResumePoint)
        return point.lineage, None if point.manifest is None else point.manifest.epoch, point.path

    def savepoint(self, store: CheckpointStore, lineage: int, epoch: int, **changes: Any) -> str:
        made = manifest(lineage=lineage, epoch=epoch, **changes)
        return store.write_savepoint(made, f"sp-{lineage}-{epoch}", reason="", now_ms=0)

    def test_a_new_job_starts_its_first_lineage_from_nothing(self, store: CheckpointStore) -> None:
        assert self.resume(store, None) == (1, None, None)

    def test_without_a_wish_the_newest_epoch_counts(self, store: CheckpointStore) -> None:
        for lineage, epoch in [(1, 0), (1, 1), (2, 1), (2, 2)]:
            store.commit(manifest(lineage=lineage, epoch=epoch))
        assert self.resume(store, None) == (2, 2, "manifests/000002-000000000002.json")

    def test_a_savepoint_in_a_store_without_epochs_is_gone_on_from_in_its_lineage(self, store: CheckpointStore) -> None:
        path = self.savepoint(store, 3, 7)
        assert self.resume(store, path) == (3, 7, path)

    def test_a_savepoint_of_the_newest_epoch_keeps_the_lineage_also_at_another_parallelism(
        self, store: CheckpointStore
    ) -> None:
        store.commit(manifest(epoch=7))
        path = self.savepoint(store, 1, 7, parallelism=4)
        assert self.resume(store, path) == (1, 7, path)

    def test_an_older_savepoint_opens_a_new_lineage_only_when_a_roll_back_is_asked_for(
        self, store: CheckpointStore
    ) -> None:
        for epoch in range(5, 9):
            store.commit(manifest(epoch=epoch, parent=CheckpointStore.manifest_path(1, epoch - 1)))
        path = self.savepoint(store, 1, 6)
        assert self.resume(store, path, roll_back=True) == (2, 6, path)
        assert self.resume(store, path) == (1, 8, CheckpointStore.manifest_path(1, 8))

    def test_a_savepoint_of_an_older_lineage_opens_a_new_one_after_the_newest(self, store: CheckpointStore) -> None:
        for lineage, epoch in [(1, 6), (2, 7), (3, 7)]:
            store.commit(manifest(lineage=lineage, epoch=epoch))
        path = self.savepoint(store, 1, 6)
        assert self.resume(store, path, roll_back=True) == (4, 6, path)
        assert self.resume(store, path) == (3, 7, CheckpointStore.manifest_path(3, 7))

    def test_drivers_of_two_generations_never_open_the_same_lineage(self, store: CheckpointStore) -> None:
        for epoch in range(5, 9):
            store.commit(manifest(epoch=epoch))
        older, old = self.savepoint(store, 1, 5), self.savepoint(store, 1, 6)
        frozen = self.resume(store, older, roll_back=True, after_generation=4)
        assert (frozen, self.resume(store, old, roll_back=True, after_generation=5)) == ((5, 5, older), (6, 6, old))

    @pytest.mark.parametrize("lineage", [1, 2])
    def test_a_wish_is_honoured_once_then_the_newest_epoch_counts(self, store: CheckpointStore, lineage: int) -> None:
        store.commit(manifest(epoch=6))
        path = self.savepoint(store, 1, 6)
        for epoch in (7, 8):
            store.commit(manifest(lineage=lineage, epoch=epoch, generation=2))
        # Also when the first of them was cleaned up.
        store.files.delete(CheckpointStore.manifest_path(lineage, 7))
        newest = (lineage, 8, CheckpointStore.manifest_path(lineage, 8))
        assert self.resume(store, path) == self.resume(store, path, roll_back=True) == newest

    def test_a_wish_that_no_epoch_followed_yet_stays(self, store: CheckpointStore) -> None:
        store.commit(manifest(epoch=6))
        path = self.savepoint(store, 1, 6)
        assert self.resume(store, path) == self.resume(store, path) == (1, 6, path)

    def test_a_copy_of_the_newest_epoch_counts_only_when_it_was_laid_out_anew(
        self, store: CheckpointStore, tmp_path: Path
    ) -> None:
        made = manifest(epoch=6)
        store.commit(made)
        newest = (1, 6, CheckpointStore.manifest_path(1, 6))
        for max_parallelism, expected in ((made.max_parallelism, newest), (99, (1, 6, "manifest.json"))):
            copy = msgspec.structs.replace(manifest(epoch=6, max_parallelism=max_parallelism), root=".")
            folder = tmp_path / f"copy-{max_parallelism}"
            CheckpointStore.at(str(folder)).files.write("manifest.json", encode_manifest(copy))
            assert self.resume(store, str(folder)) == expected

    @pytest.mark.parametrize("committed", [True, False])
    def test_state_of_another_job_is_refused_with_the_store_that_holds_it(
        self, store: CheckpointStore, committed: bool
    ) -> None:
        made = manifest(job="billing")
        path = store.write_savepoint(made, "sp", reason="", now_ms=0)
        if committed:
            store.commit(made)
        with pytest.raises(ManifestError, match=rf"job 'billing' in {store.files.url}; expected .* 'orders'"):
            self.resume(store, None if committed else path)

    def test_a_savepoint_that_is_not_there_is_refused_and_nothing_else_taken(self, store: CheckpointStore) -> None:
        store.commit(manifest(epoch=6))
        with pytest.raises(MissingFileError, match="savepoints/typo"):
            self.resume(store, "savepoints/typo/manifest.json")


ONE = QuerySources(("in",), ticks=False)
ONE_POSITION = (SourcePositions(name="in", positions=()),)


class TestProgress:
    """A checkpoint directory as Spark 4.3 leaves it inside foreachBatch of an epoch: no commits/<epoch> yet."""

    def spark_directory(self, folder: Path, epoch: int, *, source_log: tuple[str, ...] = ()) -> Path:
        directory = folder / "spark"
        files = {"metadata": '{"id":"x"}'}
        for n in range(max(0, epoch - 5), epoch + 1):
            files[f"offsets/{n}"] = (
                f'v1\n{{"batchWatermarkMs":{n * 10},"batchTimestampMs":{n * 1000}}}\n{{"logOffset":{n}}}'
            )
            if n < epoch:
                files[f"commits/{n}"] = f'v1\n{{"nextBatchWatermarkMs":{n * 10}}}'
        for name in source_log:
            files[f"sources/0/{name}"] = f"v1\n{name}"
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return directory

    def names(self, store: CheckpointStore, directory: Path, epoch: int) -> list[str]:
        return [item.name for item in capture_progress(directory, epoch, store, None, "000001", ONE)]

    def test_an_epoch_needs_the_id_two_offsets_the_commit_before_and_the_logs_of_its_sources(
        self, store: CheckpointStore, tmp_path: Path
    ) -> None:
        directory = self.spark_directory(tmp_path, 8, source_log=("6", "7", "8"))
        (directory / "offsets/.8.crc").write_bytes(b"")
        (directory / "sources/0/.7.crc").write_bytes(b"")
        assert self.names(store, directory, 8) == [
            "metadata", "offsets/7", "offsets/8", "commits/7", "sources/0/6", "sources/0/7", "sources/0/8",
        ]  # fmt: skip

    def test_the_first_epoch_has_no_commit_before_it(self, store: CheckpointStore, tmp_path: Path) -> None:
        assert self.names(store, self.spark_directory(tmp_path, 0), 0) == ["metadata", "offsets/0"]

    def test_of_a_compacted_log_the_two_newest_compactions_and_what_followed_are_needed(
        self, store: CheckpointStore, tmp_path: Path
    ) -> None:
        log = ("9.compact", "18", "19.compact", "20", "28", "29.compact", "30", "31")
        names = self.names(store, self.spark_directory(tmp_path, 31, source_log=log), 31)
        assert [name for name in names if name.startswith("sources")] == [
            "sources/0/19.compact", "sources/0/29.compact", "sources/0/30", "sources/0/31",
        ]  # fmt: skip

    def test_what_the_epoch_before_holds_is_not_copied_again(self, store: CheckpointStore, tmp_path: Path) -> None:
        directory = self.spark_directory(tmp_path, 7, source_log=("6", "7"))
        first = capture_progress(directory, 7, store, None, "000001/000001-000000000007", ONE)
        directory = self.spark_directory(tmp_path, 8, source_log=("6", "7", "8"))
        before = {entry.path for entry in store.files.list("progress")}

        before_it, attempt = manifest(progress=first, sources=ONE_POSITION), "000001/000001-000000000008"
        second = capture_progress(directory, 8, store, before_it, attempt, ONE)

        written = {entry.path for entry in store.files.list("progress")} - before
        assert written == {f"progress/{attempt}-{name}" for name in ("offsets-8", "commits-7", "sources-0-8")}
        assert {item.name: item for item in second}["sources/0/6"] in first

    def test_two_drivers_never_write_the_same_path(self, store: CheckpointStore, tmp_path: Path) -> None:
        directory = self.spark_directory(tmp_path, 3)
        paths = [
            {item.file.path for item in capture_progress(directory, 3, store, None, attempt, ONE)}
            for attempt in ("000001", "000002")
        ]
        assert paths[0].isdisjoint(paths[1])

    def test_laid_down_in_a_fresh_directory_it_says_what_spark_would_find_after_the_epoch(
        self, store: CheckpointStore, tmp_path: Path
    ) -> None:
        directory = self.spark_directory(tmp_path, 8, source_log=("7", "8"))
        progress = capture_progress(directory, 8, store, None, "000001", ONE)
        fresh = tmp_path / "fresh"

        lay_down_progress(manifest(epoch=8, progress=progress, sources=ONE_POSITION), store, fresh, ONE)

        found = {file.relative_to(fresh).as_posix() for file in fresh.rglob("*") if file.is_file()}
        assert found == {item.name for item in progress} | {"commits/8"}
        for item in progress:
            assert (fresh / item.name).read_bytes() == (directory / item.name).read_bytes()
        assert (fresh / "commits/8").read_text() == 'v1\n{"nextBatchWatermarkMs":80}'

    def test_a_damaged_bookkeeping_file_is_refused(self, store: CheckpointStore, tmp_path: Path) -> None:
        progress = capture_progress(self.spark_directory(tmp_path, 8), 8, store, None, "000001", ONE)
        store.files.write(progress[1].file.path, b"v1\n{}")
        with pytest.raises(CorruptFileError, match=progress[1].file.path):
            lay_down_progress(
                manifest(epoch=8, progress=progress, sources=ONE_POSITION), store, tmp_path / "fresh", ONE
            )

    def test_the_time_of_an_epoch_is_the_one_that_spark_recorded(self, tmp_path: Path) -> None:
        directory = self.spark_directory(tmp_path, 8)
        assert EpochTimes(directory).of(8, None) == 8000
        assert EpochTimes(directory).of(8, manifest(epoch=7, batch_timestamp_ms=7000)) == 8000

    def test_the_time_of_an_epoch_is_never_before_that_of_the_epoch_before(self, tmp_path: Path) -> None:
        ahead = manifest(epoch=7, batch_timestamp_ms=38_000)
        assert EpochTimes(self.spark_directory(tmp_path, 8)).of(8, ahead) == 38_000

    def test_a_clock_that_is_behind_is_said_once_until_it_has_caught_up(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        times = EpochTimes(tmp_path / "spark")
        # Spark has recorded a second for each epoch.
        for epoch, ahead_ms in ((7, 10_000), (8, 10_000), (9, 10_000), (10, 10_000), (11, 20_000), (12, 20_000)):
            self.spark_directory(tmp_path, epoch)
            assert times.of(epoch, manifest(epoch=epoch - 1, batch_timestamp_ms=ahead_ms)) == ahead_ms
        assert [each.getMessage().split(";")[0] for each in caplog.records] == [
            "this host's clock is 3000 ms behind the time of the epoch before epoch 7",
            "this host's clock is 9000 ms behind the time of the epoch before epoch 11",
        ]

    def three_sources(self, folder: Path, *, ticks: bool) -> Path:
        directory = self.spark_directory(folder, 8, source_log=("7", "8"))
        for n in range(3, 9):
            path = directory / f"offsets/{n}"
            path.write_text("\n".join([path.read_text(), "-", '{"c":1}', *(["41"] if ticks else [])]))
        for name in ("1/0", "2/9.compact", "2/10"):
            (directory / "sources" / name).parent.mkdir(exist_ok=True)
            (directory / "sources" / name).write_text(f"v1\n{name}")
        return directory

    @pytest.mark.parametrize("ticks", [True, False])
    @pytest.mark.parametrize("ticks_then", [True, False])
    @pytest.mark.parametrize(
        ("names", "offsets", "logs"),
        [
            (("a", "b", "c"), ['{"logOffset":8}', "-", '{"c":1}'], {"0/7", "0/8", "1/0", "2/9.compact", "2/10"}),
            (("c", "new", "a"), ['{"c":1}', "-", '{"logOffset":8}'], {"0/9.compact", "0/10", "2/7", "2/8"}),
            (("b",), ["-"], {"0/0"}),
            (("new",), ["-"], set()),
        ],
    )
    def test_sources_are_laid_down_by_name_where_the_query_reads_them_now(
        self, store: CheckpointStore, tmp_path: Path, names: tuple[str, ...], offsets: list[str], logs: set[str],
        ticks: bool, ticks_then: bool,
    ) -> None:  # fmt: skip
        directory, before = self.three_sources(tmp_path, ticks=ticks_then), QuerySources(("a", "b", "c"), ticks_then)
        progress = capture_progress(directory, 8, store, None, "000001", before)
        assert source_positions(directory, 8, before) == [('{"logOffset":8}',), (), ('{"c":1}',)]
        sources = tuple(SourcePositions(name=name, positions=()) for name in before.names)
        fresh, now = tmp_path / "fresh", QuerySources(names, ticks)

        lay_down_progress(manifest(epoch=8, progress=progress, sources=sources), store, fresh, now)

        text = (fresh / "offsets/8").read_text().splitlines()
        assert text[:2] == (directory / "offsets/8").read_text().splitlines()[:2]
        assert text[2:] == [*offsets, *(["-"] if ticks else [])]
        assert len((fresh / "offsets/7").read_text().splitlines()) == len(text)
        found = {file.relative_to(fresh / "sources").as_posix(): file for file in fresh.glob("sources/*/*")}
        assert found.keys() == logs
        for name, file in found.items():
            old = before.names.index(names[int(name[0])])
            assert file.read_text() == (directory / f"sources/{old}{name[1:]}").read_text()

    def test_files_of_an_epoch_with_other_sources_are_not_taken_for_those_of_today(
        self, store: CheckpointStore, tmp_path: Path
    ) -> None:
        directory = self.three_sources(tmp_path, ticks=False)
        first = capture_progress(directory, 8, store, None, "000001", QuerySources(("a", "b", "c"), ticks=False))
        for names, kept in ((("a", "b", "c"), True), (("c", "b", "a"), False)):
            sources = tuple(SourcePositions(name=name, positions=()) for name in names)
            previous = manifest(progress=first, sources=sources)
            second = capture_progress(
                directory, 8, store, previous, "000002", QuerySources(("a", "b", "c"), ticks=False)
            )
            assert (set(second) <= set(first)) == kept
            assert set(first).isdisjoint(second) != kept

    def test_offsets_that_no_source_is_known_of_are_refused(self, store: CheckpointStore, tmp_path: Path) -> None:
        directory, three = self.three_sources(tmp_path, ticks=False), QuerySources(("a", "b", "c"), ticks=False)
        progress = capture_progress(directory, 8, store, None, "000001", three)
        odd = manifest(epoch=8, progress=progress, sources=ONE_POSITION)
        with pytest.raises(ManifestError, match=r"offsets of 3 sources .* expected one of each of 1, \['in'\]; resume"):
            lay_down_progress(odd, store, tmp_path / "fresh", three)

    @pytest.mark.parametrize("text", ["v1", "v1\n{}", "v1\nnot json", ""])
    def test_an_offset_log_that_reads_otherwise_is_refused_by_its_path(self, tmp_path: Path, text: str) -> None:
        directory = self.spark_directory(tmp_path, 8)
        (directory / "offsets/8").write_text(text)
        with pytest.raises(ManifestError, match=r"no batchTimestampMs .*offsets/8; expected .*; run the Spark release"):
            EpochTimes(directory).of(8, None)


class Nothing(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield from ()


def read(spark: Any) -> Any:
    raise AssertionError("a job is described without reading anything")


def job() -> Job:
    made = Job({"input": "x"})
    made.source("in", read).key_by("k", order_by=["t"]).process(Nothing(), output="n int", uid="op")
    return made


class TestJob:
    def test_a_job_describes_one_source_operator_and_its_sinks(self, tmp_path: Path) -> None:
        made = Job({"input": "x"})
        stream = made.source("in", read).key_by("k", "l", order_by=["t"]).process(Nothing(), output="n int", uid="op")
        stream.sink("numbers", ParquetSink(tmp_path))
        stream.side_output(OutputTag("late", "k string")).sink("late", ParquetSink(tmp_path / "late"))

        (plan,) = made.validated().operators
        assert (plan.uid, plan.first.key_columns, plan.first.order_by, plan.output) == (
            "op",
            ("k", "l"),
            ("t",),
            "n int",
        )
        assert [(b.name, b.tag, b.schema) for b in plan.sinks] == [
            ("numbers", "", "n int"),
            ("late", "late", "k string"),
        ]
        with pytest.raises(TypeError):
            made.settings["input"] = "y"  # type: ignore[index]

    REFUSED: dict[str, tuple[Callable[[Job], Any], str]] = {  # noqa: RUF012
        "no key column": (lambda j: j.source("in", read).key_by(), r"key_by\(\) without columns"),
        "a column of state files": (
            lambda j: j.source("in", read).key_by("k", "_value", "_key_group"),
            r"key columns \['_key_group', '_value'\]; expected other names",
        ),
        "a source name that is no file name": (lambda j: j.source("a/b", read), r"the source 'a/b'; expected letters"),
        "an empty source name": (lambda j: j.source("", read), r"the source ''"),
        "a hidden source name": (lambda j: j.source("..", read), r"the source '\.\.'"),
        "one source name twice": (lambda j: (j.source("in", read), j.source("in", read)), r"source 'in' twice"),
        "a uid that is no file name": (
            lambda j: j.source("in", read).key_by("k").process(Nothing(), output="n int", uid="my op"),
            r"operator uid 'my op'",
        ),
        "one uid twice": (
            lambda j: [
                s.process(Nothing(), output="n int", uid="op") for s in [j.source("in", read).key_by("k")] for _ in "ab"
            ],
            r"operator uid 'op' twice",
        ),
        "a function that is none": (
            lambda j: j.source("in", read).key_by("k").process(len, output="n int", uid="op"),  # type: ignore[arg-type]
            r"operator 'op': found <built-in function len> for a keyed stream .*; expected a KeyedProcessFunction",
        ),
        "a class instead of an object": (
            lambda j: j.source("in", read).key_by("k").process(Nothing, output="n int", uid="op"),  # type: ignore[arg-type]
            r"expected a KeyedProcessFunction",
        ),
        "one sink name twice": (
            lambda j: [
                s.sink("a", ParquetSink("x"))  # type: ignore[func-returns-value]
                for s in [j.source("in", read).key_by("k").process(Nothing(), output="n int", uid="op")]
                for _ in "ab"
            ],
            r"sink 'a' twice",
        ),
    }

    @pytest.mark.parametrize("case", REFUSED)
    def test_an_impossible_job_is_refused_where_it_is_described(self, case: str) -> None:
        describe, message = self.REFUSED[case]
        with pytest.raises(JobDefinitionError, match=message) as raised:
            describe(Job())
        assert "expected" in str(raised.value)

    def test_an_output_schema_that_cannot_be_read_is_refused(self) -> None:
        with pytest.raises(UnsupportedTypeError, match="wrong"):
            Job().source("in", read).key_by("k").process(Nothing(), output="n wrong", uid="op")

    def test_a_job_without_operators_or_with_a_source_that_nobody_reads_is_refused(self) -> None:
        idle = job()
        idle.source("other", read)
        with pytest.raises(JobDefinitionError, match=r"the sources \['other'\], which no operator reads; expected"):
            idle.validated()
        with pytest.raises(JobDefinitionError, match="0 sources and no operator; expected at least one"):
            Job().validated()
        assert job().validated().sources[0].name == "in"

    def test_a_function_must_fit_its_streams(self) -> None:
        made = Job()
        stream, rules = made.source("in", read), made.source("rules", read)
        state = MapStateDescriptor("rules", "string", "bigint")
        connected = stream.key_by("k").connect(rules.broadcast(state))
        with pytest.raises(
            JobDefinitionError, match=r"operator 'op': .* with broadcast state; expected a KeyedBroadcast"
        ):
            connected.process(Nothing(), output="n int", uid="op")
        with pytest.raises(JobDefinitionError, match=r"operator 'op': .* without broadcast state; expected a ProcessF"):
            stream.process(Nothing(), output="n int", uid="op")
        with pytest.raises(JobDefinitionError, match=r"found broadcast.*; expected at least one MapState"):
            rules.broadcast()


class TestLoadJob:
    def test_a_job_file_is_run_with_the_settings_of_the_job(self, tmp_path: Path) -> None:
        artifact = tmp_path / "my job.py"
        artifact.write_text(
            "from statecore import KeyedProcessFunction\n"
            "class F(KeyedProcessFunction):\n"
            "    def process_element(self, value, ctx):\n"
            "        yield value\n"
            "def build(job):\n"
            "    s = job.source(job.settings['name'], lambda spark: None).key_by('k')\n"
            "    s.process(F(), output='k string', uid='op')\n"
        )
        assert load_job(artifact, {"name": "from-settings"}).sources[0].name == "from-settings"

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(JobDefinitionError, match=rf"no job file {tmp_path}/gone.py; expected .*; register"):
            load_job(tmp_path / "gone.py", {})

    @pytest.mark.parametrize("text", ["", "build = 1", "def other(job): ..."])
    def test_a_file_without_build_is_named(self, tmp_path: Path, text: str) -> None:
        artifact = tmp_path / "empty.py"
        artifact.write_text(text)
        with pytest.raises(JobDefinitionError, match=rf"no build\(job\) in {artifact}; expected one; define it"):
            load_job(artifact, {})

    def test_a_file_that_describes_nothing_is_refused(self, tmp_path: Path) -> None:
        artifact = tmp_path / "nothing.py"
        artifact.write_text("def build(job): pass")
        with pytest.raises(JobDefinitionError, match="0 sources"):
            load_job(artifact, {})
