"""The list of removals fits the code; ``make invariants`` carries them out."""

from __future__ import annotations

import pytest

from tests.invariants.removals import REMOVALS, Removal
from tests.support.paths import REPO


def test_each_invariant_has_a_removal() -> None:
    assert {removal.invariant for removal in REMOVALS} == set(range(1, 15))


@pytest.mark.parametrize("removal", REMOVALS, ids=lambda removal: f"{removal.invariant}-{removal.file}")
def test_the_line_and_its_test_are_there(removal: Removal) -> None:
    assert (REPO / removal.file).read_text().count(removal.kept) == 1
    file, _, name = removal.test.partition("::")
    assert f"def {name}(" in (REPO / file).read_text() if name else (REPO / file).is_file()
