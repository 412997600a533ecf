"""What happens to the job from topic to topic: kills, a broker that is away, and publishers that wake as zombies."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from random import Random

import psutil

from statecore.runtime.faults import FaultPoint
from tests.chaos.kafka.moments import Moment
from tests.chaos.kafka.world import TRANSACTION_S, KafkaWorld
from tests.chaos.processes import CLUSTER, ChaosError, kill, signalled, until
from tests.chaos.strikes.base import LOCAL, Strike, after_a_while
from tests.chaos.strikes.savepoints import ask_live

_WORKER_POINTS = (FaultPoint.BEFORE_CHANGELOG, FaultPoint.CHANGELOG_WRITTEN)
# Before and after the transaction; MERGED and others have nothing to do with it.
_DRIVER_POINTS = (FaultPoint.MANIFEST_WRITTEN, FaultPoint.SINK_PUBLISHED, FaultPoint.PUBLISHED)

# A Python program whose JVM was killed ends, and a killed one beats no more, before this has passed.
_SURVIVED_MS = 2_000

Act = Callable[[KafkaWorld, Random], None]


def _met(world: KafkaWorld, moment: Moment) -> None:
    """Let an epoch come to a moment, and its publisher wait there."""
    world.moments.arm(moment)
    world.feed()
    until(lambda: world.moments.is_met(moment), f"a publisher {moment}", world)


def _at(victim: str, how: str, moment: Moment, act: Act) -> Strike:
    """Do something while a publisher waits at a moment of its transaction."""

    def blow(world: KafkaWorld, random: Random) -> bool:
        _met(world, moment)
        found = world.in_flight()
        act(world, random)
        world.moments.release()
        return found

    return Strike(victim, f"{how} {moment}", blow)


def _on_commit(victim: str, how: str, act: Act) -> Strike:
    """Do something when a commit is on its way, or carried out, or its answer on the way back."""

    def act_on_commit(world: KafkaWorld, random: Random) -> None:
        world.moments.release()
        time.sleep(random.uniform(0, 0.06))
        act(world, random)

    def blow(world: KafkaWorld, random: Random) -> bool:
        return _at(victim, how, Moment.MARKER_SENT, act_on_commit).blow(world, random)

    return Strike(victim, f"{how} during the commit", blow)


def _soon(victim: str, how: str, act: Act, ground: str | None = None) -> Strike:
    """Do something at any time of an epoch."""

    def blow(world: KafkaWorld, random: Random) -> bool:
        after_a_while(world, random)
        found = world.in_flight()
        act(world, random)
        return found

    return Strike(victim, f"{how} after a while", blow, ground)


def _at_point(point: FaultPoint) -> Strike:
    def blow(world: KafkaWorld, _: Random) -> bool:
        world.arm(point)
        world.feed()
        until(lambda: world.is_hit(point), f"a kill at {point}", world)
        return True

    return Strike("worker" if point in _WORKER_POINTS else "driver", f"killed at {point}", blow, point=point)


def _kill_driver(world: KafkaWorld, random: Random) -> None:
    generation = world.generation().generation
    program, jvm = world.driver_program(generation), world.driver_jvm(generation)
    kill(*random.choice([program, jvm, [*program, *jvm]]))


def _kill_some(found: list[psutil.Process], random: Random) -> None:
    ordered = sorted(found, key=lambda process: process.pid)
    kill(*(ordered if random.random() < 0.3 else random.sample(ordered, min(1, len(ordered)))))


def _kill_workers(world: KafkaWorld, random: Random) -> None:
    _kill_some(world.python_workers(), random)


def _kill_executors(world: KafkaWorld, random: Random) -> None:
    _kill_some(world.executors(), random)


def _restart_broker(how: signal.Signals) -> Act:
    def act(world: KafkaWorld, random: Random) -> None:
        world.broker.stop(how)
        _meets(world, random)
        time.sleep(random.uniform(0, 3))
        world.broker.start()

    return act


def _pause_broker(world: KafkaWorld, random: Random) -> None:
    with world.broker.paused():
        _meets(world, random)
        time.sleep(random.uniform(0.5, 6))


def _meets(world: KafkaWorld, random: Random) -> None:
    """Let the publisher that may wait meet a broker that is away; or else go on once it is back."""
    if random.random() < 0.5:
        world.moments.release()


def _kill_both(world: KafkaWorld, random: Random) -> None:
    world.broker.stop(signal.SIGKILL)
    _kill_driver(world, random)
    world.broker.start()


def _time_out(_: KafkaWorld, random: Random) -> None:
    """Let the broker abort the transaction of a publisher that lives."""
    time.sleep(TRANSACTION_S + random.uniform(0.5, 2))


def _wait_for_a_driver(world: KafkaWorld) -> None:
    """Wait for one that lives on: a killed driver is running in the catalog until its supervisor looks."""
    asked_ms = world.catalog.now_ms()

    def lives() -> bool:
        newest = world.generation()
        beats = newest.state == "running" and newest.heartbeat_ms > asked_ms + _SURVIVED_MS
        return beats and bool(world.driver_jvm(newest.generation))

    until(lives, "a driver", world)


def _zombie(moment: Moment | None, *, early: bool = False) -> Strike:
    """Freeze a driver until its successor has published, or only until it begins, then let it go on."""

    def blow(world: KafkaWorld, random: Random) -> bool:
        _wait_for_a_driver(world)
        # From here on, nobody starts another.
        world.kill_supervisor()
        old = world.generation()
        frozen = world.driver_session(old.generation)
        if moment is None:
            after_a_while(world, random)
        else:
            _met(world, moment)
        found = world.in_flight()
        world.freeze(frozen)
        # A supervisor kills a lost driver of its host; only one of another host wakes up again. That one's folder would
        # be removed as left over: by now it has its epoch.
        world.catalog.generations.record_driver(
            old.job, old.generation, host="another host", pid=1, process_started_ms=0
        )
        world.start_supervisor()
        until(lambda: world.generation().generation > old.generation, "a successor", world)
        if early:
            time.sleep(random.uniform(0, 6))
        else:
            # Nobody else is to wait there.
            world.feed()
            world.settle()
        if moment is not None:
            world.moments.release()
        signalled(frozen, "resume")
        # It finds itself replaced and ends by itself, while its successor has epochs to publish.
        world.feed()
        until(lambda: not world.driver_program(old.generation), "the driver of before to end", world, 90)
        return found

    wakes = "while its successor begins" if early else "when its successor has published"
    return Strike("zombie", f"frozen {moment or 'after a while'}, wakes {wakes}", blow, LOCAL)


def _rescaled_live(world: KafkaWorld, random: Random) -> bool:
    """Give the running job another parallelism, with records before, meanwhile and after."""
    after_a_while(world, random)
    found = world.in_flight()
    asked = ask_live(world, random)
    world.feed()
    until(lambda: world.catalog.requests.get(asked).state in ("done", "failed"), "another parallelism", world)
    answer = world.catalog.requests.get(asked)
    if answer.result is None:
        raise ChaosError(f"the live rescale failed: {answer.error}")
    world.feed()
    return found


DECK: tuple[Strike, ...] = (
    *(_at_point(point) for point in (*_DRIVER_POINTS, *_WORKER_POINTS)),
    *(_at("driver", "killed", moment, _kill_driver) for moment in (Moment.ROWS_SENT, Moment.MARKER_SENT)),
    *(_on_commit("driver", "killed", _kill_driver) for _ in range(2)),
    *(_soon("driver", "killed", _kill_driver) for _ in range(2)),
    _soon("worker", "killed", _kill_workers),
    *(_soon("executor", "killed", _kill_executors, CLUSTER) for _ in range(2)),
    *(_soon("broker", "killed", _restart_broker(signal.SIGKILL)) for _ in range(2)),
    *(
        _at("broker", "killed", moment, _restart_broker(signal.SIGKILL))
        for moment in (Moment.BEFORE, Moment.ROWS_SENT, Moment.MARKER_SENT, Moment.COMMITTED)
    ),
    *(_on_commit("broker", "killed", _restart_broker(signal.SIGKILL)) for _ in range(2)),
    _soon("broker", "restarted", _restart_broker(signal.SIGTERM)),
    _at("broker", "restarted", Moment.ROWS_SENT, _restart_broker(signal.SIGTERM)),
    _soon("broker", "paused", _pause_broker),
    _at("broker", "paused", Moment.ROWS_SENT, _pause_broker),
    _on_commit("broker", "paused", _pause_broker),
    _at("broker and driver", "killed", Moment.MARKER_SENT, _kill_both),
    _soon("broker and driver", "killed", _kill_both),
    _at("transaction", "timed out", Moment.ROWS_SENT, _time_out),
    *(_zombie(moment) for moment in Moment),
    _zombie(None),
    *(_zombie(moment, early=True) for moment in (Moment.BEFORE, Moment.MARKER_SENT, None)),
    *(Strike("live rescale", "under load", _rescaled_live) for _ in range(2)),
)
