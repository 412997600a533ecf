"""One line for a program that starts a query of Spark's own: the number of its state partitions."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from statecore.cluster.spark_home import spark_environment
from statecore.errors import CheckpointRefusedError, ConfigurationError
from statecore.model.key_groups import MAX_KEY_GROUPS
from statecore.queries.copying.replacing import before, copy_of, discard, replace, resume
from statecore.queries.reading.checkpoint import newest_batches, open_checkpoint
from statecore.queries.reading.files import canonical_url
from statecore.queries.rescale import rescale
from statecore.runtime.driver.query_settings import session_settings
from statecore.storage import open_store
from statecore.storage.urls import normal_url

log = logging.getLogger(__name__)

_PARTITIONS = "spark.sql.shuffle.partitions"
_LOCATION, _NAME = "checkpointLocation", "queryName"
_FOLDER = "spark.sql.streaming.checkpointLocation"
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_S3 = ("s3://", "s3a://", "s3n://")
# A program that spark-submit started has the way to its own JVM in its environment.
_GATEWAY, _SUBMIT = "PYSPARK_GATEWAY", "PYSPARK_SUBMIT_ARGS"


def with_partitions(writer: DataStreamWriter, partitions: int) -> DataStreamWriter:
    """Return a writer whose query has so many state partitions from its start on.

    A query that begins gets them as it would from ``spark.sql.shuffle.partitions``. For one whose checkpoint has
    another number, ``start`` first makes a copy of the checkpoint with this number, proves it as ``statecore checkpoint
    rescale`` does, with a trial restart of this very query where Spark runs on this machine, and puts it in the
    checkpoint's place. What the checkpoint was lies beside it, in ``.NAME.statecore-before``, until the next change.
    With the right number ``start`` only reads a few small files.

    One program at a time may run the query, as always. A kill leaves the checkpoint as it was, with the new number, or
    one that Spark refuses to start from, which the next ``start`` of such a writer completes.

    Args:
        writer: A query that is not started: ``df.writeStream`` with its sink and its checkpoint.
        partitions: Number of state partitions.

    Returns:
        A writer to call ``start`` or ``toTable`` on; its options may still be changed.

    Raises:
        ConfigurationError: The writer is that of Spark Connect, or the number is out of bounds.

    """
    if not isinstance(writer, DataStreamWriter):
        raise ConfigurationError(
            f"found {writer!r}; expected a DataStreamWriter of a session whose driver is this process, as "
            "df.writeStream returns it; give that, before start()"
        )
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= MAX_KEY_GROUPS:
        raise ConfigurationError(
            f"found {partitions!r} state partitions; expected a number from 1 to {MAX_KEY_GROUPS:,}; correct it"
        )
    return _Partitioned(writer, partitions)


class _Partitioned(DataStreamWriter):
    """A writer that looks at its checkpoint before it starts its query."""

    def __init__(self, writer: DataStreamWriter, partitions: int) -> None:
        # The same writer for Spark: what it was given counts.
        vars(self).update(vars(writer))
        self._partitions = partitions

    def start(
        self,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> StreamingQuery:
        """Start the query at its number of state partitions; see ``DataStreamWriter.start``."""
        self._take(options, format=format, outputMode=outputMode, partitionBy=partitionBy, queryName=queryName)
        with self._at_partitions():
            return super().start(path)

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> StreamingQuery:
        """Start the query at its number of state partitions; see ``DataStreamWriter.toTable``."""
        self._take(options, format=format, outputMode=outputMode, partitionBy=partitionBy, queryName=queryName)
        with self._at_partitions():
            return super().toTable(tableName)

    def _take(self, options: dict[str, Any], **given: Any) -> None:
        """Take what ``start`` is given before the checkpoint is looked at: it may name the checkpoint."""
        self.options(**options)
        for name, value in given.items():
            if value is not None:
                getattr(self, name)(value)

    @contextmanager
    def _at_partitions(self) -> Iterator[None]:
        self._prepare(self._location())
        with session_settings(self._spark, {_PARTITIONS: str(self._partitions)}):
            yield

    def _prepare(self, location: str) -> None:
        """Give the checkpoint its number of state partitions, if it has another one.

        Raises:
            CheckpointError, StorageError: As for ``rescale``; the checkpoint is as it was.

        """
        if resume(location):
            log.warning("completed the replacement of the checkpoint %s, which was interrupted", location)
        store = open_store(normal_url(location))
        if not any(batch is not None for batch in newest_batches(store)):
            return
        checkpoint = open_checkpoint(location)
        if not checkpoint.operators or checkpoint.partitions == self._partitions:
            return
        if any(query.id == checkpoint.query_id for query in self._spark.streams.active):
            raise CheckpointRefusedError(
                f"found the query of {location} running; expected it stopped, to give its state "
                f"{self._partitions} partitions; stop it first"
            )
        log.warning(
            "gives the state in %s %d partitions in place of %d", location, self._partitions, checkpoint.partitions
        )
        discard(location)
        self._copy(location, str(checkpoint.checkpoint_format))
        replace(location)
        log.warning("%s has %d state partitions; what it was is in %s", location, self._partitions, before(location))

    def _copy(self, location: str, checkpoint_format: str) -> None:
        spark, target = self._spark, copy_of(location)
        if not spark.sparkContext._jsc.sc().isLocal():
            _copy_alone(location, target, self._partitions)
            return
        mode = str(self._field("outputMode").toString()).lower()

        def build(*_: object) -> DataStreamWriter:
            return self._df.writeStream.outputMode(mode)

        with session_settings(spark, {_FORMAT: checkpoint_format}):
            rescale(location, target, self._partitions, build, spark=spark)

    def _location(self) -> str:
        """Return the URL of the checkpoint, as Spark would find it.

        Raises:
            ConfigurationError: The writer names none.

        """
        location, name = self._option(_LOCATION), self._option(_NAME)
        folder = self._spark.conf.get(_FOLDER, None)
        if location is None and folder is not None and name is not None:
            location = f"{folder}/{name}"
        if location is None:
            raise ConfigurationError(
                "found a query without a checkpoint; expected one, which has its state; add "
                '.option("checkpointLocation", …)'
            )
        if not location.startswith(_S3):
            # A path may lie in the file system that Hadoop's configuration names. Spark decodes nothing in it.
            path = self._spark._jvm.org.apache.hadoop.fs.Path(location)  # type: ignore[union-attr]
            qualified = path.getFileSystem(self._spark._jsc.hadoopConfiguration()).makeQualified(path)
            is_file = qualified.toUri().getScheme() == "file"
            location = str(qualified.toUri().getPath()) if is_file else str(qualified.toString())
        return canonical_url(location)

    def _option(self, name: str) -> str | None:
        found = self._field("extraOptions").get(name)
        return str(found.get()) if found.isDefined() else None

    def _field(self, name: str) -> Any:
        """Return what the writer keeps to itself in the JVM; Spark has no call that tells it."""
        field = self._jwrite.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field.get(self._jwrite)


def _copy_alone(location: str, target: str, partitions: int) -> None:
    """Make the copy in a process of its own, on this machine: a copy is made in a folder that executors may not see.

    Raises:
        CheckpointRefusedError: It failed; the message has the reason.

    """
    command = [sys.executable, "-m", "statecore", "checkpoint", "rescale", location, target]
    command += ["--partitions", str(partitions)]
    environment = {name: value for name, value in spark_environment().items() if not name.startswith(_GATEWAY)}
    environment[_SUBMIT] = "--master local[*] pyspark-shell"
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = done.stderr.rpartition("error: ")[2].strip()
        raise CheckpointRefusedError(reason or f"the copy of {location} ended with exit code {done.returncode}")
