"""Folder of a run by its path, its line of ``list runs``, or the beginning of its id."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from rlbench.cli import completion
from rlbench.errors import UnknownName, UsageError

Run: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Its folder, a line of: rlbench list runs, or how its id begins.",
        autocompletion=completion.runs,
    ),
]
SHOWN = 3
"""Runs that a message names where a name means several."""


def run_folder(name: str, results: Path | None) -> Path:
    """Find the folder of a run by name; ``ID/seed=N`` where an id has several seeds.

    Raises:
        UnknownName: there is no such run; the message has the nearest names.
        UsageError: the name means several runs.
    """
    from rlbench.records.folders import folders
    from rlbench.report.sources import sources

    if (Path(name) / "spec.json").is_file():
        return Path(name)
    places = sources(results).folders
    known = {str(folder.relative_to(place)): folder for place in reversed(places) for folder in folders(place)}
    if name in known:
        return known[name]
    start, _, rest = name.strip("/").partition("/")
    meant = [
        folder
        for folder in known.values()
        if start and folder.parent.name.startswith(start) and rest in {"", folder.name}
    ]
    if not meant:
        ids = dict.fromkeys(folder.parent.name for folder in known.values())
        raise UnknownName("run", name, [*known, *ids], where=str(places[0]))
    if len(meant) > 1:
        some = ", ".join(f"{folder.parent.name}/{folder.name}" for folder in meant[:SHOWN])
        more = ", …" if len(meant) > SHOWN else ""
        raise UsageError(f"{name}: {len(meant)} runs are called so: {some}{more}; name one of them")
    return meant[0]
