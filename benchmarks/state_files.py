"""Benchmark of state files on one core: encode live state as a base, and restore it.

python -m benchmarks.state_files
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import pyarrow as pa

from statecore.model import KeyGroupRange, StateKind, key_encoder
from statecore.snapshot.keyed_files import decode_base, encode_base, key_schema, rows_table
from statecore.snapshot.live_rows import apply_rows, base_rows
from statecore.state import StateTable, TableSchema

ROWS = 1_000_000
KEY_GROUPS = 128
RUNS = 5
KEYS = key_schema([("customer", "string")])
SCHEMA = TableSchema(StateKind.VALUE, "bigint")


def filled_table() -> StateTable:
    """Return live state with one value per key."""
    table = StateTable("total", SCHEMA.kind, SCHEMA.type)
    for number in range(ROWS):
        table.groups[number * KEY_GROUPS // ROWS][f"customer-{number * 7919 % ROWS:08d}",] = number * 31
    return table


def snapshot(table: StateTable) -> bytes:
    """Encode a table as a base, isolated from later writes."""
    isolated = StateTable(table.name, table.kind, table.type, groups=table.snapshot_groups(now_ms=0))
    return encode_base(rows_table(base_rows(isolated), KEYS, SCHEMA, table.name))


def restore(data: bytes) -> StateTable:
    """Restore live state from a base."""
    table = StateTable("total", SCHEMA.kind, SCHEMA.type)
    everything = KeyGroupRange(0, KEY_GROUPS - 1)
    apply_rows(table, decode_base(data, everything), range(KEY_GROUPS), key_encoder(["string"]))
    return table


def rows_per_second(run: Callable[[], object]) -> float:
    """Return the median rows per second of several runs."""
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return ROWS / median(seconds)


def main() -> None:
    """Check the round trip, then measure both directions."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    table = filled_table()
    data = snapshot(table)
    assert restore(data).groups == table.groups
    print(f"{ROWS:,} string keys with a bigint, {KEY_GROUPS} key groups, {len(data):,} bytes of Parquet")
    print(f"snapshot {rows_per_second(lambda: snapshot(table)):12,.0f} rows/s")
    print(f"restore  {rows_per_second(lambda: restore(data)):12,.0f} rows/s")


if __name__ == "__main__":
    main()
