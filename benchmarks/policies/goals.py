"""Judges the policy on a shape: against its adaptive peers, and against what is right for the shape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.policies.shapes import Expected, Shape
from benchmarks.policies.simulations import OURS, PEERS
from statecore.simulator import Outcome

SLO_MARGIN_MINUTES = 1.0
CORE_HOURS_FACTOR = 1.1
RESCALES_OF_A_LEVEL = 2
DIAGNOSED_WITHIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal.

    Attributes:
        found, expected: In words.
        most: Minutes late or core-hours that it allows; None for other goals.
        out_of_reach: Why a policy without foresight does not reach it; empty when it holds, or no reason is known.

    """

    name: str
    holds: bool
    found: str
    expected: str
    most: float | None = None
    out_of_reach: str = ""


def goals(shape: Shape, outcomes: Mapping[str, Outcome]) -> list[Goal]:
    """Return the goals of a shape, as far as the policies were run that they are about."""
    if OURS not in outcomes:
        return []
    ours, expected = outcomes[OURS], shape.expected
    found = [*_stays(ours, expected), *_rescales(ours, expected), *_grows(ours, expected), *_diagnoses(ours, expected)]
    if all(peer in outcomes for peer in PEERS):
        found += _against(ours, {peer: outcomes[peer] for peer in PEERS}, expected)
    return found


def _against(ours: Outcome, peers: Mapping[str, Outcome], expected: Expected) -> Iterator[Goal]:
    # A peer that rescales where none helps is no measure.
    peers = {name: peer for name, peer in peers.items() if all(goal.holds for goal in _stays(peer, expected))}
    if not peers:
        return
    best = min(peers, key=lambda name: (peers[name].slo_minutes, peers[name].core_hours))
    bound = peers[best].slo_minutes + SLO_MARGIN_MINUTES
    yield Goal(
        "SLO",
        ours.slo_minutes <= bound,
        f"{ours.slo_minutes:.1f} min for {ours.core_hours:.1f} core-hours",
        f"at most {bound:.1f} min, 1 more than {best}, which takes {peers[best].core_hours:.1f} core-hours",
        bound,
    )
    # A limit on rescales beats core-hours: a peer that breaks it is no measure.
    reaching = {
        name: peer.core_hours
        for name, peer in peers.items()
        if peer.slo_minutes <= bound and all(goal.holds for goal in _rescales(peer, expected))
    }
    if reaching:
        cheapest = min(reaching, key=lambda name: reaching[name])
        most, late = reaching[cheapest] * CORE_HOURS_FACTOR, peers[cheapest].slo_minutes
        yield Goal(
            "core-hours",
            ours.core_hours <= most,
            f"{ours.core_hours:.1f}, and {ours.slo_minutes:.1f} min late",
            f"at most {most:.1f}, {CORE_HOURS_FACTOR} × {cheapest}, which is late for {late:.1f} min",
            most,
        )


def _stays(ours: Outcome, expected: Expected) -> Iterator[Goal]:
    if expected.stays is not None:
        yield _at_most(ours, *expected.stays, 0)


def _rescales(ours: Outcome, expected: Expected) -> Iterator[Goal]:
    for from_s, to_s in pairwise((*expected.levels, math.inf)):
        yield _at_most(ours, from_s, to_s, RESCALES_OF_A_LEVEL)
    if expected.rescales is not None:
        yield _at_most(ours, 0, math.inf, expected.rescales)


def _at_most(ours: Outcome, from_s: float, to_s: float, most: int) -> Goal:
    made = [each for each in ours.decisions if from_s <= each.t_s < to_s]
    words = ", ".join(f"{each.from_} → {each.to} at {each.t_s:.0f} s" for each in made) or "none"
    until = "the end" if math.isinf(to_s) else f"{to_s:.0f} s"
    return Goal("rescales", len(made) <= most, words, f"at most {most} from {from_s:.0f} s to {until}")


def _grows(ours: Outcome, expected: Expected) -> Iterator[Goal]:
    if expected.grows is None:
        return
    began_s = expected.levels[-1]
    first_s = next((each.t_s for each in ours.decisions if each.t_s >= began_s and each.to > each.from_), math.inf)
    after_s = first_s - began_s
    yield Goal("scale-out", after_s <= expected.grows, f"after {after_s:.0f} s", f"within {expected.grows:.0f} s")


def _diagnoses(ours: Outcome, expected: Expected) -> Iterator[Goal]:
    for began_s, names in expected.diagnoses:
        right = " or ".join(names)
        changes = [*ours.diagnoses, (math.inf, "")]
        held = [(at_s, name) for (at_s, name), (until_s, _) in pairwise(changes) if until_s > began_s]
        first_s = next((max(at_s, began_s) for at_s, name in held if name in names), math.inf)
        after_s = first_s - began_s
        others = sorted({name for at_s, name in held if at_s < began_s + DIAGNOSED_WITHIN_S}) or ["nothing"]
        yield Goal(
            "diagnosis",
            after_s <= DIAGNOSED_WITHIN_S,
            f"{', '.join(others)}" if math.isinf(after_s) else f"{right} after {after_s:.0f} s",
            f"{right} within {DIAGNOSED_WITHIN_S:.0f} s of {began_s:.0f} s",
        )
