"""State in RocksDB: read by Spark's own reader, written by Spark's own writer, checked where Spark does not look."""

from __future__ import annotations

from statecore.queries.providers.rocksdb.damage import spark_failures
from statecore.queries.providers.rocksdb.reading import read_store
from statecore.queries.providers.rocksdb.recorded import recorded_keys
from statecore.queries.providers.rocksdb.rewriting import rewrite

__all__ = ["read_store", "recorded_keys", "rewrite", "spark_failures"]
