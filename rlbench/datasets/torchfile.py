"""Read the tensors of a file of ``torch.save`` by ``torch.load(..., weights_only=True)``, which runs no code of it.

First the zip is checked and copied within bounds, and the opcodes of its pickle are compared with the few opcodes and
six names of a state_dict. Others that torch allows, as a set that takes for ever to build, are refused by name.
"""

from __future__ import annotations

import pickletools
import zipfile
from io import BytesIO
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlbench.errors import RefusedFile

Array: TypeAlias = NDArray[np.generic]
MAX_PICKLE_BYTES: Final = 4 * 2**20  # bytes of a pickle; a hundred layers need some ten thousand
MAX_UNPACKED_BYTES: Final = 512 * 2**20  # bytes of all members, and of all tensors

NAMES: Final = frozenset(
    {
        *("torch FloatStorage", "torch DoubleStorage", "torch LongStorage", "collections OrderedDict"),
        *("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"),
    }
)
OPCODES: Final = frozenset(
    {
        *("PROTO", "MARK", "STOP", "BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE"),
        *("NONE", "NEWTRUE", "NEWFALSE"),
        *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "SETITEM", "SETITEMS", "GLOBAL"),
        *("BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "BINPERSID", "REDUCE", "BUILD"),
    }
)
NEWER_OPCODES: Final = frozenset({"FRAME", "MEMOIZE", "SHORT_BINUNICODE"})
"""Opcodes of newer pickles; torch refuses them without a name."""
MEMO_OPCODES: Final = frozenset({"GLOBAL", "BINUNICODE", "REDUCE"})  # opcodes whose result may be read from the memo


def tensors(raw: bytes, where: str) -> dict[str, Array]:
    """Read the tensors in the bytes of a file by name.

    Raises:
        RefusedFile: it is damaged, or holds anything but tensors; the message names it.
    """
    import torch

    try:
        with zipfile.ZipFile(BytesIO(raw)) as file:
            return _arrays(torch.load(_copy(file, where), map_location="cpu", weights_only=True), where)
    except RefusedFile:
        raise
    except Exception as error:  # noqa: BLE001 - zipfile, its decompressors and torch each raise their own
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        if "weights_only" in reason:  # torch advises to trust the file
            reason = "damaged, or more than a state_dict"
        raise RefusedFile(
            f"{where}: not a zip of tensors ({reason:.200}); save it again with torch 1.6 or newer"
        ) from None


def member(file: zipfile.ZipFile, name: str, limit: int, where: str) -> bytes:
    """Read one file of a zip, of at most ``limit`` bytes.

    Raises:
        RefusedFile: it is missing, damaged or larger.
    """
    try:
        info = file.getinfo(name)
    except KeyError:
        raise RefusedFile(f"{where}: {name} is missing; restore the file") from None
    if info.file_size > limit:
        raise RefusedFile(f"{where}: {name} has {info.file_size:,} bytes, {limit:,} are allowed; check the file")
    return file.read(info)


def _copy(file: zipfile.ZipFile, where: str) -> BytesIO:
    """Copy the checked members of the zip, so that torch reads these alone."""
    programs = [name for name in file.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(programs) != 1:
        raise RefusedFile(f"{where}: holds no data.pkl; save it again with torch 1.6 or newer")
    _check_pickle(member(file, programs[0], MAX_PICKLE_BYTES, where), where)
    if sum(info.file_size for info in file.infolist()) > MAX_UNPACKED_BYTES:
        raise RefusedFile(f"{where}: holds more than {MAX_UNPACKED_BYTES:,} bytes of numbers; check the file")
    copy = BytesIO()
    with zipfile.ZipFile(copy, "w") as target:
        for name in dict.fromkeys(file.namelist()):
            target.writestr(name, member(file, name, MAX_UNPACKED_BYTES, where))
    copy.seek(0)
    return copy


def _check_pickle(program: bytes, where: str) -> None:
    """Refuse a pickle with an opcode or a name that no state_dict needs, without running it."""
    memo: set[object] = set()
    texts, before = ["", ""], ""
    try:
        for step, argument, _ in pickletools.genops(program):
            if step.name == "STACK_GLOBAL":
                raise _refusal(".".join(texts), where)
            if step.name not in OPCODES | NEWER_OPCODES:
                raise _refusal(f"the pickle step {step.name}", where)
            if step.name == "GLOBAL" and argument not in NAMES:
                raise _refusal(str(argument).replace(" ", "."), where)
            if step.name.endswith("BINPUT"):
                (memo.add if before in MEMO_OPCODES else memo.discard)(argument)
            if step.name.endswith("BINGET") and argument not in memo:
                raise _refusal("a tuple or dictionary that is used twice", where)
            texts = [texts[1], argument] if isinstance(argument, str) else texts
            before = step.name
    except ValueError as error:
        raise RefusedFile(f"{where}: damaged ({error}); restore the file") from None


def _arrays(state: object, where: str) -> dict[str, Array]:
    """Convert tensors to arrays, none of which is larger than its storage."""
    from torch import Tensor

    if not isinstance(state, dict) or not state:
        raise RefusedFile(f"{where}: holds no dictionary of tensors; expected a state_dict")
    arrays: dict[str, Array] = {}
    remaining = MAX_UNPACKED_BYTES
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise RefusedFile(f"{where}: {name!s:.80} is no tensor; expected a plain dictionary of tensors")
        remaining -= value.nbytes
        if value.nbytes > value.untyped_storage().nbytes():
            raise _refusal("a tensor that reaches beyond its numbers", where)
        if remaining < 0:
            raise RefusedFile(f"{where}: holds more than {MAX_UNPACKED_BYTES:,} bytes of numbers; check the file")
        arrays[name] = value.detach().numpy()
    return arrays


def _refusal(what: str, where: str) -> RefusedFile:
    return RefusedFile(f"{where}: holds {what}, which is never run; expected a plain dictionary of tensors")
