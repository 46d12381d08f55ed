"""Where a data set lies: D4RL's and Minari's own folders, which other tools share, and one for sets made by rlbench."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from rlbench.datasets import catalogue, recording_reader
from rlbench.datasets.recipes import OWN_NAME, RECIPES
from rlbench.datasets.recording_writer import SUFFIX
from rlbench.errors import UnknownName, UsageError, beside, suggest

Kind: TypeAlias = Literal["d4rl", "minari", "own"]

MINARI_NAME = re.compile(r"(?:[A-Za-z0-9][\w-]*/)+[A-Za-z0-9][\w-]*-v\d+")
MINARI_DATA = Path("data", "main_data.hdf5")
MINARI_TOLD = Path("data", "metadata.json")


class Place(NamedTuple):
    """A data set on this machine."""

    name: str
    kind: Kind
    path: Path  # a file; Minari's is a folder


def folder(kind: Kind) -> Path:
    """Where data sets of one kind lie: as its variable says, or in the home folder."""
    variable, usual = {
        "d4rl": ("D4RL_DATASET_DIR", "~/.d4rl/datasets"),
        "minari": ("MINARI_DATASETS_PATH", "~/.minari/datasets"),
        "own": ("RLBENCH_DATASETS", "~/.rlbench/datasets"),
    }[kind]
    return Path(os.environ.get(variable) or usual).expanduser()


def place(name: str) -> Place:
    """Where a data set of this name lies, or would.

    Raises:
        UnknownName: neither D4RL's, nor in the manner of Minari's (``mujoco/hopper/medium-v0``) or our own (``rlb-…``).
    """
    if name in catalogue.d4rl():
        return Place(name, "d4rl", folder("d4rl") / catalogue.known(name).file)
    if MINARI_NAME.fullmatch(name):
        return Place(name, "minari", folder("minari") / name)
    if OWN_NAME.fullmatch(name):
        played = folder("own") / f"{name}{SUFFIX}"
        return Place(name, "own", played if played.is_dir() else folder("own") / f"{name}.hdf5")
    raise UnknownName("data set", name, [*(there.name for there in local()), *catalogue.d4rl()])


def named(path: Path, name: str) -> bool:
    """Whether a file or folder is called as the data set of this name is, or by the name itself."""
    known, own = place(name), path.resolve()
    if known.kind == "minari":
        return own.parts[-len(Path(name).parts) :] == Path(name).parts
    return own.name in {known.path.name, f"{name}.hdf5", f"{name}{SUFFIX}"}


def present(there: Place) -> bool:
    """Whether the data set is on this machine; recorded play that was broken off is too, as far as it came."""
    if there.kind == "minari":
        return all((there.path / inside).is_file() for inside in (MINARI_DATA, MINARI_TOLD))
    return there.path.is_file() or recording_reader.is_frames(there.path)


def local() -> list[Place]:
    """Every data set on this machine: own, D4RL's, Minari's."""
    made = sorted(path for suffix in (".hdf5", SUFFIX) for path in folder("own").glob(f"rlb-*{suffix}"))
    own = [Place(path.stem, "own", path) for path in made]
    d4rl = [place(name) for name in catalogue.d4rl()]
    root = folder("minari")
    minari = [
        Place(data.parents[1].relative_to(root).as_posix(), "minari", data.parents[1])
        for data in sorted(root.glob(f"**/{MINARI_DATA.as_posix()}"))
    ]
    return [there for there in (*own, *d4rl, *minari) if present(there)]


def found(name: str, given: Path | None = None) -> Path:
    """The file (or Minari's folder) of a data set: what was ``given``, or what its name stands for.

    Raises:
        UsageError: it is not there; says where it was looked for, where it can be had, and what can stand in for it.
    """
    if given is not None:
        if not given.exists():
            raise UsageError(f"--dataset {given}: no such file{beside(given)}; check the path")
        if given.is_dir() and not (given / MINARI_DATA).is_file() and not recording_reader.is_frames(given):
            raise UsageError(f"--dataset {given}: neither a folder of Minari's nor recorded play; name the file itself")
        return given
    there = place(name)
    if present(there):
        return there.path
    raise UsageError(f"{name}: not in {there.path}; {_remedy(there)}")


def resolved(text: str) -> tuple[str | None, Path]:
    """What ``text`` means: a path that is there, without a name, or the name of a data set and where it lies.

    Raises:
        UsageError: it is neither; says where it was looked for, and what can be done.
    """
    path = Path(text)
    if path.is_file() or (path / MINARI_DATA).is_file() or recording_reader.is_frames(path):
        return None, path
    if path.suffix in {".hdf5", ".h5", SUFFIX}:
        raise UsageError(f"{path}: no such file{beside(path)}; check the path")
    return text, found(text)


def _remedy(there: Place) -> str:
    if there.kind == "own":
        if there.name in RECIPES:
            return f"make it: rlbench data generate {there.name}"
        near = suggest(there.name, [*(own.name for own in local() if own.kind == "own"), *RECIPES])
        made = f"rlbench data generate TASK --policy RUN --steps N --name {there.name}; games with --epsilon 0.2"
        return f"make it: {made}{near}"
    fetch = f"rlbench data download {there.name}"
    if there.kind == "minari":
        return f"download it: {fetch} (size unknown until the server tells it)"
    known = catalogue.known(there.name)
    told = [known.url, _size(known), f"or give --dataset PATH, or set D4RL_DATASET_DIR; download it: {fetch}"]
    if known.standin:
        told.append(f"or make a stand-in, not D4RL's data: {known.standin}")
    return "; ".join(told)


def _size(known: catalogue.Known) -> str:
    """What is known of a set's size before the server was asked."""
    if known.steps is None or known.features is None or known.actions is None:
        return "size not published"
    raw = known.steps * (4 * (2 * known.features + known.actions + 1) + 2)
    return f"about {known.steps:,} steps, {raw / 1e6:.0f} MB before compression (D4RL publishes no file sizes)"
