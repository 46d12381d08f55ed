"""Format rows in columns and sentences in lines, folded to the width of a terminal and never cut."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest
from typing import Final

GAP: Final = 2  # spaces between two columns
TIE: Final = "\N{NO-BREAK SPACE}"


def aligned(rows: Sequence[Sequence[str]], width: int | None = None, *, numbers: Collection[int] = ()) -> list[str]:
    """Each row as a line, or as several, folded between words and behind slashes to ``width`` columns.

    The columns ``numbers`` are right-aligned.
    """
    rows = [[text.replace("\n", " ") for text in row] for row in rows]  # names of folders may hold line breaks
    columns = [[row[index] for row in rows] for index in range(len(rows[0]))] if rows else []
    widths = [max(map(len, column)) for column in columns]
    if width is not None and not fits(widths, width):
        widths = fitted(
            columns, [max(len(piece.strip()) for t in texts for piece in _pieces(t)) for texts in columns], width
        )
    justify = [str.rjust if index in numbers else str.ljust for index in range(len(widths))]
    folded_rows = []
    for row in rows:
        cells = [_fold(text, wide) for text, wide in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            fields = (side(part, wide) for side, part, wide in zip(justify, parts, widths, strict=True))
            folded_rows.append((" " * GAP).join(fields).rstrip())
    return folded_rows


def fits(widths: Sequence[int], width: int) -> bool:
    """True if the columns fit side by side into the width of a terminal."""
    return sum(widths) + GAP * (len(widths) - 1) <= width


def fitted(columns: Sequence[Sequence[str]], least: Sequence[int], width: int) -> list[int]:
    """The widths, none below its ``least``, with which columns of texts fold into the fewest lines."""
    room = max(width - GAP * (len(columns) - 1), sum(least))
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}  # by width used: lines more than needed, and widths
    for texts, low in zip(columns, least, strict=True):
        costs = {w: sum(len(_fold(t, w)) for t in texts) for w in range(low, max(low, *map(len, texts)) + 1)}
        grown: dict[int, tuple[int, tuple[int, ...]]] = {}
        for width_so_far, (cost, widths) in best.items():
            for wide, lines in costs.items():
                candidate = (cost + lines, (*widths, wide))
                if width_so_far + wide <= room and candidate < grown.get(width_so_far + wide, (cost + lines + 1, ())):
                    grown[width_so_far + wide] = candidate
        best = grown
    return list(min(best.values())[1])


def sentences(lines: Iterable[str], width: int | None = None, *, hang: int = 2) -> list[str]:
    """Fold lines of words at ``width`` columns; continuations are indented by ``hang`` more than their line."""
    folded_lines = []
    for line in lines:
        inner = " " * (len(line) - len(line.lstrip()) + hang)
        narrow = width is not None and len(line) > width
        folded_lines += _wrap(line, width or 0, inner) if narrow else [line]
    return folded_lines


def _wrap(line: str, width: int, inner: str) -> list[str]:
    """Wrap between words only: paths and `commands` stay whole, so that they can be copied."""
    with_ties = re.sub(r"`[^`]*`", lambda match: match[0].replace(" ", TIE), line)
    lines = textwrap.wrap(with_ties, width, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False)
    return [part.replace(TIE, " ") for part in lines]


def _fold(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    lines = [""]
    for piece in _pieces(text):
        if lines[-1].strip() and len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece if lines[-1] else piece.lstrip()
    return [line.rstrip() for line in lines]


def _pieces(text: str) -> list[str]:
    """The parts at which text may wrap: a word, or a name up to its slash."""
    return re.split(r"(?<=[ /@])", text)
