"""Files in the layouts of D4RL and Minari: whole, unusual or damaged."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

Columns = dict[str, NDArray[np.generic]]
WriteFlat = Callable[..., Path]


def flat(
    steps: int = 30, *, features: int = 3, actions: int = 2, limit: int = 10, terminals: tuple[int, ...] = ()
) -> Columns:
    """Columns of D4RL's layout; episodes end at ``terminals`` and after ``limit`` steps."""
    draw = np.random.default_rng(0)
    terminated, cut, age = np.zeros(steps, np.bool_), np.zeros(steps, np.bool_), 0
    for step in range(steps):
        age += 1
        terminated[step] = step in terminals
        cut[step] = age == limit and not terminated[step]
        age = 0 if terminated[step] or cut[step] else age
    obs = draw.standard_normal((steps, features)).astype(np.float32)
    after = draw.standard_normal((steps, features)).astype(np.float32)
    inside = ~(terminated | cut)[:-1]
    after[:-1][inside] = obs[1:][inside]
    return {
        "observations": obs,
        "actions": draw.uniform(-1, 1, (steps, actions)).astype(np.float32),
        "rewards": draw.standard_normal(steps).astype(np.float32),
        "terminals": terminated,
        "timeouts": cut,
        "next_observations": after,
    }


@pytest.fixture
def columns() -> Columns:
    return flat(terminals=(3, 14))


@pytest.fixture
def write_flat(tmp_path: Path) -> WriteFlat:
    """Writes columns as a file in D4RL's layout; None leaves a column out."""

    def write(columns: Mapping[str, object], *, path: Path | None = None, **changes: object) -> Path:
        target = path or tmp_path / "set.hdf5"
        target.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(target, "w") as file:
            for key, value in {**columns, **changes}.items():
                if value is not None:
                    file.create_dataset(key, data=value, compression="gzip", fletcher32=True)
        return target

    return write


@pytest.fixture
def write_minari(tmp_path: Path) -> Callable[..., Path]:
    """Writes episodes (T + 1 observations, T of the rest) as a Minari data set; gives its folder."""

    def write(episodes: list[dict[str, object]], name: str = "toy/walk/medium-v0", root: Path | None = None) -> Path:
        folder = (root or tmp_path / "minari") / name
        (folder / "data").mkdir(parents=True)
        with h5py.File(folder / "data" / "main_data.hdf5", "w", track_order=True) as file:
            for number, episode in enumerate(episodes):
                group = file.create_group(f"episode_{number}")
                for key, value in episode.items():
                    if isinstance(value, dict):
                        for inner, array in value.items():
                            group.create_dataset(f"{key}/{inner}", data=array, chunks=True)
                    else:
                        group.create_dataset(key, data=value, chunks=True)
        steps = sum(len(np.asarray(episode["rewards"])) for episode in episodes)
        metadata = {"dataset_id": name, "total_steps": steps, "total_episodes": len(episodes), "data_format": "hdf5"}
        (folder / "data" / "metadata.json").write_text(json.dumps(metadata))
        return folder

    return write
