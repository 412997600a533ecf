from __future__ import annotations

from collections.abc import Sequence

import pytest

from statecore.catalog import SavepointRecord
from statecore.catalog.retention import superfluous_savepoints


def taken(*created_ms: int) -> list[SavepointRecord]:
    return [SavepointRecord(f"sp{at}", "j", 1, at, 2, at, "") for at in created_ms]


@pytest.mark.parametrize(
    ("keep", "max_age_ms", "needed", "gone"),
    [
        (2, 1_000, (), ["sp1", "sp2"]),
        (9, 2, (), ["sp1"]),
        (9, 1, (), ["sp1", "sp2"]),
        (9, 0, (), ["sp1", "sp2", "sp3"]),
        (0, 0, (), ["sp1", "sp2", "sp3"]),
        (1, 1_000, ("sp2",), ["sp1", "sp3"]),
    ],
)
def test_what_is_beyond_count_or_age_goes_but_never_the_newest_or_what_is_needed(
    keep: int, max_age_ms: int, needed: Sequence[str], gone: list[str]
) -> None:
    found = superfluous_savepoints(taken(3, 1, 4, 2), keep=keep, max_age_ms=max_age_ms, now_ms=4, needed=needed)
    assert [each.path for each in found] == gone


def test_the_only_one_stays_however_old_it_is() -> None:
    assert superfluous_savepoints(taken(1), keep=1, max_age_ms=1, now_ms=1_000_000) == []
