"""A sink that calls a user's function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from statecore.arguments import require_callable
from statecore.errors import SinkError
from statecore.runtime.sinks.base import StagedEpoch
from statecore.storage import FileStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class FunctionSink:
    """Calls a function on the driver with the rows of each committed epoch that has rows.

    A marker below ``_published/<sink>/`` in the job's store records each finished call. When a driver dies between
    the call and the marker, its successor calls the function again with the same rows: make it idempotent by
    (lineage, epoch). The DataFrame is lazy and valid only during the call.

    Args:
        f: ``f(dataframe, lineage, epoch)``. When it raises, the driver stops; the epoch stays committed and is
            published after the restart.

    Raises:
        JobDefinitionError: It is no function.

    """

    def __init__(self, f: Callable[[DataFrame, int, int], object]) -> None:
        require_callable("f", f, "a function f(dataframe, lineage, epoch)")
        self._function = f

    def staging(self, job_store: FileStore) -> FileStore:
        """Return the job's own store."""
        return job_store

    def publish(self, staged: StagedEpoch) -> None:
        """Call the function.

        Raises:
            SinkError: The function raised.

        """
        try:
            self._function(staged.dataframe(), staged.lineage, staged.epoch)
        except Exception as error:
            raise SinkError(
                f"found {type(error).__name__} in the function of sink {staged.sink!r} at epoch {staged.epoch} of "
                f"lineage {staged.lineage}: {error}; expected the function to return; fix the function or the system "
                "it writes to, and restart the job: the epoch stays committed and is published then"
            ) from error
