"""Two connections to PostgreSQL whose transactions overlap: what one has read, the other cannot change behind its back.

On SQLite there is nothing to overlap: one writes at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import Connection

from statecore.catalog import Catalog, EpochRecord, leases, runs
from statecore.errors import GenerationClaimedError, LeaseHeldError, OtherRequestError, UnknownRecordError
from tests.support.postgres import Database

Change = Callable[[Catalog], Any]


@pytest.fixture
def meanwhile(catalog_url: str, postgres_catalog: Database, clock) -> Iterator[Callable[[Change], Future[Any]]]:
    """Begin a change on a connection of its own; return once it is done or waits for a lock."""
    with Catalog(catalog_url, clock=clock) as other, ThreadPoolExecutor(1) as pool:
        other.jobs.all()

        def begin(change: Change) -> Future[Any]:
            outcome = pool.submit(change, other)
            while not (outcome.done() or postgres_catalog("SELECT 1 FROM pg_locks WHERE NOT granted")):
                pass
            return outcome

        yield begin


@pytest.fixture
def overlap(catalog: Catalog, meanwhile) -> Callable[..., Any]:
    """Begin one change, begin another on a connection of its own, end the first; return what came of the second."""

    def overlapping(first: Change, second: Change) -> Any:
        write, outcome = catalog._database.write, Future[Any]()

        @contextmanager
        def held() -> Iterator[Connection]:
            nonlocal outcome
            with write() as connection:
                yield connection
                # All is done but the commit.
                outcome = meanwhile(second)

        with patch.object(catalog._database, "write", held):
            first(catalog)
        return outcome.result(30)

    return overlapping


def test_of_two_that_claim_a_generation_the_later_is_refused(catalog: Catalog, job: str, overlap) -> None:
    with pytest.raises(GenerationClaimedError, match="generation 1 is launching"):
        overlap(lambda c: c.generations.claim(job, log_path="/1"), lambda c: c.generations.claim(job, log_path="/2"))
    assert [each.log_path for each in catalog.generations.of(job)] == ["/1"]


def test_a_driver_that_was_replaced_meanwhile_is_told_by_its_heartbeat(
    catalog: Catalog, job: str, overlap, clock
) -> None:
    catalog.generations.claim(job, log_path="/1")
    clock.advance(90_000)
    assert (
        overlap(lambda c: c.generations.claim(job, log_path="/2"), lambda c: c.generations.heartbeat(job, 1)) is False
    )
    assert [each.state for each in catalog.generations.of(job)] == ["launching", "failed"]


def test_of_two_that_want_a_lease_the_later_is_refused_with_the_first_ones_name(
    catalog: Catalog, job: str, overlap
) -> None:
    with pytest.raises(LeaseHeldError, match="run-1"):
        overlap(lambda c: c.leases.acquire(job, "run-1", 5_000), lambda c: c.leases.acquire(job, "run-2", 5_000))
    lease = catalog.leases.find(job)
    assert lease is not None and lease.owner == "run-1"


def test_an_expired_lease_is_either_renewed_or_taken_back(catalog: Catalog, job: str, overlap, clock) -> None:
    catalog.leases.acquire(job, "run-1", 5_000)
    clock.advance(5_000)
    recovered = overlap(lambda c: c.leases.renew(job, "run-1", 5_000), lambda c: c.leases.recover_expired(job))
    assert recovered is None
    assert catalog.jobs.get(job).desired_state == "stopped"


def test_a_run_is_either_aborted_or_done(catalog: Catalog, job: str, overlap) -> None:
    sizes: dict[str, Any] = {"from_parallelism": 2, "to_parallelism": 4}
    catalog.runs.start("r", job, **sizes)
    kept = overlap(lambda c: c.runs.abort(job, "ann"), lambda c: c.runs.finish("r"))
    assert (kept.state, kept.aborted_by) == ("running", "ann")
    catalog.runs.finish("r", error="aborted by ann")
    catalog.runs.start("s", job, **sizes)
    with pytest.raises(UnknownRecordError, match="no run changing"):
        overlap(lambda c: c.runs.finish("s"), lambda c: c.runs.abort(job, "ann"))
    assert catalog.runs.get("s").state == "done"


def test_a_parallelism_is_not_applied_to_a_job_that_was_stopped_meanwhile(catalog: Catalog, job: str, overlap) -> None:
    catalog.jobs.set_desired(job, state="running")
    catalog.generations.claim(job, log_path="/1")
    asked = catalog.requests.send(job, "rescale", {"parallelism": 4}, "live").id
    applied = overlap(
        lambda c: c.jobs.set_desired(job, state="stopped"),
        lambda c: c.generations.apply_parallelism(job, 1, 4, asked, {}),
    )
    assert applied is False
    assert (catalog.jobs.get(job).parallelism, catalog.requests.get(asked).state) == (2, "pending")


def test_one_parallelism_is_applied_once(catalog: Catalog, job: str, overlap) -> None:
    catalog.jobs.set_desired(job, state="running")
    catalog.generations.claim(job, log_path="/1")
    asked = catalog.requests.send(job, "rescale", {"parallelism": 4}, "live").id
    assert not overlap(
        lambda c: c.generations.apply_parallelism(job, 1, 4, asked, {"by": 1}),
        lambda c: c.generations.apply_parallelism(job, 1, 3, asked, {"by": 2}),
    )
    assert (catalog.jobs.get(job).parallelism, catalog.requests.get(asked).result) == (4, {"by": 1})


def test_of_two_that_answer_a_request_the_first_counts(catalog: Catalog, job: str, overlap) -> None:
    asked = catalog.requests.send(job, "savepoint", {"name": "a"}, "key").id
    found = overlap(
        lambda c: c.requests.finish(asked, result={"url": "/sp"}), lambda c: c.requests.finish(asked, error="too late")
    )
    assert (found.state, found.result, found.error) == ("done", {"url": "/sp"}, None)


def test_two_that_ask_under_one_key_get_the_same_request(catalog: Catalog, job: str, overlap) -> None:
    found = overlap(
        lambda c: c.requests.send(job, "savepoint", {"name": "a"}, "key"),
        lambda c: c.requests.send(job, "savepoint", {"name": "a"}, "key"),
    )
    assert found == catalog.requests.get(1)


def test_of_two_that_ask_for_different_things_under_one_key_the_later_is_refused(
    catalog: Catalog, job: str, overlap
) -> None:
    with pytest.raises(OtherRequestError, match=r"'key' to savepoint of job .* with \{'name': 'a'\}"):
        overlap(
            lambda c: c.requests.send(job, "savepoint", {"name": "a"}, "key"),
            lambda c: c.requests.send(job, "savepoint", {"name": "b"}, "key"),
        )


def test_two_steps_that_are_marked_at_once_are_both_kept(catalog: Catalog, job: str, overlap) -> None:
    catalog.runs.start("run", job, from_parallelism=2, to_parallelism=4)
    overlap(
        lambda c: c.runs.mark_step("run", "restart", started=True),
        lambda c: c.runs.mark_step("run", "verify", started=True),
    )
    assert set(catalog.runs.get("run").steps) == {"restart", "verify"}


@pytest.mark.parametrize(
    ("end", "module", "change", "workers"),
    [
        (lambda c: c.runs.finish("run"), runs, "_give_back_workers", 1),
        (lambda c: c.leases.roll_back("j", "run", 5_000, "no quota"), leases, "restore_job", 3),
    ],
    ids=["done", "rolled back"],
)
def test_a_job_is_registered_again_while_a_run_on_its_cluster_ends(
    catalog: Catalog, meanwhile, end: Change, module: Any, change: str, workers: int
) -> None:
    def register_again(c: Catalog) -> Any:
        return c.jobs.register(
            "j", artifact="/a", store="/s", master_url="m", cluster="local", parallelism=2, max_parallelism=16
        )

    catalog.clusters.register("local", "standalone", {}, 3)
    register_again(catalog)
    catalog.leases.acquire("j", "run", 5_000)
    catalog.runs.start("run", "j", from_parallelism=2, to_parallelism=2, from_workers=3, to_workers=1)
    registered, change_cluster = Future[Any](), getattr(module, change)

    def held(*arguments: Any) -> None:
        # It has locked the job, and will change the cluster.
        nonlocal registered
        registered = meanwhile(register_again)
        change_cluster(*arguments)

    with patch.object(module, change, held):
        end(catalog)
    assert registered.result(30).cluster == "local"
    assert catalog.clusters.get("local").desired_workers == workers


def test_a_job_that_two_register_for_the_first_time_is_registered_once(catalog: Catalog, overlap, register) -> None:
    assert overlap(lambda c: register(c, "new"), lambda c: register(c, "new")) == "new"
    assert [each.name for each in catalog.jobs.all()] == ["new"]


def test_a_cluster_that_two_register_for_the_first_time_is_registered_once(catalog: Catalog, overlap) -> None:
    found = overlap(
        lambda c: c.clusters.register("local", "standalone", {}, 1),
        lambda c: c.clusters.register("local", "standalone", {}, 2),
    )
    assert [each.desired_workers for each in catalog.clusters.all()] == [found.desired_workers] == [2]


def test_the_isolation_that_this_rests_on_is_not_the_servers_to_choose(
    postgres_catalog: Database, catalog_url: str
) -> None:
    postgres_catalog(f"ALTER DATABASE {postgres_catalog.name} SET default_transaction_isolation TO 'serializable'")
    try:
        with Catalog(catalog_url) as fresh, fresh._database.read() as connection:
            assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"
    finally:
        postgres_catalog(f"ALTER DATABASE {postgres_catalog.name} RESET default_transaction_isolation")


def test_an_epoch_that_two_record_is_recorded_once(catalog: Catalog, job: str, overlap) -> None:
    epoch = EpochRecord(job, 1, 0, 1, 2, 10, 10, 0, 1, 1)
    overlap(lambda c: c.epochs.record(epoch), lambda c: c.epochs.record(epoch))
    assert catalog.epochs.of(job) == [epoch]
