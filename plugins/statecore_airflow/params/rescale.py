"""The parameters of the DAG ``rescale``."""

from __future__ import annotations

from statecore.operations.rescaling import RescaleRequest
from statecore_airflow.params.base import DagParams


class RescaleParams(DagParams, RescaleRequest, frozen=True, kw_only=True):
    """A wanted rescale, and how the DAG goes about it.

    Attributes:
        dry_run: Whether to show the plan and change nothing.
        approval: Whether a person has to approve the plan first.

    """

    dry_run: bool = False
    approval: bool = False
