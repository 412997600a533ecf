"""The proof that two checkpoints hold the same state: every row is there, as it was, where Spark looks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from statecore.errors import CheckpointDamagedError, CheckpointRefusedError, NotProvenError, shortened
from statecore.queries.providers.recorded_rows import recorded_rows
from statecore.queries.proving.digests import FamilyDigest, StoreDigest
from statecore.queries.reading.checkpoint import ROCKSDB
from statecore.queries.reading.operators import TRANSFORM

if TYPE_CHECKING:
    from statecore.queries.reading.checkpoint import SparkCheckpoint


@dataclass(frozen=True, slots=True)
class Proof:
    """The digests that were compared and are equal.

    Attributes:
        batch: The batch after which both checkpoints stand.
        stores: Digest of each state store in the new layout.
        restart: Whether a trial restart of the query loaded the state and left it as it was.

    """

    batch: int
    stores: tuple[StoreDigest, ...]
    restart: bool

    @property
    def rows(self) -> int:
        """Number of rows of state, of all stores."""
        return sum(sum(store.rows) for store in self.stores)


def check_explained(digest: StoreDigest) -> None:
    """Check that each row of the old checkpoint lies where the placement rule puts it.

    Raises:
        CheckpointRefusedError: Some rows lie elsewhere.

    """
    store, misplaced = digest.store, sum(digest.misplaced)
    if misplaced:
        raise CheckpointRefusedError(
            f"found {misplaced:,} of {sum(digest.rows):,} rows of operator {store.operator}, store {store.name}, in "
            f"other state partitions than the hash of their keys gives at {store.partitions} partitions; expected each "
            "row where Spark's hash puts it; the query distributes its keys another way (a collation, or a layout of "
            "an older Spark), so it must keep its number of partitions"
        )


def check_counted(checkpoint: SparkCheckpoint, digests: Sequence[StoreDigest]) -> None:
    """Check that as many rows were read as Spark counted when it wrote them; it counts in snapshots of RocksDB alone.

    Raises:
        CheckpointDamagedError: There are more or fewer.
        StorageError: The storage fails.

    """
    for operator in checkpoint.operators:
        # A list is one key for Spark, and several rows.
        if checkpoint.provider != ROCKSDB or operator.name in TRANSFORM:
            continue
        stores = [digest.rows for digest in digests if digest.store.operator == operator.number]
        counted = recorded_rows(checkpoint, operator, lambda: None)
        for partition, (rows, recorded) in enumerate(zip(map(sum, zip(*stores, strict=True)), counted, strict=True)):
            if recorded is not None and rows != recorded:
                raise CheckpointDamagedError(
                    f"found {rows:,} rows in state partition {partition} of operator {operator.number} of "
                    f"{checkpoint.url}; expected {recorded:,}, which Spark counted when it wrote them; restore the "
                    "checkpoint from a clone or a backup"
                )


def check_same_logs(before: SparkCheckpoint, after: SparkCheckpoint) -> None:
    """Check that two checkpoints stand at the same batch of one query, and differ in their number of partitions alone.

    Raises:
        NotProvenError: Something else differs.

    """
    for what, was, now in _facts(before, after):
        if was != now:
            raise NotProvenError(
                f"found {what} {shortened(now)} in {after.url} and {shortened(was)} in {before.url}; expected the same "
                "in both; if the query has run since, make the copy again from where it stands now"
            )


def _facts(before: SparkCheckpoint, after: SparkCheckpoint) -> Iterator[tuple[str, object, object]]:
    yield "the query id", before.query_id, after.query_id
    yield "the newest committed batch", before.batch, after.batch
    yield "the batch that is logged and not committed", before.pending, after.pending
    for batch, log in before.offsets.items():
        yield f"the offsets of batch {batch}", log.with_partitions(after.partitions), after.offsets[batch]
    yield "the newest commit", before.commit.with_unique_ids(None), after.commit.with_unique_ids(None)
    for old, new in zip_longest(before.operators, after.operators):
        yield "the operator", old and (old.number, old.name), new and (new.number, new.name)


def check_same_state(before: Sequence[StoreDigest], after: Sequence[StoreDigest]) -> None:
    """Check that two layouts hold the same rows, and that each row lies where Spark looks for it.

    Raises:
        NotProvenError: Something differs. The message names each store and column family that does.

    """
    differences = list(_differences(before, after))
    if differences:
        raise NotProvenError(
            f"found different state: {'; '.join(differences)}; expected the same rows, each where Spark looks for it; "
            "do not start a query from this copy, and repeat the rescale"
        )


def _differences(before: Sequence[StoreDigest], after: Sequence[StoreDigest]) -> Iterator[str]:
    old = {(digest.store.operator, digest.store.name): digest for digest in before}
    new = {(digest.store.operator, digest.store.name): digest for digest in after}
    for operator, name in sorted(old.keys() ^ new.keys()):
        yield f"operator {operator}, store {name}, is in one of them only"
    for (operator, name), ours in sorted(new.items()):
        if (theirs := old.get((operator, name))) is None:
            continue
        where = f"operator {operator}, store {name}"
        for family in sorted(ours.families.keys() | theirs.families.keys()):
            was, now = (side.families.get(family, FamilyDigest()) for side in (theirs, ours))
            if was.rows != now.rows:
                yield f"{where}, column family {family}, has {now.rows:,} rows instead of {was.rows:,}"
            elif was != now:
                yield f"{where}, column family {family}, has other rows, or a list in another order"
        if wrong := sum(ours.misplaced):
            yield f"{where} has {wrong:,} rows in partitions where Spark does not look for them"
