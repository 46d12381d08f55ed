"""Data sets in their environment's units; other data are refused."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from rlbench import suites
from rlbench.assembly.environments import describe
from rlbench.assembly.offline import check_compatibility, check_identity, load_data
from rlbench.cli.dataset_option import Data, check_data
from rlbench.config.run import Runtime
from rlbench.config.tasks import OfflineTask
from rlbench.datasets.episodes import Dataset
from rlbench.envs.base import Box
from rlbench.errors import RefusedFile, UsageError
from tests.conftest import Capture, Patch
from tests.datasets.conftest import minari_set


def task(world: str, dataset: str = "mine") -> OfflineTask:
    """Other data than a row's own, evaluated on ``world``."""
    return suites.spec("offline", "il", world, dataset=dataset).task


def flat(path: Path, features: int, actions: int, **attributes: str) -> Path:
    """D4RL's layout: five steps of one episode, all actions 0.5."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for key, width in (("observations", features), ("next_observations", features), ("actions", actions)):
            file[key] = np.full((5, width), 0.5, np.float32)
        file["rewards"] = np.ones(5, np.float32)
        file["terminals"], file["timeouts"] = np.zeros(5, np.bool_), np.arange(5) == 4
        file.attrs.update(attributes)
    return path


def farama(root: Path, name: str, env_id: str, features: int, action: list[float]) -> Path:
    """Minari's layout: one episode of five steps, each with ``action``."""
    episode = {"observations": np.zeros((6, features), np.float32), "rewards": np.ones(5, np.float32)}
    episode |= {"actions": np.tile(np.array(action, np.float32), (5, 1))}
    episode |= {"terminations": np.zeros(5, np.bool_), "truncations": np.arange(5) == 4}
    return minari_set(root / name, [episode], dataset_id=name, env_spec=json.dumps({"id": env_id}))


def test_data_of_another_body_are_refused_whatever_says_so(tmp_path: Path) -> None:
    """HalfCheetah and Walker2d show 17 numbers and take 6: widths cannot tell them apart."""
    cheetah, other = task("HalfCheetah-v4"), "was recorded on Walker2d-v4, not HalfCheetah-v4; .*--task Walker2d-v4"
    (tmp_path / "mine.hdf5").symlink_to(tmp_path / "walker2d_medium-v2.hdf5")
    for path, meaning in (
        (flat(tmp_path / "a.hdf5", 17, 6, task="Walker2d-v4"), cheetah),
        (farama(tmp_path, "mujoco/walker2d/medium-v0", "Walker2d-v5", 17, [0.0] * 6), cheetah),
        (flat(tmp_path / "b.hdf5", 17, 6), task("HalfCheetah-v4", "walker2d-medium-v2")),
        (flat(tmp_path / "walker2d_medium-v2.hdf5", 17, 6), cheetah),
        (flat(tmp_path / "walker2d-medium-v2.hdf5", 17, 6), cheetah),
        (tmp_path / "mine.hdf5", cheetah),
        (tmp_path / "mujoco/walker2d/medium-v0/data/main_data.hdf5", cheetah),
    ):
        with pytest.raises(RefusedFile, match=other):
            check_identity(meaning, path)
        check_identity(meaning.model_copy(update={"world": task("Walker2d-v4").world}), path)
    check_identity(cheetah, flat(tmp_path / "anything.hdf5", 17, 6))  # which says nothing


def test_minari_data_of_another_name_are_not_taken_for_the_set(tmp_path: Path) -> None:
    folder = farama(tmp_path, "mujoco/hopper/medium-v0", "Hopper-v5", 11, [0.0] * 3)
    row = suites.spec("offline", "il", "mujoco/hopper/medium-v0").task
    check_identity(row, folder)
    path = folder / "data" / "metadata.json"
    path.write_text(path.read_text().replace("medium-v0", "expert-v0"))
    with pytest.raises(RefusedFile, match=r"is mujoco/hopper/expert-v0, not mujoco/hopper/medium-v0; learn from it"):
        check_identity(row, folder)
    check_identity(task("Hopper-v4"), folder)  # as other data
    row = suites.spec("offline", "il", "hopper-medium-v2").task
    check_identity(row, flat(tmp_path / "hopper_medium-v2.hdf5", 11, 3, name="mujoco/hopper/medium-v0"))


def test_settings_of_the_environment_of_minari_data_are_noted(tmp_path: Path, capsys: Capture) -> None:
    folder = farama(tmp_path, "mine/hopper/medium-v0", "Hopper-v5", 11, [0.0] * 3)
    spec = suites.spec("offline", "il", "Hopper-v4", dataset="mine")
    runtime = Runtime(device="cpu", dataset=str(folder))
    check_data(spec, runtime)
    assert not capsys.readouterr().err
    path = folder / "data" / "metadata.json"
    metadata = json.loads(path.read_text())
    for setting, note in (
        ({"kwargs": {"frame_skip": 1}}, 'the arguments {"frame_skip": 1}; Hopper-v4 evaluates without them'),
        ({"additional_wrappers": [{"name": "Clip", "kwargs": {}}]}, "the wrappers Clip; Hopper-v4 evaluates without"),
        ({"max_episode_steps": 25}, "in episodes of at most 25 steps; those of Hopper-v4 have up to 1000"),
        ({"max_episode_steps": 1000, "additional_wrappers": []}, ""),
    ):
        path.write_text(json.dumps({**metadata, "env_spec": {"id": "Hopper-v5", **setting}}))
        check_data(spec, runtime)
        assert note in (error := capsys.readouterr().err) and bool(error) == bool(note)


def test_actions_in_the_environments_own_units_are_brought_to_where_they_are_sent(tmp_path: Path) -> None:
    """InvertedPendulum takes −3 to 3, which is what Minari's files hold; ours hold what was sent, −1 to 1."""
    spec = suites.spec("offline", "il", "InvertedPendulum-v4", dataset="mine")
    folder = farama(tmp_path, "mujoco/invertedpendulum/medium-v0", "InvertedPendulum-v5", 4, [-1.5])
    own = flat(tmp_path / "rlb-x.hdf5", 4, 1, task="InvertedPendulum-v4", rlbench="0.1.0")
    for path, due in ((folder, -0.5), (own, 0.5)):
        match = load_data(spec, spec.task, Runtime(device="cpu", threads=1, dataset=str(path)))
        action = check_compatibility(spec.task, match.data, describe(spec), normalized=match.normalized).action
        np.testing.assert_array_equal(action[:5], np.full((5, 1), due, np.float32))
        assert action.dtype == np.float32


def test_the_contact_forces_that_ant_does_not_show_are_left_out_where_they_are_zero(tmp_path: Path) -> None:
    spec = suites.spec("offline", "il", "Ant-v4", dataset="mine")
    for force in (0.0, 1e-3):
        with h5py.File(path := flat(tmp_path / f"{force}.hdf5", 111, 8), "r+") as file:
            for key in ("observations", "next_observations"):
                file[key][:, 27:] = 0.0
                file[key][2, 100] = force
        match = load_data(spec, spec.task, Runtime(device="cpu", threads=1, dataset=str(path)))
        assert match.data.obs.shape[1] == (111 if force else 27) and (match.data.obs[:, :27] == 0.5).all()
    with pytest.raises(RefusedFile, match="111 and 8 dimensions, Ant-v4 has 27 and 8"):
        check_compatibility(spec.task, match.data, describe(spec), normalized=False)


def test_a_range_that_is_not_about_zero_is_moved_too() -> None:
    hopper = task("Hopper-v4")
    info = describe(suites.spec("offline", "il", "Hopper-v4", dataset="mine"))
    box = Box(np.array([0, -1, -4], np.float32), np.array([2, 1, 0], np.float32))
    ends, obs = np.zeros(2, np.bool_), np.zeros((2, 11), np.float32)
    action = np.array([[0, -1, -4], [1.5, 0.5, -1]], np.float32)
    match = check_compatibility(
        hopper, Dataset(obs, action, obs[:, 0], ends, ends, ends), info._replace(actions=box), normalized=False
    )
    np.testing.assert_allclose(match.action, [[-1, -1, -1], [0.5, 0.5, 0.5]])


def test_an_own_set_is_not_learned_from_under_a_name_of_d4rls(tmp_path: Path) -> None:
    own = flat(tmp_path / "hopper_medium-v0.hdf5", 11, 3, name="rlb-standin", task="Hopper-v4")
    with pytest.raises(RefusedFile, match="is rlb-standin, not hopper-medium-v0"):
        check_identity(task("Hopper-v4", "hopper-medium-v0"), own)
    check_identity(task("Hopper-v4", "rlb-standin"), own)
    check_identity(task("Hopper-v4", "mine-1234abcd"), own)


def test_a_set_without_a_row_is_learned_from_on_the_world_that_it_is_of(tmp_path: Path, monkeypatch: Patch) -> None:
    for variable in ("D4RL_DATASET_DIR", "MINARI_DATASETS_PATH", "RLBENCH_DATASETS"):
        monkeypatch.setenv(variable, str(tmp_path))
    flat(tmp_path / "hopper_medium.hdf5", 11, 3)
    flat(tmp_path / "rlb-mine.hdf5", 11, 3, task="Hopper-v4")
    flat(tmp_path / "rlb-silent.hdf5", 17, 6)
    farama(tmp_path, "mujoco/swimmer/expert-v0", "Swimmer-v5", 8, [0.0, 0.0])
    farama(tmp_path, "mujoco/pusher/expert-v0", "Pusher-v5", 23, [0.0] * 7)
    assert Data("hopper-medium-v0").tasks("offline") == ("Hopper-v4",)
    assert Data("rlb-mine").tasks("offline") == ("Hopper-v4",)
    assert Data("mujoco/swimmer/expert-v0").tasks("offline") == ("Swimmer-v4",)
    assert Data("hopper-medium-v2").tasks("offline", ("Hopper-v4",)) == ("hopper-medium-v2",)
    assert Data("hopper-medium-v2").tasks("offline", ("Walker2d-v4",)) == ("Walker2d-v4",)  # refused when it is read
    assert Data("hopper-medium-v2").tasks("mujoco", ("Hopper-v4",)) == ("Hopper-v4",)  # refused for the suite
    assert Data("halfcheetah-medium-v2").tasks("offline") == ("halfcheetah-medium-v2",)
    assert Data("rlb-silent").tasks("offline", ("Hopper-v4",)) == ("Hopper-v4",)
    with pytest.raises(UsageError, match="rlb-silent: names no environment; name it with --task, one of HalfC"):
        Data("rlb-silent").tasks("offline")
    with pytest.raises(UsageError, match="antmaze-umaze-v0: its policies cannot be evaluated here"):
        Data("antmaze-umaze-v0").tasks("offline")  # before the message that names the download
    with pytest.raises(UsageError, match="is of Pusher-v5, which is not available here; name its env"):
        Data("mujoco/pusher/expert-v0").tasks("offline")


@pytest.mark.parametrize(("features", "actions", "env"), [(11, 3, "Hopper-v4"), (27, 8, "Ant-v4"), (111, 8, "Ant-v4")])
def test_a_file_is_evaluated_on_the_only_environment_of_its_sizes(
    tmp_path: Path, features: int, actions: int, env: str, capsys: Capture
) -> None:
    path = flat(tmp_path / "mine.hdf5", features, actions)
    assert Data(str(path)).tasks("offline") == (env,)
    only = f"evaluated on {env}, the only environment here with observations of {features} numbers and actions of"
    assert f"--dataset {path}: {only} {actions}\n" == capsys.readouterr().err


def test_a_file_of_several_environments_or_none_names_those_of_its_sizes(tmp_path: Path) -> None:
    several = flat(tmp_path / "mine.hdf5", 17, 6)
    with pytest.raises(UsageError, match="one of HalfCheetah-v4, Walker2d-v4, which have observations of 17 numbers"):
        Data(str(several)).tasks("offline")
    with pytest.raises(UsageError, match="no environment here has observations of 29 numbers and actions of 8; see"):
        Data(str(flat(tmp_path / "maze.hdf5", 29, 8))).tasks("offline")
    assert Data(str(flat(tmp_path / "own.hdf5", 17, 6, task="Walker2d-v4"))).tasks("offline") == ("Walker2d-v4",)


def test_a_set_that_is_no_row_is_not_taken_for_a_mistyped_one() -> None:
    for name, use in (
        ("ant-medium-v2", "--task Ant-v4 --dataset ant-medium-v2"),
        ("hopper-medium-v0", "--task Hopper-v4 --dataset hopper-medium-v0"),
        ("antmaze-umaze-v0", "its policies cannot be evaluated here"),
    ):
        with pytest.raises(UsageError, match=f"{name}: is a data set, but no row of the table; .*{use}"):
            Data(None).tasks("offline", (name,))
    assert Data(None).tasks("offline", ("hopper-*",)) == ("hopper-*",)
