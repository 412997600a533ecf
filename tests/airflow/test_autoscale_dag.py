"""The DAG ``autoscale`` in an Airflow with all its processes: nobody asks for anything."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from history import fall_behind
from scripted_driver import ScriptedDriver

from examples.stack import AirflowClient
from examples.stack.airflow_server import AirflowServer
from examples.stack.processes import Processes
from statecore.catalog import Catalog

pytestmark = pytest.mark.stack


@pytest.fixture
def airflow(catalog: Catalog, tmp_path: Path) -> Iterator[AirflowClient]:
    """Scheduler, triggerer, DAG processor and API server, which know the catalog; DAGs are not paused."""
    processes = Processes(tmp_path)
    connection = json.loads(os.environ["AIRFLOW_CONN_STATECORE_CATALOG"])
    server = AirflowServer(tmp_path / "airflow", processes, {"statecore_catalog": connection}, tmp_path / "jobs.json")
    try:
        server.start()
        server.wait_ready()
        with server.client() as client:
            for dag in ("rescale", "autoscale"):
                client.wait_dag(dag)
                client.unpause(dag)
            yield client
    finally:
        server.stop()
        processes.end_all()


def wait(condition: Callable[[], bool], what: str, timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.2)


def test_a_job_that_falls_behind_is_scaled_out_and_the_reason_names_the_figures(
    airflow: AirflowClient, catalog: Catalog, job: str, driver: ScriptedDriver
) -> None:
    driver.idle, driver.waiting = True, 91_100
    fall_behind(catalog, job, driver.wait_running().generation)
    catalog.set_policy(job, {"max_parallelism": 4, "subtasks_per_worker": 2, "scale_out_after_s": 0, "catch_up_s": 60})
    wait(lambda: catalog.decisions(job) != [], "a decision")
    driver.idle, driver.waiting = False, 0
    wait(lambda: catalog.decisions(job)[0].state not in ("open", "triggered"), "the end of the decision")
    (decision,) = catalog.decisions(job)
    assert (decision.state, decision.from_parallelism, decision.to_parallelism) == ("done", 2, 4), decision.outcome
    assert re.match(
        r"scale out: \d+ rows/s arrive, 91,100 rows wait, .*epochs run \d+% of the time; "
        r"the job can do [\d,]+ rows/s at parallelism 2, [\d,]+ at 4",
        decision.reason,
    )
    (run,) = catalog.rescale_runs(job)
    assert (run.run_id, run.reason, run.state) == (decision.run_id, decision.reason, "done")
    assert airflow.run("rescale", run.run_id).state == "success"
    assert (catalog.job(job).parallelism, catalog.cluster("local").ready_workers) == (4, 2)
