"""Benchmark of what subtasks are told of a manifest, and of what they read of files after a rescale; one core.

python -m benchmarks.restore_reads
"""

from __future__ import annotations

import pickle
import secrets
import tempfile
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import pyarrow as pa

from statecore.model import KeyGroupRange, StateKind, key_group_range
from statecore.runtime.epoch.operator import subtask_specs
from statecore.runtime.messages import SUBTASK_DECODER
from statecore.snapshot.base_parts import read_keyed
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import encode_base, footer_of
from statecore.snapshot.manifest import (
    FieldRef,
    FileKind,
    FileRef,
    KeyedFile,
    Manifest,
    OperatorState,
    StateSchema,
    SubtaskState,
    decode_manifest,
    decode_subtask,
    encode_manifest,
    subtask_parts,
)
from statecore.snapshot.rescale import rescale_by_reference
from statecore.storage import LocalFileStore

SUBTASKS, STATES, FILES, NEW_SUBTASKS = 200, 3, 24, 240
KEY_GROUPS = 1024
KEYS = 4_000_000
RUNS = 5
UID = "orders"


def main() -> None:
    """Print the figures."""
    _told()
    _read()


def _told() -> None:
    manifest = _manifest()
    (operator,) = manifest.operators
    data = encode_manifest(manifest)
    print(f"{SUBTASKS} subtasks, {STATES} states, {FILES} files of each: a manifest of {len(data):,} bytes")
    _print("decode the whole manifest", lambda: decode_manifest(data, "it"))
    parts = subtask_parts(data)[UID]
    told = subtask_specs(operator, SUBTASKS, KEY_GROUPS, parts)
    print(f"an epoch: a message of {len(pickle.dumps(told)):,} bytes to every task")
    _print("  driver, find the parts of the manifest", lambda: subtask_parts(data))
    _print("  driver, make the message", lambda: subtask_specs(operator, SUBTASKS, KEY_GROUPS, parts))
    _print("  subtask with state in memory", lambda: SUBTASK_DECODER.decode(told[7]))
    part = data[parts[7].start : parts[7].start + parts[7].size]
    print(f"  subtask without: reads {len(part):,} bytes of the manifest")
    _print("  subtask without: decode them", lambda: decode_subtask(part))
    (rescaled,) = rescale_by_reference(manifest, NEW_SUBTASKS).operators
    told_files = subtask_specs(rescaled, NEW_SUBTASKS, KEY_GROUPS)
    print(f"a restore at parallelism {NEW_SUBTASKS}: a message of {len(pickle.dumps(told_files)):,} bytes")
    _print("  driver, redistribute", lambda: rescale_by_reference(manifest, NEW_SUBTASKS))
    _print("  driver, make the message", lambda: subtask_specs(rescaled, NEW_SUBTASKS, KEY_GROUPS))
    _print("  subtask", lambda: SUBTASK_DECODER.decode(told_files[7]))


def _manifest() -> Manifest:
    names = [f"state_{index}" for index in range(STATES)]
    subtasks = []
    for index in range(SUBTASKS):
        own = key_group_range(KEY_GROUPS, SUBTASKS, index)
        tokens = [(epoch, secrets.token_hex(16)) for epoch in range(FILES)]
        files = tuple(
            KeyedFile(
                file=FileRef(
                    path=f"state/{UID}/000001-{epoch:012d}/{index:05d}-{token}-{name}.arrow",
                    size=1_000_000,
                    sha256=secrets.token_hex(32),
                ),
                state=name,
                kind=FileKind.CHANGELOG,
                token=token,
                key_groups=(own.start, own.end),
                rows=1_000,
            )
            for epoch, token in tokens
            for name in names
        )
        subtasks.append(SubtaskState(keyed=files, operator_token=secrets.token_hex(16)))
    operator = OperatorState(
        uid=UID,
        key_fields=(FieldRef(name="k", type="string"),),
        states=tuple(StateSchema(name=name, scope="keyed", kind=StateKind.VALUE, type="bigint") for name in names),
        subtasks=tuple(subtasks),
    )
    return _of(operator, SUBTASKS)


def _of(operator: OperatorState, parallelism: int) -> Manifest:
    return Manifest(
        writer="benchmark",
        job="benchmark",
        lineage=1,
        epoch=1,
        generation=1,
        root="..",
        parent=None,
        parallelism=parallelism,
        max_parallelism=KEY_GROUPS,
        batch_timestamp_ms=0,
        committed_ms=0,
        rows=0,
        rows_total=0,
        operators=(operator,),
        outputs=(),
        progress=(),
    )


class _Counting(LocalFileStore):
    """A store that counts requests for files and the bytes that they return."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.requests = self.bytes = 0

    def read(self, path: str) -> bytes:
        return self._counted(super().read(path))

    def read_range(self, path: str, start: int, size: int) -> bytes:
        return self._counted(super().read_range(path, start, size))

    def _counted(self, data: bytes) -> bytes:
        self.requests += 1
        self.bytes += len(data)
        return data


def _read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        counting = _Counting(folder)
        store = CheckpointStore(counting)
        subtasks = tuple(SubtaskState(keyed=(_base(store, index),)) for index in range(2))
        operator = OperatorState(uid=UID, key_fields=(), states=(), subtasks=subtasks)
        size = sum(each.keyed[0].file.size for each in subtasks)
        print(f"2 bases of {KEYS // 2:,} keys, {size:,} bytes")
        for parallelism in (2, 3, 8):
            (rescaled,) = rescale_by_reference(_of(operator, 2), parallelism).operators
            items = [item for each in rescaled.subtasks for item in each.keyed]
            counting.requests = counting.bytes = 0
            started = time.perf_counter()
            for item in items:
                read_keyed(store, item, KeyGroupRange(*item.key_groups))
            took = time.perf_counter() - started
            whole = sum(item.file.size for item in items)
            print(f"  2 to {parallelism}: {counting.requests} requests, {counting.bytes:,} bytes, {took * 1000:.0f} ms")
            print(f"          whole files: {len(items)} requests, {whole:,} bytes")


def _base(store: CheckpointStore, index: int) -> KeyedFile:
    own = key_group_range(KEY_GROUPS, 2, index)
    count = KEYS // 2
    chance = np.random.default_rng(index)
    groups = np.sort(chance.integers(own.start, own.end + 1, count)).astype(np.int32)
    keys = pa.array([f"customer-{number:08d}" for number in chance.permutation(count)])
    columns = {"k": keys, "_key_group": pa.array(groups), "_value": pa.array(chance.integers(0, 1_000_000, count))}
    data = encode_base(pa.table(columns))
    return KeyedFile(
        file=store.write_file(f"base-{index}", data),
        state="total",
        kind=FileKind.BASE,
        token="t",  # noqa: S106
        key_groups=(own.start, own.end),
        rows=count,
        footer=footer_of(data),
    )


def _print(what: str, run: Callable[[], object]) -> None:
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    print(f"{what:45} {median(seconds) * 1000:9.2f} ms")


if __name__ == "__main__":
    main()
