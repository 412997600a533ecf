"""What a changed schema of a source comes to, per format: the table of docs/operations.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import statecore
from statecore import KeyedProcessFunction
from statecore.errors import FunctionError, JobDefinitionError, SourceError
from statecore.runtime import FunctionSink, Job

SCHEMA = "k string, n bigint, v double"
GOOD = {"k": ["a"], "n": [1], "v": [1.5]}
JSON = '{"k": "a", "n": 1, "v": 1.5}\n'


class Same(KeyedProcessFunction):
    """Puts out what it gets."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield tuple(value)[:3]


class Sum(KeyedProcessFunction):
    """Needs a number."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value.k, value.n + 1, value.v


def parquet(**columns: Any) -> Callable[[Path], None]:
    return lambda file: pq.write_table(pa.table(columns), file)


def half(file: Path) -> None:
    parquet(**GOOD)(file)
    file.write_bytes(file.read_bytes()[:-20])


def text(content: str) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        file.write_text(content)

    return write


class Folder:
    """A job over the files of a folder."""

    def __init__(self, path: Path, reader: Callable[[Any], Any], function: Any = None) -> None:
        self.path, self.input = path, path / "input"
        self.input.mkdir()
        self.rows: list[tuple[Any, ...]] = []
        self._reader, self._function = reader, function or Same()

    def add(self, write: Callable[[Path], None], name: str = "1") -> Path:
        write(self.path / name)
        (self.path / name).rename(self.input / name)
        return self.input / name

    def run(self) -> list[tuple[Any, ...]]:
        def build(job: Job) -> None:
            records = job.source("records", lambda spark: self._reader(spark.readStream).load(str(self.input)))
            done = records.key_by("k").process(self._function, output=SCHEMA, uid="f")
            done.sink("rows", FunctionSink(lambda df, _lineage, _epoch: self.rows.extend(map(tuple, df.collect()))))

        statecore.run(build, folder=self.path / "runs")
        return self.rows


def as_parquet(reader: Any) -> Any:
    return reader.schema(SCHEMA).format("parquet")


def as_json(reader: Any) -> Any:
    return reader.schema(SCHEMA).format("json")


def strict_json(reader: Any) -> Any:
    return as_json(reader).option("mode", "FAILFAST")


def as_csv(reader: Any) -> Any:
    return reader.schema(SCHEMA).format("csv").option("header", True)


def strict_csv(reader: Any) -> Any:
    return as_csv(reader).option("enforceSchema", False).option("mode", "FAILFAST")


READ = [
    ("parquet, column gone", as_parquet, parquet(k=["a"], v=[1.5]), ("a", None, 1.5)),
    ("parquet, column added and reordered", as_parquet, parquet(z=[1], **GOOD), ("a", 1, 1.5)),
    ("parquet, narrower", as_parquet, parquet(k=["a"], n=pa.array([1], pa.int32()), v=[1.5]), ("a", 1, 1.5)),
    ("json, column gone", as_json, text('{"k": "a", "v": 1.5}\n'), ("a", None, 1.5)),
    ("json, type", as_json, text('{"k": "a", "n": "1", "v": 1.5}\n'), ("a", None, 1.5)),
    ("json, broken", as_json, text('{"k": "a", "n":\n'), (None, None, None)),
    ("json, column gone, FAILFAST", strict_json, text('{"k": "a", "v": 1.5}\n'), ("a", None, 1.5)),
    ("csv, column gone", as_csv, text("k,v\na,1.5\n"), ("a", None, None)),
    ("csv, column added in front", as_csv, text("z,k,n,v\n9,a,1,1.5\n"), ("9", None, 1.0)),
    ("csv, type", as_csv, text("k,n,v\na,x,1.5\n"), ("a", None, 1.5)),
]


@pytest.mark.parametrize(("reader", "write", "row"), [each[1:] for each in READ], ids=[each[0] for each in READ])
def test_what_spark_reads_without_an_error(
    spark: Any, tmp_path: Path, reader: Any, write: Callable[[Path], None], row: tuple[Any, ...]
) -> None:
    folder = Folder(tmp_path, reader)
    folder.add(write)
    assert folder.run() == [row]


REFUSED = [
    ("parquet, type", as_parquet, parquet(k=["a"], n=["x"], v=[1.5]), "column [n]. Expected Spark type bigint, actual"),
    ("parquet, damaged", as_parquet, half, "is not a Parquet file"),
    ("json, type", strict_json, text('{"k": "a", "n": "x"}\n'), "Cannot parse the field name 'n' and the value x"),
    ("json, broken", strict_json, text(JSON + '{"k": "b", "n":\n'), "Unexpected end-of-input"),
    ("csv, column gone", strict_csv, text("k,v\na,1.5\n"), "Header length: 2, schema size: 3"),
    ("csv, reordered", strict_csv, text("n,k,v\n1,a,1.5\n"), "Expected: k but found: n"),
    ("csv, type", strict_csv, text("k,n,v\na,x,1.5\n"), 'For input string: "x"'),
]


@pytest.mark.parametrize(("reader", "write", "why"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED])
def test_what_spark_refuses_names_file_and_reason_and_the_job_goes_on_when_the_file_is_away(
    spark: Any, tmp_path: Path, reader: Any, write: Callable[[Path], None], why: str
) -> None:
    folder = Folder(tmp_path, reader)
    bad = folder.add(write)
    with pytest.raises(SourceError) as raised:
        folder.run()
    message = str(raised.value)
    assert message.startswith(f"found the input file file://{bad} of epoch 0, which cannot be read"), message
    assert why in message, message
    assert "SQLSTATE" not in message and "\tat " not in message and len(message) < 1200
    bad.unlink()
    good = {"parquet": parquet(**GOOD), "json": text(JSON), "csv": text("k,n,v\na,1,1.5\n")}
    folder.add(next(write for name, write in good.items() if name in reader.__name__), "2")
    assert folder.run() == [("a", 1, 1.5)]


def test_a_function_that_fails_on_null_is_told_where_null_comes_from(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path, as_parquet, Sum())
    folder.add(parquet(k=["a"], v=[1.5]))
    with pytest.raises(
        FunctionError, match=r"record Row\(k='a', n=None, v=1.5\) \(null in 'n'; a source gives null wh"
    ):
        folder.run()


READS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("without a schema", lambda spark: spark.readStream.parquet("."), "Schema must be specified when creating a stre"),
    ("of a missing folder", lambda spark: spark.readStream.schema(SCHEMA).json("/nowhere"), "Path does not exist"),
    ("as a batch", lambda spark: spark.range(3), "found a batch DataFrame from read of source 'records'"),
    ("without a return", lambda spark: None, "found None from read of source 'records'; expected a streaming Data"),
]


@pytest.mark.parametrize(("read", "wrong"), [each[1:] for each in READS], ids=[each[0] for each in READS])
def test_a_read_that_cannot_be_is_refused_with_its_source(
    spark: Any, tmp_path: Path, read: Callable[[Any], Any], wrong: str
) -> None:
    def build(job: Job) -> None:
        job.source("records", read).key_by("k").process(Same(), output=SCHEMA, uid="f")

    with pytest.raises(JobDefinitionError, match="source 'records'") as raised:
        statecore.run(build, folder=tmp_path)
    assert wrong in str(raised.value)
