"""The README's first job, run from a wheel, in an empty folder, with no clone in sight."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds
import pytest

from statecore.catalog import Catalog
from tests.support.paths import REPO
from tests.support.processes import naming
from tests.support.published import published_files
from tests.support.waiting import wait
from tests.support.wheel import Installed, build, install
from tests.unit.docs.test_code_blocks import BLOCKS
from tests.unit.docs.test_readme import block

JOB = "orders"
CUSTOMERS = 20
START = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_wheel_holds_both_packages_with_their_files_and_nothing_else(tmp_path: Path) -> None:
    names = set(zipfile.ZipFile(build(tmp_path)).namelist())
    assert {name.split("/")[0] for name in names} == {"statecore", "statecore_airflow", "statecore-0.1.0.dist-info"}
    packages = {REPO / "statecore": REPO, REPO / "plugins" / "statecore_airflow": REPO / "plugins"}
    expected = {
        str(file.relative_to(root))
        for package, root in packages.items()
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    expected |= {
        f"statecore/examples/{file.name}" for file in (REPO / "examples").iterdir() if file.suffix in (".py", ".ipynb")
    }
    expected.remove("statecore/examples/__init__.py")
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert {"statecore/py.typed", "statecore/catalog/migrations/script.py.mako"} <= names
    assert "statecore-0.1.0.dist-info/licenses/LICENSE" in names


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("wheel"))


def test_what_is_imported_is_the_wheel(installed: Installed) -> None:
    code = "import sys, json, statecore, statecore_airflow as airflow\n"
    code += "print(json.dumps([statecore.__file__, airflow.__file__, sys.path]))"
    *files, path = json.loads(installed.run(str(installed.python), "-c", code))
    assert files == [str(installed.site / name / "__init__.py") for name in ("statecore", "statecore_airflow")]
    assert not {str(REPO), str(REPO / "plugins")} & set(path)


def order(number: int) -> dict[str, Any]:
    """Return an order; each is later than the one before."""
    at = START + timedelta(seconds=number)
    return {"customer": f"c{number % CUSTOMERS}", "ordered_at": at.isoformat(), "cents": number * 7 % 100 + 1}


def feed(folder: Path, numbers: range) -> None:
    """Make a file of orders appear, whole."""
    hidden = folder.parent / f"{numbers.start}.json"
    hidden.write_text("".join(json.dumps(order(number)) + "\n" for number in numbers))
    hidden.rename(folder / hidden.name)


def totals(numbers: range) -> Counter[tuple[str, int, int]]:
    """Return what the job has to publish: the running total of every customer."""
    orders: dict[str, int] = defaultdict(int)
    cents: dict[str, int] = defaultdict(int)
    found: Counter[tuple[str, int, int]] = Counter()
    for each in map(order, numbers):
        customer = each["customer"]
        orders[customer] += 1
        cents[customer] += each["cents"]
        found[customer, orders[customer], cents[customer]] += 1
    return found


def published(folder: Path) -> Counter[tuple[str, int, int]]:
    """Return what the sink holds, read as any program would."""
    files = [str(file) for file in published_files(folder)]
    if not files:
        return Counter()
    table = ds.dataset(files, format="parquet").to_table(columns=["customer", "orders", "cents"])
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.fixture
def started(installed: Installed) -> Iterator[Catalog]:
    """The README's job, registered and started as the README says; ends supervisor and driver."""
    (installed.folder / "orders.py").write_text(block("job-file"))
    lines = [line for line in block("run-job").splitlines() if not line.startswith("source ")]
    script = "\n".join(["set -e", *lines, 'echo "$STATECORE_CATALOG" >catalog.url', "jobs -p >supervisor.pid"])
    (installed.folder / "run.sh").write_text(script)
    output = (installed.folder / "run.log").open("wb")
    try:
        # Into a file: the supervisor keeps what it was given open.
        subprocess.run(
            ["bash", "run.sh"], cwd=installed.folder, env=installed.environment(), stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, timeout=120, check=False,
        )  # fmt: skip
        assert (installed.folder / "supervisor.pid").exists(), (installed.folder / "run.log").read_text()
        with Catalog((installed.folder / "catalog.url").read_text().strip()) as catalog:
            yield catalog
    finally:
        output.close()
        # It may have failed before it wrote the file, or be gone.
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            os.kill(int((installed.folder / "supervisor.pid").read_text()), signal.SIGTERM)
        for process in naming(psutil.process_iter(), str(installed.site)):
            process.kill()


def test_the_first_job_of_the_readme_runs_from_a_wheel_through_a_live_rescale_to_an_exact_result(
    installed: Installed, started: Catalog
) -> None:
    url = (installed.folder / "catalog.url").read_text().strip()

    def statecore(*arguments: str) -> str:
        return installed.run(str(installed.python.parent / "statecore"), *arguments, STATECORE_CATALOG=url)

    def shown(begins: str) -> None:
        """Run a block of the README as a reader does, in the shell that has the catalog."""
        (code,) = (each.code for each in BLOCKS if each.page == REPO / "README.md" and each.code.startswith(begins))
        installed.run("bash", "-ec", code.replace("kill %1\n", ""), STATECORE_CATALOG=url)

    settings = started.jobs.get(JOB).settings
    source, sink = Path(settings["input"]), Path(settings["output"])

    shown('echo \'{"customer"')
    of_ann = Counter({("ann", 1, 250): 1})
    feed(source, range(400))
    wait(lambda: published(sink) == of_ann + totals(range(400)), "the first 400 orders")
    program = str(installed.site / "statecore" / "runtime" / "programs" / "stream.py")
    # A child of the driver has its command line until it runs a program of its own.
    pythons = [each for each in naming(psutil.process_iter(), program) if each.name() != "java"]
    driver = min(pythons, key=psutil.Process.create_time)
    assert str(REPO) not in driver.environ().get("PYTHONPATH", "").split(os.pathsep)

    shown("statecore rescale")
    feed(source, range(400, 1000))
    wait(lambda: published(sink) == of_ann + totals(range(1000)), "the other 600")
    assert started.jobs.get(JOB).parallelism == 4
    newest = started.generations.newest(JOB)
    assert newest is not None and newest.generation == 1, "a live rescale does not restart the driver"

    shown("statecore stop")
    (savepoint,) = (each.path for each in started.savepoints.of(JOB))
    assert "parallelism 4" in " ".join(statecore("savepoint", "show", savepoint).split())
    assert published(sink) == of_ann + totals(range(1000))
