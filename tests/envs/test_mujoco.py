"""The MuJoCo and Fetch adapters against Gymnasium itself, and 200 rows of each MuJoCo task as recorded."""

import sys
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import version

import gymnasium
import numpy as np
import pytest
import torch

from rlbench.envs.envpool import EnvPoolMujoco
from rlbench.envs.gymnasium import GymnasiumVector
from rlbench.envs.mujoco import FetchVector, MujocoVector, compute_reward
from rlbench.errors import BrokenEnvironment, UnknownName, UsageError
from tests.envs.factories import answer_to, draw, make, make_any

MADE_WITH = "gymnasium 1.4.0, mujoco 3.3.7, x86-64"  # to record anew: run this file, and take what the failures say
GOLDEN = {
    "Ant-v4": "d3083bd5982f1a85b8cd6460bda1c13bdf51f35e34e60020dcabd3dc751151f9",
    "HalfCheetah-v4": "6de485db4db7ea0016a109e0b5a0c4f837a014b8133d81d95f2268e2bde80ab7",
    "Hopper-v4": "a232c82bd1f60a1d08cb6b766f0694538f2807d928112ccae97a67a7eedb673d",
    "Humanoid-v4": "0c21611888e62c5f864ee15a88d76a8a562f692602f58a6f6842234d76996151",
    "InvertedDoublePendulum-v4": "60bb0b61aa6cb9db0e79d6348e9e0e651a7e3730d1fe2d114539a6d7e8d4f398",
    "InvertedPendulum-v4": "ce8d8633870acc23bcedd20750715f79ce24fdf4728e5d3653830fd21a8e6d16",
    "Reacher-v4": "827245b24959d430db6d337d89cfc19fd888c3042612f7eedf597268ba841d1d",
    "Swimmer-v4": "84a802b3126d9c604119ce498d06466e4dadc0e5503476e079c05f648bd8a8da",
    "Walker2d-v4": "c22274dda483471770f2e7cf6362ac0a53c0c7db4e0feb52a555303dc56f3a92",
}


def rounded(column: np.ndarray) -> bytes:
    """To 0.0001: the last bit of a sine depends on what the processor offers numpy."""
    return (np.round(column.astype(np.float64), 4) + 0.0).tobytes()


@pytest.mark.parametrize("task", GOLDEN)
def test_two_hundred_rows_are_as_recorded(task: str) -> None:
    env = MujocoVector(task=task, seeds=[1, 2])
    digest = sha256(rounded(env.reset()))
    for action in draw(env.info.actions, seed=0, size=(200, 2)):
        for column in answer_to(env, action):
            digest.update(rounded(column))
    versions = f"gymnasium {version('gymnasium')}, mujoco {version('mujoco')}"
    assert digest.hexdigest() == GOLDEN[task], f"recorded with {MADE_WITH}; this is {versions}"


@pytest.mark.parametrize("task", GOLDEN)
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")  # the documented version is the old one
def test_every_row_equals_gymnasiums_own(task: str) -> None:
    env, theirs = MujocoVector(task=task, seeds=[7]), gymnasium.make(task)
    gym_obs, due = theirs.reset(seed=7)[0], False
    assert np.array_equal(env.reset()[0], gym_obs.astype(np.float32))
    half = theirs.action_space.high
    for action in draw(env.info.actions, seed=3, size=(120, 1)):
        row = answer_to(env, action)
        gym_step = (theirs.reset()[0], 0.0, False, False, {}) if due else theirs.step(half * action[0])
        gym_obs, reward, terminated, truncated, _ = gym_step
        assert np.array_equal(row.obs[0], gym_obs.astype(np.float32))
        assert (row.score[0], row.terminated[0], row.truncated[0]) == (reward, terminated, truncated)
        due = terminated or truncated


def test_actions_are_scaled_to_the_environments_bounds() -> None:
    env = MujocoVector(task="Humanoid-v4", seeds=[1])
    env.reset()
    for value, torque in ((-1, -0.4), (1, 0.4), (0.5, 0.2)):
        answer_to(env, np.full((1, 17), value, np.float32))
        assert env._envs[0].unwrapped.data.ctrl.tolist() == [pytest.approx(torque, abs=1e-7)] * 17


def test_bounds_that_are_not_symmetric_are_met_and_kept() -> None:
    class Odd(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Box(np.array([0.1, -3], np.float32), np.array([0.7, 1], np.float32))

        def reset(self, **_: object) -> tuple:
            return np.zeros(2, np.float32), {}

        def step(self, action: np.ndarray) -> tuple:
            torques.append(action)
            return np.zeros(2, np.float32), 0.0, False, False, {}

    torques: list[np.ndarray] = []
    env = GymnasiumVector(name="Odd-v0", factory=Odd, seeds=[1])
    env.reset()
    for value in (-1, 1, 0):
        answer_to(env, np.full((1, 2), value, np.float32))
    assert np.stack(torques) == pytest.approx(np.array([[0.1, -3], [0.7, 1], [0.4, -1]]))
    assert all(Odd.action_space.contains(action) for action in torques)


def test_actions_may_be_overwritten_once_they_are_sent() -> None:
    env, again = (GymnasiumVector(name="Pendulum-v1", factory=make("Pendulum-v1"), seeds=[1]) for _ in range(2))
    action = np.full((1, 1), 0.5, np.float32)
    for one in (env, again):
        one.reset()
        one.send(action)
    answer = again.recv()
    action[:] = -1
    assert np.array_equal(env.recv().obs, answer.obs)


@pytest.mark.parametrize("kind", ["hopper", "envpool-hopper"])
def test_the_record_names_task_and_engine(kind: str) -> None:
    names = dict(make_any(kind, seeds=[1]).info.versions)
    engine = ("envpool", "envpool") if kind == "envpool-hopper" else ("gymnasium", "mujoco")
    assert names["env"] == f"{engine[0]}/Hopper-v4" and names[engine[1]] == version(engine[1])


@pytest.mark.parametrize("make", [MujocoVector, lambda **wish: EnvPoolMujoco(threads=1, **wish)])
def test_unknown_mujoco_task_is_refused(make: Callable) -> None:
    with pytest.raises(UsageError, match=r"CartPole-v1: not one of the mujoco tasks, which are .*Ant-v4"):
        make(task="CartPole-v1", seeds=[1])
    with pytest.raises(UnknownName, match=r"mujoco: unknown task 'HalfCheeta-v4'; did you mean .*'HalfCheetah-v4'"):
        make(task="HalfCheeta-v4", seeds=[1])


def test_a_task_that_this_mujoco_cannot_play_is_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match=r"Pusher-v4: .*mujoco<3"):
        MujocoVector(task="Pusher-v4", seeds=[1])


def test_envpool_agrees_with_gymnasium_from_an_equal_state_while_rounding_does_not_grow() -> None:
    pool, gym = EnvPoolMujoco(task="Swimmer-v4", seeds=[5], threads=1), MujocoVector(task="Swimmer-v4", seeds=[5])
    gym.reset()
    obs = pool.reset()[0].astype(np.float64)
    gym._envs[0].unwrapped.set_state(np.concatenate([[0.0, 0.0], obs[:3]]), obs[3:])  # it feels no place
    for action in draw(gym.info.actions, seed=1, size=(100, 1)):
        ours, theirs = answer_to(pool, action), answer_to(gym, action)
        assert ours.obs == pytest.approx(theirs.obs, abs=1e-4) and ours.score == pytest.approx(theirs.score, abs=1e-4)


@pytest.mark.parametrize("threads", [2, 3])
def test_threaded_envs_give_equal_results_to_the_bit(threads: int) -> None:
    one, many = (MujocoVector(task="Hopper-v4", seeds=range(5), threads=n) for n in (1, threads))
    assert np.array_equal(one.reset(), many.reset())
    ends = 0
    for action in draw(one.info.actions, seed=4, size=(80, 5)):
        for mine, theirs in zip(answer_to(one, action), answer := answer_to(many, action), strict=True):
            assert np.array_equal(mine, theirs)
        ends += int(answer.game_over.sum())
    assert ends > 5  # resets were shared too
    state, other = one.episodes_state(), many.episodes_state()
    assert all(np.array_equal(np.asarray(state[key]), np.asarray(other[key])) for key in state)
    many.close()
    many.close()


@pytest.mark.parametrize("env_id", [0, 4], ids=["in the own share", "in another thread's"])
def test_error_of_an_env_is_reported_from_any_thread(env_id: int) -> None:
    env = MujocoVector(task="Hopper-v4", seeds=range(5), threads=2)
    env.reset()
    env._envs[env_id].unwrapped.model = None
    env.send(draw(env.info.actions, seed=4, size=(1, 5))[0])
    with pytest.raises(BrokenEnvironment, match=f"Hopper-v4: env {env_id}, step 0: "):
        env.recv()
    env.close()


OBSERVATION, ACHIEVED, DESIRED = slice(0, 10), slice(10, 13), slice(13, 16)


def test_observation_is_observation_achieved_goal_and_desired_goal() -> None:
    env = FetchVector(task="FetchReach-v4", seeds=[1, 2])
    obs = env.reset()
    assert obs.shape == (2, 16) and obs.dtype == np.float32
    for action in draw(env.info.actions, seed=0, size=(60, 2)):
        for env_id, one in enumerate(env._envs):
            parts = one.unwrapped._get_obs()
            slices = (OBSERVATION, ACHIEVED, DESIRED)
            for where, part in zip(slices, ("observation", "achieved_goal", "desired_goal"), strict=True):
                assert np.array_equal(obs[env_id, where], parts[part].astype(np.float32))
        obs = answer_to(env, action).obs


def test_compute_reward_equals_the_environments_reward() -> None:
    env = FetchVector(task="FetchReach-v4", seeds=range(4))
    obs, rewards = env.reset(), set()
    for _ in range(45):  # straight to the goal: an action of 1 is 5 cm
        towards = (obs[:, DESIRED] - obs[:, ACHIEVED]) / 0.05
        step = answer_to(env, np.concatenate([np.clip(towards, -1, 1), np.zeros((4, 1))], 1, dtype=np.float32))
        obs = step.obs
        achieved, desired = (torch.from_numpy(obs[:, where]) for where in (ACHIEVED, DESIRED))
        assert compute_reward(achieved, desired).tolist() == step.reward.tolist()
        rewards |= set(step.reward.tolist())
    assert rewards == {-1.0, 0.0}


def test_the_reward_of_any_two_goals_is_the_environments() -> None:
    env = FetchVector(task="FetchReach-v4", seeds=[1])
    goal_pairs = np.random.default_rng(0).uniform(-0.05, 0.05, (2, 500, 3)).astype(np.float32)
    theirs = env._envs[0].unwrapped.compute_reward(goal_pairs[0], goal_pairs[1], {})
    ours = compute_reward(torch.from_numpy(goal_pairs[0]), torch.from_numpy(goal_pairs[1]))
    assert ours.dtype == torch.float32 and ours.tolist() == theirs.tolist()
    assert 0 < (ours == 0).sum() < 500


def test_episode_of_fifty_steps_is_truncated_or_terminated_by_setting() -> None:
    for terminates in (False, True):
        env = FetchVector(task="FetchReach-v4", seeds=[1], limit_terminates=terminates)
        env.reset()
        ends = []
        for _ in range(102):
            row = answer_to(env, np.zeros((1, 4), np.float32))
            ends.append((bool(row.terminated[0]), bool(row.truncated[0]), bool(row.game_over[0])))
        assert [at for at, end in enumerate(ends) if any(end)] == [49, 100]
        assert ends[49] == ends[100] == (terminates, not terminates, True)


def test_unsupported_fetch_tasks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="FetchReachDense-v4: its reward is dense"):
        FetchVector(task="FetchReachDense-v4", seeds=[1])
    with pytest.raises(UsageError, match="FetchReach-v1: "):
        FetchVector(task="FetchReach-v1", seeds=[1])
    with pytest.raises(UsageError, match=r"fetch: unknown task 'FetchReach-v3'; did you mean .*'FetchReach-v4'"):
        FetchVector(task="FetchReach-v3", seeds=[1])
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    with pytest.raises(UsageError, match=r'Robotics is not installed .*: pip install "gymnasium-robotics>=1.4"'):
        FetchVector(task="FetchReach-v4", seeds=[1])
