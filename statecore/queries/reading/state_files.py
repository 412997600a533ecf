"""The files of state stores by their names: ``<version>[_<id>].<kind>``, with or without checksums beside them.

A version is that of the state after the batch before it: batch N leaves version N+1. State checkpoint format 2 puts the
id that the commit names into the name; a file with another id is of an attempt that failed.
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
    """What the name of a file of a state store says.

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
    """Return what the path of a file says; None for one of another kind, a checksum for example."""
    found = _FILE.fullmatch(path)
    if found is None:
        return None
    return StateFile(
        int(found["operator"]),
        int(found["partition"]),
        found["store"] or DEFAULT_STORE,
        int(found["version"]),
        found["id"] or "",
    )


def place_of(path: str) -> tuple[int, int] | None:
    """Return the operator and the state partition that a file belongs to; None for one that belongs to none."""
    found = _PLACE.fullmatch(path)
    return None if found is None else (int(found["operator"]), int(found["partition"]))


def partitions_with_state(checkpoint: SparkCheckpoint, operator: StatefulOperator) -> range:
    """Return the state partitions that have state: all, or the first alone where there are no keys.

    Raises:
        CheckpointDamagedError: The schema file is missing or not whole.
        StorageError: The storage fails.

    """
    return range(min(operator.partitions, 1) if is_keyless(checkpoint, operator) else operator.partitions)


def require_state(checkpoint: SparkCheckpoint, files: Iterable[FileEntry]) -> None:
    """Check that every state store has the version which the newest committed batch left.

    Raises:
        CheckpointDamagedError: A store lacks it, or a schema file is missing or not whole.
        StorageError: The storage fails.

    """
    for folder in missing_state(checkpoint, files):
        raise CheckpointDamagedError(
            f"found no state of version {checkpoint.version} in {folder} of {checkpoint.url}: neither "
            f"{_names(checkpoint, folder)}; expected what batch {checkpoint.batch} left there; restore the checkpoint "
            "from a clone or a backup"
        )


def _names(checkpoint: SparkCheckpoint, folder: str) -> str:
    endings = ("changelog", "zip") if checkpoint.provider == ROCKSDB else ("delta", "snapshot")
    return " nor ".join(f"{folder}/{checkpoint.version}.{ending}" for ending in endings)


def missing_state(checkpoint: SparkCheckpoint, files: Iterable[FileEntry]) -> Iterator[str]:
    """Yield the folders of state stores that lack the version which the newest committed batch left.

    Raises:
        CheckpointDamagedError: A schema file is missing or not whole.
        StorageError: The storage fails.

    """
    found: dict[tuple[int, int, str], set[str]] = defaultdict(set)
    for entry in files:
        if (each := state_file(entry.path)) is not None and each.version == checkpoint.version:
            found[each.operator, each.partition, each.store].add(each.unique_id)
    ids = checkpoint.commit.unique_ids or {}
    for operator in checkpoint.operators:
        named = ids.get(operator.number, ())
        for partition in partitions_with_state(checkpoint, operator):
            expected = set(named[partition]) if partition < len(named) else {""}
            for store in operator.stores:
                if not expected & found[operator.number, partition, store.name]:
                    yield store.folder(partition)
