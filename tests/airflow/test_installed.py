"""The wheel in Airflow: its plugin and its DAGs, with no clone in sight."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.paths import REPO
from tests.support.wheel import Installed, install

LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"
PLUGINS = """
import json
from airflow.plugins_manager import _get_plugins
plugins, errors = _get_plugins()
print(json.dumps([sorted(f"{each.name} {each.source}" for each in plugins), errors]))
"""
DAGS = """
import json
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag
folder = DagBundlesManager().get_bundle("statecore").path
bag = BundleDagBag(dag_folder=str(folder), bundle_path=folder, bundle_name="statecore")
rewrite = bag.dags["rewrite"].task_dict["rewrite"] if "rewrite" in bag.dags else None
print(json.dumps([sorted(bag.dags), bag.import_errors, getattr(rewrite, "application", None)]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("wheel"))


def printed(installed: Installed, code: str, **settings: str) -> list[object]:
    """Return what a program prints last in a new Airflow."""
    home = {"AIRFLOW_HOME": str(installed.folder / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    found: list[object] = json.loads(
        installed.run(str(installed.python), "-c", code, **home, **settings).splitlines()[-1]
    )
    return found


# A folder of plugins that is the clone's would make it known a second time.
@pytest.mark.parametrize("folder", ["nothing", str(REPO / "plugins")])
def test_airflow_finds_the_plugin_once_by_its_entry_point(installed: Installed, folder: str) -> None:
    plugins, errors = printed(installed, PLUGINS, AIRFLOW__CORE__PLUGINS_FOLDER=folder)
    (ours,) = [name for name in plugins if name.startswith("statecore ")]  # type: ignore[attr-defined]
    assert "statecore==" in ours and "EntryPoint" in ours
    assert errors == {}


def test_the_dags_are_served_as_they_are_from_a_local_bundle(installed: Installed, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(REPO / "dags", folder, ignore=shutil.ignore_patterns("__pycache__"))
    bundles = json.dumps([{"name": "statecore", "classpath": LOCAL_BUNDLE, "kwargs": {"path": str(folder)}}])
    dags, errors, application = printed(installed, DAGS, AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST=bundles)
    assert dags == sorted(path.stem for path in (REPO / "dags").glob("*.py"))
    assert errors == {}
    assert application == str(installed.site / "statecore" / "runtime" / "programs" / "rewrite.py")
