"""Errors of sources: of ``read``, and of files that are not as the source declares them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from statecore.errors import JobDefinitionError, StatecoreError
from statecore.runtime.job import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNREADABLE = re.compile(
    r"\[FAILED_READ_FILE[.\w]*\] Encountered error while reading file (?P<file>\S+?)\.? (?P<why>.*)"
)
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.*?)(?=^\s+(?:at |\.\.\. \d))", re.MULTILINE | re.DOTALL)
_MOST = 500


def read_source(source: Source, spark: SparkSession) -> DataFrame:
    """Return the streaming DataFrame of a source.

    Raises:
        JobDefinitionError: ``read`` fails, or returns something else.

    """
    try:
        df = source.read(spark)
    except StatecoreError:
        raise
    except Exception as error:
        raise JobDefinitionError(
            f"found {type(error).__name__} in read of source {source.name!r}: {error}; expected a streaming DataFrame; "
            "correct read: a source of files needs its schema, spark.readStream.schema(…), and its folder must exist"
        ) from error
    if not getattr(df, "isStreaming", False):
        raise JobDefinitionError(
            f"found {'a batch DataFrame' if hasattr(df, 'isStreaming') else repr(df)} from read of source "
            f"{source.name!r}; expected a streaming DataFrame; return spark.readStream…, not spark.read…"
        )
    return df


def unreadable_file(error: BaseException) -> tuple[str, str] | None:
    """Return the file that an epoch could not read, and why; None for another failure."""
    text = str(error)
    match = _UNREADABLE.search(text)
    if match is None:
        return None
    reasons = [match["why"], *(cause[1] for cause in _CAUSE.finditer(text))]
    plain = (re.sub(r"\s*SQLSTATE: \w+", "", " ".join(reason.split())) for reason in reasons)
    why = "; ".join(filter(None, plain))
    return match["file"], why if len(why) <= _MOST else f"{why[:_MOST]}…"
