"""What docker-compose.yaml asks of Airflow, Airflow knows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.compose import SERVICES, commands
from tests.support.paths import REPO


def test_airflow_takes_its_commands_and_knows_its_settings(tmp_path: Path) -> None:
    called = [command[1:] for _, command in commands() if command[0] == "airflow"]
    assert len(called) == 8
    names = [name.split("__")[1:] for name in SERVICES["airflow-scheduler"]["environment"] if "AIRFLOW__" in name]
    names += [name.split("__")[1:] for name in re.findall(r"AIRFLOW__\w+", (REPO / "Dockerfile").read_text())]
    # The plugin's own settings are not in Airflow's list.
    names = [name for name in names if name[0] != "STATECORE"]
    assert len(names) >= 10
    program = (
        "import json, sys; from airflow.cli.cli_parser import get_parser; from airflow.configuration import conf\n"
        "commands, names = json.loads(sys.argv[1])\n"
        "for command in commands: get_parser().parse_args(command)\n"
        "known = conf.configuration_description\n"
        "for section, key in names: known[section.lower()]['options'][key.lower()]"
    )
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps([called, names])],
        capture_output=True, text=True, timeout=180, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
