"""The saga of a rescale: plan, lease, grow, stop, resize, rescale state, restart, verify, shrink; and rollback.

Airflow's operators and the shell run the same steps. They differ in how they wait, log and show.
"""

from statecore.operations.rescaling.change import Change, find_run, require_free, savepoint_name
from statecore.operations.rescaling.finding import Finding, Status, is_retryable, look_at_request
from statecore.operations.rescaling.finishing import Finisher
from statecore.operations.rescaling.lease import BeginRescale, TakeLease
from statecore.operations.rescaling.planning import Plan, plan
from statecore.operations.rescaling.request import RescaleRequest, WantedMethod
from statecore.operations.rescaling.rescale_state import REWRITE_TIMEOUT_S, RescaleState
from statecore.operations.rescaling.resize_cluster import GrowCluster, ResizeCluster, ShrinkCluster
from statecore.operations.rescaling.restart import Restart
from statecore.operations.rescaling.rollback import Rollback
from statecore.operations.rescaling.saga import RETRIES, RETRY_DELAY, WAITING_STEPS, rescale_steps
from statecore.operations.rescaling.start import StartJob
from statecore.operations.rescaling.step import Step
from statecore.operations.rescaling.stop import StopWithSavepoint
from statecore.operations.rescaling.upgrade import BeginUpgrade, ReplaceArtifact
from statecore.operations.rescaling.verify import Verify

__all__ = [
    "RETRIES",
    "RETRY_DELAY",
    "REWRITE_TIMEOUT_S",
    "WAITING_STEPS",
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
