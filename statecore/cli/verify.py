"""``savepoint verify``."""

from __future__ import annotations

import typer

from statecore.cli.options import AsJson, SavepointPath
from statecore.cli.output import complain, print_json, progress
from statecore.snapshot.checkpoints import open_savepoint
from statecore.snapshot.verify import verify


def verify_savepoint(path: SavepointPath, as_json: AsJson = False) -> None:
    """Read every file of a savepoint and compare its size and checksum with the manifest."""
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
