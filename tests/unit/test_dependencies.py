"""What is installed, and how it is pinned."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import pytest

from tests.support.paths import REPO

LOCK = (REPO / "requirements.lock").read_text()
PYPROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
GROUPS = PYPROJECT["dependency-groups"]
PROVIDER = "apache-airflow-providers-apache-spark"


def names(requirements: list[str | dict[str, str]]) -> set[str]:
    """Return the distributions that a list of requirements names, without those of other groups."""
    return {re.split(r"[\[<>=]", each)[0].lower() for each in requirements if isinstance(each, str)}


CORE = names(PYPROJECT["project"]["dependencies"])
EXTRA = set().union(*map(names, EXTRAS.values())) - {"statecore"}
TOOLS = set().union(*map(names, GROUPS.values())) - {PROVIDER}


def test_the_library_is_installed_without_engines_and_tools() -> None:
    assert not CORE & (EXTRA | TOOLS | {PROVIDER})
    assert {"pyspark", "apache-airflow", "boto3", "psycopg", "plotly"} <= EXTRA
    assert not EXTRA & TOOLS


def test_the_spark_provider_is_in_no_extra_because_it_asks_for_pyspark_client() -> None:
    assert PROVIDER not in CORE | EXTRA
    assert PROVIDER in names(GROUPS["spark-provider"])
    assert {"include-group": "spark-provider"} in GROUPS["dev"]


@pytest.mark.parametrize("name", sorted(CORE | EXTRA | TOOLS | {PROVIDER}))
def test_everything_that_is_asked_for_is_locked(name: str) -> None:
    assert re.search(rf"^{re.escape(name)}==", LOCK, re.MULTILINE | re.IGNORECASE)


def test_every_group_is_among_the_development_tools() -> None:
    assert {each["include-group"] for each in GROUPS["dev"]} == set(GROUPS) - {"dev"}


def test_pyspark_client_is_not_installed_because_it_overwrites_files_of_pyspark() -> None:
    with pytest.raises(PackageNotFoundError):
        distribution("pyspark-client")
    assert not re.search(r"^pyspark[-_.]client\b", LOCK, re.MULTILINE | re.IGNORECASE)


def test_pyspark_is_whole() -> None:
    files = distribution("pyspark").files or []
    jars = [file for file in files if file.suffix == ".jar"]
    assert len(jars) > 100
    missing = [str(file) for file in files if file.suffix in (".py", ".jar") and not Path(file.locate()).exists()]
    assert missing == []


@pytest.mark.parametrize(
    ("package", "expected"), [("apache-airflow", "3.3.2"), ("apache-airflow-core", "3.3.2"), ("pyspark", "4.3.0")]
)
def test_airflow_and_spark_are_the_releases_that_this_was_built_for(package: str, expected: str) -> None:
    assert version(package) == expected
    assert re.search(rf"^{package}=={re.escape(expected)} \\$", LOCK, re.MULTILINE)


def test_pandas_is_older_than_3() -> None:
    assert int(version("pandas").split(".")[0]) < 3


def _entries() -> list[str]:
    """Return each entry of the lock file with its continuation lines."""
    logical = LOCK.replace("\\\n", " ").splitlines()
    return [line.strip() for line in logical if line.strip() and not line.lstrip().startswith("#")]


def test_every_entry_of_the_lock_file_is_pinned_and_hashed() -> None:
    entries = _entries()
    assert len(entries) > 100
    for entry in entries:
        assert re.fullmatch(
            r"[A-Za-z0-9._-]+(\[[a-z0-9,_-]+\])?==[^\s;]+(\s*;[^#]*?)?(\s+--hash=sha256:[0-9a-f]{64})+(\s+#.*)?", entry
        ), entry[:120]


def test_the_lock_file_holds_no_download_address() -> None:
    for address in ("://", "--index-url", "--extra-index-url", "--find-links", "-i ", "@ file"):
        assert address not in LOCK


def test_every_package_is_locked_once_for_one_python() -> None:
    pins = [entry.split(" --hash")[0].split(";") for entry in _entries()]
    plain = [pin.split("==")[0].strip().lower() for pin, *marker in pins if not marker]
    marked = {pin.split("==")[0].strip().lower() for pin, *marker in pins if marker}
    assert len(plain) == len(set(plain))
    assert marked.isdisjoint(plain)
