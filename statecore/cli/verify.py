"""``savepoint verify``."""

from __future__ import annotations

import typer

from statecore.cli.options import AsJson, SavepointPath, absolute
from statecore.cli.output import complain, print_json, progress
from statecore.errors import CheckpointError
from statecore.extras import require
from statecore.queries.proving.wholeness import check_whole
from statecore.queries.reading.origin import is_copy
from statecore.snapshot.checkpoints import open_savepoint
from statecore.snapshot.verify import verify


def verify_savepoint(path: SavepointPath, as_json: AsJson = False) -> None:
    """Read every file of a savepoint and compare its size and checksum with the manifest.

    Of a query of Spark's own, all rows of its state are read.
    """
    if is_copy(absolute(path)):
        _verify_copy(absolute(path), as_json)
        return
    store, manifest_path, manifest = open_savepoint(path)
    with progress("checking files") as report:
        problems = verify(store, manifest, progress=report)
    files, size = len(manifest.files()), sum(ref.size for ref in manifest.files())
    if as_json:
        where = store.describe(manifest_path)
        print_json({"path": where, "files": files, "bytes": size, "problems": [str(each) for each in problems]})
    for problem in problems:
        complain(problem)
    if problems:
        raise typer.Exit(1)
    if not as_json:
        print(f"verified: {files:,} files, {size:,} bytes")


def _verify_copy(path: str, as_json: bool) -> None:
    require("pyspark", extra="spark")
    try:
        with progress("reading state") as report:
            checked = check_whole(path, report=report)
    except CheckpointError as problem:
        if as_json:
            print_json({"path": path, "problems": [str(problem)]})
        complain(problem)
        raise typer.Exit(1) from None
    if as_json:
        print_json({**{name: getattr(checked, name) for name in type(checked).__dataclass_fields__}, "problems": []})
    elif checked.rows is not None:
        print(f"verified: {checked.rows:,} rows of state at batch {checked.batch}, {checked.files:,} files")
    else:
        print(f"all {checked.files:,} files are there; state was not read: {checked.unread}")
