"""Races between real processes."""

from __future__ import annotations

from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from statecore.catalog import Catalog
from statecore.errors import GenerationClaimedError, LeaseHeldError
from tests.support.racers import CONTEXT, racer
from tests.support.waiting import PATIENCE_S

RACERS = 3
ROUNDS = 5


def claim(catalog: Catalog, job: str, number: int) -> bool:
    try:
        catalog.generations.claim(job, log_path=f"/{number}")
    except GenerationClaimedError:
        return False
    return True


def acquire(catalog: Catalog, job: str, number: int) -> bool:
    try:
        catalog.leases.acquire(job, f"racer-{number}", 60_000)
    except LeaseHeldError:
        return False
    return True


def register_again(catalog: Catalog, job: str, number: int) -> bool:
    catalog.create_schema()
    made = catalog.jobs.register(job, artifact="/a", store="/s", master_url="m", parallelism=1, max_parallelism=128)
    return made.name == job


ACTIONS = {"claim": claim, "acquire": acquire, "register": register_again}


def race(url: str, action: str, number: int, start: Barrier, wins: Queue[tuple[int, int]]) -> None:
    with Catalog(url) as catalog:
        for turn in range(ROUNDS):
            start.wait(PATIENCE_S)
            try:
                won = ACTIONS[action](catalog, f"job-{turn}", number)
            except BaseException:
                start.abort()  # the others need not wait for this one
                raise
            if won:
                wins.put((turn, number))


def winners(url: str, action: str) -> dict[int, list[int]]:
    start, wins = CONTEXT.Barrier(RACERS, timeout=PATIENCE_S), CONTEXT.Queue()
    racers = [racer(race, url, action, n, start, wins) for n in range(RACERS)]
    for process in racers:
        process.join(PATIENCE_S)
    assert [process.exitcode for process in racers] == [0] * RACERS
    result: dict[int, list[int]] = {turn: [] for turn in range(ROUNDS)}
    while not wins.empty():
        turn, number = wins.get()
        result[turn].append(number)
    return result


def test_several_processes_may_create_and_register_at_once(empty_url: str) -> None:
    assert [len(done) for done in winners(empty_url, "register").values()] == [RACERS] * ROUNDS
