"""One line for a program that starts a query of Spark's own: the number of its state partitions."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from statecore.cluster.spark_home import spark_environment
from statecore.errors import CheckpointRefusedError, ConfigurationError
from statecore.model.key_groups import MAX_KEY_GROUPS
from statecore.queries.copying.replacing import alone_at, before, copy_of, discard, hold, replace, require_replaceable
from statecore.queries.job.query_file import Build
from statecore.queries.reading.checkpoint import SparkCheckpoint, newest_batches, open_checkpoint, read_offsets
from statecore.queries.reading.files import canonical_url, is_local
from statecore.queries.rescale import rescale
from statecore.runtime.driver.query_settings import session_settings
from statecore.storage import open_store
from statecore.storage.urls import normal_url

log = logging.getLogger(__name__)

# Threads of one session share its settings.
_session_lock = threading.Lock()

_PARTITIONS = "spark.sql.shuffle.partitions"
_LOCATION, _NAME = "checkpointLocation", "queryName"
_FOLDER = "spark.sql.streaming.checkpointLocation"
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_REFUSAL, _SHOWN_LINES = "error: ", 20
_S3 = ("s3://", "s3a://", "s3n://")
# A program that spark-submit started has the way to its own JVM in its environment.
_GATEWAY, _SUBMIT = "PYSPARK_GATEWAY", "PYSPARK_SUBMIT_ARGS"


def with_partitions(writer: DataStreamWriter, partitions: int) -> DataStreamWriter:
    """Return a writer whose query has this number of state partitions from its start on.

    A query that begins gets them as it would from ``spark.sql.shuffle.partitions``. For one whose checkpoint has
    another number, ``start`` first makes a copy of the checkpoint with this number, proves it as ``statecore checkpoint
    rescale`` does, with a trial restart of this very query where Spark runs on this machine, and exchanges the two in
    one step: a kill leaves the previous checkpoint or the new one. The previous one stays beside it, in
    ``.NAME.statecore-before``, until the next change. With the right number ``start`` only reads a few small files.

    One program at a time may run the query, as always.

    Args:
        writer: A query that is not started: ``df.writeStream`` with its sink and its checkpoint.
        partitions: Number of state partitions.

    Returns:
        A writer to call ``start`` or ``toTable`` on; its options may still be changed. Both raise CheckpointError as
        ``rescale`` does, and for a checkpoint in S3, on a mount point or on a file system without an atomic exchange;
        the checkpoint is as it was then.

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
        # Shares the JVM's writer, so options apply to both.
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
        location = self._location()
        if self._has_another_number(location):
            require_replaceable(location)
            with alone_at(location):
                # Another program may have changed it since.
                if self._has_another_number(location):
                    self._change(location)
        elif is_local(location):
            hold(location)
        with _session_lock, session_settings(self._spark, {_PARTITIONS: str(self._partitions)}):
            yield

    def _has_another_number(self, location: str) -> bool:
        """Return whether the state in a checkpoint has another number of partitions.

        Raises:
            CheckpointRefusedError: It has another one after a first batch that is not committed.

        """
        store = open_store(normal_url(location))
        committed, logged = newest_batches(store)
        if committed is not None:
            checkpoint = open_checkpoint(location)
            return bool(checkpoint.operators) and checkpoint.partitions != self._partitions
        number = None if logged is None else read_offsets(store, logged).conf.get(_PARTITIONS)
        if number not in (None, str(self._partitions)):
            raise CheckpointRefusedError(
                f"found no committed batch in {location}, and a first one logged for {number} partitions; expected "
                f"{self._partitions}, or a committed batch; start the query with {number} until it has committed a "
                "batch, or remove the checkpoint if no sink has its rows"
            )
        return False

    def _change(self, location: str) -> None:
        """Give the state in a checkpoint its number of partitions.

        Raises:
            CheckpointError, StorageError: As for ``rescale``; the checkpoint is as it was.

        """
        checkpoint = open_checkpoint(location)
        if any(query.id == checkpoint.query_id for query in self._spark.streams.active):
            raise CheckpointRefusedError(
                f"found the query of {location} running; expected it stopped, to give its state "
                f"{self._partitions} partitions; stop it first"
            )
        log.warning("rescaling %s from %d to %d state partitions", location, checkpoint.partitions, self._partitions)
        discard(location)
        target = str(copy_of(location))
        if self._spark.sparkContext._jsc.sc().isLocal():
            rescale(location, target, self._partitions, self._query(checkpoint), spark=self._spark)
        else:
            _copy_alone(location, target, self._partitions)
        replace(location)
        log.warning("rescaled %s; the previous checkpoint is in %s", location, before(location))

    def _query(self, checkpoint: SparkCheckpoint) -> Build:
        """Return the query for a trial restart, in a session of its own that has the settings of this one."""
        spark, mode = self._spark, str(self._field("outputMode").toString()).lower()
        session = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        session.conf.set(_FORMAT, str(checkpoint.checkpoint_format))
        datasets: Any = spark._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr]
        rows = datasets.ofRows(session._jsparkSession, self._df._jdf.queryExecution().analyzed())
        frame = type(self._df)(rows, session)
        return lambda *_: frame.writeStream.outputMode(mode)

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
        """Return a private field of the JVM's writer; Spark has no getter."""
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
        lines = done.stderr.splitlines()[-_SHOWN_LINES:]
        refusals = [line.removeprefix(_REFUSAL) for line in lines if line.startswith(_REFUSAL)]
        ended = (
            f"found that the copy of {location} ended with exit code {done.returncode}; expected 0; its last output:\n"
        )
        raise CheckpointRefusedError(refusals[-1] if refusals else ended + "\n".join(lines))
