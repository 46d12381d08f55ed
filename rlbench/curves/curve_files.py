"""The curve files of a folder: by their names, in order, without hidden ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Final, Literal, TypeAlias

from rlbench import disk
from rlbench.errors import RefusedFile, UsageError

Format: TypeAlias = Literal["csv", "sb3", "cleanrl", "wandb", "tensorboard", "d3rlpy", "dopamine", "rliable", "jsonl"]
MAX_FILES: Final = 10_000
OTHER_SUFFIXES: Final = {
    *(".cfg", ".ckpt", ".gif", ".h5", ".html", ".ini", ".jpg", ".json", ".log", ".md", ".mp4", ".onnx", ".pkl", ".png"),
    *(".pt", ".pth", ".py", ".safetensors", ".svg", ".toml", ".txt", ".yaml", ".yml", ".zip"),
}
"""Suffixes of files beside curves."""
UNREAD: Final = re.compile(r"\.(csv|jsonl|npz)\.(bz2|gz|xz|zip|zst)$|\.tsv$", re.IGNORECASE)
"""Ends of names of files that may hold curves, but that no reader takes."""


def files_left_out(path: Path, format_: Format | None) -> list[Path]:
    """The curve files of a folder that belong to no run with a file of those that ``read_curves`` reads there."""
    if not path.is_dir() or path.is_symlink():
        return []
    kinds, selected = _by_kind(every := _every_file(path, format_)), curve_files(path, format_)
    kind = next((kind for kind, names in kinds.items() if names == selected), "")
    members = {*selected}
    stems = {p.with_name(p.name.partition(".")[0]) for p in selected}
    unread = [p for p in every if UNREAD.search(p.name) and p.with_name(p.name.partition(".")[0]) not in stems]
    others = [p for p in dict.fromkeys(chain(*kinds.values())) if p not in members]
    if kind in {"csv", "jsonl"}:  # a file is a run; of the other kinds a folder is
        runs, files = {p.with_suffix("") for p in selected}, {*kinds["csv"], *kinds["jsonl"]}
        folders = {p.parent for p in selected}
        others = [p for p in others if p.with_suffix("") not in runs and (p in files or p.parent not in folders)]
        return [*others, *unread]
    runs = {p.parent for p in selected}
    others = [p for p in others if p.parent not in runs and (runs - {path}).isdisjoint(p.parents)]
    return [*others, *unread]


def curve_files(path: Path, format_: Format | None) -> list[Path]:
    """A file itself, or the curve files of a folder; links are not followed."""
    if not path.is_dir() or path.is_symlink():
        return [path]
    kinds = _by_kind(every := _every_file(path, format_))
    if format_ is None:
        return next((names for names in kinds.values() if names), [])
    return kinds.get("tensorboard" if format_ == "cleanrl" else format_, every)


def _by_kind(every: Sequence[Path]) -> dict[str, list[Path]]:
    """Curve files, in the order in which their kinds are preferred."""
    monitors = [p for p in every if p.name.endswith("monitor.csv")]
    return {
        "sb3": [p for p in every if p.name == "evaluations.npz"] or monitors,
        "d3rlpy": [p for p in every if p.name == "environment.csv"],
        "tensorboard": [p for p in every if "tfevents" in p.name],
        "csv": [p for p in every if p.suffix.lower() == ".csv"],
        "jsonl": [p for p in every if p.suffix.lower() == ".jsonl"],
    }


def _every_file(path: Path, format_: Format | None) -> list[Path]:
    """The files of a folder, in order, but hidden ones.

    Raises:
        UsageError: it holds too many files, or a folder that cannot be read.
        RefusedFile: a folder in it is a link to other curves, or to nothing.
    """
    every = list[Path]()
    for root, folders, names in disk.walk(path, onerror=_refuse_unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))  # as every reader of records
        names[:] = sorted(name for name in names if not name.startswith("."))
        if link := next((p for name in folders if _holds_other_curves(p := Path(root, name), path, format_)), None):
            raise RefusedFile(f"{link}: is a link to another folder; name that folder, or remove the link")
        if link := next((p for name in names if _is_lost(p := Path(root, name))), None):
            raise RefusedFile(f"{link}: is a link to nothing; restore its target, or remove the link")
        every += [Path(root, name) for name in names]
    if len(every) > MAX_FILES:
        raise UsageError(
            f"{path}: holds {len(every):,} files, {MAX_FILES:,} are allowed; name the folder of one experiment"
        )
    return every


def _holds_other_curves(link: Path, path: Path, format_: Format | None) -> bool:
    """True for a link to a folder with curve files outside ``path``; W&B's latest-run lies in it."""
    if not link.is_symlink() or (folder := link.resolve()).is_relative_to(path.resolve()):
        return False
    inside = (Path(root, name) for root, _, names in disk.walk(folder, onerror=_refuse_unreadable) for name in names)
    any_name = format_ in {"dopamine", "rliable"}
    return any(any_name or any(_by_kind([file]).values()) for file in inside)


def _is_lost(link: Path) -> bool:
    """True for a link to nothing that may have named a folder of curves; W&B's latest-run names no further run."""
    is_other = link.suffix.lower() in OTHER_SUFFIXES or link.name.startswith(("best", "checkpoint", "last", "latest"))
    return not is_other and not link.exists()


def _refuse_unreadable(error: OSError) -> None:
    raise UsageError(f"{error.filename}: cannot be read ({error.strerror}); check its permissions")
