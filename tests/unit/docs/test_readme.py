"""What the README shows works as shown."""

from __future__ import annotations

import re
from collections import namedtuple
from pathlib import Path

from statecore.runtime.job import load_job
from statecore.testing import KeyedOperatorHarness
from tests.support.paths import REPO

README = (REPO / "README.md").read_text()


def block(marker: str) -> str:
    """Return the code block that follows ``<!-- marker -->``."""
    found = re.search(rf"<!-- {marker} -->\n```\w+\n(.*?)```", README, re.DOTALL)
    assert found, f"README.md has no code block marked {marker}"
    return found.group(1)


def test_the_readme_is_short_and_shows_code_early() -> None:
    lines = README.splitlines()
    assert len(lines) <= 150
    assert lines.index("```python") < 40


def test_the_job_file_has_about_30_lines_and_describes_a_job(tmp_path: Path) -> None:
    artifact = tmp_path / "orders.py"
    artifact.write_text(block("job-file"))
    assert len(block("job-file").splitlines()) <= 31

    job = load_job(artifact, {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")})

    (operator,) = job.operators
    assert (operator.uid, operator.first.key_columns, operator.first.order_by) == (
        "order_totals",
        ("customer",),
        ("ordered_at",),
    )
    assert [sink.name for sink in operator.sinks] == ["totals"]


def test_the_function_of_the_job_file_keeps_a_total_per_customer(tmp_path: Path) -> None:
    artifact = tmp_path / "orders.py"
    artifact.write_text(block("job-file"))
    function = load_job(artifact, {"input": "in", "output": "out"}).operators[0].function
    order = namedtuple("order", "customer ordered_at cents")
    tested = KeyedOperatorHarness(function, key=lambda value: (value.customer,))

    for value in (order("ann", 1, 250), order("bob", 2, 5), order("ann", 3, 50)):
        tested.process(value)

    assert tested.output == [("ann", 1, 250), ("bob", 1, 5), ("ann", 2, 300)]
