"""Exactly once: replays, failures, races and pitfalls inside one driver."""

from __future__ import annotations

import re
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from statecore.catalog import Catalog, GenerationRecord, Liveness
from statecore.errors import CatalogError, CommitConflictError, CommitError, MissingFileError, SinkError
from statecore.runtime import ParquetSink, read_savepoint
from statecore.runtime.driver.generation import run_generation
from statecore.runtime.driver.lifecycle import Lifecycle
from statecore.runtime.sinks.base import StagedEpoch
from statecore.snapshot.manifest import encode_manifest
from tests.support.bench import JOB, Bench
from tests.support.waiting import wait


@pytest.mark.parametrize("poison", [-1, -100_000], ids=["short error", "long error"])
def test_a_failed_attempt_leaves_no_trace(spark: Any, bench: Bench, poison: int) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
        # A long error must not overflow what Spark does with it: the job would seem to have stopped.
        bench.feed(numbers=[5, 6, 7, poison])
        wait(lambda: bench.generation().state == "failed", "the function to fail")
    error = str(bench.generation().error)
    assert "a number below zero" in error and len(error) < 20_000
    # The poisoned file is taken back and a good one comes in its place; workers and their caches are the same.
    del bench.fed[-4:]
    (bench.input / f"{bench.files - 1:05d}.parquet").unlink()
    bench.feed()
    with bench.running(2):
        bench.wait_done()
    bench.assert_exact(spark)


def test_a_second_commit_of_an_epoch_is_refused(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
    newest = bench.newest()
    with pytest.raises(CommitConflictError, match="committed by another driver"):
        bench.checkpoints.commit(newest)
    bench.assert_exact(spark)


def test_what_a_killed_driver_committed_is_published_by_its_successor(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
        committed = bench.checkpoints.files.read("manifests/000001-000000000000.json")
    # What a driver leaves that was killed after the commit and before it published.
    for file in bench.output.rglob("*.parquet"):
        staged = bench.output / file.relative_to(bench.output).parts[0] / "_staged"
        file.rename(staged / f"1-0-{file.name}")
    for marker in [*bench.output.glob("*/_published/*"), *bench.store.glob("_published/*/*")]:
        marker.unlink()
    assert not bench.published("seen", ("k", "n"))
    for output in bench.newest().outputs:
        assert (bench.output / ("seen" if output.sink == "seen" else "batches") / output.file.path).is_file()
    with bench.running(2):
        wait(lambda: bench.published("seen", ("k", "n")), "the outputs to be published")
    bench.assert_exact(spark)
    assert bench.checkpoints.files.read("manifests/000001-000000000000.json") == committed


def supersede(bench: Bench) -> GenerationRecord:
    """Claim the next generation as a supervisor does that misses the heartbeats of the driver."""
    with Catalog(bench.catalog_url, liveness=Liveness(running_ms=0, launching_ms=0)) as impatient:
        return impatient.generations.claim(JOB, log_path="")


def test_a_superseded_driver_stops_without_committing(
    spark: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.catalog.jobs.set_desired(JOB, state="running", parallelism=2)
    stale = bench.catalog.generations.claim(JOB, log_path="")
    errors: list[BaseException] = []

    def drive() -> None:
        with Catalog(bench.catalog_url) as catalog:
            try:
                run_generation(catalog, JOB, stale.generation)
            except CommitError as error:
                errors.append(error)

    driver = threading.Thread(target=drive, daemon=True)
    driver.start()
    bench.feed()
    bench.wait_done()
    about_to_commit, commit = threading.Event(), Lifecycle.committing

    def held(lifecycle: Lifecycle) -> AbstractContextManager[None]:
        about_to_commit.set()
        wait(lambda: lifecycle.superseded, "the driver to notice")
        return commit(lifecycle)

    monkeypatch.setattr(Lifecycle, "committing", held)
    bench.feed()
    wait(about_to_commit.is_set, "an epoch that is ready to commit")
    newer = supersede(bench)
    wait(lambda: not driver.is_alive(), "the driver to end")
    assert "generation 1 of job 'totals' stopped without committing: a newer generation" in str(errors)
    assert (bench.newest().epoch, bench.newest().generation) == (0, stale.generation)
    monkeypatch.undo()
    bench.catalog.generations.end(JOB, newer.generation, state="stopped")
    with bench.running(2):
        bench.wait_done()
    bench.assert_exact(spark)


def test_a_driver_that_starts_after_its_successor_was_claimed_is_refused(bench: Bench) -> None:
    bench.catalog.jobs.set_desired(JOB, state="running")
    stale = bench.catalog.generations.claim(JOB, log_path="")
    newer = supersede(bench)
    with pytest.raises(CommitError, match="found generation 2 as the newest"):
        run_generation(bench.catalog, JOB, stale.generation)
    assert (bench.generation(), bench.checkpoints.newest()) == (newer, None)


def test_a_second_driver_of_the_same_generation_is_refused_and_the_first_runs_on(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2) as generation:
        bench.wait_done()
        with pytest.raises(CommitConflictError, match=r"found generation 1 already in"):
            run_generation(bench.catalog, JOB, generation.generation)
        assert bench.generation().state == "running"
        bench.feed()
        bench.wait_done()
    assert bench.newest().generation == generation.generation
    bench.assert_exact(spark)


def test_a_catalog_older_than_the_store_counts_on_from_the_stores_generations(bench: Bench) -> None:
    bench.checkpoints.claim_generation(40)
    bench.catalog.jobs.set_desired(JOB, state="running")
    claimed = bench.catalog.generations.claim(JOB, log_path="")
    with pytest.raises(CatalogError, match=r"found generation 40 in .*; expected none after 1"):
        run_generation(bench.catalog, JOB, claimed.generation)
    assert bench.catalog.generations.claim(JOB, log_path="").generation == 41


def test_a_roll_back_leaves_an_epoch_behind_that_its_sink_refuses(
    spark: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
        savepoint = bench.stop("old")
    refused = bench.newest().epoch + 1
    publish = ParquetSink.publish

    def refusing(sink: ParquetSink, staged: StagedEpoch) -> None:
        if staged.epoch == refused and staged.lineage == 1:
            raise SinkError("found rows that the table does not take; expected others; roll back")
        publish(sink, staged)

    monkeypatch.setattr(ParquetSink, "publish", refusing)
    with bench.running(2):
        bench.feed()
        bench.wait_failed()
    assert bench.newest().epoch == refused
    with bench.running(2, start_from=savepoint, roll_back=True) as third:
        wait(lambda: bench.newest().lineage == third.generation, "an epoch after the roll-back")
        bench.wait_done()
    bench.assert_exact(spark)


def test_an_epoch_without_rows_for_most_or_all_subtasks_still_runs_all_of_them(spark: Any, bench: Bench) -> None:
    with bench.running(5):
        bench.feed(numbers=[3])
        bench.wait_done()
        bench.feed(numbers=[])
        wait(lambda: bench.newest().epoch == 1, "the epoch without rows")
    assert [len(each.subtasks) for each in bench.newest().operators] == [5]
    assert [epoch.rows for epoch in bench.catalog.epochs.of(JOB)] == [1, 0]
    bench.assert_exact(spark)


def test_python_workers_that_lost_their_state_between_two_epochs_find_it_again(spark: Any, bench: Bench) -> None:
    def cached_key_groups(epochs: int) -> int:
        bench.feed()
        bench.wait_done()
        wait(lambda: len(bench.catalog.epochs.subtasks(JOB, limit=30)) == epochs, "the figures")
        return sum(bench.catalog.epochs.subtasks(JOB)[-1].operators[0].cached_key_groups)

    with bench.running(2):
        # Spark may give a subtask to another worker at first.
        epochs = next(epoch for epoch in range(1, 20) if cached_key_groups(epoch))
        kill_python_workers()
        assert cached_key_groups(epochs + 1) == 0
    bench.assert_exact(spark)


def kill_python_workers() -> None:
    """Kill Spark's Python workers, without the processes that fork them: the state in their memory is gone."""
    daemons = [p for p in psutil.Process().children(recursive=True) if _is_daemon(p)]
    lost = [worker for daemon in daemons for worker in daemon.children() if worker in daemons]
    assert lost
    for worker in lost:
        worker.kill()
    psutil.wait_procs(lost, timeout=30)


def _is_daemon(process: psutil.Process) -> bool:
    try:
        return "pyspark.daemon" in process.cmdline()
    except psutil.NoSuchProcess:
        # It has ended, perhaps without having been waited for.
        return False


def test_a_missing_state_file_stops_the_job_with_its_path(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
    lost = Path(bench.checkpoints.describe(bench.newest().operators[0].subtasks[1].keyed[0].file.path))
    lost.unlink()
    bench.catalog.jobs.set_desired(JOB, state="running")
    generation = bench.catalog.generations.claim(JOB, log_path="")
    with pytest.raises(MissingFileError, match=str(lost)):
        run_generation(bench.catalog, JOB, generation.generation)
    assert str(lost) in str(bench.generation().error)


def test_a_flipped_byte_in_a_state_file_stops_the_epoch_with_its_path(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
    file = Path(bench.checkpoints.describe(bench.newest().operators[0].subtasks[0].keyed[0].file.path))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    # With its state in memory, a worker would not read the file, at another parallelism neither.
    kill_python_workers()
    with bench.running(2):
        bench.feed()
        wait(lambda: bench.generation().state == "failed", "the driver to refuse the file")
    assert "CorruptFileError" in str(bench.generation().error)
    assert str(file) in str(bench.generation().error)


def test_another_key_type_is_refused(spark: Any, bench: Bench, tmp_path: Path) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
    changed = tmp_path / "changed.py"
    source = Path(bench.catalog.jobs.get(JOB).artifact).read_text()
    changed.write_text(source.replace('job.settings["input"])', 'job.settings["input"]).selectExpr("n AS k", "n")'))
    bench.register(parallelism=2, artifact=changed)
    with bench.running(2):
        bench.feed()
        wait(lambda: bench.generation().state == "failed", "the driver to refuse the key")
    assert "another key type is another key" in str(bench.generation().error)


def test_swapped_key_columns_are_refused_and_a_declared_rename_goes_on(
    spark: Any, bench: Bench, tmp_path: Path
) -> None:
    source = Path(bench.catalog.jobs.get(JOB).artifact).read_text()

    def register(key: str) -> None:
        keyed = f'records.with_column("j", "upper(k)").with_column("name", "k").key_by({key}, '
        changed = tmp_path / "changed.py"
        changed.write_text(source.replace('records.key_by("k", ', keyed))
        bench.register(parallelism=2, artifact=changed)

    register('"k", "j"')
    bench.feed()
    with bench.running(2):
        bench.wait_done()
    before = bench.newest()
    # No record comes: the driver refuses before its first epoch.
    for key, told in (
        ('"j", "k"', "found the key (j, k) for operator 'totals'; expected the key (k string, j string)"),
        ('"name", "j"', "renames={'k': 'name'}"),
    ):
        register(key)
        with bench.running(2):
            bench.wait_failed()
        assert told in str(bench.generation().error)
    assert (bench.newest().epoch, bench.newest().operators) == (before.epoch, before.operators)
    register('"name", "j", renames={"k": "name"}')
    bench.feed()
    with bench.running(2):
        bench.wait_done()
    newest = bench.newest()
    assert [field.name for field in newest.operators[0].key_fields] == ["name", "j"]
    path = bench.store / bench.checkpoints.manifest_path(newest.lineage, newest.epoch)
    last: dict[str, list[int]] = {}
    for k, n in bench.fed:
        last[k] = [*last.get(k, []), n][-2:]
    found = read_savepoint(spark, path, "totals", "newest").collect()
    assert {(row["name"], row["j"]): row.value for row in found} == {(k, k.upper()): kept for k, kept in last.items()}


def test_a_map_key_is_refused(spark: Any, bench: Bench, tmp_path: Path) -> None:
    changed = tmp_path / "changed.py"
    source = Path(bench.catalog.jobs.get(JOB).artifact).read_text()
    changed.write_text(
        source.replace('job.settings["input"])', "job.settings[\"input\"]).selectExpr('map(k, n) AS k', 'n')")
    )
    bench.register(parallelism=2, artifact=changed)
    with bench.running(2):
        bench.feed()
        wait(lambda: bench.generation().state == "failed", "the driver to refuse the key")
    error = str(bench.generation().error)
    assert re.search(r"UnsupportedTypeError: changed\.py:\d+: found the key type 'map<string,bigint>'", error), error


def test_an_unchanged_manifest_reads_back_equal(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
    newest = bench.newest()
    path = bench.checkpoints.manifest_path(newest.lineage, newest.epoch)
    assert bench.checkpoints.files.read(path) == encode_manifest(newest)
