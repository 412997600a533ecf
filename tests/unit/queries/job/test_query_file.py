"""Query files: what is wrong with one is said before Spark starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming import DataStreamWriter

from statecore.errors import QueryDefinitionError
from statecore.queries.job.query_file import described, load_query

SPARK: Any = None


def written(folder: Path, text: str) -> Path:
    path = folder / "my query.py"
    path.write_text(text)
    return path


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(QueryDefinitionError, match=rf"no query file {tmp_path}/gone.py; expected .*; give its path"):
        load_query(tmp_path / "gone.py")


@pytest.mark.parametrize("text", ["", "build = 1", "def other(spark, settings): ..."])
def test_a_file_without_build_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(QueryDefinitionError, match=r"no build\(spark, settings\) in .*my query.py; expected one"):
        load_query(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [("\nimport gone_for_good", "my query.py:2: ModuleNotFoundError"), ("def build(:", "my query.py:1: SyntaxError")],
)
def test_a_file_that_fails_is_told_with_the_line(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(QueryDefinitionError, match=f"that fails: {reason}.*; expected .*; correct it"):
        load_query(written(tmp_path, text))


def test_build_gets_its_own_settings(tmp_path: Path) -> None:
    build = load_query(written(tmp_path, "def build(spark, settings):\n    settings.clear()\n    return 7"))
    settings = {"input": "/data"}
    with pytest.raises(QueryDefinitionError, match="found 7 returned by build"):
        described(SPARK, build, settings)
    assert settings == {"input": "/data"}


def test_a_build_that_fails_is_told_with_the_line(tmp_path: Path) -> None:
    build = load_query(written(tmp_path, "def build(spark, settings):\n    return settings['input']"))
    with pytest.raises(QueryDefinitionError, match=r"fails: my query.py:2 in build: KeyError: 'input'; .*correct the"):
        described(SPARK, build, {})


@pytest.mark.parametrize("found", ["None", "'rows'", "spark"])
def test_what_is_not_a_query_is_refused(tmp_path: Path, found: str) -> None:
    build = load_query(written(tmp_path, f"def build(spark, settings):\n    return {found}"))
    with pytest.raises(QueryDefinitionError, match=r"expected a DataStreamWriter that is not started, or a streaming"):
        described(SPARK, build, {})


@pytest.mark.parametrize("start", ["start", "toTable"])
def test_a_build_cannot_start_the_query(tmp_path: Path, start: str) -> None:
    text = (
        "from pyspark.sql.streaming import DataStreamWriter\n"
        "def build(spark, settings):\n"
        f"    return DataStreamWriter.{start}(None, 't')"
    )
    before = getattr(DataStreamWriter, start)
    with pytest.raises(QueryDefinitionError, match=r"build\(spark, settings\) starts the query; .* without start\(\)"):
        described(SPARK, load_query(written(tmp_path, text)), {})
    assert getattr(DataStreamWriter, start) is before


def test_a_file_cannot_start_a_query_when_it_is_loaded(tmp_path: Path) -> None:
    text = "from pyspark.sql.streaming import DataStreamWriter\nDataStreamWriter.start(None)"
    with pytest.raises(QueryDefinitionError, match="starts the query"):
        load_query(written(tmp_path, text))
