"""Which epochs a job's sinks have published, by the markers in its store.

::

    _published/<sink>/<lineage>-<epoch>      of the newest epoch alone, because epochs are published in order
"""

from __future__ import annotations

import re

from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest
from statecore.storage import FileStore

MARKERS = "_published"
"""Folder of the markers of a job's sinks, one folder for each sink."""

_NAME = re.compile(r"(\d+)-(\d+)")


def marked_epochs(files: FileStore, folder: str) -> list[tuple[int, int]]:
    """Return the (lineage, epoch) of each marker in a folder, oldest first."""
    names = (entry.path.removeprefix(f"{folder}/") for entry in files.list(folder))
    return sorted((int(match[1]), int(match[2])) for match in map(_NAME.fullmatch, names) if match)


def unpublished_sinks(store: CheckpointStore, manifest: Manifest) -> list[str]:
    """Return the sinks that have not published their rows of an epoch.

    A copy has no markers; it names the outputs that were not published when it was made.
    """
    epoch = (manifest.lineage, manifest.epoch)
    return sorted(
        sink
        for sink in {output.sink for output in manifest.outputs}
        if not any(marked >= epoch for marked in marked_epochs(store.files, f"{MARKERS}/{sink}"))
    )
