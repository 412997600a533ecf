"""Parses the names of state files: ``<version>[_<id>].<kind>``, with or without checksums beside them.

Batch N writes version N+1. In state checkpoint format 2 the name contains an id, which the commit lists; a file with
another id is from a failed attempt.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from statecore.errors import CheckpointDamagedError
from statecore.queries.reading.checkpoint import ROCKSDB, SparkCheckpoint
from statecore.queries.reading.operators import StatefulOperator
from statecore.queries.reading.schemas import is_keyless
from statecore.queries.reading.stores import DEFAULT_STORE
from statecore.storage import FileEntry

_FILE = re.compile(
    r"state/(?P<operator>\d+)/(?P<partition>\d+)(?:/(?P<store>[^/]+))?"
    r"/(?P<version>\d+)(?:_(?P<id>[^./]+))?\.(?:delta|snapshot|zip|changelog)"
)
_PLACE = re.compile(r"state/(?P<operator>\d+)/(?P<partition>\d+)/.+")


@dataclass(frozen=True, slots=True)
class StateFile:
    """The name of a state file, parsed.

    Attributes:
        operator: Number of the operator.
        partition: Number of the state partition.
        store: Name of the store.
        version: Version of the state.
        unique_id: Id of the attempt that wrote it, in state checkpoint format 2; else empty.

    """

    operator: int
    partition: int
    store: str
    version: int
    unique_id: str


def state_file(path: str) -> StateFile | None:
    """Parse the path of a state file; None for any other file, such as a checksum."""
    match = _FILE.fullmatch(path)
    if match is None:
        return None
    return StateFile(
        int(match["operator"]),
        int(match["partition"]),
        match["store"] or DEFAULT_STORE,
        int(match["version"]),
        match["id"] or "",
    )


def place_of(path: str) -> tuple[int, int] | None:
    """Return the operator and the state partition that a file belongs to; None if it belongs to none."""
    match = _PLACE.fullmatch(path)
    return None if match is None else (int(match["operator"]), int(match["partition"]))


def partitions_with_state(checkpoint: SparkCheckpoint, operator: StatefulOperator) -> range:
    """Return the state partitions that have state: all, or the first alone where there are no keys.

    Raises:
        CheckpointDamagedError: The schema file is missing or not whole.
        StorageError: The storage fails.

    """
    return range(min(operator.partitions, 1) if is_keyless(checkpoint, operator) else operator.partitions)


def require_state(checkpoint: SparkCheckpoint, files: Iterable[FileEntry]) -> None:
    """Check that every state store has the version of the newest committed batch.

    Raises:
        CheckpointDamagedError: A store lacks it, or a schema file is missing or not whole.
        StorageError: The storage fails.

    """
    for folder in missing_state(checkpoint, files):
        raise CheckpointDamagedError(
            f"found no state of version {checkpoint.version} in {folder} of {checkpoint.url}: neither "
            f"{_names(checkpoint, folder)}; expected the state that batch {checkpoint.batch} wrote; restore the "
            "checkpoint from a clone or a backup"
        )


def _names(checkpoint: SparkCheckpoint, folder: str) -> str:
    endings = ("changelog", "zip") if checkpoint.provider == ROCKSDB else ("delta", "snapshot")
    return " nor ".join(f"{folder}/{checkpoint.version}.{ending}" for ending in endings)


def missing_state(checkpoint: SparkCheckpoint, files: Iterable[FileEntry]) -> Iterator[str]:
    """Yield the folders of state stores that lack the version of the newest committed batch.

    An operator that is not covered may have no state in some partitions: a limit has all of it in one.

    Raises:
        CheckpointDamagedError: A schema file is missing or not whole.
        StorageError: The storage fails.

    """
    ids_by_store: dict[tuple[int, int, str], set[str]] = defaultdict(set)
    used: set[tuple[int, int]] = set()
    for entry in files:
        if (each := state_file(entry.path)) is None:
            continue
        used.add((each.operator, each.partition))
        if each.version == checkpoint.version:
            ids_by_store[each.operator, each.partition, each.store].add(each.unique_id)
    ids = checkpoint.commit.unique_ids or {}
    for operator in checkpoint.operators:
        named = ids.get(operator.number, ())
        for partition in partitions_with_state(checkpoint, operator):
            if not operator.is_covered and (operator.number, partition) not in used:
                continue
            expected = set(named[partition]) if partition < len(named) else {""}
            for store in operator.stores:
                if not expected & ids_by_store[operator.number, partition, store.name]:
                    yield store.folder(partition)
