"""Records that someone changes who computes their checksums again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from rlbench.records import files

Change: TypeAlias = Callable[[dict[str, object]], object]


def reseal(path: Path, change: Change, line: int | None = None) -> None:
    """Change a line of a sealed file, or every line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for place in range(len(lines)) if line is None else [line]:
        content = files.unseal(lines[place], str(path))
        change(content)
        lines[place] = files.seal(content)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
