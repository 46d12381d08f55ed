"""Malformed values and documents for robustness tests."""

import copy
import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.errors import RlbenchError

Tree = dict[str, object] | list[object]

DEEP = "<deep>"
"""Drawn in place of what would be too long to show; ``spelled`` makes brackets of it that no recursion survives."""

NUMBERS = st.one_of(
    st.integers(-3, 300),
    st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**19, 10**400, -(10**400)]),
    st.floats(),
    st.sampled_from([1e308, -0.0, 5e-324, 0.5]),
)
ODD_TEXTS = ("", "..", "../..", "/etc/passwd", "\x00", "\x1b[31m", "\ud800", "1e999", "nan", "none", "O", "|O")
TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(ODD_TEXTS))
LEAVES = st.one_of(st.none(), NUMBERS, TEXTS)
VALUES = st.one_of(
    *(st.none(), st.booleans(), NUMBERS, TEXTS),
    st.lists(LEAVES, max_size=4),
    st.dictionaries(st.text(max_size=5), LEAVES, max_size=3),
)


def places(tree: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a document, branches before their leaves."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed_copy(draw: st.DrawFn, document: Tree) -> Tree:
    """A copy with one to three places replaced, taken out, or joined by something unknown."""
    result = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        paths = list(places(result))
        if not paths:
            break
        *parents, last = draw(st.sampled_from(paths))
        branch = result
        for key in parents:
            branch = branch[key]
        match draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"])):
            case "replace":
                branch[last] = draw(VALUES)
            case "remove":
                del branch[last]
            case _ if isinstance(branch, dict):
                branch[draw(TEXTS)] = draw(VALUES)
            case _:
                branch.append(draw(VALUES))
    return result


changes = st.composite(changed_copy)


def spelled(text: str) -> bytes:
    """A drawn text as a file has it."""
    return text.replace(DEEP, "[" * 100_000).encode("utf-8", "surrogatepass")


def sealed(content: object) -> str:
    """A line whose checksum is right, whatever it says: the seal is no signature."""
    if not isinstance(content, dict):
        return json.dumps(content)
    rest = {key: value for key, value in content.items() if key != "checksum"}
    try:
        text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        digest = sha256(text.encode()).hexdigest()[:16]
    except (UnicodeEncodeError, TypeError):
        text, digest = json.dumps(rest), "0" * 16
    return f'{{"checksum":"{digest}",{text[1:]}' if rest else f'{{"checksum":"{digest}"}}'


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """Bytes with some changed, cut off, doubled or put in between."""
    content = bytearray(raw)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(content) - 1)))
        match draw(st.sampled_from(["flip", "flip", "cut", "insert", "double"])):
            case "flip" if content:
                content[at] ^= draw(st.integers(1, 255))
            case "cut":
                del content[at:]
            case "insert":
                content[at:at] = draw(st.binary(max_size=9))
            case _:
                content += content[: min(at, 64)]
    return bytes(content)


def only_refusals(call: Callable[[], object]) -> None:
    """Whatever comes out of ``call`` is an answer, or an error that a user can read."""
    try:
        call()
    except RlbenchError as error:
        if type(error) is RlbenchError or not str(error).strip():
            raise AssertionError(f"{error} says it is a bug, or nothing") from error


class Fuzzed(NamedTuple):
    """A strategy of examples, and the code under test."""

    example: st.SearchStrategy[Any]
    body: Callable[[Any], object]
    few: int = 30
    many: int = 1_500

    def check(self, examples: int) -> None:
        """Put ``examples`` drawn things to the test."""
        try:
            settings(max_examples=examples)(given(self.example)(self.body))()
        except RecursionError:
            traceback.print_exc()
            raise


@contextmanager
def written(name: str, raw: bytes | str = b"") -> Iterator[Path]:
    """A file in a folder of its own; a drawn text is spelled."""
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(raw if isinstance(raw, bytes) else spelled(raw))
        yield path
