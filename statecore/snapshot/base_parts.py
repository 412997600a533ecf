"""Reads and checks only the parts of a base that some key groups need.

::

    manifest ── SHA-256 of ──► footer ── SHA-256 of ──► each row group

After a rescale several subtasks take different key groups from one large file. Each reads the footer, which says where
the row groups are and which key groups they hold, and then its own row groups. Rows are sorted by key group, so these
lie side by side, and one request fetches them.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from statecore.model import KeyGroupRange
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import row_group_parts, row_groups_within
from statecore.snapshot.manifest import FilePart, KeyedFile

# Below this size, a second request takes longer than the bytes that it could save.
_WHOLE_BYTES = 1024 * 1024


def read_keyed(store: CheckpointStore, item: KeyedFile, key_groups: KeyGroupRange) -> pa.Buffer:
    """Return a file of keyed state; of a large base only footer and these key groups, with zeros in between.

    Raises:
        MissingFileError: The file does not exist.
        CorruptFileError: A part does not have the checksum in the manifest, or in the footer.

    """
    if item.footer is None or item.file.size <= _WHOLE_BYTES:
        return pa.py_buffer(store.read_file(item.file))
    # Pages that nothing was written to take no memory, so this is as large as what is read.
    held = mmap.mmap(-1, item.file.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    footer = item.footer
    held[footer.start : footer.start + footer.size] = store.read_parts(item.file.path, [footer])
    for parts in _adjacent(_needed(held, key_groups)):
        data = store.read_parts(item.file.path, parts)
        held[parts[0].start : parts[0].start + len(data)] = data
    return pa.py_buffer(held)


def _needed(held: mmap.mmap, key_groups: KeyGroupRange) -> list[FilePart]:
    with pq.ParquetFile(pa.BufferReader(pa.py_buffer(held))) as file:
        parts = row_group_parts(file.metadata)
        return [parts[index] for index in row_groups_within(file, key_groups)]


def _adjacent(parts: Sequence[FilePart]) -> Iterator[list[FilePart]]:
    """Yield runs of parts that follow each other without a gap."""
    ends = [index for index, (one, other) in enumerate(pairwise(parts), 1) if one.start + one.size != other.start]
    for start, end in pairwise([0, *ends, len(parts)]):
        if start < end:
            yield list(parts[start:end])
