"""Makes the outputs of a committed epoch visible in its sinks.

::

    staged ─► sink.publish ─► marker _published/<sink>/<lineage>-<epoch> in the job's store ─► staged files removed

The sinks of an epoch are published in parallel, and epochs one after the other. Sinks that use Spark or code of the job
take turns in the epoch's own thread, which has Spark's job group and session.

If the driver is killed in between, the next one starts over with the newest epoch. The marker is in the job's store,
not only in the sink, so that a sink can be replaced or renamed once its last epoch is published.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from statecore.errors import ManifestError, MissingFileError, SinkError, StorageError
from statecore.model import parse_row
from statecore.runtime.faults import FaultPoint, fault_point
from statecore.runtime.job import SinkBinding
from statecore.runtime.messages import StagedSink
from statecore.runtime.sinks import Sink, StagedEpoch
from statecore.runtime.sinks.base import Threaded
from statecore.runtime.sinks.markers import Markers
from statecore.runtime.worker.outputs import STAGED, StagedName
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest, StagedOutput
from statecore.snapshot.published import MARKERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_THREADS = 8


# No write takes this long: an older temporary file belongs to a killed writer.
_ABANDONED_S = 24 * 3600


def staged_sinks(sinks: Sequence[SinkBinding], store: CheckpointStore) -> tuple[StagedSink, ...]:
    """Return the sinks with the stores where workers stage their rows."""
    return tuple(
        StagedSink(binding.name, binding.tag, parse_row(binding.schema), binding.sink.staging(store.files))
        for binding in sinks
    )


def publish(
    sinks: Sequence[SinkBinding], manifest: Manifest, store: CheckpointStore, spark: SparkSession
) -> dict[str, float]:
    """Make the outputs of a committed epoch visible; idempotent. A failing sink does not stop the others.

    Returns:
        Milliseconds of each sink that had outputs; those published in parallel add up to more than the whole.

    Raises:
        ManifestError: The epoch has unpublished outputs for a sink that the job no longer has.
        MissingFileError: Staged rows are gone.
        SinkError: A sink refuses them, or several sinks failed.

    """
    outputs: dict[str, list[StagedOutput]] = defaultdict(list)
    for output in manifest.outputs:
        outputs[output.sink].append(output)
    _check_none_lost(outputs.keys() - {binding.name for binding in sinks}, sinks, manifest, store)
    due = [
        StagedEpoch(
            job=manifest.job,
            sink=binding.name,
            lineage=manifest.lineage,
            epoch=manifest.epoch,
            schema=binding.schema,
            store=binding.sink.staging(store.files),
            outputs=tuple(outputs[binding.name]),
            spark=spark,
        )
        for binding in sinks
        if binding.name in outputs
    ]
    ended = _publish_all(due, {binding.name: binding.sink for binding in sinks}, store)
    _raise_failures({each.sink: each.error for each in ended if each.error is not None}, manifest.epoch)
    return {each.sink: each.took_ms for each in ended}


class _Attempt(NamedTuple):
    """An attempt at a sink: how long it took, and the error that it failed with."""

    sink: str
    took_ms: float
    error: Exception | None


def _publish_all(due: Sequence[StagedEpoch], sinks: Mapping[str, Sink], store: CheckpointStore) -> list[_Attempt]:
    def attempt(staged: StagedEpoch) -> _Attempt:
        began, failure = time.monotonic(), None
        try:
            _publish(sinks[staged.sink], staged, _markers(store, staged.sink))
        except Exception as error:
            failure = error
        return _Attempt(staged.sink, (time.monotonic() - began) * 1000, failure)

    in_turn = [staged for staged in due if not _is_threaded(sinks[staged.sink])]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="publish") as pool:
        begun = [pool.submit(attempt, staged) for staged in due if _is_threaded(sinks[staged.sink])]
        return [*map(attempt, in_turn), *(each.result() for each in begun)]


def _is_threaded(sink: Sink) -> bool:
    # Not isinstance: a class of the job that derives from such a sink is code of the job.
    return Threaded in type(sink).__bases__


def _raise_failures(failures: Mapping[str, Exception], epoch: int) -> None:
    first = next(iter(failures.values()), None)
    if first is None:
        return
    if len(failures) > 1:
        listed = "; ".join(f"{sink!r}: {type(error).__name__}: {error}" for sink, error in failures.items())
        raise SinkError(
            f"found {len(failures)} sinks that failed to publish epoch {epoch}: {listed}; expected all to take the "
            "epoch's rows; correct each as it says: the epoch stays committed, and the next driver publishes the rest"
        ) from first
    raise first


def _markers(store: CheckpointStore, sink: str) -> Markers:
    return Markers(store.files, f"{MARKERS}/{sink}")


def _check_none_lost(
    gone: Iterable[str], sinks: Sequence[SinkBinding], manifest: Manifest, store: CheckpointStore
) -> None:
    epoch = (manifest.lineage, manifest.epoch)
    lost = sorted(name for name in gone if _markers(store, name).newest != epoch)
    if lost:
        raise ManifestError(
            f"found outputs of epoch {manifest.epoch} for {lost}; expected sinks among "
            f"{sorted(binding.name for binding in sinks)}; restore the missing sinks until the outputs are published"
        )


def _publish(sink: Sink, staged: StagedEpoch, markers: Markers) -> None:
    if markers.hold(staged):
        return
    try:
        sink.publish(staged)
    except MissingFileError as error:
        raise MissingFileError(
            f"found unpublished rows of epoch {staged.epoch} missing: {error}; expected the files that were staged for "
            f"sink {staged.sink!r}; if its kind or location has changed since, undo the change until the epoch is "
            "published"
        ) from error
    fault_point(FaultPoint.SINK_PUBLISHED, staged.epoch)
    markers.put(staged)
    _discard_staged(staged)


def _discard_staged(staged: StagedEpoch) -> None:
    """Remove the files staged up to this epoch: published files, and those of failed attempts."""
    done = [
        entry.path
        for entry in staged.store.list(STAGED)
        if (name := StagedName.parse(entry.path))
        and name.sink == staged.sink
        and name[:2] <= (staged.lineage, staged.epoch)
    ]
    try:
        staged.store.delete_all(done)
        staged.store.sweep(STAGED, int((time.time() - _ABANDONED_S) * 1000))
    except StorageError as error:
        # The epoch is published. A later one removes the remaining files.
        log.warning("staged files of sink %s are kept for now: %s", staged.sink, error)
