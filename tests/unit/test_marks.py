"""Every test has the mark of its folder, and no other."""

from __future__ import annotations

import pytest

from tests.support.marks import MARKS

pytest_plugins = ["pytester"]

TEST = "def test_it(): pass\n"


def run(pytester: pytest.Pytester, *arguments: str, **files: str) -> pytest.RunResult:
    for name, text in files.items():
        file = pytester.path / "tests" / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_suffix(".py").write_text(text)
    return pytester.runpytest_inprocess("-p", "tests.support.marks", "-p", "no:xdist", *arguments, "tests")


def test_a_test_is_chosen_by_the_mark_of_its_folder(pytester: pytest.Pytester) -> None:
    files = {f"{mark}__deep__test_{mark}": TEST for mark in MARKS}
    run(pytester, "-m", "spark", **files).assert_outcomes(passed=1)
    run(pytester, "-m", "not spark", **files).assert_outcomes(passed=len(MARKS) - 1)


@pytest.mark.parametrize("expression", ["unit", "unit and not nightly"])
def test_with_a_mark_the_other_folders_are_not_even_imported(pytester: pytest.Pytester, expression: str) -> None:
    done = run(pytester, "-m", expression, unit__test_one=TEST, airflow__test_two="import no_such_airflow\n")
    done.assert_outcomes(passed=1)


def test_a_folder_that_is_refused_is_not_even_imported(pytester: pytest.Pytester) -> None:
    done = run(pytester, "-m", "not airflow and not e2e", unit__test_one=TEST, airflow__test_two="import no_airflow\n")
    done.assert_outcomes(passed=1)


def test_a_test_outside_the_folders_is_refused(pytester: pytest.Pytester) -> None:
    done = run(pytester, other__test_one=TEST)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*found the test tests/other/test_one.py::test_it outside*expected*; move it there"])


def test_a_second_mark_is_refused(pytester: pytest.Pytester) -> None:
    done = run(pytester, unit__test_one="import pytest\n\n@pytest.mark.spark\n" + TEST)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*found the mark spark at the test tests/unit/test_one.py*; remove it*"])
