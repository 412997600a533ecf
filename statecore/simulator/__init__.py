"""A simulator of jobs and policies: plays a policy on a trace, and counts lateness, cost and rescales."""

from statecore.simulator.players import PLAYERS, player
from statecore.simulator.simulation import Answer, Outcome, Player, SimulatedDecision, simulate
from statecore.simulator.trace import Trace, parse_trace
from statecore.simulator.world import World, parse_world

__all__ = [
    "PLAYERS",
    "Answer",
    "Outcome",
    "Player",
    "SimulatedDecision",
    "Trace",
    "World",
    "parse_trace",
    "parse_world",
    "player",
    "simulate",
]
