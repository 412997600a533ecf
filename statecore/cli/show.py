"""``savepoint show``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from statecore.cli.checkpoint import show_checkpoint
from statecore.cli.options import AsJson, SavepointPath, absolute
from statecore.cli.output import console, facts, print_json, table, utc
from statecore.model import StateKind
from statecore.queries.reading.origin import is_copy
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.snapshot.manifest import Manifest, OperatorState
from statecore.snapshot.published import unpublished_sinks


def show_savepoint(path: SavepointPath, as_json: AsJson = False) -> None:
    """Print the contents of a savepoint or checkpoint."""
    if is_copy(absolute(path)):
        show_checkpoint(path, as_json)
        return
    store, manifest_path, manifest = open_savepoint(path)
    if as_json:
        print_json(_contents(store, manifest_path, manifest))
        return
    screen = console()
    screen.print(_summary(store, manifest))
    for operator in manifest.operators:
        key = ", ".join(f"{field.name} {field.type}" for field in operator.key_fields)
        made = table("subtask", "state", "key groups", "files", "rows", "bytes")
        made.title = escape(f"operator {operator.uid}, key ({key})")
        for share in _shares(operator):
            made.add_row(
                str(share.subtask),
                escape(f"{share.state} ({share.scope} {share.kind} of {share.type})"),
                ", ".join(f"{start}–{end}" for start, end in share.key_groups),
                *(f"{count:,}" for count in (share.files, share.rows, share.bytes)),
            )
        screen.print(made)
    if manifest.sources:
        made = table("source", "elements", "positions")
        made.title = "sources, as operator list state"
        for source in manifest.sources:
            made.add_row(escape(source.name), str(len(source.positions)), escape(", ".join(source.positions)))
        screen.print(made)


@dataclass(frozen=True, slots=True)
class _Share:
    """A subtask's share of a state."""

    subtask: int
    state: str
    scope: str
    kind: StateKind
    type: str
    key_groups: tuple[tuple[int, int], ...]
    files: int
    rows: int
    bytes: int


def _shares(operator: OperatorState) -> Iterator[_Share]:
    for index, subtask in enumerate(operator.subtasks):
        for state in operator.states:
            keyed = [item for item in subtask.keyed if item.state == state.name and state.scope == "keyed"]
            listed = [item for item in subtask.operator if item.state == state.name and state.scope == "operator"]
            yield _Share(
                subtask=index,
                state=state.name,
                scope=state.scope,
                kind=state.kind,
                type=state.type,
                key_groups=tuple(sorted({item.key_groups for item in keyed})),
                files=len(keyed) + len(listed),
                rows=sum(item.rows for item in keyed) + sum(len(item.partitions.offsets) for item in listed),
                bytes=sum(item.file.size for item in keyed) + sum(item.file.size for item in listed),
            )


def _summary(store: CheckpointStore, manifest: Manifest) -> Table:
    made = facts()
    info = manifest.savepoint
    rows = {
        "savepoint": "none, a checkpoint" if info is None else info.name,
        "reason": "" if info is None else info.reason,
        "job": manifest.job,
        "lineage, epoch": f"{manifest.lineage}, {manifest.epoch}",
        "parallelism": f"{manifest.parallelism} of at most {manifest.max_parallelism}",
        "watermark": "none" if manifest.watermark_ms is None else f"{utc(manifest.watermark_ms)} UTC",
        "job file": _artifact(manifest),
        "epoch time": f"{utc(manifest.batch_timestamp_ms)} UTC",
        "rows so far": f"{manifest.rows_total:,}",
        "not published by": ", ".join(unpublished_sinks(store, manifest)) or "no sink",
        "written by": f"{manifest.writer}, generation {manifest.generation}",
        "files": f"{len(manifest.files()):,}, {sum(ref.size for ref in manifest.files()):,} bytes",
    }
    for name, value in rows.items():
        made.add_row(name, escape(value))
    return made


def _contents(store: CheckpointStore, path: str, manifest: Manifest) -> dict[str, Any]:
    """Return the contents for ``savepoint show --json``."""
    return {
        "path": store.describe(path),
        "savepoint": manifest.savepoint,
        "job": manifest.job,
        "lineage": manifest.lineage,
        "epoch": manifest.epoch,
        "generation": manifest.generation,
        "writer": manifest.writer,
        "parallelism": manifest.parallelism,
        "max_parallelism": manifest.max_parallelism,
        "watermark_ms": manifest.watermark_ms,
        "batch_timestamp_ms": manifest.batch_timestamp_ms,
        "rows_total": manifest.rows_total,
        "unpublished": unpublished_sinks(store, manifest),
        "artifact": manifest.artifact,
        "files": len(manifest.files()),
        "bytes": sum(ref.size for ref in manifest.files()),
        "operators": [
            {"uid": operator.uid, "key": operator.key_fields, "states": list(_shares(operator))}
            for operator in manifest.operators
        ],
        "sources": manifest.sources,
    }


def _artifact(manifest: Manifest) -> str:
    return "none" if manifest.artifact is None else f"{manifest.artifact.name}, {manifest.artifact.file.sha256[:12]}"
