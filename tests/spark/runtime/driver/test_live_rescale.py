"""Another parallelism while the stream runs: the same driver, the same query, no record lost or doubled."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from statecore.catalog import Generations, RequestRecord
from statecore.errors import CatalogError
from statecore.runtime.driver import upkeep
from statecore.runtime.driver.live import LiveRescaler
from statecore.runtime.driver.side_jobs import SideJobs
from statecore.runtime.epoch.anchor import Anchor
from statecore.runtime.epoch.layouts import Layouts
from statecore.runtime.epoch.load_ahead import load_ahead
from statecore.runtime.offline.compaction import carry_out_all
from statecore.snapshot.compaction import Merged
from tests.support.alone import ARTIFACT, assert_as_alone, history
from tests.support.bench import JOB, Bench
from tests.support.programs import eager
from tests.support.waiting import wait

# No manifest is removed before it was looked at.
EAGER = msgspec.structs.replace(eager.EAGER, retained_checkpoints=1000)


def ask(bench: Bench, parallelism: int) -> RequestRecord:
    """Ask for another parallelism and wait for the answer."""
    key = f"live-{len(bench.fed)}-{parallelism}"
    asked = bench.catalog.requests.send(JOB, "rescale", {"parallelism": parallelism}, key)
    wait(lambda: bench.catalog.requests.get(asked.id).state in ("done", "failed"), "the answer")
    return bench.catalog.requests.get(asked.id)


def test_state_timers_and_outputs_are_those_of_a_job_that_was_left_alone(spark: Any, bench: Bench) -> None:
    # State of every kind, and merges at every epoch.
    bench.register(artifact=ARTIFACT)
    changes = {-1: 2}
    with bench.running(2, settings=EAGER):
        for parallelism in (None, 4, 1, 3):
            if parallelism is not None:
                # Asked of a job that waits for records, or for a timer.
                answer = ask(bench, parallelism)
                assert answer.result is not None, answer.error
                changes[answer.result["after_epoch"]] = parallelism
            for _ in range(2):
                bench.feed()
                bench.wait_done()
    manifests = history(bench)
    expected = [changes[max(after for after in changes if after < manifest.epoch)] for manifest in manifests]
    assert [manifest.parallelism for manifest in manifests] == expected
    assert list(changes.values()) == [2, 4, 1, 3]
    assert {manifest.generation for manifest in manifests} == {1}
    assert_as_alone(spark, bench)
    # What the job had last is what it begins with next time.
    assert (bench.catalog.jobs.get(JOB).parallelism, bench.generation().parallelism) == (3, 3)


def test_the_checkpoint_that_state_is_loaded_from_stays_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, next_layout = [], Layouts.next

    def watched(*args: Any) -> None:
        held.append(bench.checkpoints.claimed())
        load_ahead(*args)

    def elsewhere(*args: Any) -> tuple[Anchor, Sequence[int]]:
        # With one executor, no subtask moves to another.
        anchor, _ = next_layout(*args)
        return anchor, range(anchor.parallelism)

    monkeypatch.setattr("statecore.runtime.epoch.subtasks.load_ahead", watched)
    monkeypatch.setattr(Layouts, "next", elsewhere)
    with bench.running(1):
        bench.feed()
        bench.wait_done()
        newest = bench.checkpoints.manifest_path(1, bench.newest().epoch)
        assert ask(bench, 2).error is None
    assert held == [{newest}]
    assert bench.checkpoints.claimed() == set()


def test_it_is_applied_while_state_files_are_laid_together(
    spark: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.register(artifact=ARTIFACT)
    merges, go_on = threading.Event(), threading.Event()

    def held(*args: Any) -> list[Merged]:
        done = carry_out_all(*args)
        merges.set()
        go_on.wait(60)
        return done

    monkeypatch.setattr(upkeep, "carry_out_all", held)
    with bench.running(2, settings=EAGER):
        for _ in range(2):
            bench.feed()
            bench.wait_done()
        wait(merges.is_set, "a merge of what two subtasks have written")
        answer = ask(bench, 4)
        assert answer.result is not None, answer.error
        bench.feed()
        bench.wait_done()
        # The merge ends among four subtasks, and others follow.
        go_on.set()
        for _ in range(3):
            bench.feed()
            bench.wait_done()
    assert [bench.newest().parallelism, bench.generation().generation] == [4, 1]
    assert_as_alone(spark, bench)


def test_it_is_applied_in_the_middle_of_a_backlog(spark: Any, bench: Bench) -> None:
    for _ in range(8):
        bench.feed()
    with bench.running(1):
        wait(lambda: bench.rows_done() > 0, "the first epoch")
        asked = bench.catalog.requests.send(JOB, "rescale", {"parallelism": 3}, "in a backlog")

        def answered() -> bool:
            # Files wait until then, however quick the machine is.
            while len(bench.fed) - bench.rows_done() < 4 * 200:
                bench.feed()
            return bench.catalog.requests.get(asked.id).state in ("done", "failed")

        wait(answered, "the answer")
        answer = bench.catalog.requests.get(asked.id)
        assert answer.result is not None, answer.error
        bench.feed()
        bench.wait_done()
    found = {epoch.epoch: epoch.parallelism for epoch in bench.catalog.epochs.of(JOB, limit=500)}
    after = answer.result["after_epoch"]
    assert 0 <= after < bench.files - 1
    assert found == {epoch: 1 if epoch <= after else 3 for epoch in range(bench.files)}
    bench.assert_exact(spark)


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "not recorded"])
def test_the_job_runs_at_what_the_catalog_says_though_the_catalogs_answer_is_lost(
    spark: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch, is_recorded: bool
) -> None:
    apply = Generations.apply_parallelism

    def lost(*args: Any) -> bool:
        if is_recorded:
            apply(*args)
        raise CatalogError("the connection was closed")

    monkeypatch.setattr(Generations, "apply_parallelism", lost)
    with bench.running(2):
        bench.feed()
        bench.wait_done()
        answer = ask(bench, 3)
        # An epoch may have begun while the answer was looked for.
        bench.feed()
        bench.wait_done()
        bench.feed()
        bench.wait_done()
    assert answer.state == ("done" if is_recorded else "failed")
    assert bench.newest().parallelism == bench.catalog.jobs.get(JOB).parallelism == (3 if is_recorded else 2)
    bench.assert_exact(spark)


def test_a_request_that_is_gone_is_not_asked_after_for_ever(bench: Bench) -> None:
    asked = bench.catalog.requests.send(JOB, "rescale", {"parallelism": 3}, "gone")
    gone = dataclasses.replace(asked, id=asked.id + 1)
    nothing: Any = None
    rescaler = LiveRescaler(bench.catalog, JOB, nothing, nothing, nothing, nothing, SideJobs(nothing))
    assert not rescaler._was_recorded(gone, CatalogError("the connection was closed"))


@pytest.mark.parametrize("parallelism", [0, 129])
def test_a_parallelism_that_cannot_be_is_refused_and_the_stream_goes_on(
    spark: Any, bench: Bench, parallelism: int
) -> None:
    with bench.running(2):
        answer = ask(bench, parallelism)
        assert "InvalidParallelismError" in str(answer.error)
        bench.feed()
        bench.wait_done()
    assert bench.newest().parallelism == bench.catalog.jobs.get(JOB).parallelism == 2


def test_what_the_next_driver_would_do_unasked_is_not_left_to_it(spark: Any, bench: Bench) -> None:
    asked = bench.catalog.requests.send(JOB, "rescale", {"parallelism": 4}, "asked while nothing ran")
    with bench.running(2):
        assert "the driver ended before" in str(bench.catalog.requests.get(asked.id).error)
        bench.feed()
        bench.wait_done()
    assert bench.newest().parallelism == 2


def test_it_is_asked_for_from_a_shell(spark: Any, bench: Bench) -> None:
    with bench.running(2):
        bench.feed()
        bench.wait_done()
        command = [sys.executable, "-m", "statecore", "rescale", JOB, "--parallelism", "3"]
        done = subprocess.run([*command, "--catalog", bench.catalog_url], capture_output=True, text=True, check=True)
        assert done.stdout == "totals: parallelism 2 -> 3, live\n"


def test_epochs_follow_each_other_without_a_gap(spark: Any, bench: Bench) -> None:
    with bench.running(2):
        for parallelism in (2, 3, 2):
            assert ask(bench, parallelism).error is None
            bench.feed()
            bench.wait_done()
    epochs = sorted(bench.catalog.epochs.of(JOB, limit=50), key=lambda epoch: epoch.epoch)
    assert [epoch.parallelism for epoch in epochs] == [2, 3, 2]
    assert all(after.epoch == before.epoch + 1 for before, after in pairwise(epochs))
    bench.assert_exact(spark)
