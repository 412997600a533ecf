"""What happens to a query: kills at any time and at each step of a rescale, aborts, and a catalog from a backup."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from random import Random

from tests.chaos.processes import CLUSTER, JOB, kill, until
from tests.chaos.queries.world import QueryWorld
from tests.chaos.strikes.base import Strike, after_a_while, other_parallelism

STEPS = ("stop_with_savepoint", "rescale_state", "restart", "verify")

Act = Callable[[QueryWorld, Random, "subprocess.Popen[bytes]"], None]


def _kill_driver(world: QueryWorld, random: Random, _: object = None) -> None:
    generation = world.generation().generation
    program, jvm = world.driver_program(generation), world.driver_jvm(generation)
    kill(*random.choice([program, jvm, [*program, *jvm]]))


def _kill_executors(world: QueryWorld, random: Random, _: object = None) -> None:
    executors = sorted(world.executors(), key=lambda process: process.pid)
    kill(*random.sample(executors, min(1, len(executors))))


def _kill_supervisor(world: QueryWorld, random: Random, _: object = None) -> None:
    world.kill_supervisor()
    time.sleep(random.uniform(0, 3))
    world.start_supervisor()


def _kill_shell(_: QueryWorld, __: Random, rescale: subprocess.Popen[bytes]) -> None:
    rescale.kill()
    rescale.wait()


def _kill_shell_and_driver(world: QueryWorld, random: Random, rescale: subprocess.Popen[bytes]) -> None:
    _kill_shell(world, random, rescale)
    _kill_driver(world, random)


def _abort(world: QueryWorld, _: Random, rescale: subprocess.Popen[bytes]) -> None:
    # It may have ended meanwhile, and then there is nothing to abort.
    world.spawn("rescale", JOB, "--abort").wait()


def _nothing(*_: object) -> None:
    pass


def _soon(victim: str, how: str, act: Callable[[QueryWorld, Random], None], ground: str | None = None) -> Strike:
    """Do something at any time of a batch."""

    def blow(world: QueryWorld, random: Random) -> bool:
        after_a_while(world, random)
        is_in_flight = world.in_flight()
        act(world, random)
        return is_in_flight

    return Strike(victim, f"{how} after a while", blow, ground)


def _during(victim: str, how: str, act: Act, step: str, ground: str | None = None) -> Strike:
    """Do something at a step of a rescale, while input goes on."""

    def blow(world: QueryWorld, random: Random) -> bool:
        parallelism = other_parallelism(world, random)
        world.begin_epoch()
        is_in_flight = world.in_flight()
        before = {run.run_id for run in world.catalog.runs.of(JOB)}
        rescale = world.spawn("rescale", JOB, "--parallelism", parallelism)

        def is_there() -> bool:
            has_begun = bool({run.run_id for run in world.catalog.runs.of(JOB)} - before)
            return rescale.poll() is not None or (has_begun and world.reached(step))

        until(is_there, f"the step {step}", world)
        time.sleep(random.uniform(0, 1.5))
        act(world, random, rescale)
        world.feed()
        until(lambda: world.catalog.leases.find(JOB) is None, "the end of the rescale", world)
        rescale.wait()
        return is_in_flight

    return Strike(victim, f"{how} at {step}", blow, ground)


def _restored(world: QueryWorld, random: Random) -> bool:
    """Take the catalog back to the time before a rescale, with a batch begun since."""
    copy = world.backup()
    world.run("rescale", JOB, "--parallelism", other_parallelism(world, random))
    world.begin_epoch()
    is_in_flight = world.in_flight()
    world.kill_supervisor()
    kill(*world.driver_session(world.generation().generation))
    until(lambda: not world.driver_jvm(world.generation().generation), "the driver to end", world)
    world.restore(copy)
    world.start_supervisor()
    return is_in_flight


def _from_savepoint(world: QueryWorld, random: Random) -> bool:
    """Stop with a savepoint, and start from it."""
    after_a_while(world, random)
    is_in_flight = world.in_flight()
    world.run("start", JOB, "--from", str(world.stop_with_savepoint("kept")))
    return is_in_flight


def move(ground: str, parallelism: int) -> Strike:
    """Stop in the middle of a batch, go on elsewhere, and rescale there."""

    def blow(world: QueryWorld, random: Random) -> bool:
        after_a_while(world, random)
        is_in_flight = world.in_flight()
        world.run("stop", JOB)
        world.register(ground, parallelism)
        world.run("start", JOB)
        until(lambda: world.generation().state == "running", "a driver", world)
        if world.catalog.jobs.get(JOB).parallelism != parallelism:
            world.run("rescale", JOB, "--parallelism", parallelism)
        return is_in_flight

    return Strike("rescale", f"to {parallelism} on {ground}", blow)


DECK: tuple[Strike, ...] = (
    *(_soon("driver", "killed", _kill_driver) for _ in range(2)),
    _soon("supervisor", "killed", _kill_supervisor),
    _soon("executor", "killed", _kill_executors, CLUSTER),
    *(_during("rescale", "left alone", _nothing, step) for step in STEPS[:1]),
    *(_during("driver", "killed", _kill_driver, step) for step in STEPS),
    *(_during("shell", "killed", _kill_shell, step) for step in STEPS),
    *(_during("shell and driver", "killed", _kill_shell_and_driver, step) for step in STEPS),
    *(_during("supervisor", "killed", _kill_supervisor, step) for step in STEPS),
    *(_during("executor", "killed", _kill_executors, step, CLUSTER) for step in STEPS),
    *(_during("rescale", "aborted", _abort, step) for step in STEPS),
    Strike("catalog", "from a backup", _restored),
    Strike("savepoint", "started from", _from_savepoint),
)
