"""Read arrays of HDF5 files, each whole and checked, or refused by its key.

No file can run code: arrays of objects, texts and variable length are refused before they are read. Links to other
files are refused, since the checksum covers one file alone; so are second names of an array or a group, by which a
small file claims any amount of memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from rlbench.config.footprint import size_text
from rlbench.datasets.episodes import CHUNK
from rlbench.errors import RefusedFile, UsageError

UNREAD = frozenset({"infos", "metadata"})  # groups of a D4RL file or of a Minari episode that are not read
DEEPEST = 32  # groups in groups
COMPRESSIONS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_LZF}
FILTERS = COMPRESSIONS | {h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
MAX_LZF_RATIO = 88  # bytes that LZF makes of one, at most: 264 of three
CHECKSUM = 4  # bytes of a chunk's own checksum
OVERHEAD = 64  # bytes, at most, by which a compression enlarges a small chunk


@contextmanager
def open_file(path: Path, *, max_bytes: int | None = None) -> Iterator[h5py.File]:
    """Open an HDF5 file to read, whose arrays must fit into ``max_bytes`` if given.

    Raises:
        UsageError: the file is missing, or may not be read or locked.
        RefusedFile: it is no whole HDF5 file, is being written, links to another file, does not fit, or is damaged.
    """
    if not path.is_file():
        problem = "is no regular file; name a file" if path.exists() else "no such file; check the path"
        raise UsageError(f"{path}: {problem}")
    try:
        file = h5py.File(path, "r", locking="best-effort")
    except PermissionError:
        raise UsageError(f"{path}: may not be read; check its permissions") from None
    except (OSError, RuntimeError) as error:
        reason = str(error).partition("(")[2].removesuffix(")") or str(error)
        if "unable to lock" in reason:
            raise UsageError(
                f"{path}: cannot be locked, or is being written ({reason}); close it in the other program, or set "
                "HDF5_USE_FILE_LOCKING=FALSE where a disk has no locks"
            ) from None
        if "open for write" in reason or "open for SWMR" in reason:
            raise RefusedFile(
                f"{path}: is being written, or the program that wrote it was killed ({reason}); close it there, repair "
                "it with h5clear -s, or take another copy"
            ) from None
        raise RefusedFile(f"{path}: no whole HDF5 file ({reason}); delete it and download it again") from None
    with file:
        try:
            _refuse_external(file)
            if max_bytes is not None:
                _refuse_oversized(file, max_bytes)
            yield file
        except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:  # errors of HDF5 for a damaged file
            raise damage_error(str(path), error) from None


def has_key(group: h5py.Group, key: str) -> bool:
    """True if the group names the key, readable or not."""
    return group.get(key, getlink=True) is not None


def read_attributes(path: Path) -> dict[str, object]:
    """Attributes of a file: texts, and numbers as Python's own.

    Raises:
        RefusedFile: it is damaged.
    """
    with open_file(path) as file:
        items = scalar_attributes(file)
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in items.items()}


def scalar_attributes(file: h5py.File) -> dict[str, object]:
    """Read the attributes that are one number or text; others are not read, since they may claim any memory.

    h5py gives a name that is not UTF-8 as bytes.
    """
    scalars = [name for name in file.attrs if is_number_or_text(file.attrs.get_id(name))]
    return {name if isinstance(name, str) else name.decode(errors="replace"): file.attrs[name] for name in scalars}


def is_number_or_text(item: h5py.Dataset | h5py.h5a.AttrID) -> bool:
    """True if an array or attribute is one number or text, and no list or sequence."""
    return item.shape == () and (item.dtype.kind in "biuf" or h5py.check_string_dtype(item.dtype) is not None)


def read_numbers(group: h5py.Group, key: str, rank: int) -> NDArray[np.float32]:
    """Read finite numbers as float32: ``[N, F]`` at rank 2; ``[N]`` at rank 1, also where ``[N, 1]`` is stored.

    Raises:
        RefusedFile: missing, damaged, not numbers, of another shape, or not finite.
    """
    array = _array(group, key)
    where = array_name(group, key)
    shape = _shape(array, where, rank)
    _refuse_unwritten(array, where)
    try:
        values = np.empty(shape, np.float32)
        array.read_direct(values)
    except MemoryError:
        raise RefusedFile(f"{where}: claims the shape {shape}, more than fits into memory; check the file") from None
    except (OSError, RuntimeError) as error:
        raise damage_error(where, error) from None
    for start in range(0, shape[0], CHUNK):
        _refuse_infinite(values[start : start + CHUNK], array, start, where)
    return values.reshape(-1) if rank == 1 else values


def read_chunks(group: h5py.Group, key: str, shape: tuple[int, ...]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield ``CHUNK`` rows of an array ``[N, F]`` of this shape at a time, each with its first row's index.

    Raises:
        RefusedFile: as ``read_numbers``.
    """
    array, where = _array(group, key), array_name(group, key)
    actual = _shape(array, where, len(shape))
    if actual != shape:
        raise RefusedFile(f"{where}: shape {list(actual)}, observations have {list(shape)}; check the file")
    _refuse_unwritten(array, where)
    for start in range(0, shape[0], CHUNK):
        try:
            with np.errstate(over="ignore"):  # refused below
                values = array[start : start + CHUNK].astype(np.float32)
        except (OSError, RuntimeError) as error:
            raise damage_error(where, error) from None
        _refuse_infinite(values, array, start, where)
        yield start, values


def array_shape(group: h5py.Group, key: str, rank: int) -> tuple[int, ...]:
    """Shape of an array ``[N]`` or ``[N, F]``, from its header alone.

    Raises:
        RefusedFile: missing, damaged, not numbers, or of another shape.
    """
    return _shape(_array(group, key), array_name(group, key), rank)


def written_rows(group: h5py.Group, key: str, rank: int) -> int:
    """Number of rows of an array ``[N]`` or ``[N, F]``, from its header alone.

    Raises:
        RefusedFile: as ``array_shape``, or rows of it were never written.
    """
    _refuse_unwritten(_array(group, key), array_name(group, key))
    return array_shape(group, key, rank)[0]


def count_nonzero(group: h5py.Group, key: str) -> int:
    """Count the numbers of an array ``[N]`` that are not 0, ``CHUNK`` of them at a time; 0 if rows are unwritten.

    Raises:
        RefusedFile: missing, damaged, not numbers, of another shape, or with chunks that inflate.
    """
    rows, array = array_shape(group, key, 1)[0], _array(group, key)
    if array.id.get_space_status() != h5py.h5d.SPACE_STATUS_ALLOCATED:
        return 0  # a small file may claim any number of such rows
    _refuse_inflating(array)
    return sum(int(np.count_nonzero(array[start : start + CHUNK])) for start in range(0, rows, CHUNK))


def read_actions(group: h5py.Group, key: str) -> NDArray[np.float32]:
    """Read continuous actions ``[N, A]``.

    Raises:
        RefusedFile: the actions are discrete.
    """
    array = _array(group, key)
    if array.dtype.kind != "f":
        raise RefusedFile(f"{array_name(group, key)}: discrete actions ({array.dtype}); give float [N, A]")
    return read_numbers(group, key, rank=2)


def read_flags(group: h5py.Group, key: str) -> NDArray[np.bool_]:
    """Read flags ``[N]``, stored as booleans or as the numbers 0 and 1.

    Raises:
        RefusedFile: it holds anything else.
    """
    values = read_numbers(group, key, rank=1)
    if not np.isin(values, (0, 1)).all():
        raise RefusedFile(f"{array_name(group, key)}: holds other values than 0 and 1; check the file")
    return values.astype(np.bool_)


def array_name(group: h5py.Group, key: str) -> str:
    """Name of an array in messages: the file's path and the key."""
    return f"{group.file.filename}: {f'{group.name}/{key}'.strip('/')}"


def damage_error(where: str, error: Exception) -> RefusedFile:
    """Return the refusal of an array that HDF5 cannot read."""
    return RefusedFile(f"{where}: damaged ({error}); delete the file and download it again")


def _refuse_external(file: h5py.File) -> None:
    """Refuse links to other files, external raw data, virtual data sets and second names."""
    links: dict[bytes, int] = {}

    def visit(name: bytes, link: h5py.h5l.LinkInfo) -> bytes | None:
        links[name] = link.type
        return name if name.count(b"/") > DEEPEST else None  # ends the visit, which takes hours and HDF5's stack

    if file.id.links.visit(visit, info=True) is not None:
        raise RefusedFile(f"{file.filename}: has groups in groups, more than {DEEPEST}; check the file")
    for name, kind in links.items():
        where = f"{file.filename}: {name.decode(errors='replace')}"
        item = h5py.h5o.open(file.id, name) if kind == h5py.h5l.TYPE_HARD else None
        layout = item.get_create_plist() if isinstance(item, h5py.h5d.DatasetID) else None
        outside = layout is not None and (layout.get_layout() == h5py.h5d.VIRTUAL or layout.get_external_count())
        if outside or (item is None and kind != h5py.h5l.TYPE_SOFT):
            raise RefusedFile(f"{where}: lies in another file, which no checksum covers; copy the data into this one")
        if item is None or (not isinstance(item, h5py.h5t.TypeID) and h5py.h5o.get_info(item).rc > 1):
            raise RefusedFile(f"{where}: is a second name of data in this file; copy the data to each name")


def _refuse_oversized(file: h5py.File, max_bytes: int) -> None:
    """Refuse a file whose chunks inflate, or whose arrays do not fit twice into ``max_bytes``: read and in replay."""
    arrays: list[h5py.Dataset] = []

    def add(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and UNREAD.isdisjoint(name.split("/")[:2]):
            arrays.append(item)

    file.visititems(add)
    # HDF5 decompresses a chunk whole, few rows or not
    chunk = max(
        (_chunk_bytes(array) * (2 * MAX_LZF_RATIO if array.compression == "lzf" else 1) for array in arrays), default=0
    )
    need = 2 * (chunk + sum(4 * int(array.size or 0) for array in arrays))
    if need > max_bytes:
        problem = f"holds numbers that take {size_text(need)} of memory, this machine has {size_text(max_bytes)}"
        raise RefusedFile(f"{file.filename}: {problem} free; check the file, or use a larger machine")
    for array in arrays:
        _refuse_inflating(array)


def _refuse_inflating(array: h5py.Dataset) -> None:
    """Refuse chunks that hold more than their shape says: HDF5 gives them any amount of memory."""
    where, properties = f"{array.file.filename}: {array.name.strip('/')}", array.id.get_create_plist()
    filters = [properties.get_filter(number)[0] for number in range(properties.get_nfilters())]
    inner_filters = [name for name in filters if name != h5py.h5z.FILTER_FLETCHER32][:-1]
    if not FILTERS.issuperset(filters) or COMPRESSIONS.intersection(inner_filters):  # an outer filter hides the size
        raise RefusedFile(
            f"{where}: has filters other than shuffle, then gzip or lzf, then a checksum; use h5repack -f GZIP=4"
        )
    if not array.chunks:
        return
    chunks: list[h5py.h5d.StoreInfo] = []
    array.id.chunk_iter(chunks.append)
    size = _chunk_bytes(array) + CHECKSUM
    stored_limit = 2 * size + OVERHEAD
    for chunk in chunks:
        content = b""
        with suppress(zlib.error):  # HDF5 names the damage
            if array.compression == "gzip" and chunk.size <= stored_limit:
                raw = array.id.read_direct_chunk(chunk.chunk_offset)[1]
                content = zlib.decompressobj().decompress(raw, size + 1)
        if len(content) > size or chunk.size > stored_limit:
            raise RefusedFile(f"{where}: a chunk holds more than its {size - CHECKSUM:,} bytes; check the file")


def _chunk_bytes(array: h5py.Dataset) -> int:
    return prod(array.chunks) * array.dtype.itemsize if array.chunks else 0


def _array(group: h5py.Group, key: str) -> h5py.Dataset:
    where = array_name(group, key)
    if not has_key(group, key):
        raise RefusedFile(f"{where}: missing; this is not the layout expected here, check the file")
    try:
        array = group[key]
    except (KeyError, OSError, RuntimeError) as error:
        raise damage_error(where, error) from None
    if not isinstance(array, h5py.Dataset):
        raise RefusedFile(f"{where}: a group where an array was expected; check the file")
    if array.dtype.kind not in "fiub":
        kinds = {"O": "objects or texts of variable length", "V": "opaque or compound records", "S": "texts"}
        content = kinds.get(array.dtype.kind, f"{array.dtype} values")
        raise RefusedFile(f"{where}: holds {content}, not numbers, and is not read; convert the file")
    return array


def _refuse_infinite(values: NDArray[np.float32], array: h5py.Dataset, start: int, where: str) -> None:
    """Refuse NaN, infinity and what float32 cannot hold, by the row of ``array``; ``values`` begin at row ``start``."""
    finite = np.isfinite(values)
    if not finite.all():
        row, *column = map(int, np.argwhere(~finite)[0])
        number = array[(start + row, *column)]
        what = f"{number} does not fit float32" if np.isfinite(number) else "NaN or infinity"
        raise RefusedFile(f"{where}: {what} in row {start + row}; take the file from its source again")


def _refuse_unwritten(array: h5py.Dataset, where: str) -> None:
    """Refuse an array with rows that were never written: they read as its fill value, mostly 0."""
    if array.id.get_space_status() != h5py.h5d.SPACE_STATUS_ALLOCATED:
        raise RefusedFile(f"{where}: holds rows that were never written; take the file from its source again")


def _shape(array: h5py.Dataset, where: str, rank: int) -> tuple[int, ...]:
    shape: tuple[int, ...] = array.shape or ()
    fits = len(shape) == rank or (rank == 1 and len(shape) == 2 and shape[1] == 1)
    if not fits:
        expected = "[steps, numbers]" if rank == 2 else "[steps]"
        raise RefusedFile(f"{where}: has the shape {list(shape)}, expected {expected}; check the file")
    if 0 in shape:
        raise RefusedFile(f"{where}: is empty, shape {list(shape)}; take the file from its source again")
    return shape
