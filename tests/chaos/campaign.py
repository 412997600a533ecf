"""A schedule that follows from its seed, and what came of it."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random

from statecore.runtime.faults import FaultPoint
from tests.chaos.strikes import DECK, MOST_SUBTASKS, Strike, rescale
from tests.chaos.world import CLUSTER, World, until

# On the first a killed worker ends the driver, on the second Spark tries its task again.
_HERE = ("local[2]", "local[2,4]")
_ROUNDS_PER_RESCALE = 7


@dataclass(frozen=True, slots=True)
class Round:
    """What came of a strike."""

    strike: Strike
    in_flight: bool
    seconds: float


@dataclass
class Report:
    """What came of a campaign.

    Attributes:
        differences: From an undisturbed run, for people.

    """

    rounds: list[Round] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    lineage: int = 0
    epoch: int = 0
    generation: int = 0

    @property
    def in_flight(self) -> int:
        """How many strikes met an epoch in flight."""
        return sum(round.in_flight for round in self.rounds)

    @property
    def hits(self) -> Counter[FaultPoint]:
        """How often each fault point was hit."""
        return Counter(round.strike.point for round in self.rounds if round.strike.point is not None)


def schedule(seed: int, rounds: int) -> tuple[str, list[Strike]]:
    """Return where a campaign begins, and its strikes.

    Every victim's turn comes before any victim's second; strikes that need a ground wait for a rescale to it.
    """
    random = Random(seed)
    rescales = max(1, rounds // (_ROUNDS_PER_RESCALE + 1))
    strikes = _dealt(random, rounds - rescales)
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
            planned.append(rescale(ground, parallelism))
        random.shuffle(stay)
        planned += stay
    return grounds[0], planned


def _fits(strike: Strike, ground: str) -> bool:
    return strike.ground is None or (strike.ground == CLUSTER) == (ground == CLUSTER)


def _dealt(random: Random, number: int) -> list[Strike]:
    """Deal strikes, one of each victim in turn, the deck again and again."""
    dealt: list[Strike] = []
    for _ in count():
        by_victim: dict[str, deque[Strike]] = {}
        for strike in _one_of_each_first(random.sample(DECK, len(DECK))):
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
    world: World,
    ground: str,
    strikes: Sequence[Strike],
    seed: int,
    *,
    until_s: float = float("inf"),
    on_round: Callable[[int, Strike], None] = lambda *_: None,
    on_done: Callable[[int, Round], None] = lambda *_: None,
) -> Report:
    """Run a campaign and compare what it leaves with the truth.

    Args:
        world: A fresh one.
        ground: Where the job begins.
        strikes: What happens to it.
        seed: Of delays and choices within a strike.
        until_s: When no more rounds begin, in seconds from now.
        on_round: Called before each round, with its number from 1 on.
        on_done: Called after each.

    Raises:
        ChaosError: Something did not come about that should have.

    """
    report = Report()
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
        in_flight = strike.blow(world, Random(f"{seed}-round-{number}"))
        world.settle()
        done = Round(strike, in_flight, time.monotonic() - started)
        report.rounds.append(done)
        on_done(number, done)
    # One more epoch in peace: its state is compared with all that the others have left.
    world.feed()
    world.settle()
    until(lambda: world.generation().state == "running", "a driver", world)
    world.stop_with_savepoint("end")
    world.note()
    newest = world.manifests[-1]
    report.lineage, report.epoch, report.generation = newest.lineage, newest.epoch, newest.generation
    report.differences = world.differences()
    return report
