"""A standalone cluster with a real master and real workers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tenacity import retry, stop_after_delay, wait_fixed

from statecore.cluster import ClusterSize, StandaloneCluster, StandaloneMaster, StandaloneSettings, standalone
from statecore.cluster.processes import kill_session, spawn
from statecore.cluster.spark_home import spark_environment, spark_home
from statecore.errors import ClusterError
from tests.support.waiting import PATIENCE_S, wait

HOLD_EXECUTORS = """
import time
from pyspark.sql import SparkSession
SparkSession.builder.getOrCreate().range(1).count()
time.sleep(600)
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneMaster]:
    with StandaloneMaster(tmp_path_factory.mktemp("master")) as master:
        yield master


@pytest.fixture
def settings(master: StandaloneMaster, tmp_path: Path) -> Iterator[StandaloneSettings]:
    settings = StandaloneSettings(
        master_url=master.master_url,
        master_web_url=master.web_url,
        run_dir=str(tmp_path / "run"),
        log_dir=str(tmp_path / "log"),
        memory_per_worker="512m",
    )
    yield settings
    StandaloneCluster("c", settings).stop()
    # What the test itself has killed may take a moment to be gone.
    wait(lambda: processes_naming(tmp_path) == [], "the last process to be gone")


def processes_naming(path: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        named = [process.info["cwd"] or "", *(process.info["cmdline"] or [])]
        if any(str(path) in text for text in named):
            found.append(process)
    return found


@retry(stop=stop_after_delay(PATIENCE_S), wait=wait_fixed(0.1), reraise=True)
def reach(cluster: StandaloneCluster, workers: int) -> None:
    cluster.resize(workers)
    assert cluster.size() == ClusterSize(running=workers, ready=workers)


def test_a_cluster_grows_and_shrinks_whoever_goes_on_with_it(settings: StandaloneSettings, tmp_path: Path) -> None:
    reach(StandaloneCluster("c", settings), 1)
    first = (tmp_path / "run" / "worker-1.pid").read_text()
    reach(StandaloneCluster("c", settings), 2)
    reach(StandaloneCluster("c", settings), 1)
    assert (tmp_path / "run" / "worker-1.pid").read_text() == first
    assert "Successfully registered" in (tmp_path / "log" / "c-worker-1.log").read_text()


def test_stopping_ends_executors_too_and_a_killed_worker_is_replaced(
    master: StandaloneMaster, settings: StandaloneSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standalone, "_RESTART_PAUSE_S", 0.5)
    cluster = StandaloneCluster("c", settings)
    reach(cluster, 1)
    application = hold_executors(master, tmp_path)
    try:
        wait_for_executor(tmp_path)
        worker = psutil.Process(int((tmp_path / "run" / "worker-1.pid").read_text()))
        worker.kill()
        replaced(cluster, worker.pid, tmp_path)
        wait_for_executor(tmp_path)
        cluster.stop()
        assert processes_naming(tmp_path / "run") == []
    finally:
        kill_session(application.pid)
        application.wait()


def hold_executors(master: StandaloneMaster, tmp_path: Path) -> subprocess.Popen[bytes]:
    program = tmp_path / "hold.py"
    program.write_text(HOLD_EXECUTORS)
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", master.master_url]
    command += ["--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false"]
    command += ["--conf", "spark.driver.host=127.0.0.1", str(program)]
    return spawn(command, environment=spark_environment(), log_path=tmp_path / "application.log")


@retry(stop=stop_after_delay(PATIENCE_S), wait=wait_fixed(0.1), reraise=True)
def wait_for_executor(tmp_path: Path) -> None:
    executors = [p for p in processes_naming(tmp_path / "run") if "CoarseGrainedExecutorBackend" in str(p.cmdline())]
    assert len(executors) == 1, (tmp_path / "application.log").read_text()[-2000:]


@retry(stop=stop_after_delay(PATIENCE_S), wait=wait_fixed(0.1), reraise=True)
def replaced(cluster: StandaloneCluster, old_pid: int, tmp_path: Path) -> None:
    cluster.resize(1)
    assert int((tmp_path / "run" / "worker-1.pid").read_text()) != old_pid
    assert cluster.size().running == 1


def test_a_worker_that_cannot_live_is_not_started_again_at_once(
    settings: StandaloneSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standalone, "_RESTART_PAUSE_S", PATIENCE_S)
    (tmp_path / "run" / "worker-1").mkdir(parents=True)
    cluster = StandaloneCluster("c", settings)
    cluster.resize(1)
    worker = psutil.Process(int((tmp_path / "run" / "worker-1.pid").read_text()))
    worker.kill()
    worker.wait(PATIENCE_S)
    cluster.resize(1)
    cluster.resize(1)
    assert len(list((tmp_path / "run").glob("*.pid"))) == 1
    assert cluster.size().running == 0


def test_a_master_that_does_not_answer_is_named(tmp_path: Path) -> None:
    settings = StandaloneSettings(
        master_url="spark://127.0.0.1:9",
        master_web_url="http://127.0.0.1:9",
        run_dir=str(tmp_path),
        log_dir=str(tmp_path),
    )
    with pytest.raises(ClusterError, match=r"found no answer .* http://127\.0\.0\.1:9"):
        StandaloneCluster("c", settings).size()


def test_a_second_master_in_the_same_place_is_refused(master: StandaloneMaster) -> None:
    with pytest.raises(ClusterError, match="found a running master"):
        StandaloneMaster(master.log_path.parent).start()


def test_another_object_stops_the_master(tmp_path: Path) -> None:
    StandaloneMaster(tmp_path).start()
    StandaloneMaster(tmp_path).stop()
    StandaloneMaster(tmp_path).stop()
    assert processes_naming(tmp_path) == [] and not (tmp_path / "master.pid").exists()
