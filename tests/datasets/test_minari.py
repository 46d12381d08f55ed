"""Minari's layout, read without Minari."""

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from rlbench.datasets import dataset_fetch
from rlbench.datasets.minari import minari_metadata, read_minari
from rlbench.errors import RefusedFile, UsageError

WriteMinari = Callable[..., Path]
Episode = dict[str, object]


def episode(steps: int, start: float = 0.0, *, terminated: bool = False, truncated: bool = False) -> Episode:
    obs_values = start + np.arange(steps + 1, dtype=np.float64)
    last = np.arange(steps) == steps - 1
    return {
        "observations": np.stack([obs_values, -obs_values], 1),
        "actions": (obs_values[:-1, None] / 100).astype(np.float32),
        "rewards": obs_values[:-1] * 2,
        "terminations": last & terminated,
        "truncations": last & truncated,
    }


def test_episodes_follow_one_another_in_the_order_of_their_numbers(write_minari: WriteMinari) -> None:
    content = [episode(2, 10 * number, truncated=True) for number in range(11)]
    data = read_minari(write_minari(content))
    assert list(data.obs[::3, 0]) == [10.0 * number for number in range(11)]
    assert data.obs.dtype == data.reward.dtype == np.float32


def test_final_observation_is_read(write_minari: WriteMinari) -> None:
    data = read_minari(write_minari([episode(3, terminated=True), episode(2, 10), episode(1, 20, truncated=True)]))
    assert list(data.obs[:, 0]) == [0, 1, 2, 3, 10, 11, 12, 20, 21]
    assert list(np.flatnonzero(data.final)) == [3, 6, 8]
    assert list(np.flatnonzero(data.terminated)) == [2]
    assert list(np.flatnonzero(data.truncated)) == [5, 7]  # the second was broken off and says nothing


def test_step_both_terminated_and_truncated_counts_as_terminated(write_minari: WriteMinari) -> None:
    data = read_minari(write_minari([episode(3, terminated=True, truncated=True)]))
    assert data.terminated[-2]
    assert not data.truncated.any()


@pytest.mark.parametrize(
    ("parts", "row"),
    [
        (
            {"observation": np.ones((4, 2)), "achieved_goal": np.zeros((4, 1)), "desired_goal": np.full(4, 2.0)},
            [0, 2, 1, 1],
        ),
        ({"x_2": np.ones((4, 1)), "y_1": np.zeros((4, 1))}, [1, 0]),  # a dictionary's names, not a tuple's
    ],
)
def test_dictionary_observations_are_concatenated(
    parts: dict[str, np.ndarray], row: list[int], write_minari: WriteMinari
) -> None:
    data = read_minari(write_minari([{**episode(3, truncated=True), "observations": parts}]))
    assert data.obs.tolist() == [row] * 4


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"actions": np.zeros(3, np.int64)}, "episode_0/actions: discrete"),
        ({"actions": np.zeros((2, 1))}, "episode_0/actions: 2 rows, rewards have 3"),
        ({"observations": np.zeros((3, 2))}, "episode_0/observations: 3 rows, 3 steps need 4"),
        ({"observations": np.full((4, 2), np.nan)}, "episode_0/observations: NaN or infinity in row 0"),
        ({"observations": np.zeros((4, 8, 8, 3), np.uint8)}, "episode_0/observations: has the shape"),
        ({"observations": {"a": np.zeros((4, 2)), "b": np.zeros((3, 2))}}, "episode_0/observations: its parts"),
        ({"terminations": np.zeros((3, 2), np.bool_)}, "episode_0/terminations: has the shape"),
        ({"truncations": None}, "episode_0/truncations: missing"),
    ],
)
def test_invalid_files_are_refused_by_key(write_minari: WriteMinari, content: Episode, says: str) -> None:
    columns = {key: value for key, value in {**episode(3, truncated=True), **content}.items() if value is not None}
    with pytest.raises(RefusedFile, match=says):
        read_minari(write_minari([columns]))


def test_episodes_of_different_widths_are_refused(write_minari: WriteMinari) -> None:
    other = {**episode(3, truncated=True), "observations": np.zeros((4, 5))}
    with pytest.raises(RefusedFile, match="observations of 5 and actions of 1 numbers, episode_0 has 2 and 1"):
        read_minari(write_minari([episode(3, truncated=True), other]))


def test_steps_that_the_metadata_do_not_know_are_refused(write_minari: WriteMinari) -> None:
    folder = write_minari([episode(3, truncated=True), episode(2, truncated=True)])
    with h5py.File(folder / "data/main_data.hdf5", "a") as file:
        del file["episode_1"]
    with pytest.raises(RefusedFile, match=r"holds 1 episodes of 3 steps, .* says 2 of 5"):
        read_minari(folder)


def test_an_import_keeps_nothing_of_a_folder_that_is_exchanged(
    write_minari: WriteMinari, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exchange(path: Path, *_: object, **__: object) -> None:
        (path / "data/metadata.json").write_text("{}")

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    monkeypatch.setattr(dataset_fetch, "load_dataset", exchange)
    with pytest.raises(RefusedFile, match=r"metadata\.json: changed while it was read"):
        dataset_fetch.import_dataset(write_minari([episode(3, truncated=True)]), "toy/walk/medium-v0")
    assert not [path for path in (tmp_path / "sets").rglob("*") if path.is_file()]


def test_the_metadata_name_the_environment_and_the_scale(write_minari: WriteMinari) -> None:
    folder = write_minari([episode(3, truncated=True)])
    path = folder / "data/metadata.json"
    metadata = {
        **json.loads(path.read_text()),
        "env_spec": '{"id": "Walk-v5", "kwargs": {"frame_skip": 1, "render_mode": null}, '
        '"max_episode_steps": 25, "additional_wrappers": [{"name": "Clip", "entry_point": "os:system", "kwargs": {}}]}',
        "ref_min_score": 1,
        "ref_max_score": 9.5,
    }
    path.write_text(json.dumps(metadata))
    assert minari_metadata(folder) == ("toy/walk/medium-v0", "Walk-v5", 1, 3, 1.0, 9.5, '{"frame_skip": 1}', "Clip", 25)
    path.write_text("[1, 2")
    with pytest.raises(RefusedFile, match=r"metadata\.json: damaged"):
        read_minari(folder)
    path.write_text(json.dumps({"data_format": "arrow" * 50}))
    with pytest.raises(RefusedFile, match=r"data_format: [arow]{1,60}…; only"):
        read_minari(folder)
    path.unlink()
    with pytest.raises(UsageError, match="no Minari data set"):
        read_minari(folder)


@pytest.mark.slow
def test_minari_itself_writes_what_is_read_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnasium  # noqa: PLC0415 - heavy, and for this test alone
    import minari  # noqa: PLC0415 - as above
    from minari.data_collector import EpisodeBuffer  # noqa: PLC0415 - as above

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    box = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
    pair = gymnasium.spaces.Dict({"b": box, "a": gymnasium.spaces.Box(-9, 9, (2,), np.float64)})
    buffers = [
        EpisodeBuffer(
            id=number,
            observations={"a": np.full((3, 2), number), "b": np.full((3, 1), 5, np.float32)},
            actions=[np.array([0.5], np.float32)] * 2,
            rewards=[1.0, float(number)],
            terminations=[False, number == 1],
            truncations=[False, number == 0],
        )
        for number in range(2)
    ]
    with pytest.warns(UserWarning, match="."):
        minari.create_dataset_from_buffers("toy/two-v0", buffers, observation_space=pair, action_space=box)
    data = read_minari(tmp_path / "toy/two-v0")
    assert data.obs.tolist() == [[0, 0, 5]] * 3 + [[1, 1, 5]] * 3
    assert (np.flatnonzero(data.terminated).tolist(), np.flatnonzero(data.truncated).tolist()) == ([4], [1])
    assert data.reward[~data.final].tolist() == [1, 0, 1, 1]
