"""Streams that Spark compressed are read, and Spark reads ours."""

from __future__ import annotations

import random

import pytest

from statecore.queries.providers.hdfs.codecs import codec

CODECS = ("lz4", "snappy", "zstd", "lzf")
_rng = random.Random(16)
CONTENTS = {
    "nothing": b"",
    "one byte": b"\xff",
    "text": b"a state store, a state partition, a batch; " * 5_000,
    "zeros": bytes(1_000_000),
    "noise": _rng.randbytes(700_001),
    "both": b"".join(_rng.randbytes(_rng.randint(0, 300)) + bytes(_rng.randint(0, 900)) for _ in range(2_000)),
    "overlapping": b"abc" * 100_000 + b"x" * 70_000,
}


@pytest.fixture
def of_spark(spark):
    """Spark's own codecs, by name."""
    conf = spark.sparkContext._jsc.sc().conf()
    return lambda name: spark._jvm.org.apache.spark.io.CompressionCodec.createCodec(conf, name)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_what_spark_compressed_is_read(spark, of_spark, name, content):
    assert codec(name).decompress(_compressed(spark, of_spark(name), content), "file") == content


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_spark_reads_what_is_written(spark, of_spark, name, content):
    file = spark._jvm.java.io.ByteArrayInputStream(codec(name).compress(memoryview(content)))
    assert bytes(of_spark(name).compressedInputStream(file).readAllBytes()) == content


@pytest.mark.parametrize("name", ("lz4", "zstd", "lzf"))
def test_streams_one_behind_another_are_read_as_spark_reads_them(spark, of_spark, name):
    one, two = (_compressed(spark, of_spark(name), content) for content in (b"one" * 1000, b"two" * 1000))
    file = spark._jvm.java.io.ByteArrayInputStream(one + two)
    expected = bytes(of_spark(name).compressedContinuousInputStream(file).readAllBytes())
    assert codec(name).decompress(one + two, "file") == expected == b"one" * 1000 + b"two" * 1000


def _compressed(spark, made, content):
    file = spark._jvm.java.io.ByteArrayOutputStream()
    stream = made.compressedOutputStream(file)
    stream.write(content)
    stream.close()
    return bytes(file.toByteArray())
