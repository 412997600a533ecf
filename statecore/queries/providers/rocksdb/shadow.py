"""Presents a checkpoint with a commit log of the version that ``StateRewriter`` requires.

``StateRewriter`` refuses a commit whose version is not the state checkpoint format (4.3.0). A query with named sinks
writes version 3, with either format.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from statecore.queries.reading.checkpoint import COMMITS
from statecore.queries.reading.files import local_path
from statecore.queries.reading.logs import CommitLog
from statecore.storage.workspaces import workspace

if TYPE_CHECKING:
    from statecore.queries.reading.checkpoint import SparkCheckpoint

_FIELDS = ("nextBatchWatermarkMs", "stateUniqueIds")


@contextmanager
def readable(checkpoint: SparkCheckpoint) -> Iterator[str]:
    """Yield the URL of a checkpoint that ``StateRewriter`` reads: this one, or one that links to it.

    Raises:
        ConfigurationError: The checkpoint needs links, and is not on this machine.

    """
    commit, version = checkpoint.commit, checkpoint.checkpoint_format
    if commit.version == version:
        yield checkpoint.url
        return
    root = local_path(checkpoint.url)
    with workspace("rewrite") as folder:
        for path in root.iterdir():
            if path.name != COMMITS:
                (folder / path.name).symlink_to(path)
        (folder / COMMITS).mkdir()
        body = {key: value for key, value in commit.body.items() if key in _FIELDS}
        (folder / COMMITS / str(checkpoint.batch)).write_bytes(CommitLog(version, body).encode())
        yield str(folder)
