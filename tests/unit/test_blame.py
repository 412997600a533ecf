"""What an error says first: the line of the job file, and the exception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statecore.blame import blame
from statecore.catalog import Catalog
from statecore.runtime.generation import failures
from statecore.runtime.job import load_job

WORKER = """An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/app/statecore/runtime/worker/subtask.py", line 64, in run
    yield from _run(spec, epoch, batches)
  File "/jobs/orders.py", line 22, in process_element
    check(order)
  File "/jobs/orders.py", line 13, in check
    raise ValueError(f"negative amount {order.cents}")
ValueError: negative amount -250
{chained}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)
\tat org.apache.spark.api.python.PythonRunner$$anon$3.read(PythonRunner.scala:1)
"""
CHAINED = """
The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/app/statecore/runtime/worker/subtask.py", line 131, in naming_failures
    raise FunctionError(place) from error
statecore.errors.FunctionError: uid 'totals', key ('ann',): ValueError: negative amount -250
in two lines
"""


@pytest.mark.parametrize(
    ("chained", "said"),
    [
        ("", "ValueError: negative amount -250"),
        (CHAINED, "FunctionError: uid 'totals', key ('ann',): ValueError: negative amount -250\nin two lines"),
    ],
)
def test_the_exception_of_a_worker_is_found_in_sparks_text(chained: str, said: str) -> None:
    error = RuntimeError(WORKER.replace("{chained}", chained))
    assert blame(error, {"/jobs/orders.py"}) == f"orders.py:13 in check: {said}"
    assert blame(error, set()) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def build(job:\n    pass\n", "orders.py:1: SyntaxError: '(' was never closed (orders.py, line 1)"),
        ("import nothing_here\n", "orders.py:1: ModuleNotFoundError: No module named 'nothing_here'"),
        ("def build(job):\n    job.settings['input']\n", "orders.py:2 in build: KeyError: 'input'"),
        ("def build(job):\n    job.source('a b', read=print)\n", "orders.py:2 in build: JobDefinitionError: found the"),
    ],
)
def test_a_job_file_that_fails_in_the_driver_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "orders.py"
    path.write_text(text)
    with pytest.raises(Exception) as raised:
        load_job(path, {})
    assert failures.told(raised.value).startswith(said)


def test_a_long_error_keeps_its_beginning_and_its_end() -> None:
    said = failures.told(ValueError("a" * 5_000 + "z" * 4_000))
    assert (
        said.startswith("ValueError: aaa") and said.endswith("zzz") and "4,012 characters, in the driver's log" in said
    )


def test_the_supervisor_may_first_say_how_a_jvm_ended(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(failures, "jvm_ended", lambda: True)
    monkeypatch.setattr("statecore.runtime.generation.failures.time.sleep", waited.append)
    failures.record_failure(catalog.generations, "j", 1, ConnectionRefusedError(111, "Connection refused"))
    newest = catalog.generations.newest("j")
    assert waited and newest is not None and str(newest.error).startswith("found the driver's JVM ended")


@pytest.fixture
def catalog(catalog_url: str) -> Any:
    with Catalog(catalog_url) as opened:
        opened.jobs.register("j", artifact="/a", store="/s", master_url="local", parallelism=1, max_parallelism=1)
        opened.generations.claim("j", log_path="/l")
        yield opened


def test_a_secret_that_the_cut_would_halve_is_left_out() -> None:
    for at in range(900, 1_010):
        said = failures.told(ValueError("a" * at + " password='" + "hunter2 " * 12 + "' " + "z" * 9_000))
        assert "hunter" not in said
