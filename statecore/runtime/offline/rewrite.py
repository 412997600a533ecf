"""The rescale method ``rewrite``: a Spark job writes keyed state into new files.

It changes the max parallelism, which moving handles cannot: every key gets a new key group, so all rows are shuffled.
At the same max parallelism, each new subtask compacts the files it would get by reference. The new savepoint has one
base per keyed state and subtask; operator state moves by reference.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from statecore.errors import ConfigurationError
from statecore.model import key_group_range
from statecore.model.key_groups import check_max_parallelism, check_parallelism
from statecore.repeating import Repeating
from statecore.runtime.messages import KEY_GROUP, SUBTASK
from statecore.runtime.offline.compaction import carry_out_all
from statecore.runtime.offline.tables import keyed_rows
from statecore.runtime.placement import place
from statecore.snapshot import keyed_files
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.snapshot.claims import claimed
from statecore.snapshot.cleanup import REWRITTEN
from statecore.snapshot.compaction import whole_bases
from statecore.snapshot.manifest import FileKind, KeyedFile, Manifest, OperatorState, StateSchema
from statecore.snapshot.rescale import rescale_by_reference, rescale_operator_state
from statecore.snapshot.restore import table_schema
from statecore.snapshot.verify import verify_presence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_REPORT_S = 10.0

Report = Callable[[int, int], None]
"""Called with the bytes done, and with those of all."""


_KEYED_FILE = msgspec.json.Decoder(tuple[int, KeyedFile])


def rewrite_savepoint(
    spark: SparkSession,
    path: str | Path,
    *,
    name: str,
    parallelism: int,
    max_parallelism: int | None = None,
    reason: str = "rewritten",
    report: Report | None = None,
) -> str:
    """Rewrite a savepoint's state as a new savepoint in the same store.

    Args:
        spark: A session whose workers reach the store.
        path: Folder or manifest of the savepoint to read.
        name: Name of the savepoint to write.
        parallelism: Number of subtasks of the new savepoint.
        max_parallelism: Number of key groups of the new savepoint; None keeps it.
        reason: Reason recorded in the new savepoint.
        report: Called every ten seconds with the bytes that are written, and with those of the present state: about as
            many are to be written; None to report nothing.

    Returns:
        Path of the new manifest in the store.

    Raises:
        MissingFileError, CorruptFileError: A file of the savepoint is missing or damaged.
        InvalidParallelismError: A parallelism is out of bounds.
        ConfigurationError: The savepoint is self-contained: its folder takes no further files.

    """
    store, manifest_path, manifest = open_savepoint(str(path))
    if manifest.root == ".":
        raise ConfigurationError(
            f"found the self-contained savepoint {store.describe(manifest_path)}; expected one in a job's store, which "
            "takes the new files; start a job from it and rewrite that job's savepoint, or write a new one with "
            "write_savepoint"
        )
    groups = manifest.max_parallelism if max_parallelism is None else max_parallelism
    check_max_parallelism(groups)
    check_parallelism(parallelism, groups)
    with claimed(store.files, manifest_path, f"the rewrite {name}"):
        verify_presence(store, manifest)
        with _reporting(store, manifest, name, report):
            operators = _rewritten_operators(spark, store, manifest, name, parallelism, groups)
        rewritten = msgspec.structs.replace(
            manifest, parallelism=parallelism, max_parallelism=groups, operators=operators, parent=manifest_path
        )
        verify_presence(store, rewritten)
        return store.write_savepoint(rewritten, name, reason=reason, now_ms=int(time.time() * 1000))


def _reporting(
    store: CheckpointStore, manifest: Manifest, name: str, report: Report | None
) -> AbstractContextManager[object]:
    if report is None:
        return nullcontext()
    # What attempts before have left does not count.
    before = _written(store, manifest, name)
    total = manifest.state_bytes
    return Repeating(
        "progress of the rewrite", lambda: report(_written(store, manifest, name) - before, total), _REPORT_S
    )


def _written(store: CheckpointStore, manifest: Manifest, name: str) -> int:
    """Return the bytes of the files that a rewrite has written so far."""
    folders = (f"state/{operator.uid}/{REWRITTEN}{name}" for operator in manifest.operators)
    return sum(entry.size for folder in folders for entry in store.files.list(folder))


def _rewritten_operators(
    spark: SparkSession, store: CheckpointStore, manifest: Manifest, name: str, parallelism: int, groups: int
) -> tuple[OperatorState, ...]:
    """Return the operators with rewritten keyed state, and operator state moved by reference."""
    token, folder = uuid.uuid4().hex, f"{REWRITTEN}{name}"
    if groups == manifest.max_parallelism:
        keyed = _merged(spark, store, rescale_by_reference(manifest, parallelism), token, folder)
    else:
        keyed = _rehashed(spark, store, manifest, token, folder, parallelism, groups)
    moved = rescale_operator_state(manifest, parallelism, groups)
    return tuple(
        msgspec.structs.replace(
            operator,
            subtasks=tuple(
                msgspec.structs.replace(state, keyed=tuple(keyed[operator.uid, subtask]))
                for subtask, state in enumerate(operator.subtasks)
            ),
        )
        for operator in moved.operators
    )


_Files = dict[tuple[str, int], list[KeyedFile]]
"""Files per operator uid and subtask."""


def _merged(spark: SparkSession, store: CheckpointStore, rescaled: Manifest, token: str, folder: str) -> _Files:
    """Compact the files that each subtask gets by reference into one base; key groups stay the same."""
    files: _Files = defaultdict(list)
    for each in carry_out_all(spark, store, whole_bases(rescaled), folder):
        file = msgspec.structs.replace(each.output, token=token)
        files[each.merge.uid, each.merge.subtask].append(file)
    return files


def _rehashed(
    spark: SparkSession,
    store: CheckpointStore,
    manifest: Manifest,
    token: str,
    folder: str,
    parallelism: int,
    groups: int,
) -> _Files:
    """Compute the new key group of every key and write each subtask's keys as bases."""
    files: _Files = defaultdict(list)
    for operator in manifest.operators:
        keys = [field.name for field in operator.key_fields]
        subtasks = operator.own_parallelism or parallelism
        for state in operator.states:
            if state.scope == "keyed":
                rows = keyed_rows(spark, store, manifest, operator, state).drop(keyed_files.KEY_GROUP)
                placed = place(rows, keys, groups, subtasks)
                path = f"state/{operator.uid}/{folder}"
                for subtask, file in write_bases(store, placed, path, token, state, keys, groups, subtasks):
                    files[operator.uid, subtask].append(file)
    return files


def write_bases(
    store: CheckpointStore,
    placed: DataFrame,
    folder: str,
    token: str,
    state: StateSchema,
    keys: Sequence[str],
    max_parallelism: int,
    parallelism: int,
) -> list[tuple[int, KeyedFile]]:
    """Write the rows of one state, partitioned by ``place``, as a base per subtask.

    Returns:
        (subtask, file) for each subtask that has rows.

    """
    columns = [*keys, *(field.name for field in keyed_files.stored_fields(table_schema(state)))]
    writer = base_writer(store.files.url, folder, token, state.name, columns, parallelism, max_parallelism)
    written = placed.sortWithinPartitions(KEY_GROUP, *keys).mapInArrow(writer, "file string").collect()
    return [_KEYED_FILE.decode(row["file"]) for row in written]


def base_writer(
    store_url: str,
    folder: str,
    token: str,
    state: str,
    columns: Sequence[str],
    parallelism: int,
    max_parallelism: int,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a ``mapInArrow`` function that writes one subtask's rows, sorted by key group, as a base."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collected = [batch for batch in batches if batch.num_rows]
        if not collected:
            return
        table = pa.Table.from_batches(collected)
        subtask = table.column(SUBTASK)[0].as_py()
        table = table.rename_columns({KEY_GROUP: keyed_files.KEY_GROUP}).select(columns)
        own = key_group_range(max_parallelism, parallelism, subtask)
        # Unique per attempt: a task that runs twice writes two files, and the manifest names one of them.
        path = f"{folder}/{subtask:05d}-{uuid.uuid4().hex}-{state}.parquet"
        data = keyed_files.encode_base(table)
        file = KeyedFile(
            file=CheckpointStore.at(store_url).write_file(path, data),
            state=state,
            kind=FileKind.BASE,
            token=token,
            key_groups=(own.start, own.end),
            rows=table.num_rows,
            footer=keyed_files.footer_of(data),
        )
        yield pa.RecordBatch.from_pydict({"file": [msgspec.json.encode((subtask, file)).decode()]})

    return write
