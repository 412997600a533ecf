"""Compressed streams: what is written is read, and damage is found where it is."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import CheckpointDamagedError, CheckpointRefusedError
from statecore.queries.providers.hdfs.codecs import codec

CODECS = ("lz4", "snappy", "zstd", "lzf")
TEXT = b"a state store, a state partition, a batch; " * 40
NOISE = random.Random(16).randbytes(300)


@pytest.mark.parametrize("name", CODECS)
@given(content=st.binary(max_size=400) | st.binary(max_size=40).map(lambda part: part * 3000))
def test_what_is_compressed_is_read(name: str, content: bytes) -> None:
    assert codec(name).decompress(codec(name).compress(memoryview(content)), "file") == content


@pytest.mark.parametrize("name", CODECS)
def test_a_codec_is_known_by_its_name_and_by_its_class_in_spark(name: str) -> None:
    classes = {"lz4": "LZ4", "snappy": "Snappy", "zstd": "ZStd", "lzf": "LZF"}
    made = codec(f"org.apache.spark.io.{classes[name]}CompressionCodec")
    assert made is codec(name) is codec(name.upper())


def test_an_unknown_codec_is_refused_by_name() -> None:
    with pytest.raises(CheckpointRefusedError, match=r"found the codec com\.example\.Brotli"):
        codec("com.example.Brotli")


@pytest.mark.parametrize("content", (TEXT, NOISE), ids=("compressed", "plain"))
def test_a_changed_byte_of_an_lz4_stream_is_found_or_changes_nothing(content: bytes) -> None:
    whole = codec("lz4").compress(memoryview(content))
    silent = 0
    for at in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            try:
                assert codec("lz4").decompress(bytes(damaged), "file") == content
                silent += 1
            except CheckpointDamagedError:
                pass
    # Some bits change nothing: those of the largest size of a block, and those that refer to another copy of a text.
    assert silent <= 16


@pytest.mark.parametrize("content", (TEXT, NOISE), ids=("compressed", "plain"))
def test_a_cut_lz4_stream_is_found_at_every_length(content: bytes) -> None:
    whole = codec("lz4").compress(memoryview(content))
    for size in range(1, len(whole)):
        with pytest.raises(CheckpointDamagedError, match=r"at byte \d+ of some/file"):
            codec("lz4").decompress(whole[:size], "some/file")


@pytest.mark.parametrize("name", ("snappy", "zstd", "lzf"))
def test_a_cut_stream_is_found_or_lacks_its_end(name: str) -> None:
    whole = codec(name).compress(memoryview(TEXT + NOISE))
    for size in range(len(whole)):
        try:
            found = codec(name).decompress(whole[:size], "some/file")
        except CheckpointDamagedError:
            continue
        # Between chunks, only what they hold can tell.
        assert (TEXT + NOISE).startswith(found) and found != TEXT + NOISE


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("data", (b"", b"x", TEXT, NOISE, codec("lz4").compress(memoryview(TEXT))[1:]))
def test_what_is_no_stream_is_damaged(name: str, data: bytes) -> None:
    if (name, data) == ("lzf", b""):
        assert codec(name).decompress(data, "file") == b""
        return
    with pytest.raises(CheckpointDamagedError, match="of file; expected a file of a state store, whole, in the codec"):
        codec(name).decompress(data, "file")


@pytest.mark.parametrize("name", CODECS)
@given(data=st.binary(max_size=200), at=st.integers(0, 400), content=st.binary(min_size=1, max_size=300))
def test_any_damage_is_an_error_that_names_the_file(name: str, data: bytes, at: int, content: bytes) -> None:
    whole = codec(name).compress(memoryview(content))
    damaged = whole[: at % len(whole)] + data
    try:
        codec(name).decompress(damaged, "some/file")
    except CheckpointDamagedError as error:
        assert "some/file" in str(error)


def test_an_error_names_the_block_that_is_damaged() -> None:
    one = codec("lz4").compress(memoryview(TEXT))
    two = bytearray(one)
    two[-30] ^= 0xFF
    with pytest.raises(CheckpointDamagedError, match=rf"at byte {len(one)} of") as error:
        codec("lz4").decompress(one + bytes(two), "file")
    assert re.search("differs from its checksum|cannot be decompressed", str(error.value))


def test_an_lzf_reference_may_reach_into_what_it_makes() -> None:
    # One plain byte, then: 2 + 7 + 9 bytes from 1 byte before.
    body = bytes([0, ord("x"), 7 << 5, 9, 0])
    chunk = b"ZV\x01" + len(body).to_bytes(2) + (19).to_bytes(2) + body
    assert codec("lzf").decompress(chunk, "file") == b"x" * 19


def test_an_lzf_reference_may_reach_far_back() -> None:
    text = random.Random(7).randbytes(32 * 200)
    runs = b"".join(b"\x1f" + text[at : at + 32] for at in range(0, len(text), 32))
    back = 6000
    # 2 + 4 bytes from so many bytes before.
    body = runs + bytes([(4 << 5) | (back - 1 >> 8), back - 1 & 0xFF])
    chunk = b"ZV\x01" + len(body).to_bytes(2) + (len(text) + 6).to_bytes(2) + body
    assert codec("lzf").decompress(chunk, "file") == text + text[-back:][:6]


@pytest.mark.parametrize("body", (bytes([5, 1]), bytes([1 << 5]), bytes([7 << 5]), bytes([0, 1, 1 << 5, 9])))
def test_an_lzf_chunk_that_contradicts_itself_is_damaged(body: bytes) -> None:
    chunk = b"ZV\x01" + len(body).to_bytes(2) + (1).to_bytes(2) + body
    with pytest.raises(CheckpointDamagedError, match="LZF chunk that is cut or contradicts itself at byte 0"):
        codec("lzf").decompress(chunk, "file")
