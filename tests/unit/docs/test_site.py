"""The site builds without a warning, needs no other host, and its reference has every public name."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import statecore
import statecore.errors
import statecore.runtime
import statecore.testing
from tests.support.paths import REPO

REFERENCE = "\n".join(page.read_text() for page in sorted(REPO.glob("docs/reference/*.md")))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPO, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


def test_a_page_loads_nothing_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loaded = re.findall(
            r"<(?:script|link|img|source|iframe)\b[^>]*?(?:src|href|srcset)=\"?([^\" >]+)", page.read_text()
        )
        assert [url for url in loaded if re.match(r"(?:https?:)?//", url)] == [], page


def test_an_error_is_shown_with_its_meaning(site: Path) -> None:
    page = (site / "reference" / "errors.html").read_text()
    for name, error in inspect.getmembers(statecore.errors, inspect.isclass):
        assert f'id="statecore.errors.{name}"' in page, name
        assert error.__doc__


@pytest.mark.parametrize(
    "module", [statecore, statecore.runtime, statecore.testing], ids=lambda module: module.__name__
)
def test_the_reference_has_every_public_name(module: object) -> None:
    names = set(module.__all__) - {"StatecoreError"}  # type: ignore[attr-defined]
    assert {name for name in names if f"::: {module.__name__}.{name}\n" not in REFERENCE} == set()  # type: ignore[attr-defined]


def test_the_reference_has_every_stream_of_a_job_and_every_context_of_a_function() -> None:
    from statecore import functions
    from statecore.runtime import job

    streams = {name for name, value in vars(job).items() if inspect.isclass(value) and name.endswith("Stream")}
    given = {
        name
        for name, value in vars(functions).items()
        if inspect.isclass(value) and value.__module__ == functions.__name__ and not name.startswith("_")
    } - {"AppendingState"}
    assert {name for name in streams if f"::: statecore.runtime.job.{name}\n" not in REFERENCE} == set()
    assert {name for name in given if not re.search(rf"::: statecore(\.functions)?\.{name}\n", REFERENCE)} == set()
