"""The parameters of the DAG ``rescale``."""

from __future__ import annotations

from statecore.operations.rescaling import RescaleRequest
from statecore_airflow.params.base import DagParams


class RescaleParams(DagParams, RescaleRequest, frozen=True, kw_only=True):
    """A wanted rescale, and whether only to show its plan (``dry_run``) or to have a person approve that first."""

    dry_run: bool = False
    approval: bool = False
