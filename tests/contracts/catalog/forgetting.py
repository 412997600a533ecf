from __future__ import annotations

import pytest

from statecore.catalog import Catalog
from statecore.catalog.retention import KEPT_MS, KEPT_NEWEST
from statecore.errors import UnknownRecordError


def test_what_ended_long_ago_is_forgotten_but_not_the_newest_hundred_and_nothing_that_has_not_ended(
    catalog: Catalog, job: str, register, clock
) -> None:
    register(catalog, "other")

    def run(number: int, of: str) -> None:
        generation = catalog.generations.claim(of, log_path="").generation
        catalog.generations.end(of, generation, state="failed", error="e")
        catalog.runs.start(f"{of}-{number}", of, from_parallelism=2, to_parallelism=4)
        catalog.runs.finish(f"{of}-{number}")
        asked = catalog.requests.send(of, "savepoint", {}, f"{of}-{number}")
        catalog.requests.finish(asked.id, result={})
        clock.advance(1)

    open_run = catalog.runs.start("open", job, from_parallelism=2, to_parallelism=4)
    open_request = catalog.requests.send(job, "savepoint", {}, "open")
    for number in range(KEPT_NEWEST + 3):
        run(number, job)
    run(0, "other")
    catalog.jobs.forget_history(job)
    assert len(catalog.generations.of(job)) == KEPT_NEWEST + 3

    clock.advance(KEPT_MS)
    recent = catalog.requests.send(job, "savepoint", {}, "recent")
    catalog.requests.finish(recent.id, error="e")
    audit = catalog.jobs.audit(job)
    catalog.jobs.forget_history(job)
    assert audit and catalog.jobs.audit(job) == audit
    assert [each.generation for each in catalog.generations.of(job)] == [*range(KEPT_NEWEST + 3, 3, -1)]
    runs = [each.run_id for each in catalog.runs.of(job)]
    assert len(runs) == KEPT_NEWEST + 1
    assert runs[-1] == open_run.run_id
    assert catalog.requests.get(recent.id).state == "failed"
    assert catalog.requests.get(open_request.id).state == "pending"
    with pytest.raises(UnknownRecordError):
        catalog.requests.get(open_request.id + 1)
    assert len(catalog.generations.of("other")) == len(catalog.runs.of("other")) == 1
    assert catalog.generations.claim(job, log_path="").generation == KEPT_NEWEST + 4
