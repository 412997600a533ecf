"""The files of a sink's folder, listed while its driver publishes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def published_files(folder: Path) -> Iterator[Path]:
    """Yield the Parquet files below a folder, as an engine lists them: it skips names that begin with ``_``.

    A walk into ``_staged`` would meet folders that the driver removes at that moment, and fail.
    """
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith("_")]
        yield from (Path(root, name) for name in files if name.endswith(".parquet"))
