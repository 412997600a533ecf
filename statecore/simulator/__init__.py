"""A simulator of jobs and policies: what a policy would have done on a trace, what it brings and what it costs."""

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
