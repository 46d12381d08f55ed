"""Checks that a data set is of the environment that evaluates the policies, in the same units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rlbench.config.tasks import OfflineTask
from rlbench.datasets import catalogue, loader, locations
from rlbench.datasets.recipes import PREFIX, RECIPES
from rlbench.datasets.types import Dataset
from rlbench.envs.base import Box, Discrete, EnvInfo
from rlbench.errors import RefusedFile
from rlbench.suites.offline import BODILY

SHOWN = {"Ant-v4": 27}
"""Numbers of an observation that the world shows; the contact forces that D4RL's sets hold after them are all zero."""


def check_identity(task: OfflineTask, path: Path) -> None:
    """Refuse what says of itself, or is named as, something else than what is to be learned from.

    Raises:
        RefusedFile: it is of another world, another data set than the task's, or one of our own that a former version
            made by another recipe: rows of one name would be of different data.
    """
    told, world = loader.metadata(path), task.world.id
    name, made = told.get("name", ""), recorded_on(told, task.data, path) or world
    otherwise = f"learn from it with --task {made} --dataset {path}"
    if made != world:
        raise RefusedFile(f"{path}: was recorded on {made}, not {world}; {otherwise}")
    # a run on a set of our own is never taken for a run on D4RL's
    borrowed = name.startswith(PREFIX) and name != task.data
    if task.dataset and not (borrowed and task.data in catalogue.d4rl()):
        return
    if borrowed:
        raise RefusedFile(f"{path}: is {name}, not {task.data}; {otherwise}")
    recipe = RECIPES.get(name)
    if recipe is not None and told.get("recipe", recipe.to_json()) != recipe.to_json():
        again = f"make it again: rlbench data generate {name} --force"
        raise RefusedFile(
            f"{path}: was made by another recipe of that name than this version's; {again}, or {otherwise}"
        )
    if name != task.data and not locations.has_name(path, task.data):
        raise RefusedFile(
            f"{path}: is not called as {task.data} is; if it is that set, name it "
            f"{locations.place(task.data).path.name}, "
            f"else {otherwise}"
        )


def recorded_on(told: Mapping[str, str], name: str, path: Path) -> str | None:
    """The world of a data set: as it says, as Minari's metadata do, or as D4RL's names do; None where nothing says.

    Minari's and D4RL's are judged on version 4 of MuJoCo's tasks, whichever version they were recorded on.
    """
    if "task" in told:
        return told["task"]
    if "env_id" in told:
        current = re.sub(r"-v\d+$", "-v4", told["env_id"])
        return current if current in BODILY else told["env_id"]
    called = path.resolve().name
    by_file = (known for known in catalogue.d4rl().values() if called in {known.file, f"{known.name}.hdf5"})
    known = catalogue.d4rl().get(name) or next(by_file, None)
    return None if known is None else known.env_id


def check_compatibility(task: OfflineTask, recorded: Dataset, info: EnvInfo, *, stretched: bool) -> Dataset:
    """The data in the world's numbers: actions in [−1, 1] unless they were ``stretched``; Ant's without its zeros.

    Raises:
        RefusedFile: they are of another world: of other widths or shapes, or with discrete actions that it has not.
    """
    if isinstance(info.actions, Discrete):
        _fits_numbers(task, recorded, info, info.actions.n)
        return recorded
    if recorded.obs.ndim != 2 or recorded.action.ndim != 2:
        raise RefusedFile(f"{task.data}: holds discrete actions, {task.world.id} has real ones; choose another task")
    recorded = _seen(recorded, SHOWN.get(task.world.id))
    theirs = recorded.obs.shape[1], recorded.action.shape[1]
    ours = info.obs_shape[0], len(info.actions.low)
    if theirs != ours:
        raise RefusedFile(
            f"{task.data}: observations and actions of {theirs[0]} and {theirs[1]} numbers, "
            f"{task.world.id} has {ours[0]} and {ours[1]}; choose the task that was recorded"
        )
    return recorded if stretched else _stretched(recorded, info.actions)


def _seen(recorded: Dataset, width: int | None) -> Dataset:
    """Without the numbers behind the first ``width`` of an observation, if there are any and they are all 0."""
    parts = [part for part in (recorded.obs, recorded.next_obs) if part is not None]
    if width is None or recorded.obs.shape[1] <= width or any(part[:, width:].any() for part in parts):
        return recorded
    obs, led_to = recorded.obs[:, :width].copy(), recorded.next_obs
    return recorded._replace(obs=obs, next_obs=None if led_to is None else led_to[:, :width].copy())


def _stretched(recorded: Dataset, box: Box) -> Dataset:
    """Actions of the environment's own range on [−1, 1], where that is another range."""
    centre, half = (box.low + box.high) / 2, (box.high - box.low) / 2
    if not centre.any() and (half == 1).all():
        return recorded
    return recorded._replace(action=((recorded.action - centre) / half).astype(np.float32))


def _fits_numbers(task: OfflineTask, recorded: Dataset, info: EnvInfo, count: int) -> None:
    """Refuse data of another world where actions are numbered."""
    if recorded.action.ndim != 1:
        raise RefusedFile(
            f"{task.data}: holds continuous actions, {task.world.id} has numbered ones; choose another task"
        )
    theirs, ours = (recorded.obs.shape[1:], recorded.obs.dtype), (info.obs_shape, np.dtype(info.obs_dtype))
    if theirs != ours:
        raise RefusedFile(
            f"{task.data}: observations of {theirs[1]} {list(theirs[0])}, {task.world.id} shows {ours[1]} "
            f"{list(ours[0])}; choose the task that was recorded"
        )
    low, high = int(recorded.action.min()), int(recorded.action.max())
    if low < 0 or high >= count:
        raise RefusedFile(
            f"{task.data}: actions {low} to {high}, {task.world.id} has 0 to {count - 1}; choose the task recorded"
        )
