"""A schedule that follows from its seed, and what came of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import count
from random import Random

from tests.chaos.processes import CLUSTER, ChaosError, Processes, until
from tests.chaos.report import Report, Round
from tests.chaos.strikes import DECK
from tests.chaos.strikes.base import MOST_SUBTASKS, Need, Strike
from tests.chaos.strikes.savepoints import rescale

# On the first a killed worker ends the driver, on the second Spark tries its task again.
_HERE = ("local[2]", "local[2,4]")
_ROUNDS_PER_RESCALE = 7


def schedule(
    seed: int,
    rounds: int,
    *,
    deck: Sequence[Strike] = DECK,
    offered: Collection[Need] = tuple(Need),
    victims: Collection[str] = (),
    move: Callable[[str, int], Strike] = rescale,
) -> tuple[str, list[Strike]]:
    """Return where a campaign begins, and its strikes.

    Every victim's turn comes before any victim's second; strikes that need a ground wait for a rescale to it.

    Args:
        seed: What the schedule follows from.
        rounds: How many strikes.
        deck: Those to choose from.
        offered: What the campaign has.
        victims: Those to hit; all by default.
        move: Returns the strike that takes the job to another ground and parallelism.

    Raises:
        ChaosError: No strike that is possible hits one of the victims.

    """
    possible = [strike for strike in deck if strike.need is None or strike.need in offered]
    known = {strike.victim for strike in possible}
    for victim in victims:
        if victim not in known:
            raise ChaosError(f"no strike here strikes at {victim!r}; expected one of {sorted(known)}")
    chosen = [strike for strike in possible if not victims or strike.victim in victims]
    random = Random(seed)
    rescales = max(1, rounds // (_ROUNDS_PER_RESCALE + 1))
    strikes = _dealt(random, chosen, rounds - rescales)
    grounds = [CLUSTER if stay % 2 else _HERE[stay // 2 % 2] for stay in range(rescales + 1)]
    stays: list[list[Strike]] = [[] for _ in grounds]
    for strike in strikes:
        fitting = [stay for stay, ground in zip(stays, grounds, strict=True) if _fits(strike, ground)]
        # The shortest: stays on the cluster get those that need it, and some more.
        min(fitting, key=len).append(strike)
    parallelism, planned = 2, []
    for index, (ground, stay) in enumerate(zip(grounds, stays, strict=True)):
        if index:
            parallelism = random.choice([p for p in range(1, MOST_SUBTASKS + 1) if p != parallelism])
            planned.append(move(ground, parallelism))
        random.shuffle(stay)
        planned += stay
    return grounds[0], planned


def _fits(strike: Strike, ground: str) -> bool:
    return strike.ground is None or (strike.ground == CLUSTER) == (ground == CLUSTER)


def _dealt(random: Random, deck: Sequence[Strike], number: int) -> list[Strike]:
    """Deal strikes, one of each victim in turn, the deck again and again."""
    dealt: list[Strike] = []
    for _ in count():
        by_victim: dict[str, deque[Strike]] = {}
        for strike in _one_of_each_first(random.sample(deck, len(deck))):
            by_victim.setdefault(strike.victim, deque()).append(strike)
        while any(by_victim.values()):
            for waiting in by_victim.values():
                if waiting:
                    dealt.append(waiting.popleft())
                if len(dealt) == number:
                    return dealt
    raise AssertionError


def _one_of_each_first(strikes: Sequence[Strike]) -> list[Strike]:
    first = {(strike.victim, strike.how): strike for strike in reversed(strikes)}
    chosen = {id(strike) for strike in first.values()}
    # Fault points before all: each must have its turn.
    return sorted(strikes, key=lambda strike: (id(strike) not in chosen, strike.point is None))


def carry_out(
    world: Processes,
    ground: str,
    strikes: Sequence[Strike],
    report: Report,
    *,
    until_s: float = float("inf"),
    on_round: Callable[[int, Strike], None] = lambda *_: None,
    on_done: Callable[[int, Round], None] = lambda *_: None,
) -> None:
    """Run a campaign and compare what it leaves with the truth.

    Args:
        world: A fresh one.
        ground: Where the job begins.
        strikes: What happens to it.
        report: Filled with what comes of it; its seed decides delays and choices within a strike.
        until_s: When no more rounds begin, in seconds from now.
        on_round: Called before each round, with its number from 1 on.
        on_done: Called after each.

    Raises:
        ChaosError: Something did not come about that should have.

    """
    world.register(ground, 2)
    world.start_supervisor()
    world.start()
    world.feed()
    world.settle()
    end = time.monotonic() + until_s
    for number, strike in enumerate(strikes, start=1):
        if time.monotonic() > end:
            break
        on_round(number, strike)
        started = time.monotonic()
        in_flight = strike.blow(world, Random(f"{report.seed}-round-{number}"))
        world.settle()
        done = Round(strike.victim, strike.how, strike.point, in_flight, time.monotonic() - started)
        report.rounds.append(done)
        on_done(number, done)
    # One more epoch in peace: its state is compared with all that the others have left.
    world.feed()
    world.settle()
    until(lambda: world.generation().state == "running", "a driver", world)
    world.stop_with_savepoint("end")
    world.note()
    newest = world.generation()
    report.epoch, report.generation = newest.epoch, newest.generation
    verdict = world.verdict()
    report.lineages = verdict.lineages
    report.differences, report.lost, report.doubled = verdict.differences, verdict.lost, verdict.doubled
