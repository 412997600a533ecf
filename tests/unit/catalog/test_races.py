"""The contract of the catalog under races, on SQLite."""

from __future__ import annotations

import pytest

from statecore.catalog import Catalog
from tests.contracts.catalog.races import *
from tests.contracts.catalog.races import ROUNDS, winners


@pytest.mark.parametrize("action", ["claim", "acquire"])
def test_of_several_processes_at_once_exactly_one_wins(
    catalog: Catalog, catalog_url: str, register, action: str
) -> None:
    for turn in range(ROUNDS):
        register(catalog, f"job-{turn}")
    result = winners(catalog_url, action)
    assert [len(won) for won in result.values()] == [1] * ROUNDS
    for turn, (winner,) in result.items():
        if action == "claim":
            assert [g.log_path for g in catalog.generations.of(f"job-{turn}")] == [f"/{winner}"]
        else:
            lease = catalog.leases.find(f"job-{turn}")
            assert lease is not None and lease.owner == f"racer-{winner}"
