"""``savepoint drop``."""

from __future__ import annotations

from statecore.catalog import Catalog
from statecore.cli.options import AsJson, OptionalCatalogUrl, SavepointPath, absolute
from statecore.cli.output import print_json, progress
from statecore.errors import MissingFileError
from statecore.queries.job import dropping
from statecore.queries.reading.origin import is_copy
from statecore.snapshot import savepoints
from statecore.snapshot.checkpoints import MANIFEST, open_savepoint


def drop_savepoint(path: SavepointPath, catalog: OptionalCatalogUrl = None, as_json: AsJson = False) -> None:
    """Remove a savepoint and the files that only it needs; the job need not run."""
    if is_copy(absolute(path)):
        _drop_copy(absolute(path), catalog, as_json)
        return
    try:
        store, manifest_path, _ = open_savepoint(path)
    except MissingFileError:
        # The folder was removed by hand, or an earlier drop was cut off here.
        if not _forget(catalog, path):
            raise
        if as_json:
            print_json({"path": path, "bytes": 0})
        else:
            print(f"{path} was already gone; removed it from the catalog")
        return
    where = store.describe(manifest_path)
    with progress("removing files") as report:
        freed = savepoints.drop_savepoint(store, manifest_path, progress=report)
    _forget(catalog, path, where)
    if as_json:
        print_json({"path": where, "bytes": freed})
    else:
        print(f"dropped {where}: {freed:,} bytes freed")


def _drop_copy(url: str, catalog: str | None, as_json: bool) -> None:
    """Remove a savepoint of a query of Spark's own."""
    if catalog is not None:
        with Catalog(catalog) as opened:
            dropping.require_unused(opened, url)
    with progress("removing files") as report:
        freed = dropping.drop_savepoint(url, progress=report)
    _forget(catalog, url)
    if as_json:
        print_json({"path": url, "bytes": freed})
    else:
        print(f"dropped {url}: {freed:,} bytes, less what other checkpoints have links to")


def _forget(catalog: str | None, *paths: str) -> bool:
    """Remove a savepoint from the catalog under any of its paths; return whether the catalog had it."""
    if catalog is None:
        return False
    folders = {absolute(path).rstrip("/").removesuffix(f"/{MANIFEST}") for path in paths}
    with Catalog(catalog) as opened:
        return opened.savepoints.forget(*folders, *(f"{folder}/{MANIFEST}" for folder in folders))
