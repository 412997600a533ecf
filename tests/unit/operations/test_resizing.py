"""How long a cluster is waited for that complains."""

from __future__ import annotations

import pytest

from statecore.catalog import ClusterRecord
from statecore.errors import ClusterError
from statecore.operations.resizing import Resizing


def cluster(ready: int, at_ms: int, message: str | None = None) -> ClusterRecord:
    return ClusterRecord("c", "standalone", {}, 3, ready, message, at_ms)


def test_it_is_done_when_all_are_ready() -> None:
    resizing = Resizing()
    assert [resizing.is_done(cluster(ready, ready), 3) for ready in (1, 2, 3)] == [False, False, True]


def test_a_complaint_that_is_reported_again_and_again_is_an_error_and_one_that_is_seen_again_is_not() -> None:
    resizing = Resizing()
    for at_ms in (1, 2, 3, 4, 5, 5, 5):
        assert not resizing.is_done(cluster(1, at_ms, "no quota"), 3)
    with pytest.raises(ClusterError, match="cluster c: no quota"):
        resizing.is_done(cluster(1, 6, "no quota"), 3)
