"""The tensors of a file that ``torch`` saved, read without running anything in it.

Such a file is a zip of raw numbers and a pickle that says how they lie. A pickle is a program; here is an interpreter
of the few steps that a plain dictionary of tensors needs. It knows six names, calls nothing, and refuses all else.
"""

from __future__ import annotations

import lzma
import pickletools
import zipfile
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from struct import error as StructError
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlbench.errors import RefusedFile

Array: TypeAlias = NDArray[np.generic]
PROGRAM: Final = 4 * 2**20  # bytes of a pickle; a hundred layers need some ten thousand
NUMBERS: Final = 512 * 2**20  # bytes of all tensors, and of what they are made from

STORAGES: Final = {
    "torch FloatStorage": np.dtype("<f4"),
    "torch DoubleStorage": np.dtype("<f8"),
    "torch LongStorage": np.dtype("<i8"),
}
CALLS: Final[dict[str, Literal["dictionary", "tensor", "parameter"]]] = {
    "collections OrderedDict": "dictionary",
    "torch._utils _rebuild_tensor_v2": "tensor",
    "torch._utils _rebuild_parameter": "parameter",
}


class Call(NamedTuple):
    """One of the functions that a dictionary of tensors is made with; it is never called, only recognised."""

    kind: Literal["dictionary", "tensor", "parameter"]


class Mark(NamedTuple):
    """Where a tuple or a list of entries begins on the stack."""


def tensors(raw: bytes, where: str) -> dict[str, Array]:
    """The tensors in the bytes of a file by name.

    Raises:
        RefusedFile: it is damaged, or holds anything but tensors; the message names what.
    """
    try:
        with zipfile.ZipFile(BytesIO(raw)) as file:
            return _tensors(file, where)
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        NotImplementedError,
        EOFError,
        RuntimeError,
        ValueError,
        StructError,
    ) as error:
        raise RefusedFile(f"{where}: not a zip of tensors ({error}); save it again with torch 1.6 or newer") from None


def member(file: zipfile.ZipFile, name: str, limit: int, where: str) -> bytes:
    """One file of a zip, of at most ``limit`` bytes.

    Raises:
        RefusedFile: it is missing, damaged or larger.
    """
    try:
        info = file.getinfo(name)
    except KeyError:
        raise RefusedFile(f"{where}: {name} is missing; restore the file") from None
    if info.file_size > limit:
        raise RefusedFile(f"{where}: {name} has {info.file_size:,} bytes, {limit:,} are allowed; look at the file")
    return file.read(info)


def _tensors(file: zipfile.ZipFile, where: str) -> dict[str, Array]:
    programs = [name for name in file.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(programs) != 1:
        raise RefusedFile(f"{where}: holds no data.pkl; save it again with torch 1.6 or newer")
    folder = programs[0].removesuffix("data.pkl")
    order = folder + "byteorder"
    if order in file.namelist() and member(file, order, 16, where) != b"little":
        raise RefusedFile(f"{where}: was saved on a big-endian machine; save it again on another")
    made = Interpreter(lambda name: member(file, f"{folder}data/{name}", NUMBERS, where), where).run(
        member(file, programs[0], PROGRAM, where)
    )
    found: dict[str, Array] = {}
    for name, value in made.items() if isinstance(made, dict) else ():
        if not isinstance(value, np.ndarray):
            raise RefusedFile(f"{where}: {name:.80} is no tensor; expected a plain dictionary of tensors")
        found[name] = value
    if not found:
        raise RefusedFile(f"{where}: holds no dictionary of tensors; expected a state_dict")
    return found


class Interpreter:
    """A stack and a memory for what a pickle makes: numbers, texts, tuples, dictionaries and tensors."""

    def __init__(self, storage: Callable[[str], bytes], where: str) -> None:
        self.storage, self.where = storage, where
        self.stack: list[object] = []
        self.memory: dict[int, object] = {}
        self.left = NUMBERS  # bytes that may still be read or made

    def run(self, program: bytes) -> object:
        """What the program makes.

        Raises:
            RefusedFile: the program is damaged, or makes anything else.
        """
        try:
            for opcode, argument, _ in pickletools.genops(program):
                if opcode.name == "STOP":
                    return self.stack.pop()
                self._step(opcode.name, argument)
        except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
            raise RefusedFile(f"{self.where}: damaged ({error}); restore the file") from None
        raise RefusedFile(f"{self.where}: damaged (its pickle does not end); restore the file")

    def _step(self, name: str, argument: object) -> None:
        """What makes numbers, texts, tuples and dictionaries."""
        match name:
            case "PROTO" | "FRAME":
                pass
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINUNICODE" | "SHORT_BINUNICODE" | "NONE":
                self.stack.append(argument)
            case "NEWTRUE" | "NEWFALSE":
                self.stack.append(name == "NEWTRUE")
            case "MARK":
                self.stack.append(Mark())
            case "EMPTY_TUPLE" | "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                self._tuple(name)
            case "EMPTY_DICT":
                self.stack.append({})
            case "SETITEM" | "SETITEMS":
                self._fill(self._taken(2) if name == "SETITEM" else self._since_mark())
            case _:
                self._further(name, argument)

    def _further(self, name: str, argument: object) -> None:
        """What remembers, names and would call."""
        match name, argument:
            case "BINPUT" | "LONG_BINPUT", int(place):
                self.memory[place] = self.stack[-1]
            case "MEMOIZE", None:
                self.memory[len(self.memory)] = self.stack[-1]
            case "BINGET" | "LONG_BINGET", int(place):
                self.stack.append(self.memory[place])
            case "GLOBAL", str(known):
                self.stack.append(self._known(known))
            case "STACK_GLOBAL", None:
                self.stack.append(self._known(" ".join(self._texts(2))))
            case "BINPERSID", None:
                self.stack.append(self._numbers(self.stack.pop()))
            case "REDUCE", None:
                self.stack.append(self._made(*self._taken(2)))
            case "BUILD", None:
                self._annotate(self.stack.pop())
            case _:
                raise self._refusal(f"the pickle step {name}")

    def _tuple(self, name: str) -> None:
        size = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}.get(name)
        self.stack.append(tuple(self._since_mark() if size is None else self._taken(size)))

    def _fill(self, entries: list[object]) -> None:
        """Put keys and values into the dictionary below them."""
        made, keys = self.stack[-1], entries[::2]
        if not isinstance(made, dict) or len(entries) % 2 or not all(isinstance(key, str) for key in keys):
            raise self._refusal("a dictionary whose entries have no names")
        made |= dict(zip(keys, entries[1::2], strict=True))

    def _annotate(self, state: object) -> None:
        """What torch writes beside a dictionary, the versions of its layers, is passed over."""
        if not isinstance(self.stack[-1], dict) or not isinstance(state, dict) or state.keys() != {"_metadata"}:
            raise self._refusal("an object with a state of its own")

    def _known(self, name: str) -> object:
        """What a name stands for, where it is one of the few."""
        if name in STORAGES:
            return STORAGES[name]
        if name not in CALLS:
            raise self._refusal(name.replace(" ", "."))
        return Call(CALLS[name])

    def _numbers(self, persistent: object) -> Array:
        """The numbers of ``("storage", type, key, device, count)``."""
        match persistent:
            case ("storage", np.dtype() as dtype, str(key), str(), int(count)) if key.isdecimal():
                self._spend(count * dtype.itemsize)
                raw = self.storage(key)
                if len(raw) == count * dtype.itemsize:
                    return np.frombuffer(raw, dtype)
            case _:
                pass
        raise self._refusal("numbers of a wrong length or type")

    def _made(self, call: object, given: object) -> object:
        """What a known function would return."""
        match call, given:
            case Call("dictionary"), ():
                return {}
            case Call("tensor"), (
                np.ndarray() as numbers,
                int(start),
                tuple(shape),
                tuple(strides),
                bool(),
                dict(),
                *_,
            ):
                return self._viewed(numbers, start, shape, strides)
            case Call("parameter"), (np.ndarray() as array, bool(), dict()):
                return array
            case _:
                pass
        raise self._refusal("a call of what is not to be called")

    def _viewed(self, numbers: Array, start: int, shape: tuple[object, ...], strides: tuple[object, ...]) -> Array:
        """The tensor of that shape in a row of numbers, copied; no number is outside it, none is shown twice."""
        sizes = [size for size in shape if isinstance(size, int) and size >= 0]
        steps = [step for step in strides if isinstance(step, int) and step >= 0]
        if len(sizes) != len(shape) or len(steps) != len(sizes) or len(strides) != len(steps) or start < 0:
            raise self._refusal("a tensor of an impossible shape")
        last = start + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
        count = int(np.prod(sizes, dtype=np.float64))
        if count > len(numbers) or (count and last >= len(numbers)):
            raise self._refusal("a tensor that reaches beyond its numbers")
        self._spend(count * numbers.itemsize)
        width = numbers.itemsize
        view = np.lib.stride_tricks.as_strided(
            numbers[start:], sizes, [step * width for step in steps], writeable=False
        )
        return np.array(view, order="C")

    def _spend(self, size: int) -> None:
        """Refuse what would fill the memory."""
        self.left -= size
        if self.left < 0:
            raise RefusedFile(f"{self.where}: holds more than {NUMBERS:,} bytes of numbers; look at the file")

    def _texts(self, count: int) -> list[str]:
        """The topmost objects, all of them texts."""
        return [part for part in self._taken(count) if isinstance(part, str)]

    def _taken(self, count: int) -> list[object]:
        """The topmost objects, lowest first."""
        if count > len(self.stack):
            raise IndexError("more is taken than there is")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def _since_mark(self) -> list[object]:
        above = next((i for i, item in enumerate(reversed(self.stack)) if isinstance(item, Mark)), None)
        if above is None:
            raise IndexError("nothing is marked")
        place = len(self.stack) - 1 - above
        taken = self.stack[place + 1 :]
        del self.stack[place:]
        return taken

    def _refusal(self, what: str) -> RefusedFile:
        return RefusedFile(f"{self.where}: holds {what}, which is never run; expected a plain dictionary of tensors")


def shown(arrays: Mapping[str, Array]) -> str:
    """The first names, for a message."""
    return ", ".join(sorted(arrays)[:4])
