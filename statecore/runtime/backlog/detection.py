"""Picks a backlog meter for each source from the plan of the streaming query.

The plan's streaming leaves are the sources, in the order in which Spark numbers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.core.context import SparkContext

from statecore.errors import SourceError
from statecore.runtime.backlog.files import SEPARATOR, FileMeter, FileSourceOptions, ListedFile, parsed_listing
from statecore.runtime.backlog.meters import ProgressMeter, RateMeter, SourceMeter
from statecore.runtime.backlog.topics import TopicSource, topic_meter, topic_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILES_A_CALL = 10_000
# Up to this many folders are listed here, one after the other. Spark lists more than 32 in a job, which waits for a
# core while an epoch has all of them; meanwhile the backlog would seem empty.
_FOLDERS = "1000"
_WITH_FOLDERS = ("file", "hdfs", "viewfs", "dbfs")

Progress = Callable[[], Mapping[str, Any] | None]
"""Returns the query's newest ``StreamingQueryProgress`` as parsed JSON; None before the first epoch."""


def source_meters(df: DataFrame, sources: Sequence[str], directory: Path, progress: Progress) -> dict[str, SourceMeter]:
    """Return a meter for each source, named in the order in which the query reads them; it may read more after them."""
    leaves = streaming_leaves(df._jdf.queryExecution().analyzed())
    return {
        name: _meter(leaf, directory / "sources" / str(index), _source_progress(progress, index))
        for index, (name, leaf) in enumerate(zip(sources, leaves, strict=False))
    }


def file_sources(df: DataFrame, sources: Sequence[str]) -> dict[str, FileSourceOptions]:
    """Return the options of each source that reads files, named as in ``source_meters``."""
    leaves = zip(sources, streaming_leaves(df._jdf.queryExecution().analyzed()), strict=False)
    return {name: _file_options(leaf.dataSource()) for name, leaf in leaves if _reads_files(leaf)}


def topic_sources(df: DataFrame, sources: Sequence[str]) -> dict[str, TopicSource]:
    """Return the options of each source that reads Kafka, named as in ``source_meters``."""
    leaves = zip(sources, streaming_leaves(df._jdf.queryExecution().analyzed()), strict=False)
    return {name: source for name, leaf in leaves if (source := topic_source(leaf)) is not None}


def streaming_leaves(plan: Any) -> list[Any]:
    """Return the sources of a query in a logical plan of the JVM, in the order of their numbers."""
    leaves = plan.collectLeaves()
    return [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]


def listed_files(files: Any) -> dict[str, ListedFile]:
    """Return a listing of the JVM, a ``Seq`` of ``FileStatus``, by path."""
    # One call per file would take minutes; one call for all would take too much memory.
    parts = (files.slice(start, start + _FILES_A_CALL) for start in range(0, files.size(), _FILES_A_CALL))
    listed: dict[str, ListedFile] = {}
    for part in parts:
        listed |= parsed_listing(part.mkString(SEPARATOR))
    return listed


def _reads_files(leaf: Any) -> bool:
    kind: str = leaf.getClass().getSimpleName()
    return kind == "StreamingRelation" and bool(leaf.sourceName().startswith("FileSource["))


def _meter(leaf: Any, log: Path, progress: Progress) -> SourceMeter:
    if _reads_files(leaf):
        source = leaf.dataSource()
        return FileMeter(_listing(source), _file_options(source), log)
    if leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName() == "rate":
        options = leaf.extraOptions()
        # With rampUpTime the rate varies, and the source does not report it.
        if not options.containsKey("rampUpTime"):
            return RateMeter(options.getLong("rowsPerSecond", 1), log)
    topics = topic_source(leaf)
    return ProgressMeter(progress) if topics is None else topic_meter(topics, ProgressMeter(progress))


def _source_progress(progress: Progress, index: int) -> Progress:
    def source_progress() -> Mapping[str, Any] | None:
        newest = progress()
        return None if newest is None else newest["sources"][index]

    return source_progress


def _listing(source: Any) -> Callable[[], Mapping[str, ListedFile]]:
    """Return a function that lists a file source as ``FileStreamSource`` does: in the JVM, with its credentials."""
    jvm, options = _jvm(), source.options()
    session = source.sparkSession().cloneSession()
    session.sessionState().conf().setConfString("spark.sql.sources.parallelPartitionDiscovery.threshold", _FOLDERS)
    execution = jvm.org.apache.spark.sql.execution
    path, none = options.apply("path"), jvm.scala.Option.empty()

    def listing() -> Mapping[str, ListedFile]:
        root, hadoop = jvm.org.apache.hadoop.fs.Path(path), jvm.org.apache.spark.deploy.SparkHadoopUtil.get()
        state = session.sessionState()
        conf = state.newHadoopConf()
        # In a folder that Spark's file sink wrote, the sink's metadata log lists the committed files.
        if not hadoop.isGlobPath(root) and execution.streaming.sinks.FileStreamSink.hasMetadata(
            jvm.PythonUtils.toSeq([path]), conf, state.conf()
        ):
            index = execution.streaming.runtime.MetadataLogFileIndex(session, root, options, none)
        else:
            storage = root.getFileSystem(conf)
            # A pattern may match nothing yet. An object store has no folders: a prefix without objects is not there.
            has_folders = storage.getScheme() in _WITH_FOLDERS
            if has_folders and not hadoop.isGlobPath(root) and not storage.exists(root):
                raise SourceError(f"found no {path}; expected the input of the source there; bring it back")
            index = _index(session, hadoop.globPathIfNecessary(storage, root), options)
        return listed_files(index.allFiles())

    return listing


def listed_folders(spark: SparkSession, folders: Iterable[str]) -> dict[str, ListedFile]:
    """Return the files below folders, which Spark lists in parallel; a folder that is gone has none."""
    jvm = _jvm()
    roots = jvm.PythonUtils.toSeq([jvm.org.apache.hadoop.fs.Path(folder) for folder in folders])
    return listed_files(_index(spark._jsparkSession, roots, jvm.PythonUtils.toScalaMap({})).allFiles())


def _index(session: Any, roots: Any, options: Any) -> Any:
    jvm = _jvm()
    index_class = jvm.org.apache.spark.sql.execution.datasources.InMemoryFileIndex
    # A cache would keep listings that are never read again.
    no_cache, none = (getattr(index_class, f"$lessinit$greater$default${n}")() for n in (5, 6))
    no_columns = jvm.scala.Option.apply(jvm.org.apache.spark.sql.types.StructType())
    return index_class(session, roots, options, no_columns, no_cache, none, none)


def _file_options(source: Any) -> FileSourceOptions:
    options = _jvm().org.apache.spark.sql.execution.streaming.runtime.FileStreamOptions(source.options())
    limited = options.maxFilesPerTrigger().isDefined() or options.maxBytesPerTrigger().isDefined()
    return FileSourceOptions(
        # Spark ignores maxFileAge here: with the newest files first, older ones would expire before they are read.
        max_age_ms=None if options.latestFirst() and limited else options.maxFileAgeMs(),
        by_name=options.fileNameOnly(),
        ignores_missing=_ignores_missing(source),
    )


def _ignores_missing(source: Any) -> bool:
    options = source.options()
    if "ignoremissingfiles" in options.keys().mkString(SEPARATOR).lower().split(SEPARATOR):
        return bool(_jvm().org.apache.spark.sql.catalyst.FileSourceOptions(options).ignoreMissingFiles())
    # FileSourceOptions would ask the session that is active in the calling thread; there may be none.
    return bool(source.sparkSession().sessionState().conf().ignoreMissingFiles())


def _jvm() -> Any:
    context = SparkContext._active_spark_context
    assert context is not None
    return context._jvm
