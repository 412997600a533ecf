"""A simulator of jobs and policies: what a policy would have done on a trace, what it brings and what it costs."""

from statecore.policy.simulator.players import PLAYERS, player
from statecore.policy.simulator.simulation import Answer, Outcome, Player, SimulatedDecision, simulate
from statecore.policy.simulator.trace import Trace, parse_trace
from statecore.policy.simulator.world import World, parse_world

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
