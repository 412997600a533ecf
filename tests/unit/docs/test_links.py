"""Every link, heading and file that the documentation names is there, and every page names its reader."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import REPO

PAGES = [*sorted(REPO.glob("*.md")), *sorted(REPO.glob("docs/**/*.md"))]
SITE = sorted(REPO.glob("docs/**/*.md"))
# Written with their folder, or bare: these are files of the repository and not a reader's own.
NAMED = re.compile(r"[\w.-]+(?:/[\w.-]+)+\.(?:py|md|toml|ya?ml|svg|png|sh)|test_\w+\.py|[A-Z]+\.md|Makefile|Dockerfile")
# Of a reader's store or machine, or of the generated site.
NOT_OURS = re.compile(r"(?:data|out|in|store|logs|\.run)/.*")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def files() -> dict[str, Path]:
    folders = [path for path in REPO.iterdir() if path.is_dir() and path.name not in {".git", ".venv", ".run"}]
    found = [path for folder in folders for path in folder.rglob("*") if "__pycache__" not in path.parts]
    return {f"/{path.relative_to(REPO)}": path for path in [*found, *REPO.iterdir()] if path.is_file()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path) if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_test_that_is_named_exists(page: Path) -> None:
    """By the end of its path, so that `snapshot/manifest.py` is a name, too."""
    for code in re.findall(r"`([^`\n]+)`", page.read_text()):
        name, _, test = code.partition("::")
        if NAMED.fullmatch(name) and not NOT_OURS.fullmatch(name):
            found = [path for key, path in files().items() if key.endswith(f"/{name}")]
            assert found, code
            assert not test or any(f"def {test}(" in path.read_text() for path in found), code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_directory_that_is_named_exists(page: Path) -> None:
    for folder in re.findall(
        r"`((?:statecore|plugins|tests|docs|examples|benchmarks|scripts|dags)/[\w./-]*/)`", page.read_text()
    ):
        assert (REPO / folder).is_dir(), folder


@pytest.mark.parametrize("page", SITE, ids=lambda page: page.name)
def test_a_page_says_below_its_title_who_it_is_for(page: Path) -> None:
    title, blank, reader, *_ = page.read_text().splitlines()
    assert title.startswith("# ") and not blank and reader.startswith("**For:** "), page


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", (REPO / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        shells = "".join(re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
        named = re.findall(r"^make ([a-z0-9]+)", shells, re.MULTILINE) + re.findall(
            r"`make ([a-z0-9]+)", page.read_text()
        )
        assert set(named) <= targets, page


def test_every_directory_of_the_package_is_in_the_architecture() -> None:
    page = (REPO / "docs" / "architecture.md").read_text()
    for package in (REPO / "statecore").glob("*/__init__.py"):
        assert f"`statecore/{package.parent.name}/`" in page
