"""Valid names in a ``Spec``, plain words for a path, a terminal, a table, a spreadsheet and TeX, and texts of numbers.

They also come from records of others. ``config/run.py`` checks every text of a ``Spec`` with ``check_name``; readers
that validate no whole ``Spec`` call it themselves.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from rlbench.errors import UsageError

NAME: Final = re.compile(r"\w[\w .,:+=@~()-]*")
DOTTED: Final = re.compile(r"[+-]?\d{1,3}(\.\d{3})+")  # 100.000 is 100,000 in parts of Europe: refused
MAX_NAME_LENGTH: Final = 200  # letters; a file system takes 255 bytes
TEXT: Final = 1_000  # letters of a text in a record
LARGE_NUMBER: Final = 1e12

ASCII: Final = {
    "≥": ">=",
    "≤": "<=",
    "≈": "~",
    "±": "+-",
    "×": "x",
    "·": "*",
    "−": "-",
    "–": "-",
    "…": "...",
    "²": "^2",
}
"""Spellings of signs that a narrow encoding lacks."""


def check_name(name: str) -> str:
    """Return a valid name, or several joined by ``/``, as Minari's data sets have.

    Raises:
        ValueError: the name contains other letters, or is too long.
    """
    if len(name) > MAX_NAME_LENGTH or not all(NAME.fullmatch(part) for part in name.split("/")):
        raise ValueError(
            f"{printable(name, 60)!r} is no name; rename it: at most {MAX_NAME_LENGTH} letters, digits and signs of "
            "“_ .,:+=@~()-”, beginning with a letter or digit"
        )
    return name


def printable(text: str, longest: int = TEXT) -> str:
    """One line of at most ``longest`` letters, without a terminal's control codes."""
    short = " ".join(text[: 2 * longest].split())
    return "".join(letter if letter.isprintable() else "?" for letter in short[:longest]) + "…" * (len(text) > longest)


def number_text(value: float, form: str) -> str:
    """A number in ``form``, such as ``,.1f``; from 10¹² on in scientific notation, so that no column bursts."""
    large = f"{'+' * form.startswith('+')}.3e"
    return format(value, form if abs(value) < LARGE_NUMBER else large)


def count_text(number: int, noun: str) -> str:
    """A number with its noun: ``1 run``, ``2 runs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def steps_text(steps: int) -> str:
    """``100k``, ``1M``, ``1500``."""
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if steps >= unit and steps % (unit // 10) == 0:
            return f"{steps / unit:g}{name}"
    return str(steps)


def parse_count(text: str | int, option: str = "--steps") -> int:
    """Parse a number of steps: ``100000``, ``100_000``, ``100,000``, ``1e5``, ``100k`` or ``1M``.

    Raises:
        UsageError: the text is no whole number of at least 1.
    """
    digits = str(text).replace("_", "")
    if re.fullmatch(r"\d{1,3}(,\d{3})+", digits):  # any other comma may be a decimal one
        digits = digits.replace(",", "")
    unit = {"k": 1e3, "K": 1e3, "M": 1e6}.get(digits[-1:], 1.0)
    with suppress(ValueError, OverflowError):
        count = round(float(digits[:-1] if unit > 1 else digits) * unit, 6)
        if not DOTTED.fullmatch(digits) and 1 <= count <= 1e15 and count.is_integer():
            return int(count)
    raise UsageError(f"{option} {text}: no whole number of steps; write it as 100000, 1e5, 100k or 1M")


def clean_texts(tree: object) -> object:
    """Make every text of a JSON document ``printable``."""
    match tree:
        case str():
            return printable(tree)
        case dict():
            return {printable(key): clean_texts(value) for key, value in tree.items()}
        case list():
            return [clean_texts(value) for value in tree]
        case _:
            return tree


def in_ascii(error: UnicodeError) -> tuple[str, int]:
    """The signs that a stream cannot encode in ASCII, and the place at which it goes on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(ASCII.get(sign, "?") for sign in signs), error.end
