"""The parameters of the DAG ``rescale``."""

from __future__ import annotations

from statecore.operations.changes import RescaleRequest
from statecore_airflow.params.base import DagParams


class RescaleParams(DagParams, RescaleRequest, frozen=True, kw_only=True):
    """A requested rescale; ``dry_run`` only shows its plan, ``approval`` has a person approve the plan first."""

    dry_run: bool = False
    approval: bool = False
