"""Changes of a job, step by step; ``saga`` states which steps and in which order, and ``Rollback`` undoes them.

Airflow's operators and the shell run the same steps. They differ in how they wait, log and show.
"""

from statecore.operations.changes.change import Change, find_run, require_free, savepoint_name
from statecore.operations.changes.finding import Finding, Status, is_retryable, look_at_request
from statecore.operations.changes.finishing import Finisher
from statecore.operations.changes.lease import BeginRescale, TakeLease
from statecore.operations.changes.planning import Plan, plan
from statecore.operations.changes.request import RescaleRequest, WantedMethod
from statecore.operations.changes.rescale_state import REWRITE_TIMEOUT_S, RescaleState
from statecore.operations.changes.resize_cluster import GrowCluster, ResizeCluster, ShrinkCluster
from statecore.operations.changes.restart import Restart
from statecore.operations.changes.rollback import Rollback
from statecore.operations.changes.saga import RESCALE, RETRIES, RETRY_DELAY, STEPS, UPGRADE, rescale_steps
from statecore.operations.changes.start import StartJob
from statecore.operations.changes.step import Step
from statecore.operations.changes.stop import StopWithSavepoint
from statecore.operations.changes.upgrade import BeginUpgrade, ReplaceArtifact
from statecore.operations.changes.verify import Verify

__all__ = [
    "RESCALE",
    "RETRIES",
    "RETRY_DELAY",
    "REWRITE_TIMEOUT_S",
    "STEPS",
    "UPGRADE",
    "BeginRescale",
    "BeginUpgrade",
    "Change",
    "Finding",
    "Finisher",
    "GrowCluster",
    "Plan",
    "ReplaceArtifact",
    "RescaleRequest",
    "RescaleState",
    "ResizeCluster",
    "Restart",
    "Rollback",
    "ShrinkCluster",
    "StartJob",
    "Status",
    "Step",
    "StopWithSavepoint",
    "TakeLease",
    "Verify",
    "WantedMethod",
    "find_run",
    "is_retryable",
    "look_at_request",
    "plan",
    "require_free",
    "rescale_steps",
    "savepoint_name",
]
