"""The steps of each change in their order, stated once for shell and DAGs; and the number of retries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from statecore.operations.changes.change import Change
from statecore.operations.changes.lease import BeginRescale, TakeLease
from statecore.operations.changes.request import RescaleRequest
from statecore.operations.changes.rescale_state import RescaleState
from statecore.operations.changes.resize_cluster import GrowCluster, ResizeCluster, ShrinkCluster
from statecore.operations.changes.restart import Restart
from statecore.operations.changes.rollback import Rollback
from statecore.operations.changes.start import StartJob
from statecore.operations.changes.step import Step
from statecore.operations.changes.stop import StopWithSavepoint
from statecore.operations.changes.upgrade import BeginUpgrade, ReplaceArtifact
from statecore.operations.changes.verify import Verify

RETRIES = 2
"""How often a failed step is retried, if another attempt may succeed."""
RETRY_DELAY = timedelta(seconds=5)

RESCALE: Sequence[type[Step]] = (
    BeginRescale,
    GrowCluster,
    StopWithSavepoint,
    ResizeCluster,
    RescaleState,
    Restart,
    Verify,
    ShrinkCluster,
)
"""The steps of a rescale. Each decides whether a run needs it, and is skipped otherwise."""

UPGRADE: Sequence[type[Step]] = (BeginUpgrade, StopWithSavepoint, ReplaceArtifact, Restart, Verify)
"""The steps of an upgrade; a run needs them all."""

STEPS: Mapping[str, type[Step]] = {step.__name__: step for step in (*RESCALE, *UPGRADE, TakeLease, StartJob, Rollback)}
"""All steps by class name: another process can continue a wait."""


def rescale_steps(change: Change, request: RescaleRequest, rewrite_timeout_s: float) -> list[Step]:
    """Return the steps of a rescale, to be carried out in one process."""
    options = msgspec.structs.asdict(request)
    parameters = {**options, "request": request, "rewrite_timeout_s": rewrite_timeout_s}
    return [step.of(change, parameters) for step in RESCALE]
