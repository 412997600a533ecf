"""What the library needs to be imported, and what it says when an extra is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import statecore.runtime
from statecore.catalog import Catalog, ClusterRecord
from statecore.cluster import cluster_for
from statecore.errors import ConfigurationError, MissingExtraError
from statecore.extras import require
from statecore.operations.kinds import PROGRAMS
from statecore.operations.submit import SparkSubmit
from statecore.storage import open_store
from statecore.supervisor import run_supervisor

EC2 = ClusterRecord("c", "ec2", {}, 1, 0, None, 0)
HEAVY = (
    "pyspark",
    "airflow",
    "boto3",
    "sqlalchemy",
    "pandas",
    "plotly",
    "psycopg",
    "deltalake",
    "confluent_kafka",
    "prometheus_client",
    "opentelemetry",
)


def imported(module: str) -> list[str]:
    """Return which of the heavy packages a fresh interpreter has loaded after an import."""
    code = f"import sys, {module}; print(*[each for each in {HEAVY!r} if each in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    ("module", "allowed"),
    [("statecore", []), ("statecore.testing", []), ("statecore.cli", ["sqlalchemy"]), ("statecore.extras", [])],
)
def test_importing_loads_nothing_that_an_extra_brings(module: str, allowed: list[str]) -> None:
    assert imported(module) == allowed


def test_the_runtime_loads_pyspark_and_no_other_extra() -> None:
    assert "pyspark" in (loaded := imported("statecore.runtime"))
    assert not {"airflow", "boto3", "plotly", "psycopg", "deltalake", "confluent_kafka"} & set(loaded)


def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(MissingExtraError, match=r"package nosuch is not installed .*pip install 'statecore\[plots\]'"):
        require("nosuch", extra="plots")


@pytest.mark.parametrize(
    "package", ["boto3", "psycopg", "deltalake", "confluent_kafka", "pyspark", "prometheus_client"]
)
def test_what_needs_an_extra_asks_for_it(package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    uses: dict[str, list[Callable[[], object]]] = {
        "boto3": [
            lambda: open_store("s3://bucket/x"),
            lambda: cluster_for(EC2),
        ],
        "psycopg": [lambda: Catalog("postgresql+psycopg://host/c"), lambda: statecore.runtime.PostgresSink("", "t")],
        "deltalake": [lambda: statecore.runtime.DeltaSink("t")],
        "confluent_kafka": [lambda: statecore.runtime.KafkaSink("t", "host:9092")],
        "prometheus_client": [lambda: run_supervisor(f"sqlite:///{tmp_path}/c.db", tmp_path, metrics_port=0)],
        "pyspark": [lambda: exec(Path(statecore.runtime.__file__).read_text(), {"__name__": "statecore.runtime"})],
    }
    # As for a package that is not there.
    monkeypatch.setattr("statecore.extras.find_spec", lambda name: None if name == package else object())
    for use in uses[package]:
        with pytest.raises(MissingExtraError, match=f"the package {package} is not installed"):
            use()


@pytest.fixture
def pyspark_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path in which the distribution pyspark-client seems to be installed."""
    metadata = tmp_path / "pyspark_client-4.3.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: pyspark-client\nVersion: 4.3.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))
    return tmp_path


@pytest.mark.parametrize("program", ["stream", "rewrite", "copy_savepoint"])
def test_a_program_refuses_to_run_beside_pyspark_client(pyspark_client: Path, program: str) -> None:
    command = [sys.executable, str(PROGRAMS / f"{program}.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "found pyspark-client installed for" in done.stderr
    for part in ("`pip uninstall --yes pyspark-client`", "`pip install --force-reinstall --no-deps pyspark==4.3.0`"):
        assert part in done.stderr


def test_a_driver_is_not_even_started_beside_pyspark_client(pyspark_client: Path, tmp_path: Path) -> None:
    with Catalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        catalog.create_schema()
        job = catalog.jobs.register(
            "j", artifact="/a.py", store="/s", master_url="local[2]", parallelism=2, max_parallelism=128
        )
        with pytest.raises(ConfigurationError, match="found pyspark-client"):
            SparkSubmit()(job, catalog.generations.claim("j", log_path="/l"))
