r"""The checksum files that may lie beside a file ``N`` of a checkpoint, and whether Spark compares them.

- ``.N.crc``, by Hadoop's local file system: the bytes ``crc\0``, the size of a chunk, a CRC-32 for each chunk, all
  integers big-endian;
- ``N.crc``, by Spark 4.1 and newer, for state files: JSON with the size of the file and its CRC-32C.

Spark 4.3.0 reads most files of a checkpoint through Hadoop's ``FileContext``, which does not look at ``.N.crc``. Of
state files it compares (seen):

======================  ========  =======
state checkpoint format  ``.N.crc``  ``N.crc``
======================  ========  =======
1: ``N.zip``               yes       no
1: other                   no        no
2                          no        yes
======================  ========  =======

In format 1 a repeated batch writes a file of the same name again, so ``N.crc`` may be of another attempt (SPARK-56461).
A ``.N.crc`` that is none of Hadoop's is ignored.
"""

from __future__ import annotations

import re
import zlib

import google_crc32c
import msgspec

_MAGIC = b"crc\0"
_HEADER_BYTES = 8
_CHECKSUM_BYTES = 4
_CHECKSUMS = 1 << 8 * _CHECKSUM_BYTES
_STATE = re.compile(r"(?:.*/)?\d+(?P<id>_[^/.]+)?\.(?P<kind>delta|snapshot|zip|changelog)")


class _SparksChecksum(msgspec.Struct):
    mainFileSize: int
    value: int


def agrees_with_hadoops(checksums: bytes, data: bytes) -> bool:
    """Return whether a file agrees with ``.N.crc``."""
    chunk = int.from_bytes(checksums[len(_MAGIC) : _HEADER_BYTES])
    if not checksums.startswith(_MAGIC) or chunk == 0:
        return False
    actual = b"".join(
        zlib.crc32(data[start : start + chunk]).to_bytes(_CHECKSUM_BYTES) for start in range(0, len(data), chunk)
    )
    return actual == checksums[_HEADER_BYTES:]


def agrees_with_sparks(checksum: bytes, data: bytes) -> bool:
    """Return whether a file agrees with ``N.crc``."""
    try:
        recorded = msgspec.json.decode(checksum, type=_SparksChecksum)
    except msgspec.MsgspecError:
        return False
    # Java writes it as a signed number.
    return recorded.mainFileSize == len(data) and recorded.value % _CHECKSUMS == google_crc32c.value(data)


def is_state(path: str) -> bool:
    """Return whether a file is one for which Spark may write ``N.crc``."""
    return _STATE.fullmatch(path) is not None


def is_compared_with_hadoops(path: str, checksums: bytes) -> bool:
    """Return whether Spark compares a file on a local file system with ``.N.crc``."""
    match = _STATE.fullmatch(path)
    return match is not None and match["kind"] == "zip" and match["id"] is None and checksums.startswith(_MAGIC)


def is_compared_with_sparks(path: str) -> bool:
    """Return whether Spark compares a file with ``N.crc``."""
    match = _STATE.fullmatch(path)
    return match is not None and match["id"] is not None
