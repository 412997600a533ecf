"""Checkpoints as Spark lays them out, made by hand: small, and with whatever is to be wrong in them."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c

from statecore.queries.providers.hdfs.codecs import codec

HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PARTITIONS = "spark.sql.shuffle.partitions"
STRICT = "spark.sql.streaming.statefulOperator.useStrictDistribution"
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
GROUPS_FORMAT = "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion"
QUERY_ID = "e9836132-37e4-4ac2-bc61-c372a3971065"

AGGREGATION = "stateStoreSave"
JOIN = "symmetricHashJoin"
PANDAS = "transformWithStateInPandasExec"
JOIN_STORES = (
    "left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue",
)  # fmt: skip


@dataclass(frozen=True)
class Operator:
    """A stateful operator to be."""

    name: str = AGGREGATION
    stores: Sequence[str] = ("default",)
    partitions: int = 2
    version: int = 1
    keyless: bool = False
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Handmade:
    """A checkpoint that was made.

    Attributes:
        root: Its folder.
        batches: Number of committed batches.

    """

    root: Path
    batches: int

    def write(self, path: str, data: str | bytes, *, checksum: bool = True) -> None:
        """Write a file, and Hadoop's checksum beside it."""
        raw = data.encode() if isinstance(data, str) else data
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(raw)
        if checksum:
            (file.parent / f".{file.name}.crc").write_bytes(hadoop_checksum(raw))

    def remove(self, path: str) -> None:
        """Remove a file, and Hadoop's checksum beside it."""
        file = self.root / path
        file.unlink()
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)

    def files(self) -> dict[str, bytes]:
        """Return every file by its path."""
        return files_of(self.root)

    def change_conf(self, batch: int, **conf: str | None) -> None:
        """Change settings that a batch has logged; None removes one. Dots are written as two underscores."""
        version, metadata, *sources = (self.root / f"offsets/{batch}").read_text().split("\n")
        found = json.loads(metadata)
        for name, value in conf.items():
            key = name.replace("__", ".")
            if value is None:
                found["conf"].pop(key, None)
            else:
                found["conf"][key] = value
        self.write(f"offsets/{batch}", "\n".join((version, json.dumps(found, separators=(",", ":")), *sources)))


def make(
    root: Path,
    *operators: Operator,
    batches: int = 2,
    pending: bool = False,
    provider: str = HDFS,
    conf: Mapping[str, str] | None = None,
    unique_ids: bool = False,
) -> Handmade:
    """Make a checkpoint with ``batches`` committed batches, whose state is bytes without a meaning."""
    made = Handmade(root, batches)
    partitions = max((each.partitions for each in operators), default=2)
    settings = {
        PROVIDER: provider,
        PARTITIONS: str(partitions),
        STRICT: "true",
        JOIN_FORMAT: "2",
        GROUPS_FORMAT: "2",
        **(conf or {}),
    }
    made.write("metadata", json.dumps({"id": QUERY_ID}))
    for batch in range(batches + pending):
        metadata = {"batchWatermarkMs": batch * 1000, "batchTimestampMs": 1_700_000_000_000, "conf": settings}
        made.write(f"offsets/{batch}", f'v1\n{json.dumps(metadata, separators=(",", ":"))}\n{{"logOffset":{batch}}}')
        made.write(f"sources/0/{batch}", f'v1\n{{"path":"file:///data/in/{batch}.parquet","batchId":{batch}}}')
        if batch < batches:
            made.write(f"commits/{batch}", commit(batch, operators if unique_ids else None))
    for number, operator in enumerate(operators):
        _write_operator(made, number, operator)
        for version in range(1, batches + 1):
            write_state(made, number, operator, version, provider, unique_ids=unique_ids)
    return made


def commit(batch: int, operators: Sequence[Operator] | None = None) -> str:
    """Return what a commit says; with ids of state files if operators are given."""
    if operators is None:
        return f'v1\n{{"nextBatchWatermarkMs":{batch * 1000}}}'
    ids = {
        str(number): [
            [unique_id(number, partition, store, batch + 1) for store in range(len(operator.stores))]
            for partition in range(operator.partitions)
        ]
        for number, operator in enumerate(operators)
    }
    body = {"nextBatchWatermarkMs": batch * 1000, "stateUniqueIds": ids}
    return f"v2\n{json.dumps(body, separators=(',', ':'))}"


def unique_id(operator: int, partition: int, store: int, version: int) -> str:
    """Return the id of a state file."""
    return f"id-{operator}-{partition}-{store}-{version}"


def write_state(
    made: Handmade, number: int, operator: Operator, version: int, provider: str = HDFS, *, unique_ids: bool = False
) -> None:
    """Write one version of an operator's state."""
    for partition in range(1 if operator.keyless else operator.partitions):
        for index, store in enumerate(operator.stores):
            folder = folder_of(number, partition, store)
            suffix = f"_{unique_id(number, partition, index, version)}" if unique_ids else ""
            if provider == HDFS:
                made.write(f"{folder}/{version}{suffix}.delta", delta(rows_of(partition)))
            else:
                made.write(f"{folder}/{version}{suffix}.zip", snapshot(rows_of(partition)))
                made.write(f"{folder}/SSTs/{version:06}-abc.sst", f"rows of {folder} at {version}")


def rows_of(partition: int) -> int:
    """Return how many rows each store has in a partition."""
    return 3 * partition + 1


def delta(rows: int) -> bytes:
    """Return a file of the HDFS-backed provider that puts rows."""
    records = b"".join((4).to_bytes(4) + row.to_bytes(4) + (1).to_bytes(4) + b"v" for row in range(rows))
    return codec("lz4").compress(memoryview(records + b"\xff\xff\xff\xff"))


def snapshot(rows: int) -> bytes:
    """Return a snapshot of RocksDB without tables."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("metadata", f'v1\n{{"sstFiles":[],"numKeys":{rows},"numInternalKeys":0}}')
    return made.getvalue()


def folder_of(number: int, partition: int, store: str = "default") -> str:
    """Return the folder of a store's files."""
    return f"state/{number}/{partition}" + ("" if store == "default" else f"/{store}")


def schema_file(keyless: bool = False) -> bytes:
    """Return a schema file of version 2."""
    fields = [] if keyless else [{"name": "k", "type": "long", "nullable": True, "metadata": {}}]
    parts = [json.dumps({"type": "struct", "fields": each}, separators=(",", ":")).encode() for each in (fields, [])]
    return _java("v2") + b"".join((1).to_bytes(4) + _java(part) for part in parts)


def hadoop_checksum(data: bytes, chunk: int = 512) -> bytes:
    """Return what Hadoop's local file system writes beside a file."""
    sums = (zlib.crc32(data[start : start + chunk]).to_bytes(4) for start in range(0, len(data), chunk))
    return b"crc\0" + chunk.to_bytes(4) + b"".join(sums)


def spark_checksum(data: bytes) -> str:
    """Return what Spark 4.1 and newer writes beside a file."""
    value = google_crc32c.value(data)
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return json.dumps({"algorithm": "CRC32C", "value": signed, "mainFileSize": len(data), "timestampMs": 0})


def files_of(root: Path) -> dict[str, bytes]:
    """Return every file below a folder by its path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _write_operator(made: Handmade, number: int, operator: Operator) -> None:
    info = {"operatorId": number, "operatorName": operator.name}
    stores: list[dict[str, Any]] = [
        {"storeName": store, "numColsPrefixKey": 0, "numPartitions": operator.partitions} for store in operator.stores
    ]
    folder = f"state/{number}/_metadata"
    if operator.version == 1:
        metadata = {"operatorInfo": info, "stateStoreInfo": stores}
        made.write(f"{folder}/metadata", f"v1\n{json.dumps(metadata, separators=(',', ':'))}")
        for store in operator.stores:
            made.write(f"{folder_of(number, 0, store)}/_metadata/schema", schema_file(operator.keyless))
        return
    for each in stores:
        schema = f"state/{number}/_stateSchema/{each['storeName']}/0_fea84036"
        made.write(schema, b"\0\2v3 of a store")
        each["stateSchemaFilePaths"] = [f"file:{made.root}/{schema}"]
    found = {
        "operatorInfo": info,
        "stateStoreInfo": stores,
        "operatorPropertiesJson": json.dumps(dict(operator.properties)),
    }
    made.write(f"{folder}/v2/0", f"v2\n{json.dumps(found, separators=(',', ':'))}")


def _java(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return len(raw).to_bytes(2) + raw
