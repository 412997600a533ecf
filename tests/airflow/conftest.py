"""An Airflow of its own for these tests; everything is set before Airflow is imported for the first time."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
HOME = Path(tempfile.mkdtemp(prefix="statecore-airflow-"))

os.environ.update(
    {
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPO / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(HOME / "logs"),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }
)

from statecore.catalog import Catalog  # noqa: E402
from statecore.snapshot.checkpoints import CheckpointStore  # noqa: E402
from tests.airflow.scripted_driver import ScriptedDriver, commit_epoch  # noqa: E402
from tests.support.supervised import supervise  # noqa: E402
from tests.support.webhook import Webhook  # noqa: E402

JOB = "flights"


def pytest_unconfigure() -> None:
    """Remove the home, also when none of these tests was chosen."""
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def airflow_db() -> Path:
    """Create Airflow's tables, once."""
    from airflow.utils.db import initdb

    initdb()
    return HOME / "airflow.db"


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """A catalog of its own, known to Airflow by the connection."""
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    connection = {"conn_type": "generic", "extra": {"url": url}}
    monkeypatch.setenv("AIRFLOW_CONN_STATECORE_CATALOG", json.dumps(connection))
    with Catalog(url) as catalog:
        catalog.create_schema()
        yield catalog


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """Where the job's checkpoints are."""
    return CheckpointStore.at(str(tmp_path / "store"))


@pytest.fixture
def job(catalog: Catalog, store: CheckpointStore) -> str:
    """A job at parallelism 2 on one worker, wanted to run, with one epoch committed, a supervisor and no driver."""
    settings = {"master_url": "spark://127.0.0.1:7077", "master_web_url": "http://127.0.0.1:8080"}
    catalog.clusters.register("local", "standalone", settings, workers=1)
    catalog.clusters.report("local", ready_workers=1)
    catalog.jobs.register(
        JOB,
        artifact="flights.py",
        store=store.files.url,
        master_url="spark://127.0.0.1:7077",
        cluster="local",
        parallelism=2,
        max_parallelism=16,
    )
    catalog.jobs.set_desired(JOB, state="running")
    supervise(catalog)
    commit_epoch(store, JOB, epoch=7, parallelism=2)
    return JOB


@pytest.fixture
def driver(catalog: Catalog, store: CheckpointStore, job: str, tmp_path: Path) -> Iterator[ScriptedDriver]:
    """A thread that plays supervisor and driver; the job runs."""
    with ScriptedDriver(f"sqlite:///{tmp_path / 'catalog.db'}", job, store) as driver:
        driver.wait_running()
        yield driver


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait in triggers at once, as a step does that takes long; ``test_rescale_dag`` waits in the worker."""
    monkeypatch.setattr("statecore_airflow.operators.base.CatalogOperator.wait_here_ms", 0)
    monkeypatch.setattr("statecore_airflow.triggers.catalog.SETTLE_S", 0.0)
    monkeypatch.setattr("statecore_airflow.triggers.catalog.LATE_S", 0.0)
    monkeypatch.setattr("statecore_airflow.triggers.catalog.POLL_S", 0.05)


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """A server that messages are posted to, known to Airflow by the connection."""
    with Webhook() as webhook:
        connection = {"conn_type": "generic", "password": webhook.url}
        monkeypatch.setenv("AIRFLOW_CONN_STATECORE_WEBHOOK", json.dumps(connection))
        yield webhook
