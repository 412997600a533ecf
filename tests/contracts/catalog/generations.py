from __future__ import annotations

import pytest

from statecore.catalog import Catalog
from statecore.errors import CatalogError, GenerationClaimedError, UnknownJobError, UnknownRecordError


def test_generations_are_numbered_and_know_their_log_and_parallelism(catalog: Catalog, job: str) -> None:
    first = catalog.generations.claim(job, log_path="/logs/{x}-{generation}.log")
    assert (first.generation, first.state, first.log_path) == (1, "launching", "/logs/{x}-1.log")
    catalog.generations.end(job, 1, state="stopped")
    catalog.jobs.set_desired(job, parallelism=4)
    assert catalog.generations.claim(job, log_path="/l").parallelism == 4
    assert [g.generation for g in catalog.generations.of(job)] == [2, 1]
    assert catalog.generations.newest(job) == catalog.generations.of(job, limit=1)[0]


@pytest.mark.parametrize(("beats", "limit_ms"), [(False, 90_000), (True, 20_000)])
def test_a_live_driver_keeps_its_job_until_its_heartbeat_is_too_old(
    catalog: Catalog, job: str, clock, beats: bool, limit_ms: int
) -> None:
    first = catalog.generations.claim(job, log_path="/l")
    if beats:
        clock.advance(1_000)
        assert catalog.generations.heartbeat(job, 1)
    clock.advance(limit_ms - 1)
    assert catalog.generations.is_alive(catalog.generations.newest(job))
    assert catalog.generations.fail_lost(job) is None
    with pytest.raises(GenerationClaimedError, match="generation 1 is"):
        catalog.generations.claim(job, log_path="/l")
    clock.advance(1)
    assert not catalog.generations.is_alive(catalog.generations.newest(job))
    assert catalog.generations.claim(job, log_path="/l").generation == 2
    lost = catalog.generations.of(job)[1]
    assert (lost.state, lost.generation, lost.ended_ms) == ("failed", first.generation, clock.now_ms())
    assert f"no heartbeat for {limit_ms} ms" in str(lost.error)


def test_the_reason_of_a_failure_holds_no_secret(catalog: Catalog, job: str) -> None:
    catalog.generations.claim(job, log_path="/l")
    ended = catalog.generations.end(
        job, 1, state="failed", error="found postgresql://me:hun/ter2@h/db, password=hunter2"
    )
    assert ended.error == "found postgresql://h/db, password=***"
    assert catalog.generations.of(job)[0].error == ended.error


def test_a_driver_that_was_replaced_is_told_to_stop(catalog: Catalog, job: str, clock) -> None:
    catalog.generations.claim(job, log_path="/l")
    clock.advance(90_000)
    catalog.generations.claim(job, log_path="/l")
    assert not catalog.generations.heartbeat(job, 1, epoch=7, lineage=1)
    assert catalog.generations.of(job)[1].epoch is None
    assert catalog.generations.heartbeat(job, 2)


def test_a_driver_taken_for_lost_does_not_come_back(catalog: Catalog, job: str, clock) -> None:
    catalog.generations.claim(job, log_path="/l")
    clock.advance(90_000)
    lost = catalog.generations.fail_lost(job)
    assert lost is not None and lost.state == "failed"
    assert not catalog.generations.heartbeat(job, 1)
    assert catalog.generations.newest(job) == lost


def test_heartbeats_report_the_newest_epoch_and_keep_the_last_report(catalog: Catalog, job: str) -> None:
    catalog.generations.claim(job, log_path="/l")
    assert catalog.generations.heartbeat(job, 1, state="launching")
    assert catalog.generations.heartbeat(job, 1, lineage=2, epoch=0)
    assert catalog.generations.heartbeat(job, 1)
    newest = catalog.generations.newest(job)
    assert newest is not None and (newest.state, newest.lineage, newest.epoch) == ("running", 2, 0)


def test_the_first_end_of_a_generation_stays(catalog: Catalog, job: str, clock) -> None:
    catalog.generations.claim(job, log_path="/l")
    ended = catalog.generations.end(job, 1, state="stopped")
    clock.advance(5)
    assert catalog.generations.end(job, 1, state="failed", error="late") == ended
    assert ended.ended


def test_a_generation_of_a_lost_catalog_is_over_and_the_next_has_a_higher_number(
    catalog: Catalog, job: str, clock
) -> None:
    catalog.generations.import_stopped(job, 7, parallelism=4, lineage=2, epoch=41)
    newest = catalog.generations.newest(job)
    assert newest is not None and newest.ended and not catalog.generations.is_alive(newest)
    assert (newest.generation, newest.parallelism, newest.lineage, newest.epoch) == (7, 4, 2, 41)
    # Its driver, if it still runs, is told to stop.
    assert not catalog.generations.heartbeat(job, 7)
    assert catalog.generations.claim(job, log_path="/l").generation == 8


@pytest.mark.parametrize("number", [1, 2])
def test_a_generation_that_the_catalog_knows_is_not_written_over(catalog: Catalog, job: str, number: int) -> None:
    for generation in (1, 2):
        catalog.generations.claim(job, log_path="/l")
        catalog.generations.end(job, generation, state="failed", error="no room")
    before = catalog.generations.of(job)
    with pytest.raises(CatalogError, match=f"found generation 2 of job 'flights'; expected none from {number} on"):
        catalog.generations.import_stopped(job, number, parallelism=4, lineage=None, epoch=None)
    assert catalog.generations.of(job) == before
    catalog.generations.import_stopped(job, 3, parallelism=4, lineage=None, epoch=None)
    with pytest.raises(UnknownJobError):
        catalog.generations.import_stopped("typo", 1, parallelism=4, lineage=None, epoch=None)


def test_a_generation_nobody_claimed_is_unknown(catalog: Catalog, job: str) -> None:
    assert catalog.generations.newest(job) is None
    assert not catalog.generations.is_alive(None)
    with pytest.raises(UnknownRecordError, match="no generation 3; the newest is none"):
        catalog.generations.heartbeat(job, 3)
    with pytest.raises(UnknownRecordError):
        catalog.generations.end(job, 3, state="stopped")
