"""The parameters of the DAG ``rescale``."""

from __future__ import annotations

from statecore.operations.rescaling import RescaleRequest, WantedMethod
from statecore_airflow.params.base import DagParams


class RescaleParams(DagParams, frozen=True, kw_only=True):
    """The parameters of the DAG; the others are those of ``RescaleRequest``.

    Attributes:
        dry_run: Whether to show the plan and change nothing.
        approval: Whether a person has to approve the plan first.

    """

    job: str
    parallelism: int
    workers: int | None = None
    method: WantedMethod = "auto"
    max_parallelism: int | None = None
    dry_run: bool = False
    approval: bool = False
    reason: str = ""

    def request(self) -> RescaleRequest:
        """Return what is asked for."""
        return RescaleRequest(
            job=self.job,
            parallelism=self.parallelism,
            workers=self.workers,
            method=self.method,
            max_parallelism=self.max_parallelism,
            reason=self.reason,
        )
