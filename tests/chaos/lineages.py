"""The tree of lineages that a job's roll-backs make, as those who asked for them know it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from statecore.snapshot.manifest import Manifest


class ForkError(Exception):
    """A lineage was opened, or continued, that nobody asked for; the message says which."""


@dataclass(frozen=True, slots=True)
class RollBack:
    """A start from a savepoint that leaves newer epochs behind.

    Attributes:
        lineage: That of the savepoint.
        epoch: The epoch of the savepoint: the new lineage follows on it.

    """

    lineage: int
    epoch: int


class Lineages:
    """Manifests by lineage, and what each lineage follows on.

    Attributes:
        pending: The roll-back that is asked for, and not taken up by an epoch yet.
        unpublished: Epochs that a roll-back left behind before they were published: they may stay so.

    """

    def __init__(self) -> None:
        self._epochs: dict[int, dict[int, Manifest]] = {}
        self._follows: dict[int, RollBack | None] = {}
        self.pending: RollBack | None = None
        self.unpublished: set[tuple[int, int]] = set()

    @property
    def newest(self) -> Manifest | None:
        """The newest epoch of the newest lineage; None while a roll-back is pending, and before the first."""
        if self.pending is not None or not self._epochs:
            return None
        own = self._epochs[max(self._epochs)]
        return own[max(own)]

    @property
    def head(self) -> int:
        """The epoch that the next one follows on; -1 before the first."""
        if self.pending is not None:
            return self.pending.epoch
        return -1 if self.newest is None else self.newest.epoch

    @property
    def numbers(self) -> list[int]:
        """All lineages; numbers may be missing, because they come from generations."""
        return sorted(self._epochs)

    def roll_back(self, to: RollBack, *, published: bool) -> None:
        """Note that a roll-back is asked for, and whether the newest epoch is published."""
        if self.newest is not None and not published:
            self.unpublished.add((self.newest.lineage, self.newest.epoch))
        self.pending = to

    def has(self, lineage: int, epoch: int) -> bool:
        """Return whether an epoch is known."""
        return epoch in self._epochs.get(lineage, ())

    def add(self, found: Iterable[Manifest]) -> None:
        """Note epochs that were committed.

        Raises:
            ForkError: One is in a lineage that was left behind, or in a new one that nobody asked for.

        """
        for manifest in sorted(found, key=lambda each: (each.lineage, each.epoch)):
            if manifest.lineage not in self._epochs:
                self._open(manifest)
            elif self.pending is not None or manifest.lineage != max(self._epochs):
                raise ForkError(
                    f"generation {manifest.generation} committed epoch {manifest.epoch} of lineage {manifest.lineage}, "
                    f"which was left behind; pending: {self.pending}"
                )
            self._epochs[manifest.lineage][manifest.epoch] = manifest

    def _open(self, manifest: Manifest) -> None:
        newest = max(self._epochs, default=0)
        if (self._epochs and self.pending is None) or manifest.lineage < newest:
            raise ForkError(f"lineage {manifest.lineage} was opened after {newest}, and nobody asked for it")
        self._epochs[manifest.lineage], self._follows[manifest.lineage] = {}, self.pending
        self.pending = None

    def own(self, lineage: int) -> list[Manifest]:
        """Return the epochs of a lineage alone."""
        return [self._epochs[lineage][epoch] for epoch in sorted(self._epochs[lineage])]

    def path(self, lineage: int) -> list[Manifest]:
        """Return all epochs from the job's first one to the newest of a lineage."""
        follows = self._follows[lineage]
        before = [] if follows is None else [m for m in self.path(follows.lineage) if m.epoch <= follows.epoch]
        return [*before, *self.own(lineage)]
