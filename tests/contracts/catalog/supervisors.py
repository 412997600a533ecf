from __future__ import annotations

from typing import Any

import pytest

from statecore.catalog import Catalog, SupervisorRecord

SILENT_MS = 30_000


def lead(catalog: Catalog, id: str, **more: Any) -> SupervisorRecord:
    return catalog.supervisors.lead(id, host=f"host-of-{id}", pid=7, process_started_ms=3, version="0.1", **more)


def test_the_first_supervisor_acts_and_the_second_waits(catalog: Catalog, clock) -> None:
    assert catalog.supervisors.last() is None and not catalog.supervisors.is_alive(None)
    first = lead(catalog, "a", hung={"job 'j'": 12})
    assert first == SupervisorRecord(
        "a", "host-of-a", 7, 3, "0.1", {"job 'j'": 12}, started_ms=clock.now_ms(), heartbeat_ms=clock.now_ms()
    )
    assert lead(catalog, "b") == first == catalog.supervisors.last()
    assert catalog.supervisors.is_alive(first)


def test_a_supervisor_that_is_silent_for_too_long_is_replaced_and_learns_it(catalog: Catalog, clock) -> None:
    began_ms = lead(catalog, "a").started_ms
    clock.advance(SILENT_MS - 1)
    again = lead(catalog, "a")
    assert (again.started_ms, again.heartbeat_ms) == (began_ms, began_ms + SILENT_MS - 1)
    clock.advance(SILENT_MS - 1)
    assert lead(catalog, "b").id == "a"
    clock.advance(1)
    assert not catalog.supervisors.is_alive(catalog.supervisors.last())
    assert lead(catalog, "b").id == "b"
    assert lead(catalog, "a").id == "b"


def test_one_known_to_be_dead_is_replaced_at_once_unless_another_has_replaced_it(catalog: Catalog) -> None:
    lead(catalog, "a")
    assert lead(catalog, "b", replacing="a").id == "b"
    assert lead(catalog, "c", replacing="a").id == "b"


def test_one_that_resigns_makes_room_and_another_cannot_do_it_for_it(catalog: Catalog) -> None:
    lead(catalog, "a")
    catalog.supervisors.resign("b")
    assert lead(catalog, "b").id == "a"
    catalog.supervisors.resign("a")
    assert catalog.supervisors.last() is None and lead(catalog, "b").id == "b"


def test_worker_processes_belong_to_the_first_host_until_the_cluster_is_registered_again(catalog: Catalog) -> None:
    catalog.clusters.register("c", "standalone", {}, workers=2)
    assert catalog.clusters.claim("c", "here").host == "here"
    for replacing in (None, "there", "elsewhere"):
        assert catalog.clusters.claim("c", "there", replacing=replacing).host == "here"
    assert catalog.clusters.claim("c", "there", replacing="here").host == "there"
    assert catalog.clusters.claim("c", "here", replacing="there").host == "here"
    catalog.clusters.register("c", "standalone", {}, workers=2)
    assert catalog.clusters.claim("c", "there").host == "there"


def test_a_generation_knows_the_process_that_was_started_for_it(catalog: Catalog, job: str) -> None:
    assert catalog.generations.claim(job, log_path="log").pid is None
    catalog.generations.record_driver(job, 1, host="here", pid=7, process_started_ms=3)
    found = catalog.generations.newest(job)
    assert found is not None and (found.host, found.pid, found.process_started_ms) == ("here", 7, 3)


@pytest.mark.parametrize("id", ["a", "b"])
def test_the_time_of_a_heartbeat_is_the_catalogs(catalog: Catalog, clock, id: str) -> None:
    clock.advance(1_000)
    assert lead(catalog, id).heartbeat_ms == clock.now_ms() == catalog.now_ms()
