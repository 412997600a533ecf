"""Reads from a schema file of Spark whether a store has keys.

A file of version 1 or 2 begins with its version and the schema of the keys as JSON. Strings are Java's: their length in
two bytes, big-endian, then their bytes; version 2 cuts long ones into parts and gives the number of parts first.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from statecore.errors import CheckpointDamagedError, CheckpointRefusedError
from statecore.queries.reading.checkpoint import SparkCheckpoint
from statecore.queries.reading.files import read_checked
from statecore.queries.reading.operators import SESSION_WINDOW, StatefulOperator


class _Struct(msgspec.Struct):
    fields: list[Any]


def is_keyless(checkpoint: SparkCheckpoint, operator: StatefulOperator) -> bool:
    """Return whether an operator, such as a global aggregation, has no keys and all its state in partition 0.

    Raises:
        CheckpointDamagedError: The schema file is missing or not whole.
        CheckpointRefusedError: Its version is unknown.
        StorageError: The storage fails.

    """
    # Operators with metadata of version 2 group by keys, or join on them.
    if operator.metadata_version != 1 or not operator.schemas:
        return False
    path = operator.schemas[0]
    where = f"{path} in the checkpoint {checkpoint.url}"
    data = read_checked(checkpoint.store, path)
    try:
        version, rest = _string(data)
        if version not in ("v1", "v2"):
            raise CheckpointRefusedError(
                f"found {where} of version {version[:20]!r}; expected v1 or v2, which Spark 4.3 writes; use a release "
                "of statecore for the Spark that wrote it"
            )
        if version == "v1":
            keys, _ = _string(rest)
        else:
            keys = ""
            (parts,), rest = struct.unpack_from(">i", rest), rest[4:]
            for _ in range(parts):
                part, rest = _string(rest)
                keys += part
        # The last field of a session's key is its start, which does not decide where it lies.
        return len(msgspec.json.decode(keys, type=_Struct).fields) == (operator.name == SESSION_WINDOW)
    except (struct.error, msgspec.MsgspecError) as error:
        raise CheckpointDamagedError(
            f"found {where} that cannot be read ({error}); expected the schema that Spark writes; restore the "
            "checkpoint from a clone or a backup"
        ) from error


def _string(data: bytes) -> tuple[str, bytes]:
    (size,) = struct.unpack_from(">H", data)
    # Characters beyond Unicode's first plane are two in Java's form; no name of a field matters here.
    return data[2 : 2 + size].decode(errors="replace"), data[2 + size :]
