"""Errors of environments that are missing, not installed, or break the contract."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import rlbench.envs.atari_wrappers
import rlbench.envs.envpool
from rlbench.envs.base import Step
from rlbench.envs.gymnasium import GymnasiumVector
from rlbench.errors import BrokenEnvironment, Diverged, RlbenchError, UnknownName, UsageError
from tests.envs.factories import answer_to, make, make_any, make_atari

ATARI = ["ale", "envpool", "gymnasium"]


class Frail(gymnasium.Env[Any, Any]):
    """Two numbers, two actions, and one broken promise at the third step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, first: Any = None, *, reward: Any = 0.0, ended: Any = False, **breaks: float) -> None:
        self.first, self.reward, self.ended = first, reward, ended
        self.raises, self.shows, self.steps = breaks.get("raises"), breaks.get("shows", 0.0), 0

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        broken = self.steps == 3
        if broken and self.raises:
            raise ValueError("the joint is loose")
        obs = self.first if self.steps == 1 and self.first is not None else np.zeros(2, np.float32)
        obs = np.array([0, self.shows], np.float32) if broken else obs
        return obs, self.reward if broken else 0.0, self.ended if broken else False, False, {}


def run(*num_envs: Frail) -> list[Step]:
    ready = iter(num_envs)
    env = GymnasiumVector(name="Frail-v0", factory=lambda: next(ready), seeds=range(len(num_envs)))
    env.reset()
    return [answer_to(env, np.zeros(len(num_envs), np.int64)) for _ in range(4)]


@pytest.mark.parametrize("adapter", ATARI)
def test_an_unknown_game_is_answered_with_the_nearest(adapter: str) -> None:
    with pytest.raises(UnknownName, match=rf"{adapter}: unknown game 'brekout'; did you mean 'breakout'"):
        make_atari(adapter, "brekout", seeds=[1], training=True)


def test_a_missing_envpool_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlbench.envs.envpool, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r'EnvPool is not installed: pip install "rlbench\[envpool\]"'):
        make_atari("envpool", "pong", seeds=[1], training=True)


def test_a_missing_opencv_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlbench.envs.atari_wrappers, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="OpenCV, which is not installed: pip install opencv-python-headless"):
        make_atari("gymnasium", "pong", seeds=[1], training=True)


@pytest.mark.parametrize("wish", [{"noops": 0}, {"frame_skip": 1}])
def test_envpool_refuses_what_it_cannot_do_faithfully(wish: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="noops ≥ 1 and frame_skip ≥ 2"):
        make_atari("envpool", "pong", seeds=[1], training=True, **wish)


@pytest.mark.parametrize("kind", ["ale", "envpool", "gymnasium", "cartpole", "catch"])
def test_an_impossible_action_is_refused_before_the_engine_sees_it(kind: str) -> None:
    env = make_any(kind, seeds=[1, 2])
    env.reset()
    for action in ([0, -1], [0, 99], [0], [0.0, 0.0]):
        with pytest.raises(RlbenchError, match="actions must be"):
            env.send(np.array(action))
    assert answer_to(env, np.array([0, 1])).obs.shape[0] == 2


def test_continuous_actions_must_be_float32_vectors() -> None:
    env = GymnasiumVector(name="Pendulum-v1", factory=make("Pendulum-v1"), seeds=[1, 2])
    env.reset()
    assert answer_to(env, np.zeros((2, 1), np.float32)).score.dtype == np.float64
    for wrong in (np.zeros((2, 1)), np.zeros(2, np.float32)):
        with pytest.raises(RlbenchError, match=r"actions must be \[2, 1\] float32"):
            env.send(wrong)


@pytest.mark.parametrize("kind", ["hopper", "fetch", "envpool-hopper", "pendulum"])
def test_an_action_that_is_not_finite_or_not_in_its_range_is_refused(kind: str) -> None:
    env = make_any(kind, seeds=[1, 2])
    env.reset()
    action = np.zeros((2, *env.info.actions.low.shape), np.float32)
    for wrong in (np.nan, np.inf, -np.inf):
        action[1, -1] = wrong
        with pytest.raises(Diverged, match="env 1, step 0: action is not finite"):
            env.send(action)
    action[1, -1] = -1.25
    with pytest.raises(RlbenchError, match=r"step 0: actions must be from -1 to 1 \(1.25 is outside\)"):
        env.send(action)
    action[1, -1] = -1
    assert answer_to(env, action).obs.shape[0] == 2


def test_an_environment_whose_actions_have_no_bounds_is_refused() -> None:
    class Unbounded(Frail):
        action_space = gymnasium.spaces.Box(np.array([-1, -np.inf]), np.array([1, 1]), dtype=np.float64)

    with pytest.raises(UsageError, match="Unbounded-v0: actions are unbounded; "):
        GymnasiumVector(name="Unbounded-v0", factory=Unbounded, seeds=[1])


@pytest.mark.parametrize("shape", [(2, 3), ()])
def test_an_environment_whose_actions_are_no_vectors_is_refused(shape: tuple[int, ...]) -> None:
    class Shaped(Frail):
        action_space = gymnasium.spaces.Box(-1, 1, shape, np.float32)

    with pytest.raises(UsageError, match=rf"Shaped-v0: actions have the shape {list(shape)}; ".replace("[", r"\[")):
        GymnasiumVector(name="Shaped-v0", factory=Shaped, seeds=[1])


def test_environment_error_has_name_step_and_cause() -> None:
    with pytest.raises(
        BrokenEnvironment, match=r"Frail-v0: env 1, step 2: ValueError: the joint is loose .*seed is 1"
    ) as caught:
        run(Frail(), Frail(raises=True))
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("first", "what"),
    [
        (np.zeros(3, np.float32), r"shape \[3\], promised \[2\]"),
        (np.zeros(2, np.float64), "type float64, promised float32"),
        (np.array([0, np.nan], np.float32), "not finite"),
    ],
    ids=["shape", "type", "nan"],
)
def test_invalid_first_step_is_refused_with_its_env_index(first: np.ndarray, what: str) -> None:
    with pytest.raises(BrokenEnvironment, match=rf"Frail-v0: env 1, step \d: observation .*{what}"):
        run(Frail(), Frail(first=first))


@pytest.mark.parametrize("reward", [np.nan, np.inf])
def test_a_reward_that_is_not_finite_is_refused_at_any_step(reward: float) -> None:
    with pytest.raises(BrokenEnvironment, match="Frail-v0: env 1, step 3: reward is not finite"):
        run(Frail(), Frail(reward=reward))


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ({"reward": "1.0"}, "reward is '1.0', promised a number"),
        ({"reward": None}, "reward is None, promised a number"),
        ({"ended": "False"}, "terminated is 'False', promised a bool"),
        ({"ended": None}, "terminated is None, promised a bool"),
        ({"ended": np.nan}, "terminated is nan, promised a bool"),
    ],
)
def test_a_reward_or_end_of_another_type_is_refused_at_any_step(answer: dict[str, Any], what: str) -> None:
    with pytest.raises(BrokenEnvironment, match=rf"Frail-v0: env 1, step 2: {what} \(this env's seed is 1\)"):
        run(Frail(), Frail(**answer))


def test_rewards_and_ends_of_any_numeric_type_are_taken() -> None:
    tensors = Frail(reward=torch.tensor(1.0), ended=torch.tensor(1.0))
    _, _, step, _ = run(Frail(reward=np.array(1), ended=np.array(False)), Frail(reward=True, ended=0.0), tensors)
    assert step.reward.tolist() == [1.0, 1.0, 1.0] and step.terminated.tolist() == [False, False, True]


@pytest.mark.parametrize("shows", [np.nan, -np.inf])
def test_an_observation_that_is_not_finite_is_refused_at_any_step(shows: float) -> None:
    with pytest.raises(BrokenEnvironment, match="Frail-v0: env 1, step 3: observation is not finite"):
        run(Frail(), Frail(shows=shows))


def test_error_inside_an_engine_is_a_broken_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def send(self, *_: Any) -> None:
            raise RuntimeError("no such cartridge")

    env = make_atari("ale", "pong", seeds=[1, 2], training=True)
    env.reset()
    monkeypatch.setattr(env, "_engines", [Failing(), Failing()])
    with pytest.raises(BrokenEnvironment, match="ale/pong: step 0: RuntimeError: no such cartridge"):
        env.send(np.array([0, 0]))


def test_an_environment_that_ends_for_two_reasons_is_terminated() -> None:
    class Both(Frail):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return np.zeros(2, np.float32), 1.0, True, True, {}

    env = GymnasiumVector(name="Both-v0", factory=Both, seeds=[1])
    env.reset()
    step = answer_to(env, np.array([0]))
    assert step.terminated[0] and step.game_over[0] and not step.truncated[0]


def test_observations_that_are_not_boxes_are_refused() -> None:
    with pytest.raises(UsageError, match="only Box is supported"):
        GymnasiumVector(name="FrozenLake-v1", factory=make("FrozenLake-v1"), seeds=[1])
