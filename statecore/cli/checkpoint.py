"""``checkpoint show``, ``clone``, ``rescale`` and ``verify``: checkpoints of queries of Spark's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from statecore.cli.options import AsJson, absolute
from statecore.cli.output import NOTHING, console, facts, print_json, progress, table, utc
from statecore.extras import require

if TYPE_CHECKING:
    from statecore.queries.proving.proof import Proof
    from statecore.queries.show import ShownCheckpoint, ShownOperator

CheckpointPath = Annotated[
    str, typer.Argument(metavar="PATH", help="The query's checkpointLocation: a folder or s3://bucket/prefix.")
]
Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="Where the copy appears: a new folder or s3://bucket/prefix.")
]
Copy = Annotated[str, typer.Argument(metavar="TARGET", help="The copy to prove: a folder or s3://bucket/prefix.")]
QueryFile = Annotated[
    str | None,
    typer.Option(
        "--query", help="Python file that defines build(spark, settings), for a trial restart. Default: no trial."
    ),
]


def show_checkpoint(path: CheckpointPath, as_json: AsJson = False) -> None:
    """Print what a checkpoint of a Spark query holds: operators, state, rows and skew, batch, sources."""
    from statecore.queries.reading.checkpoint import open_checkpoint
    from statecore.queries.show import show

    with progress("counting rows") as report:
        shown = show(open_checkpoint(absolute(path)), report)
    if as_json:
        print_json(_contents(shown))
        return
    screen = console()
    screen.print(_summary(shown))
    for operator in shown.operators:
        # Not as the table's title, which is folded to the width of the table.
        screen.print(escape(f"operator {operator.number}: {', '.join(_properties(operator))}"))
        if operator.partitions:
            screen.print(_partitions(operator))
    if shown.sources:
        made = table("source", "newest committed offset")
        for source in shown.sources:
            made.add_row(escape(source.kind), escape(source.offset or NOTHING))
        screen.print(made)


def clone_checkpoint(path: CheckpointPath, target: Target, as_json: AsJson = False) -> None:
    """Copy a checkpoint at its newest committed batch: hard links on one file system, server-side copies in S3.

    Stop the query first. A running query is only noticed if it logs or commits a batch in the meantime.
    """
    from statecore.queries.copying.clone import clone
    from statecore.queries.reading.checkpoint import open_checkpoint

    with progress("copying files") as report:
        made = clone(open_checkpoint(absolute(path)), absolute(target), report)
    if as_json:
        print_json(made)
        return
    links = f", {made.linked:,} of them hard links" if made.linked else ""
    print(f"cloned {made.path} at batch {made.batch}: {made.files:,} files, {decimal(made.bytes)}{links}")
    print(made.target)


def rescale_checkpoint(
    path: CheckpointPath,
    target: Target,
    partitions: Annotated[int, typer.Option(min=1, help="Number of state partitions of the copy; required.")],
    query: QueryFile = None,
    as_json: AsJson = False,
) -> None:
    """Copy a checkpoint to another number of state partitions, and prove that the copy is right.

    Stop the query first. A running query is only noticed if it logs or commits a batch in the meantime. PATH is only
    read. A copy that cannot be proven is removed.
    """
    require("pyspark", extra="spark")
    # Imported on demand: PySpark is slow to import.
    from statecore.queries.rescale import rescale

    with progress("moving state") as report:
        made = rescale(absolute(path), absolute(target), partitions, query, report=report)
    if as_json:
        changed = {"partitions_before": made.partitions_before, "partitions_after": made.partitions_after}
        print_json({"path": made.path, "target": made.target, "pending": made.pending, **changed, **_proof(made.proof)})
        return
    print(f"rescaled {made.path} from {made.partitions_before} to {made.partitions_after} state partitions")
    _print_proof(made.proof)
    if made.pending is not None:
        print(f"batch {made.pending} is logged and not committed: the query repeats it first, with the same rows")
    print(made.target)


def verify_checkpoint(path: CheckpointPath, target: Copy, query: QueryFile = None, as_json: AsJson = False) -> None:
    """Prove that a copy has the same state as a checkpoint, and each row where Spark looks for it."""
    require("pyspark", extra="spark")
    from statecore.queries.proving.verify import verify

    with progress("comparing state") as report:
        proof = verify(absolute(path), absolute(target), query, report=report)
    if as_json:
        print_json({"path": absolute(path), "target": absolute(target), **_proof(proof)})
        return
    _print_proof(proof)


def _print_proof(proof: Proof) -> None:
    stores = f"{len(proof.stores)} state store{'s' * (len(proof.stores) > 1)}"
    print(f"proven: {proof.rows:,} rows of {stores} are the same at batch {proof.batch}")
    print("restart tried: the query loads its state" if proof.restart else "restart not tried; --query FILE tries it")


def _proof(proof: Proof) -> dict[str, Any]:
    return {
        "batch": proof.batch,
        "rows": proof.rows,
        "restart": "tried" if proof.restart else "not tried",
        "stores": [
            {"operator": each.store.operator, "store": each.store.name, "rows": each.rows} for each in proof.stores
        ],
    }


def _summary(shown: ShownCheckpoint) -> Table:
    made = facts()
    pending = "" if shown.pending is None else f"; batch {shown.pending} is logged and not committed"
    rows = {
        "checkpoint": shown.path,
        "query": shown.query_id,
        "batch": f"{shown.batch}{pending}",
        "watermark": f"{utc(shown.watermark_ms)} UTC" if shown.watermark_ms else "none",
        "provider": f"{shown.provider}, state checkpoint format {shown.checkpoint_format}",
        "state partitions": f"{shown.partitions:,}",
        "files": f"{shown.files:,}, {decimal(shown.bytes)}",
        "copy of": _origin(shown),
        "rescale": "covered" if shown.refusal is None else f"refused: {shown.refusal}",
    }
    for name, value in rows.items():
        if value:
            made.add_row(name, escape(value))
    return made


def _origin(shown: ShownCheckpoint) -> str:
    origin = shown.origin
    if origin is None:
        return ""
    change = "" if origin.action == "clone" else f", {origin.partitions_before} to {origin.partitions_after} partitions"
    return f"{origin.path} at batch {origin.batch}{change}, {utc(origin.time_ms)} UTC"


def _partitions(operator: ShownOperator) -> Table:
    made = table("partition", "rows", "of the average", "bytes")
    known = [rows for rows in operator.rows if rows is not None]
    mean = sum(known) / len(known) if known and len(known) == len(operator.rows) else 0
    for partition, (rows, size) in enumerate(zip(operator.rows, operator.bytes, strict=True)):
        share = NOTHING if rows is None or not mean else f"{rows / mean:.0%}"
        made.add_row(str(partition), NOTHING if rows is None else f"{rows:,}", share, f"{size:,}")
    return made


def _properties(operator: ShownOperator) -> Iterator[str]:
    yield operator.kind
    if operator.state_format is not None:
        yield f"state format {operator.state_format}"
    if len(operator.stores) > 1:
        yield f"{len(operator.stores)} stores"
    if operator.partitions:
        yield f"{operator.partitions} partitions"
        yield f"{sum(operator.bytes):,} bytes"
    if operator.skew is not None:
        yield f"largest partition {operator.skew:.2f} of the average"


def _contents(shown: ShownCheckpoint) -> dict[str, Any]:
    """Return a checkpoint for ``checkpoint show --json``; what is computed from other fields is there, too."""
    fields = {name: getattr(shown, name) for name in type(shown).__dataclass_fields__}
    operators = [
        {**{name: getattr(each, name) for name in type(each).__dataclass_fields__}, "skew": each.skew}
        for each in shown.operators
    ]
    return {**fields, "operators": operators}
