"""Loads a query file: a Python file whose ``build(spark, settings)`` describes one query of Spark's own.

.. code-block:: python

    def build(spark, settings):
        orders = spark.readStream.schema("customer long, price double").parquet("/data/orders")
        totals = orders.groupBy("customer").sum("price")
        return totals.writeStream.outputMode("complete").format("delta").option("path", "/data/totals")

For ``toTable`` it returns the writer and the table: ``return totals.writeStream, "warehouse.totals"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from statecore.blame import blame
from statecore.errors import QueryDefinitionError, StatecoreError, shortened
from statecore.queries.spark_errors import short_message
from statecore.user_files import QUERY_MODULE, load_user_file

Build = Callable[[SparkSession, dict[str, str]], DataStreamWriter | tuple[DataStreamWriter, str] | DataFrame]

_EXPECTED = "expected a DataStreamWriter that is not started, or a streaming DataFrame"
_STARTS = f"found that build(spark, settings) starts the query; {_EXPECTED}; return the writer without start()"


@dataclass(frozen=True, slots=True)
class DescribedQuery:
    """What a query file describes.

    Attributes:
        query: A query that is not started, or the streaming DataFrame of one.
        table: The table that it writes, with ``toTable``; None for ``start``.

    """

    query: DataStreamWriter | DataFrame
    table: str | None = None


def load_query(path: str | Path) -> Build:
    """Load a query file and return its ``build``.

    Functions are shipped to Spark's workers by value, because workers cannot import a query file.

    Raises:
        QueryDefinitionError: The file does not exist, fails, or has no ``build``.

    """
    path = Path(path)
    if not path.is_file():
        raise QueryDefinitionError(
            f"found no query file {path}; expected a Python file that defines build(spark, settings); give its path"
        )
    try:
        with _nothing_started():
            module = load_user_file(path, QUERY_MODULE)
    except StatecoreError:
        raise
    except Exception as error:
        raise QueryDefinitionError(
            f"found the query file {path} that fails: {short_message(blame(error, {str(path)}))}; expected it to "
            "define build(spark, settings); correct it"
        ) from error
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    build = getattr(module, "build", None)
    if not callable(build):
        raise QueryDefinitionError(f"found no build(spark, settings) in {path}; expected one; define it")
    checked: Build = build
    return checked


def described(spark: SparkSession, build: Build, settings: Mapping[str, str]) -> DescribedQuery:
    """Return the query that ``build(spark, settings)`` describes. It cannot start one.

    Args:
        spark: A session of the query's own, whose settings ``build`` may change.
        build: Describes the query.
        settings: Its settings.

    Raises:
        QueryDefinitionError: It fails, starts a query or returns something else.

    """
    try:
        with _nothing_started():
            query = build(spark, dict(settings))
    except StatecoreError:
        raise
    except Exception as error:
        file = getattr(getattr(build, "__code__", None), "co_filename", "")
        reason = short_message(blame(error, {file}))
        raise QueryDefinitionError(
            f"found that build(spark, settings) fails: {reason}; {_EXPECTED}; correct the query file"
        ) from error
    table = None
    if isinstance(query, tuple) and [type(each) for each in query] == [DataStreamWriter, str]:
        query, table = query
    if isinstance(query, StreamingQuery):
        query.stop()
        raise QueryDefinitionError(_STARTS)
    if isinstance(query, DataFrame) and not query.isStreaming:
        raise QueryDefinitionError(
            f"found a DataFrame returned by build(spark, settings) that is not streaming; {_EXPECTED}; read the input "
            "with spark.readStream"
        )
    # A job's number of state partitions is the catalog's: with_partitions would change the checkpoint behind it.
    if not (type(query) is DataStreamWriter or isinstance(query, DataFrame)):
        raise QueryDefinitionError(
            f"found {shortened(query)} returned by build(spark, settings); {_EXPECTED}; return the query, without "
            "with_partitions"
        )
    return DescribedQuery(query, table)


@contextmanager
def _nothing_started() -> Iterator[None]:
    """Refuse to start a query in ``build``: it would write to its sink and its own checkpoint."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise QueryDefinitionError(_STARTS)

    writers = (DataStreamWriter, *DataStreamWriter.__subclasses__())
    starts = ("start", "toTable")
    kept = [(writer, name, vars(writer)[name]) for writer in writers for name in starts if name in vars(writer)]
    try:
        for writer, name, _ in kept:
            setattr(writer, name, refuse)
        yield
    finally:
        for writer, name, method in kept:
            setattr(writer, name, method)
