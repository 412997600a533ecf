"""A source may leave a job only if that is allowed."""

from __future__ import annotations

import pytest

from statecore.errors import StateMigrationError
from statecore.runtime.driver.checks import check_sources
from statecore.snapshot.manifest import SourcePositions
from tests.support.handmade import manifest


@pytest.mark.parametrize(
    ("before", "names", "gone"),
    [(("a", "b"), ("b",), ["a"]), (("a", "b"), ("c",), ["a", "b"]), (("a",), ("b", "a"), []), ((), ("a",), [])],
)
def test_a_source_that_left_the_job_is_refused_unless_allowed(
    before: tuple[str, ...], names: tuple[str, ...], gone: list[str]
) -> None:
    made = manifest(sources=tuple(SourcePositions(name=name, positions=()) for name in before))
    if gone:
        with pytest.raises(StateMigrationError, match=r"found the sources .* expected only .*; give a source its"):
            check_sources(made, names)
    else:
        check_sources(made, names)
    check_sources(made, names, allow_non_restored_state=True)
