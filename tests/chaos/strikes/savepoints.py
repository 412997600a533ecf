"""Strikes that people make: savepoints, rescales, roll-backs, claims and drops, all in the middle of an epoch."""

from __future__ import annotations

import uuid
from random import Random

from statecore.errors import MissingFileError
from statecore.snapshot.checkpoints import open_savepoint
from tests.chaos.network import Dam
from tests.chaos.processes import JOB, ChaosError, Processes, kill, until
from tests.chaos.strikes.base import Strike, after_a_while, other_parallelism, taken
from tests.chaos.world import World

_NEAR = 6
"""A roll-back goes back by this number of input files at most: the job reads them again, one in an epoch."""


def _savepoint(*, copied: bool) -> Strike:
    def blow(world: World, random: Random) -> bool:
        name = f"asked-{uuid.uuid4().hex}"
        target = {"target": world.savepoint_folder(name)} if copied else {}
        after_a_while(world, random)
        asked = world.ask("savepoint", name, **target)
        found = world.in_flight()
        taken(world, asked.id)
        return found

    return Strike("savepoint", "self-contained" if copied else "plain", blow)


def ask_live(world: Processes, random: Random) -> int:
    """Ask the running job for another parallelism."""
    parallelism = other_parallelism(world, random)
    return world.ask("rescale", f"live-{uuid.uuid4().hex}", parallelism=parallelism).id


def _live(world: World, random: Random) -> bool:
    """Give the running job another parallelism in the middle of an epoch."""
    after_a_while(world, random)
    found = world.in_flight()
    asked = ask_live(world, random)
    until(lambda: world.catalog.requests.get(asked).state in ("done", "failed"), "another parallelism", world)
    answer = world.catalog.requests.get(asked)
    if answer.result is None:
        raise ChaosError(f"the live rescale failed: {answer.error}")
    world.feed()
    return found


def rescale(ground: str, parallelism: int) -> Strike:
    """Stop with a savepoint in the middle of an epoch, and go on elsewhere."""

    def blow(world: Processes, random: Random) -> bool:
        after_a_while(world, random)
        found = world.in_flight()
        url = world.stop_with_savepoint(f"rescale-{uuid.uuid4().hex}")
        world.register(ground, parallelism)
        if url is None:
            world.start(parallelism=parallelism)
        else:
            world.start(parallelism=parallelism, start_from=url)
        return found

    return Strike("rescale", f"to {parallelism} on {ground}", blow)


def _rolled_back(cut_off: str | None, *, claim: bool = False) -> Strike:
    """Go back to an older savepoint; its first epoch may be cut off before it is committed."""

    def blow(world: World, random: Random) -> bool:
        url = _older_savepoint(world, random)
        after_a_while(world, random)
        found = world.in_flight()
        world.stop_with_savepoint(f"before-{uuid.uuid4().hex}")
        if claim:
            world.kept.remove(url)
        dam = Dam("PUT", "/store/state/")
        if cut_off is not None:
            world.network.weather = dam
        world.roll_back(url, *(["--claim"] if claim else []))
        # A rescale is verified by epochs that read these.
        world.feed(3 if cut_off == "a rescale" else 1)
        if cut_off is not None:
            until(dam.met.is_set, "the first epoch of the roll-back", world)
            cut = _kill_driver if cut_off == "a kill" else _rescale_by_shell
            cut(world, random, dam)
        return found

    how = "plain" if cut_off is None else f"cut off by {cut_off}"
    return Strike("roll-back", f"{how}, with a claim" if claim else how, blow)


def _kill_driver(world: World, _: Random, dam: Dam) -> None:
    kill(*world.driver_session(world.generation().generation))
    world.network.clear()
    dam.open()


def _rescale_by_shell(world: World, random: Random, dam: Dam) -> None:
    """Rescale as a person does; the driver cancels the epoch that hangs, and its successor runs it anew."""
    parallelism, stopped = other_parallelism(world, random), world.generation().generation
    to = ["--parallelism", str(parallelism), "--method", "by_reference", "--timeout", "150"]
    with world.shell_beside("rescale", JOB, *to):
        until(lambda: world.generation().generation > stopped or world.generation().ended, "the driver's end", world)
        world.network.clear()
        dam.open()


def _older_savepoint(world: World, random: Random) -> str:
    """Return a savepoint that newer epochs have followed on: a new one, or one of before, of any lineage."""
    near = [url for url in world.kept[-8:] if len(world.fed.records) - world.read_by(url)[0] <= _NEAR]
    if near and random.random() < 0.5:
        chosen = random.choice(near)
    else:
        chosen = taken(world, world.ask("savepoint", f"back-{uuid.uuid4().hex}").id)
    world.feed(random.randint(1, 2))
    world.settle()
    return chosen


def _claimed(world: World, random: Random) -> bool:
    """Start from the savepoint of the stop, and let the job own it."""
    after_a_while(world, random)
    found = world.in_flight()
    url = world.stop_with_savepoint(f"claimed-{uuid.uuid4().hex}")
    if url is None:
        world.start()
        return found
    world.kept.remove(url)
    world.shell("start", JOB, "--from", url, "--claim")
    world.feed()
    until(lambda: _is_gone(url), f"the job to drop {url}, which it owns", world)
    return found


def _dropped(world: World, random: Random) -> bool:
    """Drop a savepoint that others share files with: one of before that nobody reads, or else a new one."""
    free = [url for url in world.kept if not _is_claimed(url)]
    url = random.choice(free) if free else taken(world, world.ask("savepoint", f"dropped-{uuid.uuid4().hex}").id)
    after_a_while(world, random)
    found = world.in_flight()
    world.kept.remove(url)
    world.shell("savepoint", "drop", url)
    if not _is_gone(url):
        raise ChaosError(f"{url} was dropped and is still there")
    return found


def _is_claimed(url: str) -> bool:
    """Return whether somebody reads a savepoint; a claim is in the savepoint's own store."""
    found = open_savepoint(url)
    return found.path in found.store.claimed()


def _is_gone(url: str) -> bool:
    try:
        open_savepoint(url)
    except MissingFileError:
        return True
    return False


STRIKES = (
    _savepoint(copied=False),
    _savepoint(copied=True),
    Strike("live rescale", "in the middle of an epoch", _live),
    Strike("live rescale", "in the middle of an epoch", _live),
    _rolled_back(None),
    _rolled_back("a kill"),
    _rolled_back("a rescale"),
    _rolled_back(None, claim=True),
    _rolled_back("a kill", claim=True),
    Strike("claim", "of the savepoint of a stop", _claimed),
    Strike("drop of a savepoint", "in the middle of an epoch", _dropped),
    Strike("drop of a savepoint", "in the middle of an epoch", _dropped),
)
