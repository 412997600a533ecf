"""The autoscaling policy: pure functions from a job's figures to a diagnosis and a decision."""

from statecore.policy.arrivals import arriving
from statecore.policy.capacity import Throughput, throughput
from statecore.policy.cost import CostFit, fit_cost
from statecore.policy.decision import BLOCKS_AFTER, Action, Decision, blocked_words, decide
from statecore.policy.diagnosis import BOTTLENECKS, Ailment, Diagnosis, diagnose
from statecore.policy.drain import DrainEstimate, estimate_drain
from statecore.policy.figures import EpochCost, Figures, HeavyKey, HeavyKeyGroup, SlowSink
from statecore.policy.ladder import Ladder, ladder
from statecore.policy.memory import PolicyMemory
from statecore.policy.settings import PolicySettings, policy_settings

__all__ = [
    "BLOCKS_AFTER",
    "BOTTLENECKS",
    "Action",
    "Ailment",
    "CostFit",
    "Decision",
    "Diagnosis",
    "DrainEstimate",
    "EpochCost",
    "Figures",
    "HeavyKey",
    "HeavyKeyGroup",
    "Ladder",
    "PolicyMemory",
    "PolicySettings",
    "SlowSink",
    "Throughput",
    "arriving",
    "blocked_words",
    "decide",
    "diagnose",
    "estimate_drain",
    "fit_cost",
    "ladder",
    "policy_settings",
    "throughput",
]
