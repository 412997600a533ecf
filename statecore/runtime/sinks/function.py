"""A sink that is a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from statecore.errors import SinkError
from statecore.runtime.sinks.base import StagedEpoch
from statecore.storage import FileStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class FunctionSink:
    """Calls a function, on the driver, with the rows of each committed epoch that has some.

    A marker below ``_published/<sink>/`` in the job's store remembers what was done. A driver that dies after the
    function and before the marker leaves it to its successor to call the function again, with the same rows: the
    function must do nothing the second time, which it can tell by (lineage, epoch). The DataFrame is lazy and good for
    the time of the call.

    Args:
        f: ``f(dataframe, lineage, epoch)``. When it raises, the driver stops; the epoch stays committed, and is
            published when the job is back.

    """

    def __init__(self, f: Callable[[DataFrame, int, int], object]) -> None:
        self._function = f

    def staging(self, job_store: FileStore) -> FileStore:
        """Return the job's own store."""
        return job_store

    def publish(self, staged: StagedEpoch) -> None:
        """Call the function.

        Raises:
            SinkError: It raised.

        """
        try:
            self._function(staged.dataframe(), staged.lineage, staged.epoch)
        except Exception as error:
            raise SinkError(
                f"found {type(error).__name__} in the function of sink {staged.sink!r} at epoch {staged.epoch} of "
                f"lineage {staged.lineage}: {error}; expected it to return; the epoch stays committed: mend the "
                "function or what it needs, and it is called again when the job is back"
            ) from error
