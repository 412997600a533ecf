"""A process that publishes the newest epoch of a store to PostgreSQL; tests kill it in the middle."""

from __future__ import annotations

import sys
from typing import Any, cast

from statecore.runtime import PostgresSink
from statecore.runtime.epoch.publishing import publish
from statecore.runtime.job import SinkBinding
from statecore.snapshot.checkpoints import CheckpointStore
from tests.support.epochs import SCHEMA


def main(url: str, dsn: str, table: str) -> None:
    store = CheckpointStore.at(url)
    newest = store.newest()
    assert newest is not None
    publish([SinkBinding("seen", "", SCHEMA, PostgresSink(dsn, table))], newest, store, cast(Any, None))


if __name__ == "__main__":
    main(*sys.argv[1:])
