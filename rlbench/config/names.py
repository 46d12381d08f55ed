"""Names in a specification: what a path, a terminal, a table, a spreadsheet and TeX take for plain words.

They come from strangers' records too. ``spec/run.py`` checks every text of a ``Spec`` with ``named``; readers that
validate no whole ``Spec`` call it themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

NAME: Final = re.compile(r"\w[\w .,:+=@~()-]*")
LONGEST: Final = 200  # letters; a file system takes 255 bytes
TEXT: Final = 1_000  # letters of what a record says


def named(name: str) -> str:
    """A name, or several behind each other with ``/`` between, as data sets of Minari have.

    Raises:
        ValueError: it has other letters, or is too long.
    """
    if len(name) > LONGEST or not all(NAME.fullmatch(part) for part in name.split("/")):
        raise ValueError(
            f"{printable(name, 60)!r} is no name; rename it: at most {LONGEST} letters, digits and signs of "
            "“_ .,:+=@~()-”, beginning with a letter or digit"
        )
    return name


def printable(text: str, longest: int = TEXT) -> str:
    """One line without the codes that move a terminal's cursor, of at most ``longest`` letters."""
    short = " ".join(text[: 2 * longest].split())
    return "".join(letter if letter.isprintable() else "?" for letter in short[:longest]) + "…" * (len(text) > longest)


def cleaned(tree: object) -> object:
    """A document of plain values whose texts are ``printable``."""
    match tree:
        case str():
            return printable(tree)
        case dict():
            return {printable(key): cleaned(value) for key, value in tree.items()}
        case list():
            return [cleaned(value) for value in tree]
        case _:
            return tree


def texts(tree: object) -> Iterator[str]:
    """Every text in a document, keys too."""
    match tree:
        case str():
            yield tree
        case dict():
            for key, value in tree.items():
                yield key
                yield from texts(value)
        case list():
            for value in tree:
                yield from texts(value)
        case _:  # a number says nothing
            return
