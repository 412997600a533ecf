"""The mark in ``metadata`` of a checkpoint that is being replaced; without an id, Spark does not start from it."""

from __future__ import annotations

from typing import Literal

import msgspec

from statecore.errors import CheckpointRefusedError, MissingFileError
from statecore.storage import FileStore

_METADATA = "metadata"


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A replacement under way.

    Attributes:
        statecore: What is going on, for people.
        phase: Whether the old files are on their way out, or the new ones on their way in.
        token: The attempt.

    """

    statecore: str
    phase: Literal["leaving", "arriving"]
    token: str


def mark_of(store: FileStore) -> Mark | None:
    """Return the mark of a checkpoint; None without one."""
    try:
        return msgspec.json.decode(store.read(_METADATA), type=Mark)
    except (MissingFileError, msgspec.DecodeError):
        return None


def refuse_replaced(store: FileStore) -> None:
    """Refuse a checkpoint that is being replaced.

    Raises:
        CheckpointRefusedError: It is.

    """
    if mark_of(store) is not None:
        raise CheckpointRefusedError(
            f"found a replacement of {store.url} that is not complete; expected a checkpoint; wait for the program "
            "that uses with_partitions, or run it again if it was killed: it completes the replacement"
        )
