"""The steps of a rescale, and the number of retries."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from statecore.operations.changes.change import Change
from statecore.operations.changes.lease import BeginRescale
from statecore.operations.changes.request import RescaleRequest
from statecore.operations.changes.rescale_state import RescaleState
from statecore.operations.changes.resize_cluster import GrowCluster, ResizeCluster, ShrinkCluster
from statecore.operations.changes.restart import Restart
from statecore.operations.changes.rollback import Rollback
from statecore.operations.changes.start import StartJob
from statecore.operations.changes.step import Step
from statecore.operations.changes.stop import StopWithSavepoint
from statecore.operations.changes.upgrade import BeginUpgrade
from statecore.operations.changes.verify import Verify

RETRIES = 2
"""How often a failed step is retried, if another attempt may succeed."""
RETRY_DELAY = timedelta(seconds=5)

WAITING_STEPS: Mapping[str, type[Step]] = {
    kind.__name__: kind
    for kind in (
        BeginUpgrade,
        GrowCluster,
        StopWithSavepoint,
        ResizeCluster,
        RescaleState,
        Restart,
        Verify,
        ShrinkCluster,
        Rollback,
        StartJob,
    )
}
"""The steps that may wait, by class name: another process can continue the wait."""


def rescale_steps(change: Change, request: RescaleRequest, rewrite_timeout_s: float) -> list[Step]:
    """Return the steps of a rescale; each skips itself if the run does not need it."""
    groups = request.max_parallelism
    return [
        BeginRescale(change=change, request=request),
        GrowCluster(change=change),
        StopWithSavepoint(change=change, reason=request.reason),
        ResizeCluster(change=change),
        RescaleState(change=change, max_parallelism=groups, rewrite_timeout_s=rewrite_timeout_s),
        Restart(change=change, max_parallelism=groups),
        Verify(change=change),
        ShrinkCluster(change=change),
    ]
