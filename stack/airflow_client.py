"""Airflow's REST API, as far as the demo and the tests use it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from stack.processes import StackError

_POLL_S = 1.0
_FINISHED = frozenset({"success", "failed"})
_COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One task of a DAG run; ``duration_s`` lasts from its first start to its end, including deferral."""

    task_id: str
    state: str | None
    try_number: int
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class DagRun:
    """A DAG run and its tasks in the order in which they were started."""

    dag_id: str
    run_id: str
    state: str
    duration_s: float | None
    tasks: tuple[TaskRun, ...]

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.state in _FINISHED

    @property
    def failed_tasks(self) -> list[TaskRun]:
        """The tasks that failed, not those that an upstream failure stopped."""
        return [task for task in self.tasks if task.state == "failed"]


class AirflowClient:
    """A logged-in user of one Airflow.

    Args:
        url: Base address, ``http://host:port``.
        user: Name of the user.
        password: Its password.

    """

    def __init__(self, url: str, user: str, password: str) -> None:
        self._credentials = {"username": user, "password": password}
        self._http = httpx.Client(base_url=url, timeout=120.0)

    def login(self) -> None:
        """Get a token; other calls do this themselves."""
        response = self._http.post("/auth/token", json=self._credentials)
        self._check(response)
        self._http.headers["Authorization"] = f"Bearer {response.json()['access_token']}"

    def is_healthy(self) -> bool:
        """Return whether API server, scheduler, triggerer and DAG processor all work."""
        try:
            health = self._http.get("/api/v2/monitor/health").json()
        except (httpx.HTTPError, ValueError):
            return False
        return all(health.get(name, {}).get("status") == "healthy" for name in _COMPONENTS)

    def wait_healthy(self, timeout_s: float = 180.0, *, check: Callable[[], None] = lambda: None) -> None:
        """Return when Airflow is healthy.

        Args:
            timeout_s: How long to wait.
            check: Called at every poll; raises to end the wait.

        Raises:
            StackError: Airflow does not become healthy in time.

        """
        self._poll(self.is_healthy, "Airflow does not become healthy", timeout_s, check)

    def wait_dag(self, dag_id: str, timeout_s: float = 180.0) -> None:
        """Return when a DAG file has been parsed.

        Raises:
            StackError: The file was not parsed in time; the message holds the import errors.

        """

        def known() -> bool:
            return self._request("GET", f"/dags/{dag_id}", allow_missing=True) is not None

        try:
            self._poll(known, f"Airflow does not know the DAG {dag_id!r}", timeout_s)
        except StackError as error:
            errors = self._request("GET", "/importErrors") or {}
            raise StackError(f"{error}; import errors: {errors.get('import_errors')}") from error

    def unpause(self, dag_id: str) -> None:
        """Unpause a DAG and make Airflow parse its file again: only then does Airflow watch for its events."""
        dag = self._request("GET", f"/dags/{dag_id}")
        assert dag is not None
        if dag["is_paused"]:
            self._request("PATCH", f"/dags/{dag_id}", json={"is_paused": False}, params={"update_mask": "is_paused"})
            self._request("PUT", f"/parseDagFile/{dag['file_token']}")

    def trigger(self, dag_id: str, conf: Mapping[str, Any], *, run_id: str | None = None) -> str:
        """Start a DAG run, as the Trigger form does, and return its id."""
        body: dict[str, Any] = {"logical_date": None, "conf": dict(conf)}
        if run_id is not None:
            body["dag_run_id"] = run_id
        answer = self._request("POST", f"/dags/{dag_id}/dagRuns", json=body)
        assert answer is not None
        return str(answer["dag_run_id"])

    def clear(self, dag_id: str, run_id: str) -> None:
        """Clear a whole DAG run, as a user does on the run's page; it begins anew."""
        self._request("POST", f"/dags/{dag_id}/dagRuns/{run_id}/clear", json={"dry_run": False})

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        """Answer a task's question, as a user does under *Required Actions*."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"
        self._request("PATCH", path, json={"chosen_options": [option]})

    def run(self, dag_id: str, run_id: str) -> DagRun:
        """Return the current state of a DAG run."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}"
        dag_run = self._request("GET", path)
        listed = self._request("GET", f"{path}/taskInstances", params={"limit": 100})
        assert dag_run is not None and listed is not None
        instances = sorted(listed["task_instances"], key=lambda item: item["start_date"] or "~")
        tasks = tuple(
            TaskRun(item["task_id"], item["state"], item["try_number"], item["duration"]) for item in instances
        )
        return DagRun(dag_id, run_id, dag_run["state"], dag_run.get("duration"), tasks)

    def wait(
        self,
        dag_id: str,
        run_id: str,
        timeout_s: float = 300.0,
        *,
        on_change: Callable[[DagRun], None] = lambda _: None,
    ) -> DagRun:
        """Return a DAG run once it has ended, in success or failure.

        Args:
            dag_id: The DAG.
            run_id: The run.
            timeout_s: How long to wait.
            on_change: Called whenever a state changes.

        Raises:
            StackError: The run does not end in time; the message holds the states of its tasks.

        """
        deadline = time.monotonic() + timeout_s
        shown: list[tuple[str, str | None]] = []
        while True:
            run = self.run(dag_id, run_id)
            states = [(run.run_id, run.state), *((task.task_id, task.state) for task in run.tasks)]
            if states != shown:
                shown = states
                on_change(run)
            if run.finished:
                return run
            if time.monotonic() > deadline:
                raise StackError(
                    f"DAG run {run_id} of {dag_id} is {run.state} after {timeout_s:g} s; expected it to have ended; "
                    f"tasks: {', '.join(f'{name} {state}' for name, state in states[1:])}"
                )
            time.sleep(_POLL_S)

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        """Return the text of one try's log, including tracebacks."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        answer = self._request("GET", path, params={"full_content": True}, allow_missing=True)
        if answer is None:
            return ""
        content = answer["content"]
        if isinstance(content, str):
            return content
        return "\n".join(_line(item) for item in content)

    def failure(self, run: DagRun) -> str:
        """Return the logs of the failed tasks' last tries."""
        parts = []
        for task in run.failed_tasks:
            parts.append(f"--- {task.task_id} (try {task.try_number})")
            parts.append(self.log(run.dag_id, run.run_id, task.task_id, task.try_number))
        return "\n".join(parts)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _request(
        self, method: str, path: str, *, allow_missing: bool = False, **arguments: Any
    ) -> dict[str, Any] | None:
        if "Authorization" not in self._http.headers:
            self.login()
        response = self._http.request(method, f"/api/v2{path}", **arguments)
        if response.status_code == httpx.codes.UNAUTHORIZED:
            self.login()
            response = self._http.request(method, f"/api/v2{path}", **arguments)
        if allow_missing and response.status_code == httpx.codes.NOT_FOUND:
            return None
        self._check(response)
        answer: dict[str, Any] = response.json()
        return answer

    @staticmethod
    def _check(response: httpx.Response) -> None:
        if response.is_error:
            request = response.request
            raise StackError(
                f"Airflow answered {response.status_code} to {request.method} {request.url}: {response.text[:2000]}; "
                "expected success; check the log of the API server"
            )

    @staticmethod
    def _poll(
        done: Callable[[], bool], complaint: str, timeout_s: float, check: Callable[[], None] = lambda: None
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            check()
            if time.monotonic() > deadline:
                raise StackError(f"{complaint} within {timeout_s:g} s; expected it by then")
            time.sleep(_POLL_S)


def _line(item: Any) -> str:
    """Return one structured log line as text; ``error_detail`` holds an exception's message."""
    if not isinstance(item, dict):
        return str(item)
    parts = [str(item.get("event", ""))]
    for detail in item.get("error_detail") or ():
        parts.append(f"{detail.get('exc_type')}: {detail.get('exc_value')}")
    return "\n".join(parts)
