"""The autoscaling policy: pure functions from a job's figures to a decision and its reason."""

from statecore.policy.arrivals import arriving
from statecore.policy.cost import CostFit, fit_cost
from statecore.policy.decision import BLOCKS_AFTER, Action, Decision, PolicyMemory, blocked_words, decide
from statecore.policy.drain import DrainEstimate, estimate_drain
from statecore.policy.figures import EpochCost, Figures
from statecore.policy.settings import PolicySettings, policy_settings
from statecore.policy.throughput import Throughput, throughput

__all__ = [
    "BLOCKS_AFTER",
    "Action",
    "CostFit",
    "Decision",
    "DrainEstimate",
    "EpochCost",
    "Figures",
    "PolicyMemory",
    "PolicySettings",
    "Throughput",
    "arriving",
    "blocked_words",
    "decide",
    "estimate_drain",
    "fit_cost",
    "policy_settings",
    "throughput",
]
