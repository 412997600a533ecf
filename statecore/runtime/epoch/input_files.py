"""Checks that an epoch reads all files that Spark has chosen for it.

Spark lists an epoch's files again before it reads them, and silently leaves out those that are gone by then. Here such
an epoch fails. The next driver would list the folder, not find the files, and go on; so their names stay in
``missing-input.json`` in the job's store until they are back, or until the job says that it ignores missing files.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from statecore.errors import ManifestError, MissingFileError, SourceError
from statecore.runtime.backlog.detection import file_sources, listed_files, listed_folders, streaming_leaves
from statecore.runtime.backlog.files import logged_files, plain_path
from statecore.runtime.epoch.progress import QuerySources, source_positions
from statecore.runtime.epoch.reading import unreadable_file
from statecore.snapshot.checkpoints import CheckpointStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_PATH = "missing-input.json"
_MOST_NAMED = 5


class _Missing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files that an epoch did not find, by source."""

    lineage: int
    epoch: int
    files: dict[str, list[str]]


_DECODER = msgspec.json.Decoder(_Missing)


class InputFiles:
    """The files that the epochs of one query read.

    Args:
        spark: The session that runs the query.
        query: Name of the query.
        records: Its input.
        directory: Spark's checkpoint directory.
        sources: The sources of the query.
        store: Checkpoints of the job.
        lineage: The lineage of the epochs.

    """

    def __init__(
        self,
        spark: SparkSession,
        query: str,
        records: DataFrame,
        directory: Path,
        sources: QuerySources,
        store: CheckpointStore,
        lineage: int,
    ) -> None:
        self._spark = spark
        self._query = query
        self._directory = directory
        self._sources = sources
        self._store = store
        self._lineage = lineage
        self._options = file_sources(records, sources.names)

    def check_earlier(self) -> None:
        """Check that the files are back that an earlier driver's epoch missed.

        Raises:
            MissingFileError: A file is still gone, and the job does not ignore missing files.
            ManifestError: The record of these files is damaged.

        """
        try:
            wanted = _DECODER.decode(self._store.files.read(_PATH))
        except MissingFileError:
            return
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ManifestError(
                f"found {self._store.files.url}/{_PATH}, which is damaged ({error}); expected the input files that an "
                "epoch did not find, by source; check that these are back, and delete it"
            ) from error
        newest = self._store.newest()
        # Another driver read the files and committed the epoch; the record is obsolete.
        if newest is None or (newest.lineage, newest.epoch) < (wanted.lineage, wanted.epoch):
            self._refuse({name: self._gone(paths) for name, paths in wanted.files.items()}, "an earlier epoch")
        self._store.files.delete(_PATH)

    def check(self, epoch: int) -> None:
        """Check that Spark has found the files of an epoch that is about to run.

        Raises:
            MissingFileError: A file is gone, and the job does not ignore missing files.

        """
        if not self._options:
            return
        leaves = streaming_leaves(self._plan())
        missing = {}
        for index, paths in self._chosen(epoch).items():
            # Only a source with new files has a relation in the plan.
            files = leaves[index].relation().location().allFiles() if paths else None
            if files is not None and files.size() < len(paths):
                listed = {plain_path(path) for path in listed_files(files)}
                missing[self._sources.names[index]] = [path for path in paths if plain_path(path) not in listed]
        self._fail(epoch, missing)

    def failed(self, epoch: int, error: BaseException) -> None:
        """Note the files of an epoch that failed, if a worker did not find one.

        Raises:
            MissingFileError: A file is gone.
            SourceError: A file cannot be read as its source declares it.

        """
        if "FILE_NOT_EXIST" in str(error):
            chosen = self._chosen(epoch)
            self._fail(epoch, {self._sources.names[index]: self._gone(paths) for index, paths in chosen.items()})
        unreadable = unreadable_file(error)
        if unreadable is not None:
            file, why = unreadable
            raise SourceError(
                f"found the input file {file} of epoch {epoch}, which cannot be read as its source declares it: {why}; "
                "expected a whole file of that schema; repair the file, move it away, or register the job with a "
                "schema that fits all files: the next driver lists the folder again, and goes on"
            ) from None

    def _chosen(self, epoch: int) -> dict[int, list[str]]:
        """Return the files that Spark has chosen for an epoch, per number of the source."""
        ends = source_positions(self._directory, epoch, self._sources)
        starts = source_positions(self._directory, epoch - 1, self._sources) if epoch else [()] * len(ends)
        logs = self._directory / "sources"
        chosen = {}
        for index, (name, start, end) in enumerate(zip(self._sources.names, starts, ends, strict=True)):
            if name in self._options and start != end:
                logged = logged_files(logs / str(index), _offset(start), _offset(end))
                chosen[index] = list(dict.fromkeys(path for path, _ in logged))
        return chosen

    def _plan(self) -> Any:
        query = next(query for query in self._spark.streams.active if query.name == self._query)
        return query._jsq.streamingQuery().lastExecution().analyzed()

    def _gone(self, paths: Sequence[str]) -> list[str]:
        """Return the missing files, by a listing of their folders."""
        there = {plain_path(path) for path in listed_folders(self._spark, {path.rpartition("/")[0] for path in paths})}
        return [path for path in paths if plain_path(path) not in there]

    def _fail(self, epoch: int, missing: Mapping[str, Sequence[str]]) -> None:
        wanted = {name: paths for name, paths in missing.items() if paths and not self._options[name].ignores_missing}
        if wanted:
            record = _Missing(self._lineage, epoch, {name: list(paths) for name, paths in wanted.items()})
            self._store.files.write(_PATH, msgspec.json.encode(record))
        self._refuse(missing, f"epoch {epoch}")

    def _refuse(self, missing: Mapping[str, Sequence[str]], epoch: str) -> None:
        for name, paths in missing.items():
            # A source that the job no longer reads misses nothing.
            if not paths or name not in self._options:
                continue
            if not self._options[name].ignores_missing:
                raise MissingFileError(
                    f"found {len(paths)} input files of {epoch}, gone from source {name!r}: {_named(paths)}; expected "
                    "every file that Spark has chosen for the epoch; put the files back; to go on without them, "
                    "register the job with --conf spark.sql.files.ignoreMissingFiles=true, or set the source's option "
                    "ignoreMissingFiles"
                )
            log.warning("%s goes on without %d input files of source %s: %s", epoch, len(paths), name, _named(paths))


def _offset(position: tuple[str, ...]) -> int:
    return int(json.loads(position[0])["logOffset"]) if position else -1


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - _MOST_NAMED
    return ", ".join(paths[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
