"""Reads the stateful operators of a query from Spark's metadata.

::

    state/<operator>/_metadata/metadata          v1: name of the operator, its stores, their partitions
    state/<operator>/0[/<store>]/_metadata/schema    v1: schemas of a store's keys and values
    state/<operator>/_metadata/v2/<batch>        v2: the same and properties, from this batch on; it names its
    state/<operator>/_stateSchema/<store>/…          v2: schema files by absolute paths
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from statecore.errors import CheckpointDamagedError
from statecore.queries.reading.files import is_local, local_path, read_checked, spark_url
from statecore.queries.reading.logs import decoded, json_object, version_of
from statecore.queries.reading.stores import StateStore
from statecore.storage import FileStore
from statecore.storage.urls import normal_url

AGGREGATION = "stateStoreSave"
JOIN = "symmetricHashJoin"
SESSION_WINDOW = "sessionWindowStateStoreSaveExec"
LIMIT = "globalLimit"
GROUPS = ("flatMapGroupsWithState", "applyInPandasWithState")
REAL_TIME_AGGREGATION = "StatefulStreamlineAggregate"
TRANSFORM = ("transformWithStateExec", "transformWithStateInPandasExec", "transformWithStateInPySparkExec")

KINDS: Mapping[str, str] = {
    AGGREGATION: "aggregation",
    SESSION_WINDOW: "session window",
    "dedupe": "dropDuplicates",
    "dedupeWithinWatermark": "dropDuplicatesWithinWatermark",
    JOIN: "stream-stream join",
    **{name: name for name in GROUPS},
    TRANSFORM[0]: "transformWithState",
    TRANSFORM[1]: "transformWithStateInPandas",
    TRANSFORM[2]: "transformWithState (Python rows)",
}
"""Operators that are covered, by their names in Spark's metadata."""

_NEWEST = 2
_LIST = "ListState"
_STATE = "state"


class _Operator(msgspec.Struct):
    operatorId: int
    operatorName: str


class _Store(msgspec.Struct):
    storeName: str
    numColsPrefixKey: int
    numPartitions: int
    stateSchemaFilePaths: list[str] = []


class _Metadata(msgspec.Struct):
    operatorInfo: _Operator
    stateStoreInfo: list[_Store]
    operatorPropertiesJson: str = ""


class _Properties(msgspec.Struct):
    stateVariables: list[dict[str, Any]] = []


@dataclass(frozen=True, slots=True)
class StatefulOperator:
    """A stateful operator.

    Attributes:
        number: Its number, which is the name of its folder below ``state``.
        name: Spark's name; empty without metadata, as in a checkpoint of Spark before 4.0.
        kind: What users call it.
        metadata_version: Version of its metadata; 0 without any.
        stores: Its state stores.
        properties: What metadata of version 2 says beyond that, such as the state variables of ``transformWithState``.
        metadata_path: The metadata that is in force, relative to the checkpoint; empty without any.
        schemas: Its schema files, relative to the checkpoint.

    """

    number: int
    name: str
    kind: str
    metadata_version: int
    stores: tuple[StateStore, ...]
    properties: Mapping[str, Any]
    metadata_path: str
    schemas: tuple[str, ...]

    @property
    def partitions(self) -> int:
        """Number of state partitions; 0 without metadata."""
        return max((store.partitions for store in self.stores), default=0)

    @property
    def is_covered(self) -> bool:
        """Whether it is known where the operator keeps which state."""
        return self.name in KINDS

    @property
    def has_lists(self) -> bool:
        """Whether a key may have several values whose order counts."""
        return any(each.get("stateVariableType") == _LIST for each in self.properties.get("stateVariables", ()))


def read_operators(store: FileStore, batch: int) -> tuple[StatefulOperator, ...]:
    """Read the stateful operators as they are after a batch; none for a query without state.

    Raises:
        CheckpointDamagedError: Metadata is not whole.
        CheckpointRefusedError: Metadata is of an unknown version.
        StorageError: The storage fails.

    """
    names = (path.rpartition("/")[2] for path in store.folders(_STATE))
    return tuple(_read_operator(store, number, batch) for number in sorted(int(n) for n in names if n.isdecimal()))


def metadata_files(store: FileStore, operator: int, batch: int) -> list[str]:
    """Return an operator's metadata files up to a batch, oldest first; relative to the checkpoint."""
    folder = f"{_STATE}/{operator}/_metadata"
    names = (entry.path.rpartition("/")[2] for entry in store.list(f"{folder}/v2"))
    batches = sorted(int(name) for name in names if name.isdecimal() and int(name) <= batch)
    if batches:
        return [f"{folder}/v2/{each}" for each in batches]
    return [f"{folder}/metadata"] if store.size(f"{folder}/metadata") is not None else []


def versioned_metadata(store: FileStore) -> list[str]:
    """Return the metadata files of version 2 of all operators, which name their schema files by absolute paths."""
    return [
        entry.path
        for folder in store.folders(_STATE)
        for entry in store.list(f"{folder}/_metadata/v2")
        if entry.path.rpartition("/")[2].isdecimal()
    ]


def moved_metadata(data: bytes, where: str, root: str, partitions: int | None = None) -> bytes:
    """Return metadata of an operator for a checkpoint at another root.

    Args:
        data: Bytes of a metadata file.
        where: Its path, for errors.
        root: URL of the checkpoint that it is for; its schema paths lie below.
        partitions: Number of state partitions; None keeps it.

    Raises:
        CheckpointDamagedError: The metadata is not whole.
        CheckpointRefusedError: Its version is unknown.

    """
    version, metadata = _parse(data, where)
    for each in metadata["stateStoreInfo"]:
        if partitions is not None:
            each["numPartitions"] = partitions
        if "stateSchemaFilePaths" in each:
            number = metadata["operatorInfo"]["operatorId"]
            inside = (_inside(path, number, where) for path in each["stateSchemaFilePaths"])
            each["stateSchemaFilePaths"] = [f"{_root(root, each)}/{path}" for path in inside]
    return f"v{version}\n{msgspec.json.encode(metadata).decode()}".encode()


def operator_metadata(
    store: FileStore, operator: StatefulOperator, partitions: int | None, root: str
) -> dict[str, bytes]:
    """Return an operator's current metadata for a checkpoint at another root.

    Args:
        store: The checkpoint that has the operator.
        operator: The operator.
        partitions: Number of state partitions; None keeps it.
        root: URL of the checkpoint that the metadata is for.

    Returns:
        Bytes of the metadata file by its path relative to that root.

    Raises:
        CheckpointDamagedError: The metadata is not whole.

    """
    path = operator.metadata_path
    return {path: moved_metadata(read_checked(store, path), _at(store, path), root, partitions)} if path else {}


def _read_operator(store: FileStore, number: int, batch: int) -> StatefulOperator:
    files = metadata_files(store, number, batch)
    if not files:
        return StatefulOperator(number, "", "unknown", 0, (), {}, "", ())
    path = files[-1]
    where = _at(store, path)
    version, as_it_is = _parse(read_checked(store, path), where)
    metadata = msgspec.convert(as_it_is, _Metadata)
    if metadata.operatorInfo.operatorId != number:
        raise CheckpointDamagedError(
            f"found operator {metadata.operatorInfo.operatorId} in {where}; expected operator {number}; restore the "
            "checkpoint from a clone or a backup"
        )
    stores = tuple(
        StateStore(number, each.storeName, each.numPartitions, each.numColsPrefixKey)
        for each in metadata.stateStoreInfo
    )
    schemas = (
        tuple(f"{each.folder(0)}/_metadata/schema" for each in stores)
        if version == 1
        else tuple(
            _inside(schema, number, where) for each in metadata.stateStoreInfo for schema in each.stateSchemaFilePaths
        )
    )
    name = metadata.operatorInfo.operatorName
    properties = json_object(metadata.operatorPropertiesJson or "{}", where, _Properties)
    return StatefulOperator(number, name, KINDS.get(name, name), version, stores, properties, path, schemas)


def _parse(data: bytes, where: str) -> tuple[int, dict[str, Any]]:
    first, _, text = decoded(data, where).partition("\n")
    return version_of(first, where, _NEWEST), json_object(text, where, _Metadata)


def _inside(path: str, operator: int, where: str) -> str:
    """Return the part of an absolute schema path that lies inside of a checkpoint."""
    # Cut at the folder of schemas, not at the root: the checkpoint may have been moved.
    _, folder, rest = path.rpartition(f"/{_STATE}/{operator}/_stateSchema/")
    if not folder or not rest:
        raise CheckpointDamagedError(
            f"found the schema file {path} in {where}; expected one below {_STATE}/{operator}/_stateSchema; restore "
            "the checkpoint from a clone or a backup"
        )
    return f"{folder.lstrip('/')}{rest}"


def _root(root: str, store: Mapping[str, Any]) -> str:
    """Return a root as Spark writes it, with the scheme of the old paths if possible."""
    if is_local(root):
        return f"file:{local_path(root)}"
    scheme = next((path.partition("://")[0] for path in store["stateSchemaFilePaths"] if "://" in path), "")
    spelled = spark_url(root)
    return f"{scheme}://{spelled.partition('://')[2]}" if scheme in ("s3", "s3n") else spelled


def _at(store: FileStore, path: str) -> str:
    return f"{path} in the checkpoint {normal_url(store.url)}"
