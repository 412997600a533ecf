"""Loads state on the executors that will need it, while epochs continue.

The loaded state is an ordinary cache: later epochs are applied from their changelogs, and state that does not fit is
loaded again. It is therefore safe if Spark runs this on another executor than intended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from statecore.runtime.messages import ANCHOR, EpochSpec, OperatorSpec
from statecore.runtime.worker.cache import SubtaskStateLoader
from statecore.runtime.worker.subtask import EpochClock

if TYPE_CHECKING:
    from statecore.runtime.epoch.anchor import Anchor

log = logging.getLogger(__name__)

_GROUPS = "key_groups"


def load_ahead(anchor: Anchor, subtasks: Sequence[int], spec: OperatorSpec, epoch: EpochSpec) -> None:
    """Load the keyed state of some subtasks on the executors of their slots.

    Args:
        anchor: The new layout.
        subtasks: The subtasks to load.
        spec: The operator.
        epoch: The manifest to load from, at the new parallelism.

    """
    wanted = anchor.rows().where(F.col(ANCHOR).isin(list(subtasks)))
    rows = wanted.mapInArrow(_loader(spec, epoch), f"{_GROUPS} int").collect()
    held = sum(row[_GROUPS] for row in rows)
    log.info("state of subtasks %s of %r is in memory; %d key groups already were", list(subtasks), spec.uid, held)


def _loader(spec: OperatorSpec, epoch: EpochSpec) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            held = []
            for subtask in batch.column(ANCHOR).to_pylist():
                loader = SubtaskStateLoader(spec, epoch, subtask, EpochClock(epoch.now_ms))
                loader.keep_keyed(loader.keyed())
                held.append(loader.cached_key_groups)
            yield pa.RecordBatch.from_pydict({_GROUPS: pa.array(held, pa.int32())})

    return run
