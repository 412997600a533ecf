"""Plays faults on a real stack and checks what people are told: ``python -m tests.drills [--only WORDS]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.processes import ChaosError
from tests.drills.drills import DRILLS, Drill
from tests.drills.world import DrillWorld
from tests.support.webhook import Webhook


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a drill; seconds from the fault to its message, and from the advice's deed to health."""

    drill: Drill
    told_s: float | None
    healthy_s: float


def main() -> int:
    """Play each drill once; return 1 if people were told something else than expected, or the output is not exact."""
    parser = argparse.ArgumentParser(prog="python -m tests.drills", description=__doc__)
    parser.add_argument("--only", default="", help="only drills whose names have these words in them")
    only = parser.parse_args().only
    outcomes = []
    with tempfile.TemporaryDirectory() as folder, Webhook() as webhook, DrillWorld(Path(folder), webhook) as world:
        for drill in DRILLS:
            if only in drill.name:
                print(f"{drill.name} …", flush=True)
                try:
                    outcomes.append(play(drill, world))
                except ChaosError as error:
                    print(f"found {world.heads} sent, and {world.findings()} on the page: {error}", file=sys.stderr)
                    return 1
    print("\n".join(table(outcomes)))
    return 0


def play(drill: Drill, world: DrillWorld) -> Outcome:
    """Play a drill from a healthy job to a healthy job.

    Raises:
        ChaosError: Something else was told, nothing helped, or the output is not exact.

    """
    before = len(world.heads)
    world.wait(world.is_quiet, "a healthy job to begin with")
    struck = time.monotonic()
    drill.strike(world)
    told_s = None
    if drill.alert is not None:
        world.wait(lambda: len(world.heads) > before, f"the message about {drill.alert}")
        told_s = time.monotonic() - struck
        world.wait(lambda: world.colour() == drill.severity, f"the colour {drill.severity}")
        page = [f"{each.found}: {each.todo}" for each in world.findings()]
        if not any(drill.told in each and drill.advised in each for each in page):
            raise ChaosError(f"expected {drill.told!r} with the advice {drill.advised!r}")
    mended = time.monotonic()
    if drill.mend is not None:
        drill.mend(world)
    world.settle()
    world.wait(lambda: world.colour() is None, "a healthy job")
    healthy_s = time.monotonic() - mended
    world.wait(world.is_quiet, "the last message")
    expected = [] if drill.alert is None else [f"{drill.severity.upper()} {drill.alert}", f"RESOLVED {drill.alert}"]  # type: ignore[union-attr]
    if world.heads[before:] != expected:
        raise ChaosError(f"expected the messages {expected} and no other")
    world.check_exact()
    return Outcome(drill, told_s, healthy_s)


def table(outcomes: list[Outcome]) -> list[str]:
    """Return the table of docs/operations.md."""
    lines = [
        "| what breaks | what is sent | after | the advice | healthy after it |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in outcomes:
        drill = each.drill
        sent = "nothing" if drill.alert is None else f"`{drill.alert}`, then `RESOLVED`"
        after = "–" if each.told_s is None else f"{each.told_s:.0f} s"
        lines.append(
            f"| {drill.name} | {sent} | {after} | {drill.advised or 'nothing to do'} | {each.healthy_s:.0f} s |"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
