"""Read TFRecord shards of ``tf.train.Example`` without TensorFlow, with all checksums verified.

A record is its length, the length's masked CRC-32C, the bytes, and theirs. An Example is a map from names to lists of
bytes, floats or integers.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from rlbench import disk
from rlbench.datasets.crc32c import masked_crc
from rlbench.errors import RefusedFile

Example: TypeAlias = dict[str, list[bytes] | list[float] | list[int]]

MAX_RECORD_BYTES: Final = 1 << 20  # bytes of a record; those of RL Unplugged have some ten thousand

MESSAGES: Final = {
    "BytesList": [("value", "BYTES", True)],
    "FloatList": [("value", "FLOAT", True)],
    "Int64List": [("value", "INT64", True)],
    "Feature": [
        ("bytes_list", "BytesList", False),
        ("float_list", "FloatList", False),
        ("int64_list", "Int64List", False),
    ],
    "Entry": [("key", "BYTES", False), ("value", "Feature", False)],
    "Features": [("feature", "Entry", True)],
    "Example": [("features", "Features", False)],
}
"""Fields of the messages of ``tensorflow/core/example``: name, type, and True for a list; numbered from 1."""


def records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield every record of a gzipped shard with its offset in the decompressed data.

    Raises:
        RefusedFile: it cannot be read, is truncated, no gzip, or has a wrong checksum; the message names the offset.
    """
    at = 0
    try:
        with disk.open_regular(path, links=True) as raw, gzip.open(raw) as file:
            while head := file.read(12):
                size, check = struct.unpack("<QI", _check_length(head, 12))
                if masked_crc(head[:8]) != check:
                    raise _damage(path, at, "the length's CRC-32C is wrong")
                if size > MAX_RECORD_BYTES:
                    raise _damage(path, at, f"it has {size:,} bytes, {MAX_RECORD_BYTES:,} are allowed")
                body = _check_length(file.read(size + 4), size + 4)
                if masked_crc(body[:size]) != int.from_bytes(body[size:], "little"):
                    raise _damage(path, at, "its CRC-32C is wrong")
                yield at, body[:size]
                at += size + 16
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damage(path, at, str(error)) from None
    except OSError as error:
        raise RefusedFile(f"{path}: cannot be read ({error.strerror}); check it and its permissions") from None


def example(raw: bytes) -> Example:
    """Parse a record by the names of its features.

    Raises:
        ValueError: it is no Example.
    """
    features: Example = {}
    try:
        record = _message().FromString(raw)
    except DecodeError as error:
        raise ValueError(f"no tf.train.Example ({error})") from None
    for _, listing in record.ListFields():
        for _, entries in listing.ListFields():
            for entry in entries:
                fields = {field.name: value for field, value in entry.ListFields()}
                lists = fields["value"].ListFields() if "value" in fields else ()
                name = fields.get("key", b"").decode("utf-8", "replace")
                features[name] = next((list(kind.value) for _, kind in lists), [])
    return features


@cache
def _message() -> type[Message]:
    """``tf.train.Example``, whose map is read as the list of entries that it is on the wire."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, of, is_list) in enumerate(fields, start=1):
            kind = getattr(kinds, f"TYPE_{of}", kinds.TYPE_MESSAGE)
            label = kinds.LABEL_REPEATED if is_list else kinds.LABEL_OPTIONAL
            whole = f".t.{of}" if kind == kinds.TYPE_MESSAGE else None
            message.field.add(name=field, number=number, type=kind, type_name=whole, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


def _check_length(content: bytes, size: int) -> bytes:
    if len(content) < size:
        raise EOFError(f"{len(content)} bytes are left of {size}")
    return content


def _damage(path: Path, at: int, reason: str) -> RefusedFile:
    return RefusedFile(f"{path}: record at byte {at:,}: {reason}; download the shard again")
