"""Each guarantee of docs/guarantees.md has tests that exist, and one at least runs with ``make test``."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.invariants.proofs import PROOFS
from tests.support.marks import NIGHTLY, OUTSIDE_MAKE_TEST
from tests.support.paths import REPO

PAGE = (REPO / "docs/guarantees.md").read_text()
_MARK = f"pytest.mark.{NIGHTLY}"


def test_the_page_and_the_list_have_the_same_guarantees() -> None:
    numbered = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    titled = re.findall(r"^\*\*([^*]+\.)\*\*", PAGE, re.MULTILINE)
    assert sorted([*numbered, *titled]) == sorted(PROOFS)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+\.py)`", PAGE))))
def test_a_file_that_the_page_names_exists(path: str) -> None:
    assert (REPO / path).is_file() or (REPO / "statecore" / path).is_file()


@pytest.mark.parametrize("proof", sorted({proof for proofs in PROOFS.values() for proof in proofs}))
def test_a_test_that_proves_a_guarantee_exists(proof: str) -> None:
    file, _, name = proof.partition("::")
    tests = _tests(file)
    assert name in tests if name else tests


@pytest.mark.parametrize("guarantee", PROOFS)
def test_make_test_proves_each_guarantee(guarantee: str) -> None:
    assert any(_runs_in_make_test(proof) for proof in PROOFS[guarantee])


def test_a_test_of_the_nightly_run_alone_proves_nothing_in_make_test(tmp_path: Path) -> None:
    marked = "import pytest\n\n@pytest.mark.nightly\ndef test_a(): ...\n"
    path = tmp_path / "test_of_mine.py"
    path.write_text(marked + "\ndef test_b(): ...\n")
    assert _every_day(path) == {"test_b"}
    path.write_text(
        "import pytest\n\npytestmark = [pytest.mark.timeout(9), pytest.mark.nightly]\n\ndef test_a(): ...\n"
    )
    assert not _every_day(path)


def _runs_in_make_test(proof: str) -> bool:
    file, _, name = proof.partition("::")
    if Path(file).parts[1] in OUTSIDE_MAKE_TEST:
        return False
    every_day = _every_day(REPO / file)
    return name in every_day if name else bool(every_day)


def _tests(file: str) -> set[str]:
    return set(_functions(REPO / file))


def _every_day(path: Path) -> set[str]:
    """Return the tests of a file that are not marked as nightly, the file's own marks included."""
    of_file = [
        node.value
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    if any(_names_nightly(marks) for marks in of_file):
        return set()
    return {name for name, decorators in _functions(path).items() if not any(map(_is_nightly, decorators))}


def _functions(path: Path) -> dict[str, list[ast.expr]]:
    """Return the tests of a file with their decorators, those of their class and of a suite that it runs included."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.names[0].name == "*":
            found |= _functions(REPO / f"{node.module.replace('.', '/')}.py")
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                of_class = node.decorator_list if isinstance(node, ast.ClassDef) else []
                found[each.name] = [*each.decorator_list, *of_class]
    return found


def _is_nightly(decorator: ast.expr) -> bool:
    return ast.unparse(decorator) == _MARK


def _names_nightly(marks: ast.expr) -> bool:
    return _MARK in ast.unparse(marks)
