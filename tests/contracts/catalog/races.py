"""Races between real processes: a lock inside one process would not be enough."""

from __future__ import annotations

import multiprocessing
from multiprocessing.synchronize import Barrier

from statecore.catalog import Catalog
from statecore.errors import GenerationClaimedError, LeaseHeldError

RACERS = 3
ROUNDS = 5


def claim(catalog: Catalog, job: str, racer: int) -> bool:
    try:
        catalog.claim_generation(job, log_path=f"/{racer}")
    except GenerationClaimedError:
        return False
    return True


def acquire(catalog: Catalog, job: str, racer: int) -> bool:
    try:
        catalog.acquire_lease(job, f"racer-{racer}", 60_000)
    except LeaseHeldError:
        return False
    return True


def register_again(catalog: Catalog, job: str, racer: int) -> bool:
    catalog.create_schema()
    made = catalog.register_job(job, artifact="/a", store="/s", master_url="m", parallelism=1, max_parallelism=128)
    return made.name == job


ACTIONS = {"claim": claim, "acquire": acquire, "register": register_again}


def race(url: str, action: str, racer: int, start: Barrier, wins: multiprocessing.Queue[tuple[int, int]]) -> None:
    with Catalog(url) as catalog:
        for turn in range(ROUNDS):
            start.wait(60)
            try:
                won = ACTIONS[action](catalog, f"job-{turn}", racer)
            except BaseException:
                start.abort()  # the others need not wait for this one
                raise
            if won:
                wins.put((turn, racer))


def winners(url: str, action: str) -> dict[int, list[int]]:
    context = multiprocessing.get_context("spawn")
    start, wins = context.Barrier(RACERS), context.Queue()
    racers = [context.Process(target=race, args=(url, action, n, start, wins)) for n in range(RACERS)]
    for process in racers:
        process.start()
    for process in racers:
        process.join(60)
    assert [process.exitcode for process in racers] == [0] * RACERS
    result: dict[int, list[int]] = {turn: [] for turn in range(ROUNDS)}
    while not wins.empty():
        turn, racer = wins.get()
        result[turn].append(racer)
    return result


def test_several_processes_may_create_and_register_at_once(empty_url: str) -> None:
    assert [len(done) for done in winners(empty_url, "register").values()] == [RACERS] * ROUNDS
