"""Catalogue of data sets: D4RL's entries (Fu et al. 2020), and the locations of all kinds on this machine.

The folders of D4RL and Minari are shared with other tools; there is one for own sets.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from rlbench.datasets.recipes import OWN_NAME, RECIPES
from rlbench.errors import UnknownName, UsageError, suggest, suggest_path

TABLE = Path(__file__).parent / "data" / "d4rl.csv"
SOURCE = "http://rail.eecs.berkeley.edu/datasets/offline_rl"
MIRROR = "RLBENCH_D4RL_MIRROR"  # environment variable with the address of a mirror of SOURCE


class D4RLDataset(NamedTuple):
    """Entry of one D4RL data set; None where D4RL does not publish a number."""

    name: str
    features: int | None  # numbers in an observation
    actions: int | None  # numbers of an action
    low: float | None  # a random policy's score
    high: float | None  # an expert's
    path: str  # below ``SOURCE``
    file: str
    limit: int | None  # steps after which an episode is cut
    steps: int | None  # nominal number, of version 2's locomotion sets
    env_id: str | None  # Gymnasium's environment of comparable scores; Ant's shows 27 of the data's 111 numbers, not 0
    recipe: str  # name of the generated set that stands in for it
    note: str

    @property
    def url(self) -> str:
        """Address of the file, on the server or its mirror.

        Raises:
            UsageError: the mirror's address has a user's name, with which no download works.
        """
        source = os.environ.get(MIRROR) or SOURCE
        server = source.rpartition("://")[2].partition("/")[0]
        if "@" in server:  # messages and records never show the password before it
            raise UsageError(f"{MIRROR}: is an address with a user's name or a password; give one without")
        return f"{source.rstrip('/')}/{self.path}"

    @property
    def standin(self) -> str | None:
        """Command that generates a data set of the same task."""
        if self.recipe:
            return f"rlbench data generate {self.recipe}"
        return f"rlbench data generate {self.env_id} --policy RUN --steps N --name rlb-NAME" if self.env_id else None


@cache
def d4rl() -> dict[str, D4RLDataset]:
    """Every data set of D4RL by name."""
    kinds: dict[str, Callable[[str], object]] = {"low": float, "high": float, "env_id": str}
    kinds |= dict.fromkeys(("features", "actions", "limit", "steps"), int)
    with TABLE.open(encoding="utf-8", newline="") as file:
        entries = [
            D4RLDataset._make(
                (kinds[key](text) if text else None) if key in kinds else text for key, text in row.items()
            )
            for row in csv.DictReader(file)
        ]
    return {entry.name: entry for entry in entries}


def normalize(score: float, name: str | None) -> float | None:
    """D4RL's normalized score: 0 for a random policy, 100 for an expert; None where it has no reference scores."""
    entry = d4rl().get(name or "")
    if entry is None or entry.low is None or entry.high is None:
        return None
    return 100 * (score - entry.low) / (entry.high - entry.low)


Kind: TypeAlias = Literal["d4rl", "minari", "own"]

MINARI_NAME = re.compile(r"(?:[A-Za-z0-9][\w-]*/)+[A-Za-z0-9][\w-]*-v\d+")
LOCAL_NAME = re.compile(r"[A-Za-z0-9][\w-]*")  # of a Minari set without a namespace
VERSION = re.compile(r"-v\d+$")
MINARI_DATA = Path("data", "main_data.hdf5")
MINARI_METADATA = Path("data", "metadata.json")
SUFFIX: Final = ".frames"  # of a folder of recorded games
CONTENTS: Final = "dataset.json"  # list of its files, once it is complete


class Location(NamedTuple):
    """Location of a data set."""

    name: str
    kind: Kind
    path: Path  # a file; Minari's is a folder


def folder(kind: Kind) -> Path:
    """Folder of one kind of data sets: of its environment variable, or in the home folder."""
    variable, default = {
        "d4rl": ("D4RL_DATASET_DIR", "~/.d4rl/datasets"),
        "minari": ("MINARI_DATASETS_PATH", "~/.minari/datasets"),
        "own": ("RLBENCH_DATASETS", "~/.rlbench/datasets"),
    }[kind]
    return Path(os.environ.get(variable) or default).expanduser()


def locate(name: str, *, of_folder: bool = False) -> Location:
    """Location of a data set by its name, whether it exists or not.

    A name without a namespace is Minari's if such a set exists, or is ``of_folder``, which is to be imported.

    Raises:
        UnknownName: the name is neither D4RL's, nor of Minari's form (``mujoco/hopper/medium-v0``) or ours (``rlb-…``).
    """
    if name in d4rl():
        return Location(name, "d4rl", folder("d4rl") / d4rl()[name].file)
    if MINARI_NAME.fullmatch(name):
        return Location(name, "minari", folder("minari") / name)
    if OWN_NAME.fullmatch(name):
        recording = folder("own") / f"{name}{SUFFIX}"
        path = recording if is_recording(recording) else recording.with_suffix(".hdf5")
        return Location(name, "own", path)
    local = Location(name, "minari", folder("minari") / name)
    if LOCAL_NAME.fullmatch(name) and (is_present(local) or (of_folder and VERSION.search(name))):
        return local
    raise UnknownName("data set", name, [*(location.name for location in list_local()), *d4rl()])


def has_name(path: Path, name: str) -> bool:
    """True if a file or folder has the name of the data set, with or without its suffix."""
    location, own = locate(name), path.resolve()
    if location.kind == "minari":
        return own.parts[-len(Path(name).parts) :] == Path(name).parts
    return own.name in {location.path.name, f"{name}.hdf5", f"{name}{SUFFIX}"}


def is_recording(path: Path) -> bool:
    """True if a folder is a set of recorded games, finished or not."""
    return path.suffix == SUFFIX and path.is_dir() and (is_complete(path) or any(path.glob("*.segment")))


def is_complete(path: Path) -> bool:
    """True if the folder has the list of its files."""
    return (path / CONTENTS).is_file()


def is_present(location: Location) -> bool:
    """True if the data set is on this machine, unfinished recorded games included."""
    if location.kind == "minari":
        return all((location.path / inside).is_file() for inside in (MINARI_DATA, MINARI_METADATA))
    return location.path.is_file() or is_recording(location.path)


def list_local(*kinds: Kind) -> list[Location]:
    """List every data set of these kinds on this machine; of all kinds where none is given."""
    return [place for kind in kinds or ("own", "d4rl", "minari") for place in _locations(kind) if is_present(place)]


def _locations(kind: Kind) -> list[Location]:
    root = folder(kind)
    if kind == "d4rl":
        return [locate(name) for name in d4rl()]
    if kind == "own":
        paths = sorted(path for suffix in (".hdf5", SUFFIX) for path in root.glob(f"rlb-*{suffix}"))
        return [Location(path.stem, kind, path) for path in paths if OWN_NAME.fullmatch(path.stem)]
    paths = [data.parents[1] for data in sorted(root.glob(f"**/{MINARI_DATA.as_posix()}"))]
    return [Location(path.relative_to(root).as_posix(), kind, path) for path in paths]


def find(name: str, dataset: Path | None = None) -> Path:
    """Return the path of a data set: ``dataset``, or the location of its name.

    Raises:
        UsageError: it is missing; the message names the location, the download and a stand-in.
    """
    if dataset is not None:
        if not dataset.exists():
            raise UsageError(f"--dataset {dataset}: no such file{suggest_path(dataset)}; check the path")
        if dataset.is_dir() and not (dataset / MINARI_DATA).is_file() and not is_recording(dataset):
            raise UsageError(f"--dataset {dataset}: neither Minari's folder nor one of recorded games; name the file")
        return dataset
    location = locate(name)
    if is_present(location):
        return location.path
    raise UsageError(f"{name}: not in {location.path}; {remedy(location)}")


def resolve(text: str) -> tuple[str | None, Path]:
    """Resolve a path or the name of a data set to its name, None for a path, and its path.

    Raises:
        UsageError: it is neither; the message names the location and the remedy.
    """
    path = Path(text)
    if path.is_file() or (path / MINARI_DATA).is_file() or is_recording(path):
        return None, path
    if path.suffix in {".hdf5", ".h5", SUFFIX}:
        if path.exists():
            raise UsageError(f"{path}: is no data set; name a file, or a folder of recorded games")
        raise UsageError(f"{path}: no such file{suggest_path(path)}; check the path")
    return text, find(text)


def remedy(location: Location) -> str:
    """Say how to get a data set that is not on this machine."""
    if location.kind == "own":
        if location.name in RECIPES:
            return f"make it: rlbench data generate {location.name}"
        near = suggest(location.name, [*(own.name for own in list_local("own")), *RECIPES])
        command = f"rlbench data generate TASK --policy RUN --steps N --name {location.name}; games with --epsilon 0.2"
        return f"make it: {command}{near}"
    fetch = f"rlbench data download {location.name}"
    if location.kind == "minari":
        return f"download it: {fetch} (of unknown size)"
    entry = d4rl()[location.name]
    remedies = [entry.url, _size(entry), f"or give --dataset PATH, or set D4RL_DATASET_DIR; download it: {fetch}"]
    if entry.standin:
        remedies.append(f"or make a stand-in, not D4RL's data: {entry.standin}")
    return "; ".join(remedies)


def _size(entry: D4RLDataset) -> str:
    if entry.steps is None or entry.features is None or entry.actions is None:
        return "size not published"
    raw = entry.steps * (4 * (2 * entry.features + entry.actions + 1) + 2)
    return f"about {entry.steps:,} steps, {raw / 1e6:.0f} MB before compression (D4RL publishes no file sizes)"
