"""Payments leave in batches; operator state holds the payments that wait for a full batch.

    python -m examples.buffering_sink

This is the ``BufferingSink`` of Flink's page on operator state. The stream has no keys, so waiting payments belong to
the subtask. A list state holds them, and a rescale splits its elements among the new subtasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import NamedTuple

from rich.console import Console

from statecore import CheckpointedFunction, ListStateDescriptor, ProcessFunction
from statecore.functions import FunctionInitializationContext, FunctionSnapshotContext, ProcessContext
from statecore.testing import HarnessSnapshot, KeyedOperatorHarness

BUFFERED = ListStateDescriptor("buffered", "struct<number:bigint,cents:bigint>")


class Payment(NamedTuple):
    """A record."""

    number: int
    cents: int


Batch = tuple[list[Payment]]
"""A batch in the output: one column, an array."""


class BufferingSink(ProcessFunction, CheckpointedFunction):
    """Collects payments and yields them in batches.

    Args:
        threshold: Payments in a batch.

    """

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._buffered: list[Payment] = []

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Restore the payments that wait in this subtask; there are none in a job's first epoch."""
        self._state = context.operator_state_store.get_list_state(BUFFERED)
        self._buffered = [Payment(*payment) for payment in self._state.get()]

    def process_element(self, value: Payment, ctx: ProcessContext) -> Iterator[Batch]:
        """Add a payment, and yield the batches that are full."""
        self._buffered.append(value)
        # There may be several after a rescale has merged the buffers of several subtasks.
        while len(self._buffered) >= self._threshold:
            yield (self._buffered[: self._threshold],)
            del self._buffered[: self._threshold]

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Save the payments that still wait."""
        self._state.update(self._buffered)


class Buffers:
    """All subtasks of ``BufferingSink``, side by side; they get the payments in turn.

    Args:
        threshold: Payments in a batch.
        parallelism: Number of subtasks.
        restore_from: Snapshots of the previous subtasks, at any parallelism.

    """

    def __init__(self, threshold: int, parallelism: int, restore_from: Sequence[HarnessSnapshot] = ()) -> None:
        self._threshold = threshold
        self.subtasks = [
            KeyedOperatorHarness(
                BufferingSink(threshold),
                key=None,
                parallelism=parallelism,
                subtask=subtask,
                restore_from=restore_from,
            )
            for subtask in range(parallelism)
        ]
        self._next = cycle(self.subtasks)

    def process(self, payments: Sequence[Payment]) -> None:
        """Distribute payments among the subtasks."""
        for payment in payments:
            next(self._next).process(payment)

    def batches(self) -> list[list[Payment]]:
        """Return the full batches so far."""
        return [batch for subtask in self.subtasks for (batch,) in subtask.output]

    def waiting(self) -> list[list[Payment]]:
        """Return the payments that wait in each subtask."""
        return [
            [Payment(*payment) for payment in taken.operator[BUFFERED.name].elements] for taken in self._snapshots()
        ]

    def rescaled(self, parallelism: int) -> Buffers:
        """Return subtasks at another parallelism that continue with this state."""
        return Buffers(self._threshold, parallelism, self._snapshots())

    def _snapshots(self) -> list[HarnessSnapshot]:
        return [subtask.snapshot() for subtask in self.subtasks]


def main() -> None:
    """Process 23 payments in batches of four, at two, three and one subtasks."""
    console = Console(highlight=False, soft_wrap=True)
    payments = [Payment(number, 100 * number) for number in range(1, 24)]
    buffers = Buffers(threshold=4, parallelism=2)
    for parallelism, some in [(2, payments[:13]), (3, payments[13:17]), (1, payments[17:])]:
        if len(buffers.subtasks) != parallelism:
            buffers = buffers.rescaled(parallelism)
            console.print(f"rescale to {parallelism}: waiting payments are redistributed")
            _print_waiting(console, buffers)
        buffers.process(some)
        console.print(f"payments {some[0].number} to {some[-1].number} at parallelism {parallelism}")
        for batch in buffers.batches():
            console.print(f"  batch of {len(batch)}: {_numbers(batch)}")
        _print_waiting(console, buffers)


def _print_waiting(console: Console, buffers: Buffers) -> None:
    for subtask, waiting in enumerate(buffers.waiting()):
        console.print(f"  subtask {subtask} holds {_numbers(waiting) or 'nothing'}")


def _numbers(payments: Sequence[Payment]) -> str:
    return " ".join(str(payment.number) for payment in payments)


if __name__ == "__main__":
    main()
