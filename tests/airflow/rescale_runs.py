"""What an operator sees of Airflow when it triggers another DAG: the runs there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from airflow.sdk.api.datamodels._generated import DagRunState
from airflow.sdk.execution_time.comms import DagRunStateResult


class FakeTask:
    """A task instance, and the runs of the DAG rescale.

    Attributes:
        runs: Their states, by id.
        pushed: What was left for other tasks, by key.
        states: States of this run's other tasks, by id.

    """

    def __init__(self, *, params: dict[str, Any] | None = None, try_number: int = 1, paused: bool = False) -> None:
        self.runs: dict[str, str] = {}
        self.pushed: dict[str, Any] = {}
        self.states: dict[str, str] = {}
        self.dag_id, self.run_id, self.task_id = "autoscale", "manual-1", "carry_out"
        self.try_number = try_number
        self._paused = paused
        self.context: Any = {"run_id": self.run_id, "ti": self, "params": params or {}}

    def get_dr_count(self, dag_id: str, run_ids: list[str]) -> int:
        assert dag_id == "rescale"
        return sum(run in self.runs for run in run_ids)

    def get_dagrun_state(self, dag_id: str, run_id: str) -> str:
        # Of the type that Airflow returns, which is not the one that it names.
        state: str = DagRunStateResult(state=DagRunState(self.runs[run_id])).state
        return state

    def get_dag(self, dag_id: str) -> Any:
        return SimpleNamespace(is_paused=self._paused)

    def get_task_states(self, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, dict[str, str]]:
        return {run: {task: self.states[task] for task in task_ids if task in self.states} for run in run_ids}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value
