"""Notebooks run in a kernel of their own: the example, and programs that are defined in cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pyarrow.parquet as pq
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from stack.quick_start import QUICK_START
from tests.support.paths import REPO
from tests.support.published import published_files


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sparks that notebooks create start quickly, and temporary folders are the test's."""
    options = (
        f'--master local[2] --driver-memory 700m --conf spark.ui.enabled=false --driver-java-options "{QUICK_START}"'
    )
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{options} pyspark-shell")
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # Not that of the tests' session: the kernel's own.
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def executed(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """Run a notebook in a folder; an error of a cell is raised."""
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return notebook


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(each.get("text", "") for each in cell.outputs if each.get("name") == "stdout")


def code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_example_runs_from_the_first_orders_to_the_registered_job(tmp_path: Path) -> None:
    notebook = executed(nbformat.read(REPO / "examples" / "order_totals.ipynb", as_version=4), tmp_path)
    (folder,) = tmp_path.glob("orders-*")
    rows = [row for file in published_files(folder / "output") for row in pq.ParquetFile(file).read().to_pylist()]
    assert sorted(tuple(row.values()) for row in rows) == [
        ("ann", 1, 250), ("ann", 2, 300), ("ann", 3, 1300), ("bob", 1, 900), ("cat", 1, 5),
    ]  # fmt: skip
    told = [printed(cell) for cell in code(notebook)]
    assert any("epochs=1, rows=3" in each for each in told)
    assert any("epochs=1, rows=2" in each for each in told)
    # The state: key, key group, value.
    assert any(re.search(r"\| +cat\| +\d+\| +1\| +5\|", each) for each in told), told
    assert "registered orders: parallelism 2 of at most 128" in told[-1]


def test_the_example_is_kept_without_outputs() -> None:
    notebook = nbformat.read(REPO / "examples" / "order_totals.ipynb", as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in code(notebook))


CELLS = (
    """
import statecore
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
Path("input").mkdir()
Path("input/1.json").write_text('{"k": "a", "n": 1}\\n{"k": "a", "n": 2}\\n')
""",
    """
from statecore.runtime import Job, ParquetSink

class Sum(statecore.KeyedProcessFunction):
    def open(self, ctx):
        self.sum = ctx.get_state(statecore.ValueStateDescriptor("sum", "bigint"))

    def process_element(self, value, ctx):
        if value.n < 0:
            raise ValueError("found a number below zero")
        self.sum.update((self.sum.value() or 0) + value.n)
        yield value.k, self.sum.value()

def build(job: Job):
    records = job.source("records", lambda spark: spark.readStream.schema("k string, n bigint").json("input"))
    records.key_by("k").process(Sum(), output="k string, sum bigint", uid="sum").sink("sums", ParquetSink("sums"))
""",
    """
ended = statecore.run(build)
print(ended.rows, ended.savepoint, spark.conf.get("spark.sql.session.timeZone"), spark.range(2).count())
""",
    """
Path("input/2.json").write_text('{"k": "a", "n": -1}\\n')
statecore.run(build)
""",
)


def cells(*sources: str) -> nbformat.NotebookNode:
    made: Sequence[Any] = [nbformat.v4.new_code_cell(source.strip()) for source in sources]
    return nbformat.v4.new_notebook(cells=made)


def test_functions_of_cells_run_on_the_notebooks_session_and_fail_in_a_few_lines(tmp_path: Path) -> None:
    notebook = cells(*CELLS)
    with pytest.raises(CellExecutionError) as raised:
        executed(notebook, tmp_path)
    rows, savepoint, zone, count = printed(code(notebook)[2]).split()
    assert (rows, zone, count) == ("2", "Asia/Tokyo", "2")
    assert Path(savepoint.removeprefix("file://")).exists() and str(tmp_path) in savepoint
    assert raised.value.ename == "FunctionError"
    assert "in process_element: uid 'sum', subtask" in raised.value.evalue
    assert raised.value.evalue.endswith("record Row(k='a', n=-1): ValueError: found a number below zero")
    (error,) = [each for each in code(notebook)[3].outputs if each.output_type == "error"]
    assert len("\n".join(error.traceback).splitlines()) < 60
    assert "py4j" not in "\n".join(error.traceback)
