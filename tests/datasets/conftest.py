"""Files in the layouts of D4RL and Minari: whole, unusual or damaged."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

Columns = dict[str, NDArray[np.generic]]
WriteFlat = Callable[..., Path]


@pytest.fixture
def columns() -> Columns:
    """Thirty steps in D4RL's layout: episodes end at steps 3 and 14, and after ten steps at 13 and 24."""
    draw, steps = np.random.default_rng(0), np.arange(30)
    terminated, cut = np.isin(steps, (3, 14)), np.isin(steps, (13, 24))
    obs, after = (draw.standard_normal((30, 3)).astype(np.float32) for _ in range(2))
    inside = ~(terminated | cut)[:-1]
    after[:-1][inside] = obs[1:][inside]
    return {
        "observations": obs,
        "actions": draw.uniform(-1, 1, (30, 2)).astype(np.float32),
        "rewards": draw.standard_normal(30).astype(np.float32),
        "terminals": terminated,
        "timeouts": cut,
        "next_observations": after,
    }


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


def minari_set(folder: Path, episodes: Sequence[Mapping[str, object]], **metadata: object) -> Path:
    """Episodes (T + 1 observations, T of the rest) as a Minari data set."""
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
    counts = {"total_steps": steps, "total_episodes": len(episodes), "data_format": "hdf5"}
    (folder / "data" / "metadata.json").write_text(json.dumps(counts | metadata))
    return folder


@pytest.fixture
def write_minari(tmp_path: Path) -> Callable[..., Path]:
    """Writes episodes as a Minari data set; gives its folder."""

    def write(episodes: list[dict[str, object]], name: str = "toy/walk/medium-v0", root: Path | None = None) -> Path:
        return minari_set((root or tmp_path / "minari") / name, episodes, dataset_id=name)

    return write
