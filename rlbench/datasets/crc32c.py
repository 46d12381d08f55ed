"""CRC-32C (Castagnoli), the checksum of TFRecord and TensorBoard files."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL: Final = 0x82F63B78  # reflected
ROW: Final = 2048  # bytes of one table lookup


def masked_crc(data: bytes) -> int:
    """Masked CRC-32C of TFRecord."""
    check = crc32c(data)
    return ((check >> 15 | check << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """CRC-32C by rows: it is linear, so the checksum of a row is the XOR of one table entry a byte."""
    state, rest = 0xFFFFFFFF, np.frombuffer(data, np.uint8)
    while rest.size:
        row, rest = rest[:ROW].copy(), rest[ROW:]
        row[:4] ^= np.frombuffer(state.to_bytes(4, "little"), np.uint8)[: row.size]
        sums = _positions()[np.arange(ROW - row.size, ROW), row]
        state = state >> 8 * row.size ^ int(np.bitwise_xor.reduce(sums))
    return state ^ 0xFFFFFFFF


@cache
def _positions() -> NDArray[np.uint32]:
    """CRC table of a byte at each position of a row, ``[ROW, 256]``."""
    byte = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        byte = np.where(byte & 1, byte >> 1 ^ np.uint32(POLYNOMIAL), byte >> 1)
    table = [byte]
    for _ in range(ROW - 1):
        table.append(byte[table[-1] & 0xFF] ^ (table[-1] >> 8))
    return np.stack(table[::-1])
