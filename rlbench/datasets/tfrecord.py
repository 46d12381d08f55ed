"""Read TFRecord shards of ``tf.train.Example`` without TensorFlow, with all checksums verified.

A record is its length, the length's masked CRC-32C, the bytes, and theirs. An Example is a map from names to lists of
bytes, floats or integers, in protocol buffers' wire format.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlbench import disk
from rlbench.errors import RefusedFile, UsageError

Example: TypeAlias = dict[str, list[bytes] | list[float] | list[int]]

POLYNOMIAL: Final = 0x82F63B78  # Castagnoli's, reflected
ROW: Final = 256  # bytes of one table lookup
MOST: Final = 1 << 26  # largest record in bytes


def records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield every record of a gzipped shard with its offset in the decompressed data.

    Raises:
        UsageError: the file is missing, or may not be read.
        RefusedFile: it is truncated, no gzip, or a checksum is wrong; the message names the offset.
    """
    at = 0
    try:
        with disk.open_regular(path, links=True) as raw, gzip.open(raw) as file:
            while head := file.read(12):
                size, check = struct.unpack("<QI", _whole(head, 12))
                if masked_crc(head[:8]) != check or size > MOST:
                    raise _damage(path, at, "the length's CRC-32C is wrong")
                body = _whole(file.read(size + 4), size + 4)
                if masked_crc(body[:size]) != int.from_bytes(body[size:], "little"):
                    raise _damage(path, at, "its CRC-32C is wrong")
                yield at, body[:size]
                at += size + 16
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damage(path, at, str(error)) from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); check the path") from None


def masked_crc(data: bytes) -> int:
    """Masked CRC-32C of TFRecord."""
    check = crc32c(data)
    return ((check >> 15 | check << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli); it is linear, so tables give the checksum of each row, and rows are then combined."""
    if len(data) < 4:
        state = 0xFFFFFFFF
        for byte in data:
            state = int(_byte()[(state ^ byte) & 0xFF]) ^ (state >> 8)
        return state ^ 0xFFFFFFFF
    rows = np.zeros(-len(data) % ROW + len(data), np.uint8)  # leading zeros do not change the checksum
    start = len(rows) - len(data)
    rows[start:] = np.frombuffer(data, np.uint8)
    rows[start : start + 4] ^= 0xFF  # initial value of the checksum
    sums = np.bitwise_xor.reduce(_positions()[np.arange(ROW), rows.reshape(-1, ROW)], axis=1)
    state, (first, second, third, fourth) = 0, _carry()
    for value in sums.tolist():
        carry = first[state & 0xFF] ^ second[state >> 8 & 0xFF] ^ third[state >> 16 & 0xFF] ^ fourth[state >> 24]
        state = carry ^ value
    return state ^ 0xFFFFFFFF


def example(raw: bytes) -> Example:
    """Parse a record by the names of its features.

    Raises:
        ValueError: it is no Example.
    """
    features: Example = {}
    for number, start, stop in _messages(raw, 0, len(raw)):
        if number != 1:
            continue
        for _, entry, end in _messages(raw, start, stop):
            parts = {key: (first, after) for key, first, after in _messages(raw, entry, end)}
            if 1 not in parts or 2 not in parts:
                raise ValueError("a feature without a name or a value")
            features[raw[slice(*parts[1])].decode("utf-8", "replace")] = _feature(raw, *parts[2])
    return features


def _feature(raw: bytes, start: int, stop: int) -> list[bytes] | list[float] | list[int]:
    for kind, first, after in _messages(raw, start, stop):
        match kind:
            case 1:  # bytes
                return [raw[begin:end] for _, begin, end in _messages(raw, first, after)]
            case 2:  # floats
                return _floats(raw, first, after)
            case 3:  # integers
                return _integers(raw, first, after)
            case _:
                raise ValueError(f"a list of the unknown kind {kind}")
    return []


def _floats(raw: bytes, at: int, stop: int) -> list[float]:
    values: list[float] = []
    while at < stop:
        tag, at = _varint(raw, at)
        size = 4
        if tag & 7 == 2:
            size, at = _varint(raw, at)
        if at + size > stop or size % 4:
            raise ValueError("a list of floats runs over its end")
        values += struct.unpack_from(f"<{size // 4}f", raw, at)
        at += size
    return values


def _integers(raw: bytes, at: int, stop: int) -> list[int]:
    values: list[int] = []
    while at < stop:
        tag, at = _varint(raw, at)
        end = at + 1  # a single varint
        if tag & 7 == 2:
            size, at = _varint(raw, at)
            end = at + size
        while at < end:
            value, at = _varint(raw, at)
            values.append(value - (value >> 63 << 64))
    if at > stop:
        raise ValueError("a list of integers runs over its end")
    return values


def _messages(raw: bytes, at: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield length-delimited fields: number, begin and end of their bytes."""
    while at < stop:
        tag, at = _varint(raw, at)
        size, at = _varint(raw, at)
        if tag & 7 != 2 or at + size > stop:
            raise ValueError(f"a field of the wire type {tag & 7}, {size} bytes long")
        yield tag >> 3, at, at + size
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(raw) and shift < 70:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number runs over its end")


def _whole(content: bytes, size: int) -> bytes:
    if len(content) < size:
        raise EOFError(f"{len(content)} bytes are left of {size}")
    return content


def _damage(path: Path, at: int, reason: str) -> RefusedFile:
    return RefusedFile(f"{path}: record at byte {at:,}: {reason}; download the shard again")


@cache
def _byte() -> NDArray[np.uint32]:
    """CRC table of a single byte, ``[256]``."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(POLYNOMIAL), table >> 1)
    return table


@cache
def _positions() -> NDArray[np.uint32]:
    """CRC table of a byte at each position of a row, ``[ROW, 256]``."""
    table = [_byte()]
    for _ in range(ROW - 1):
        table.append(_byte()[table[-1] & 0xFF] ^ (table[-1] >> 8))
    return np.stack(table[::-1])


@cache
def _carry() -> tuple[list[int], ...]:
    """Table of each byte of a checksum after another row, four lists of 256."""
    tables = []
    for byte in range(4):
        state = np.arange(256, dtype=np.uint32) << np.uint32(8 * byte)
        for _ in range(ROW):
            state = _byte()[state & 0xFF] ^ (state >> 8)
        tables.append(state.tolist())
    return tuple(tables)
