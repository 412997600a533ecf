"""A job's store and staged epochs for the sinks, without a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from statecore import OutputTag
from statecore.runtime import Sink, StagedEpoch
from statecore.runtime.epoch.publishing import publish, staged_sinks
from statecore.runtime.job import SinkBinding
from statecore.runtime.worker.outputs import Outputs
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest, StagedOutput
from tests.support.handmade import manifest

SCHEMA = "n int, k string"


@dataclass
class Epochs:
    """Stages rows as workers do, and publishes them as drivers do."""

    store: CheckpointStore
    spark: Any = None
    job: str = "orders"
    tokens: int = field(default=0)

    def staged(
        self, sink: Sink, rows: Sequence[Sequence[Any]], lineage: int = 1, epoch: int = 5, *,
        name: str = "seen", schema: str = SCHEMA,
    ) -> list[StagedOutput]:  # fmt: skip
        """Stage the rows of one attempt of one subtask."""
        self.tokens += 1
        outputs = Outputs(staged_sinks([SinkBinding(name, "", schema, sink)], self.store))
        for row in rows:
            outputs.emit_all([tuple(row)])
            outputs.emit(OutputTag("elsewhere", schema), tuple(row))
        return list(outputs.stage(f"{lineage}-{epoch}", f"00000-t{self.tokens}"))

    def committed(self, outputs: Sequence[StagedOutput], lineage: int = 1, epoch: int = 5) -> Manifest:
        return manifest(job=self.job, lineage=lineage, epoch=epoch, outputs=tuple(outputs))

    def of(self, sink: Sink, epoch: Manifest) -> StagedEpoch:
        """Return a committed epoch as the sink ``seen`` gets it."""
        return StagedEpoch(
            job=epoch.job, sink="seen", lineage=epoch.lineage, epoch=epoch.epoch, schema=SCHEMA,
            store=sink.staging(self.store.files), outputs=epoch.outputs, spark=self.spark,
        )  # fmt: skip

    def publish(self, sink: Sink, epoch: Manifest, *, name: str = "seen", schema: str = SCHEMA) -> None:
        publish([SinkBinding(name, "", schema, sink)], epoch, self.store, self.spark)

    def run(self, sink: Sink, rows: Sequence[Sequence[Any]], lineage: int = 1, epoch: int = 5, **how: Any) -> Manifest:
        """Stage, commit and publish."""
        committed = self.committed(self.staged(sink, rows, lineage, epoch, **how), lineage, epoch)
        self.publish(sink, committed, **how)
        return committed

    def forget(self) -> None:
        """Remove the job's markers, as after a driver that was killed before it wrote them."""
        for entry in self.store.files.list("_published"):
            self.store.files.delete(entry.path)


@pytest.fixture
def epochs(tmp_path: Path) -> Epochs:
    return Epochs(CheckpointStore.at(str(tmp_path / "store")))


class Calls:
    """A function that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Counter[tuple[Any, ...]], int, int]] = []
        self.failures = 0

    def __call__(self, dataframe: Any, lineage: int, epoch: int) -> None:
        self.calls.append((Counter(map(tuple, dataframe.collect())), lineage, epoch))
        if self.failures:
            self.failures -= 1
            raise ValueError("the far side is down")
