"""The Spark of docker-compose.yaml: its settings, with a real master."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from stack.quick_start import QUICK_START
from statecore.cluster.ports import free_ports
from statecore.cluster.spark_home import spark_environment, spark_home
from tests.support.compose import COMPOSE
from tests.support.waiting import wait

COUNT = "from pyspark.sql import SparkSession\nprint(SparkSession.builder.getOrCreate().range(7).count(), 'counted')\n"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    defaults(tmp_path, "s3cret")
    return {
        **spark_environment(),
        "SPARK_CONF_DIR": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }


def defaults(folder: Path, secret: str) -> None:
    content = COMPOSE["configs"]["spark-defaults"]["content"]
    (folder / "spark-defaults.conf").write_text(re.sub(r"\$\{SPARK_SECRET:[^}]*\}", secret, content))


@pytest.fixture
def master(environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """The address of a master with one worker."""
    (port,) = free_ports(1)
    url, started = f"spark://127.0.0.1:{port}", []
    script = str(spark_home() / "bin" / "spark-class")
    at = ["--host", "127.0.0.1", "--webui-port", "0"]
    programs = {
        "master": ["org.apache.spark.deploy.master.Master", *at, "--port", str(port)],
        "worker": ["org.apache.spark.deploy.worker.Worker", *at, "--work-dir", str(tmp_path / "work"), url],
    }
    try:
        for name, arguments in programs.items():
            log = tmp_path / f"{name}.log"
            with log.open("w") as output:
                started.append(
                    subprocess.Popen([script, *arguments], env=environment, stdout=output, stderr=subprocess.STDOUT)
                )
            ready = "I have been elected leader" if name == "master" else "Successfully registered with master"
            wait(partial(says, log, ready), name)
        assert "REST server" not in (tmp_path / "master.log").read_text()
        yield url
    finally:
        for process in started:
            process.kill()
            process.wait()


def says(log: Path, words: str) -> bool:
    return words in log.read_text()


def submit(url: str, environment: dict[str, str], folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Start an application; return its process and its output."""
    (folder / "count.py").write_text(COUNT)
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", url, "--conf", "spark.driver.host=127.0.0.1"]
    command += ["--conf", "spark.executor.memory=500m", "--conf", "spark.ui.enabled=false"]
    command += ["--driver-java-options", QUICK_START, str(folder / "count.py")]
    log = folder / "application.log"
    with log.open("w") as output:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT), log


def test_only_who_knows_the_secret_submits_an_application(
    master: str, environment: dict[str, str], tmp_path: Path
) -> None:
    process, log = submit(master, environment, tmp_path)
    assert process.wait(150) == 0 and "7 counted" in log.read_text(), log.read_text()
    defaults(tmp_path, "guessed")
    process, log = submit(master, environment, tmp_path)
    try:
        # It would try again for a minute.
        wait(partial(says, log, "Failed to connect to master"), "the refusal")
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "master.log").read_text().count("Registered app") == 1
