"""README and the pages of docs/: the output below a command is what the command prints.

A ``console`` block holds commands behind ``$`` and their output in a terminal of 100 columns. A line ``…`` stands for
any lines. ``MASKS`` has what depends on the machine.
"""

import re
import shlex
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Final

import pytest

from rlbench.cli.app import main
from tests.conftest import Patch

ROOT: Final = Path(__file__).parents[1]
PERFORMED: Final = ROOT / "docs/extending.md"  # by tests/test_guide.py, in a copy of the package
PAGES: Final = [ROOT / "README.md", *sorted({*(ROOT / "docs").glob("*.md")} - {PERFORMED})]
BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MASKS: Final = {
    r"about \S.*? (here|on the machine of results/)": "about TIME",
    r"[\d.,]+ (GB|MB|kB)\b": "SIZE",
    r"[\d,]+ steps/s": "SPEED",
}


def blocks() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for part in block.split("$ ")[1:]:
                command, _, output = part.partition("\n")
                yield command, output


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def masked(text: str) -> str:
    for pattern, word in MASKS.items():
        text = re.sub(pattern, word, text)
    return text


def shows(page: str, printed: str) -> bool:
    """Return True if a page shows the printed lines; ``…`` stands for any of them."""
    pieces = re.split(r"^…$", masked(page).strip(), flags=re.MULTILINE)
    pattern = r"(?:.*\n)*?".join(re.escape(piece.lstrip("\n")) for piece in pieces)
    return re.fullmatch(pattern, masked(printed).strip() + ("\n" if pieces[-1] == "" else "")) is not None


@pytest.mark.parametrize(("command", "output"), list(blocks()))
def test_a_page_shows_what_its_command_prints(command: str, output: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLBENCH_RESULTS")
    for name, value in {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    program, *words = shlex.split(command)
    assert program == "rlbench"
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        patch.setattr(sys, "stderr", StringIO())
        main(words)
    assert shows(output, terminal.getvalue()), terminal.getvalue()


def test_pages_show_outputs() -> None:
    assert len(list(blocks())) >= 3


@pytest.mark.parametrize(
    ("page", "same"),
    [("a\nb\n", True), ("a\n…\n", True), ("…\nb\n", True), ("a\n", False), ("a\nc\n", False), ("a\n…\nc\n", False)],
)
def test_differing_output_is_detected(page: str, same: bool) -> None:
    assert shows(page, "a\nb\n") is same
