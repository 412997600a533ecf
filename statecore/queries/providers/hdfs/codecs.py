r"""The compressed streams of Spark that state files are written in.

::

    lz4     blocks: "LZ4Block", token (method | level), bytes stored, bytes held, xxHash32 of what is held; the last
            block holds nothing. Integers are little-endian.
    snappy  "\x82SNAPPY\0", version, lowest compatible version; chunks: size, a raw snappy block. Big-endian.
    zstd    frames of the format itself
    lzf     chunks: "ZV", type, bytes stored, and bytes held where compressed. Big-endian.

Streams one behind another are read as one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import xxhash

from statecore.errors import CheckpointDamagedError, CheckpointRefusedError

CODEC_SETTING = "spark.sql.streaming.stateStore.compression.codec"

_LZ4_MAGIC = b"LZ4Block"
_LZ4_HEADER = struct.Struct("<8sBiiI")
_LZ4_RAW, _LZ4_COMPRESSED = 0x10, 0x20
_LZ4_SEED, _LZ4_MASK = 0x9747B28C, 0x0FFFFFFF
# A token's lower half is the binary logarithm of the block size, less 10.
_LZ4_LEVEL_BASE = 10
# Spark writes 32 KiB and reads up to 32 MiB; from here on, larger blocks gain nothing.
_LZ4_BLOCK_BYTES = 1 << 18
_LZ4_LEVEL = (_LZ4_BLOCK_BYTES - 1).bit_length() - _LZ4_LEVEL_BASE

_SNAPPY_MAGIC = b"\x82SNAPPY\0"
_SNAPPY_HEADER = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK_BYTES = 1 << 15
# Two to three bytes stand for at most 64; more cannot be true, and would only take memory.
_SNAPPY_LARGEST_RATIO = 32

_LZF_MAGIC = b"ZV"
_LZF_PLAIN, _LZF_COMPRESSED = 0, 1
_LZF_BLOCK_BYTES = 0xFFFF


@dataclass(frozen=True, slots=True)
class _Stream:
    """A compressed file, for readers that say where it is damaged."""

    data: memoryview
    path: str

    def take(self, at: int, size: int, what: str) -> memoryview:
        """Return some bytes; CheckpointDamagedError where the file ends before."""
        if size < 0 or at + size > len(self.data):
            raise self.damaged(at, f"{what} of {size:,} bytes, and {len(self.data) - at:,} bytes until the end")
        return self.data[at : at + size]

    def damaged(self, at: int, found: str) -> CheckpointDamagedError:
        """Return the error for damage at a byte."""
        return CheckpointDamagedError(
            f"found {found} at byte {at:,} of {self.path}; expected a file of a state store, whole, in the codec that "
            f"{CODEC_SETTING} in the offset log names; restore the checkpoint from a clone or a backup"
        )


@dataclass(frozen=True, slots=True)
class Codec:
    """One of Spark's codecs.

    Attributes:
        name: Its name in Spark's settings.
        blocks: Yields the contents of a stream's blocks.
        compress: Returns a stream that holds some bytes.

    """

    name: str
    blocks: Callable[[_Stream], Iterator[bytes | pa.Buffer | memoryview]]
    compress: Callable[[memoryview], bytes]

    def decompress(self, data: bytes, path: str) -> bytes:
        """Return the contents of a file.

        Args:
            data: The file.
            path: Its path, for errors.

        Raises:
            CheckpointDamagedError: The file is not a whole stream of this codec, or differs from a checksum in it.

        """
        return b"".join(self.blocks(_Stream(memoryview(data), path)))


def codec(name: str) -> Codec:
    """Return a codec by the name that Spark knows it by, or by its class there.

    Raises:
        CheckpointRefusedError: There is no such codec.

    """
    known = _CODECS.get(name.lower().removeprefix("org.apache.spark.io.").removesuffix("compressioncodec"))
    if known is None:
        raise CheckpointRefusedError(
            f"found the codec {name} in the offset log ({CODEC_SETTING}); expected one of {', '.join(_CODECS)}; start "
            "the query anew with one of these"
        )
    return known


def _lz4_blocks(stream: _Stream) -> Iterator[bytes | pa.Buffer | memoryview]:
    at, is_ended = 0, False
    raw = pa.Codec("lz4_raw")
    while at < len(stream.data):
        header = stream.take(at, _LZ4_HEADER.size, "a block's header")
        magic, token, stored, held, checksum = _LZ4_HEADER.unpack(header)
        method, largest = token & 0xF0, 1 << (_LZ4_LEVEL_BASE + (token & 0x0F))
        fits = 0 <= held <= largest and (held == 0) == (stored == 0)
        if magic != _LZ4_MAGIC or method not in (_LZ4_RAW, _LZ4_COMPRESSED) or not fits:
            raise stream.damaged(at, "no header of an LZ4 block")
        if method == _LZ4_RAW and stored != held:
            raise stream.damaged(at, "an LZ4 block of two sizes")
        is_ended = held == 0
        if is_ended and checksum != 0:
            raise stream.damaged(at, "a last LZ4 block with a checksum")
        if not is_ended:
            body = stream.take(at + _LZ4_HEADER.size, stored, "an LZ4 block")
            block = body if method == _LZ4_RAW else _decompressed(stream, at, raw, body, held)
            if xxhash.xxh32_intdigest(block, _LZ4_SEED) & _LZ4_MASK != checksum:
                raise stream.damaged(at, "an LZ4 block that differs from its checksum")
            yield block
        at += _LZ4_HEADER.size + stored
    if not is_ended:
        raise stream.damaged(at, "the end without a last LZ4 block")


def _lz4_stream(data: memoryview) -> bytes:
    raw = pa.Codec("lz4_raw")
    parts: list[bytes | memoryview] = []
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        body, method = raw.compress(block, asbytes=True), _LZ4_COMPRESSED
        if len(body) >= len(block):
            body, method = block, _LZ4_RAW
        checksum = xxhash.xxh32_intdigest(block, _LZ4_SEED) & _LZ4_MASK
        parts += (_LZ4_HEADER.pack(_LZ4_MAGIC, method | _LZ4_LEVEL, len(body), len(block), checksum), body)
    return b"".join((*parts, _LZ4_HEADER.pack(_LZ4_MAGIC, _LZ4_RAW | _LZ4_LEVEL, 0, 0, 0)))


def _snappy_blocks(stream: _Stream) -> Iterator[bytes | pa.Buffer | memoryview]:
    raw = pa.Codec("snappy")
    if stream.take(0, len(_SNAPPY_HEADER), "a header") != _SNAPPY_HEADER:
        raise stream.damaged(0, "no header of a snappy stream")
    at = len(_SNAPPY_HEADER)
    while at < len(stream.data):
        if stream.data[at : at + len(_SNAPPY_HEADER)] == _SNAPPY_HEADER:
            at += len(_SNAPPY_HEADER)
            continue
        size = int.from_bytes(stream.take(at, 4, "a chunk's size"), signed=True)
        body = stream.take(at + 4, size, "a snappy chunk")
        yield _decompressed(stream, at, raw, body, _snappy_size(stream, at, body))
        at += 4 + size


def _snappy_size(stream: _Stream, at: int, body: memoryview) -> int:
    """Return how many bytes a raw snappy block holds: it begins with this number, seven bits a byte."""
    size = 0
    for place, byte in enumerate(body[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80 and size <= _SNAPPY_LARGEST_RATIO * len(body):
            return size
    raise stream.damaged(at, "a snappy chunk without a size")


def _snappy_stream(data: memoryview) -> bytes:
    raw = pa.Codec("snappy")
    parts = [_SNAPPY_HEADER]
    for start in range(0, len(data), _SNAPPY_BLOCK_BYTES):
        body = raw.compress(data[start : start + _SNAPPY_BLOCK_BYTES], asbytes=True)
        parts += (len(body).to_bytes(4), body)
    return b"".join(parts)


def _zstd_blocks(stream: _Stream) -> Iterator[bytes | pa.Buffer | memoryview]:
    stream.take(0, 1, "a frame")
    try:
        yield pa.CompressedInputStream(pa.BufferReader(stream.data), "zstd").read()
    except OSError as error:
        raise stream.damaged(0, f"what is no zstd frame ({error})") from None


def _zstd_stream(data: memoryview) -> bytes:
    compressed: bytes = pa.Codec("zstd", compression_level=1).compress(data, asbytes=True)
    return compressed


def _lzf_blocks(stream: _Stream) -> Iterator[bytes | pa.Buffer | memoryview]:
    at = 0
    while at < len(stream.data):
        magic, kind, stored = struct.unpack(">2sBH", stream.take(at, 5, "a chunk's header"))
        if magic != _LZF_MAGIC or kind not in (_LZF_PLAIN, _LZF_COMPRESSED):
            raise stream.damaged(at, "no header of an LZF chunk")
        if kind == _LZF_PLAIN:
            yield stream.take(at + 5, stored, "an LZF chunk")
            at += 5 + stored
            continue
        held = int.from_bytes(stream.take(at + 5, 2, "a chunk's header"))
        yield _lzf_chunk(stream, at, stream.take(at + 7, stored, "an LZF chunk"), held)
        at += 7 + stored


def _lzf_chunk(stream: _Stream, at: int, body: memoryview, held: int) -> bytes:
    """Return the contents of an LZF chunk: literal runs, and references to earlier bytes."""
    out = bytearray()
    place = 0
    try:
        while place < len(body):
            control = body[place]
            place += 1
            if control < 32:
                run = body[place : place + control + 1]
                if len(run) <= control:
                    raise IndexError
                out += run
                place += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += body[place]
                place += 1
            start = len(out) - ((control & 0x1F) << 8) - body[place] - 1
            place += 1
            if start < 0:
                raise IndexError
            # A reference may reach into what it makes itself: the bytes since its start repeat.
            repeated = bytes(out[start : start + length + 2])
            out += (repeated * ((length + 2) // len(repeated) + 1))[: length + 2]
    except IndexError:
        raise stream.damaged(at, "an LZF chunk that is cut or contradicts itself") from None
    if len(out) != held:
        raise stream.damaged(at, f"an LZF chunk of {len(out):,} bytes, and {held:,} in its header")
    return bytes(out)


def _lzf_stream(data: memoryview) -> bytes:
    # Not compressed, which the format allows: in Python it would take longer than all else.
    parts: list[bytes | memoryview] = []
    for start in range(0, len(data), _LZF_BLOCK_BYTES):
        block = data[start : start + _LZF_BLOCK_BYTES]
        parts += (struct.pack(">2sBH", _LZF_MAGIC, _LZF_PLAIN, len(block)), block)
    return b"".join(parts)


def _decompressed(stream: _Stream, at: int, raw: pa.Codec, body: memoryview, held: int) -> pa.Buffer:
    try:
        block = raw.decompress(body, held)
    except OSError as error:
        raise stream.damaged(at, f"a block that cannot be decompressed ({error})") from None
    if len(block) != held:
        raise stream.damaged(at, f"a block of {len(block):,} bytes, and {held:,} in its header")
    return block


_CODECS = {
    each.name: each
    for each in (
        Codec("lz4", _lz4_blocks, _lz4_stream),
        Codec("snappy", _snappy_blocks, _snappy_stream),
        Codec("zstd", _zstd_blocks, _zstd_stream),
        Codec("lzf", _lzf_blocks, _lzf_stream),
    )
}
