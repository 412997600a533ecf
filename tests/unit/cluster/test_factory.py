from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from statecore.catalog import ClusterRecord
from statecore.cluster import StandaloneCluster, cluster_for
from statecore.cluster.spark_home import spark_environment, spark_home
from statecore.errors import ClusterError, ConfigurationError

SETTINGS = {
    "master_url": "spark://127.0.0.1:7077",
    "master_web_url": "http://127.0.0.1:8080",
    "run_dir": "/run/c",
    "log_dir": "/log/c",
}


def record(kind: str = "standalone", **settings: Any) -> ClusterRecord:
    return ClusterRecord("c", kind, {**SETTINGS, **settings}, 1, 0, None, 0)


def test_a_record_of_the_catalog_becomes_a_cluster() -> None:
    assert isinstance(cluster_for(record(cores_per_worker=2)), StandaloneCluster)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ClusterError, match="of kind 'yarn'; expected one of: ec2, standalone"):
        cluster_for(record("yarn"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cores_per_worker": 0}, "cores_per_worker"),
        ({"cores_per_worker": "2"}, "cores_per_worker"),
        ({"memory_per_worker": "much"}, "memory_per_worker"),
        ({"master_url": "local[2]"}, "master_url"),
        ({"coers": 1}, "coers"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ClusterError, match=said):
        cluster_for(record(**wrong))


def test_spark_is_found_in_the_package_or_where_spark_home_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert (spark_home() / "bin" / "spark-submit").is_file()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"no bin/spark-class in .*SPARK_HOME"):
        spark_home()


def test_every_python_is_this_one_and_searches_where_this_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    environment = spark_environment()
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert environment["PYTHONPATH"] == "/mine"
