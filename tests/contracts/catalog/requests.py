from __future__ import annotations

import pytest

from statecore.catalog import Catalog
from statecore.errors import CatalogError, UnknownRecordError


def test_the_same_key_is_the_same_request(catalog: Catalog, job: str) -> None:
    first = catalog.requests.send(job, "stop_with_savepoint", {"name": "a"}, "run-1")
    assert catalog.requests.send(job, "stop_with_savepoint", {"name": "a"}, "run-1") == first
    catalog.requests.finish(first.id, result={"savepoint": "/sp"})
    assert catalog.requests.send(job, "stop_with_savepoint", {"name": "a"}, "run-1").result == {"savepoint": "/sp"}


def test_a_key_cannot_be_used_for_another_request(catalog: Catalog, job: str, register) -> None:
    register(catalog, "other")
    catalog.requests.send(job, "stop_with_savepoint", {}, "run-1")
    with pytest.raises(CatalogError, match="'run-1' to stop_with_savepoint of job 'flights'"):
        catalog.requests.send("other", "stop_with_savepoint", {}, "run-1")
    with pytest.raises(CatalogError, match=r"of job 'flights' with {}; expected .* with {'name': 'b'}"):
        catalog.requests.send(job, "stop_with_savepoint", {"name": "b"}, "run-1")


def test_requests_are_taken_in_order_and_again_until_finished(catalog: Catalog, job: str) -> None:
    assert catalog.requests.take_next(job) is None
    first = catalog.requests.send(job, "stop_with_savepoint", {}, "1")
    second = catalog.requests.send(job, "stop_with_savepoint", {}, "2")
    taken = catalog.requests.take_next(job)
    assert taken is not None and (taken.id, taken.state) == (first.id, "taken")
    assert catalog.requests.take_next(job) == taken
    catalog.requests.finish(first.id, error="no room")
    following = catalog.requests.take_next(job)
    assert following is not None and following.id == second.id


def test_what_a_driver_works_on_does_not_hold_up_what_comes_after(catalog: Catalog, job: str) -> None:
    first = catalog.requests.send(job, "savepoint", {"name": "a"}, "1")
    second = catalog.requests.send(job, "stop_with_savepoint", {"name": "b"}, "2")
    assert catalog.requests.take_next(job) is not None
    following = catalog.requests.take_next(job, under_way={first.id})
    assert following is not None and (following.id, following.state) == (second.id, "taken")
    assert catalog.requests.take_next(job, under_way={first.id, second.id}) is None
    # To a driver that does not know of it, it is a request of one that died.
    given_again = catalog.requests.take_next(job)
    assert given_again is not None and given_again.id == first.id


def test_a_stop_that_was_overtaken_by_a_start_does_not_stop_the_new_driver(catalog: Catalog, job: str) -> None:
    stops = [catalog.requests.send(job, "stop_with_savepoint", {"name": name}, name) for name in ("a", "b")]
    kept = catalog.requests.send(job, "savepoint", {"name": "c"}, "c")
    assert catalog.requests.take_next(job) is not None
    catalog.jobs.set_desired(job, state="running")
    catalog.generations.claim(job, log_path="/l", if_wanted=True)
    assert [catalog.requests.get(stop.id).state for stop in stops] == ["failed", "failed"]
    assert "started again" in str(catalog.requests.get(stops[0].id).error)
    following = catalog.requests.take_next(job)
    assert following is not None and following.id == kept.id


def test_a_stop_of_a_job_that_stays_stopped_is_kept_from_one_generation_to_the_next(catalog: Catalog, job: str) -> None:
    # Airflow claims one to answer the request itself.
    stop = catalog.requests.send(job, "stop_with_savepoint", {"name": "a"}, "a")
    catalog.generations.claim(job, log_path="/l")
    assert catalog.requests.get(stop.id).state == "pending"


def test_the_first_outcome_of_a_request_stays(catalog: Catalog, job: str) -> None:
    made = catalog.requests.send(job, "stop_with_savepoint", {}, "1")
    done = catalog.requests.finish(made.id, error="no room")
    assert catalog.requests.finish(made.id, result={}) == done == catalog.requests.get(made.id)
    assert (done.state, done.error, done.result) == ("failed", "no room", None)


def test_an_outcome_is_a_result_or_an_error(catalog: Catalog, job: str) -> None:
    made = catalog.requests.send(job, "stop_with_savepoint", {}, "1")
    with pytest.raises(ValueError, match="expected one"):
        catalog.requests.finish(made.id)
    with pytest.raises(ValueError, match="expected one"):
        catalog.requests.finish(made.id, result={}, error="x")


def test_a_request_nobody_made_is_unknown(catalog: Catalog) -> None:
    with pytest.raises(UnknownRecordError, match="no request 9"):
        catalog.requests.get(9)
    with pytest.raises(UnknownRecordError, match="no request 9"):
        catalog.requests.finish(9, result={})
