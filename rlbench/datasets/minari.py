"""Minari's data sets, folders with ``metadata.json`` and one HDF5 group an episode: a reader, and downloads.

An episode of T steps has T + 1 observations, the final one included. The parts of a dictionary of observations are
concatenated in the order of their names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple, TypeVar
from warnings import catch_warnings

import h5py
import numpy as np
from numpy.typing import NDArray

from rlbench import disk
from rlbench.config.names import printable
from rlbench.datasets import hdf5
from rlbench.datasets.catalogue import MINARI_DATA, MINARI_METADATA
from rlbench.datasets.episodes import Dataset, insert_final_rows
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError

_T = TypeVar("_T", str, int, float)
MAX_DEPTH: Final = 8  # nesting of observation dictionaries
REMOTE = "hf://farama-minari"
REMEDY = "pip install 'minari[hf]>=0.5.3'"


class MinariMetadata(NamedTuple):
    """Metadata of a data set; None where a field is missing."""

    name: str | None
    env_id: str | None
    episodes: int | None
    steps: int | None
    low: float | None  # reference score of 0
    high: float | None  # reference score of 1
    env_kwargs: str | None  # of the recorded environment, as JSON; None without any
    additional_wrappers: str | None  # their names; None without any
    max_episode_steps: int | None


def read_minari(folder: Path, *, max_bytes: int | None = None) -> Dataset:
    """Read every episode of a data set, one after another, into at most ``max_bytes`` of memory.

    Raises:
        UsageError: the folder holds no data set of Minari.
        RefusedFile: a file or an episode is damaged; the message names the key.
    """
    header = minari_metadata(folder)
    path = folder / MINARI_DATA
    with hdf5.open_file(path, max_bytes=max_bytes) as file:
        groups = sorted((name for name in file if str(name).startswith("episode_")), key=_number)
        if not groups:
            raise RefusedFile(f"{path}: episode_0: missing; the data set is empty, or not Minari's")
        episodes = [_episode(file, name) for name in groups]
    for name, episode in zip(groups, episodes, strict=True):
        shapes = episode.obs.shape[1], episode.action.shape[1]
        first = episodes[0].obs.shape[1], episodes[0].action.shape[1]
        if shapes != first:
            raise RefusedFile(
                f"{path}: {name}: observations of {shapes[0]} and actions of {shapes[1]} numbers, "
                f"{groups[0]} has {first[0]} and {first[1]}"
            )
    steps = sum(len(episode.reward) - 1 for episode in episodes)  # behind them is a final row
    if header.steps not in {None, steps} or header.episodes not in {None, len(episodes)}:
        raise RefusedFile(
            f"{path}: holds {len(episodes)} episodes of {steps} steps, {MINARI_METADATA.name} says "
            f"{header.episodes} of {header.steps}; download it again"
        )
    return Dataset(*(np.concatenate(column) for column in zip(*episodes, strict=True)))


def minari_metadata(folder: Path) -> MinariMetadata:
    """Read ``metadata.json``.

    Raises:
        UsageError: it is missing, so the folder is no data set of Minari.
        RefusedFile: it is damaged, or names a storage format other than hdf5.
    """
    path = folder / MINARI_METADATA
    if not path.is_file():
        raise UsageError(f"{folder}: no {MINARI_METADATA} in it, so this is no Minari data set; check the path")
    try:
        content = json.loads(disk.content(path))
        text = content.get("env_spec") or "{}"
        spec = json.loads(text) if isinstance(text, str) else text
        env_id, kwargs = spec.get("id"), dict(spec.get("kwargs") or {})
        kwargs.pop("render_mode", None)  # which changes no number
        wrappers = [str(wrapper.get("name")) for wrapper in spec.get("additional_wrappers") or ()]
    except (RefusedFile, OSError, ValueError, TypeError, AttributeError, RecursionError):
        raise RefusedFile(f"{path}: damaged (not the JSON that Minari writes); download it again") from None
    if (form := content.get("data_format", "hdf5")) != "hdf5":
        form = printable(str(form), 60)
        raise RefusedFile(f"{path}: data_format: {form}; only hdf5 is read here, convert it with Minari")
    return MinariMetadata(
        name=_parse(str, content.get("dataset_id")),
        env_id=_parse(str, env_id),
        episodes=_parse(int, content.get("total_episodes")),
        steps=_parse(int, content.get("total_steps")),
        low=_parse(float, content.get("ref_min_score")),
        high=_parse(float, content.get("ref_max_score")),
        env_kwargs=json.dumps(kwargs) if kwargs else None,
        additional_wrappers=", ".join(wrappers) or None,
        max_episode_steps=_parse(int, spec.get("max_episode_steps")),
    )


def _episode(file: h5py.File, name: str) -> Dataset:
    try:
        group = file[name]
    except (KeyError, OSError, RuntimeError) as error:
        raise hdf5.damage_error(hdf5.array_name(file, name), error) from None
    if not isinstance(group, h5py.Group):
        raise RefusedFile(f"{hdf5.array_name(file, name)}: an array where an episode was expected; check the file")
    reward = hdf5.read_numbers(group, "rewards", rank=1)
    steps, obs, action = len(reward), _observations(group), hdf5.read_actions(group, "actions")
    terminated, truncated = hdf5.read_flags(group, "terminations"), hdf5.read_flags(group, "truncations")
    for key, array in {"actions": action, "terminations": terminated, "truncations": truncated}.items():
        if len(array) != steps:
            raise RefusedFile(f"{hdf5.array_name(group, key)}: {len(array)} rows, rewards have {steps}")
    if len(obs) != steps + 1:
        raise RefusedFile(f"{hdf5.array_name(group, 'observations')}: {len(obs)} rows, {steps} steps need {steps + 1}")
    truncated &= ~terminated
    truncated[-1] = not terminated[-1]  # the last step ends the episode, also where the recording stopped in its middle
    rows = Dataset(obs[:-1], action, reward, terminated, truncated, np.zeros(steps, np.bool_))
    return insert_final_rows(rows, np.arange(steps) == steps - 1, obs[-1:])


def _observations(group: h5py.Group, key: str = "observations", depth: int = 0) -> NDArray[np.float32]:
    """Observations ``[T + 1, F]``; the parts of a tuple in order of number, of a dictionary in order of name."""
    if depth > MAX_DEPTH:
        problem = "is nested in itself, or deeper than any space of observations"
        raise RefusedFile(f"{hdf5.array_name(group, key)}: {problem}; check the file")
    item = group.get(key) if hdf5.has_key(group, key) else None
    if not isinstance(item, h5py.Group):
        single = isinstance(item, h5py.Dataset) and len(item.shape or ()) == 1
        values = hdf5.read_numbers(group, key, rank=1 if single else 2)
        return values.reshape(len(values), -1)
    is_tuple = all(re.fullmatch(r"_index_\d+", str(name)) for name in item)
    parts = [_observations(item, name, depth + 1) for name in sorted(item, key=_number if is_tuple else str)]
    rows = [len(part) for part in parts]
    if len(set(rows)) != 1:
        raise RefusedFile(f"{hdf5.array_name(group, key)}: its parts have {rows} rows; check the file")
    return np.concatenate(parts, axis=1)


def _number(name: str) -> int:
    """Number at the end of ``episode_12`` or ``_index_3``; 0 without one."""
    digits = str(name).rpartition("_")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 19 else 0


def _parse(kind: type[_T], value: object) -> _T | None:
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        value = float(value)
    return value if isinstance(value, kind) else None


def remote_names() -> list[str]:
    """List the data sets of the remote, by an access of the network.

    Raises:
        UsageError: Minari is not installed, or ``MINARI_REMOTE`` names no storage that it supports.
        ResourceExhausted: the remote cannot be reached.
    """
    with _minari() as minari:
        return sorted(minari.list_remote_datasets())


def download(name: str) -> None:
    """Download a data set into Minari's folder; ``huggingface_hub`` resumes an interrupted download.

    Raises:
        UsageError: as ``remote_names``, or the remote has no data set of this name.
        ResourceExhausted: the remote cannot be reached, or the disk is full.
    """
    with _minari() as minari:
        minari.download_dataset(name, force_download=True)  # or it skips a folder that is there, whole or not


@contextmanager
def _minari() -> Iterator[ModuleType]:
    """Import the package, keep stdout free of its messages, and translate its errors."""
    remote = os.environ.get("MINARI_REMOTE") or REMOTE
    if not remote.startswith(("hf://", "gcp://")):
        raise UsageError(f"MINARI_REMOTE={remote}: give hf://ORGANISATION or gcp://BUCKET, or unset it")
    try:
        with redirect_stdout(StringIO()), catch_warnings(record=True):
            yield import_module("minari")
    except ImportError as error:
        raise UsageError(f"Minari's remote needs a package that is not installed ({error}): {REMEDY}") from error
    except ValueError as error:
        raise UsageError(f"{remote}: {error} `rlbench data list --remote` lists the data sets") from error
    except Exception as error:  # each transport raises its own
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ResourceExhausted(
            f"{remote}: {reason}; check the connection and run the same command again: it resumes"
        ) from error
