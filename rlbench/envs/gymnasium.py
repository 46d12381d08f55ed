"""Any Gymnasium environment, N of them in this process, one after the other.

Slow and exact: every lane is a plain ``gymnasium.Env``, reset when its episode has ended and never otherwise. An
environment whose reward is not its score, or whose episode is not a whole game, says so in its info: ``score`` (raw
points) and ``over`` (bool), as the Atari chain of ``envs/chain.py`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final, NamedTuple, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlbench.envs.base import Box, Discrete, EnvInfo, Frames, Step
from rlbench.envs.inspection import Inspection
from rlbench.errors import UnknownName, UsageError

Env: TypeAlias = gymnasium.Env[Any, Any]  # what it shows and takes, only its spaces know


class _Row(NamedTuple):
    """One lane's answer."""

    obs: NDArray[Any]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    score: float = 0.0
    over: bool = False


class GymnasiumVector:
    """N lanes of one environment; observations are uint8 where the environment's are, else float32."""

    def __init__(
        self,
        *,
        name: str,
        factory: Callable[[], Env],
        seeds: Sequence[int],
        versions: Sequence[tuple[str, str]] = (),
    ) -> None:
        if not seeds:
            raise UsageError("seeds: at least one lane is needed")
        self._envs = [factory() for _ in seeds]
        self._seeds = tuple(seeds)
        space = self._envs[0].observation_space
        if not isinstance(space, spaces.Box):
            raise UsageError(f"{name}: observations are {space}; only Box is played")
        self._raw: Final = np.dtype(space.dtype)
        actions = _actions(name, self._envs[0].action_space)
        self.info: Final = EnvInfo(
            lanes=len(seeds),
            obs_shape=tuple(space.shape),
            obs_dtype=np.dtype(np.uint8 if self._raw == np.uint8 else np.float32),
            actions=actions,
            versions=(("env", f"gymnasium/{name}"), ("gymnasium", version("gymnasium")), *versions),
        )
        self._inspection = Inspection(name=name, info=self.info)
        self._fresh = np.ones(len(seeds), np.bool_)  # [N] not stepped yet: the engine's own answer is looked at
        self._ended = np.zeros(len(seeds), np.bool_)  # [N] the next send resets
        self._action: NDArray[Any] = np.zeros(0, np.int64)
        self._lane = np.arange(len(seeds))
        self._lane.flags.writeable = False

    def reset(self) -> Frames:
        """Seed every lane and begin its first episode, ``[N, *obs_shape]``."""
        with self._inspection.guarded():
            first = [np.asarray(env.reset(seed=seed)[0]) for env, seed in zip(self._envs, self._seeds, strict=True)]
            for lane, obs in enumerate(first):
                self._inspection.first(lane, obs, self._raw)
            return np.stack(first).astype(self.info.obs_dtype)

    def send(self, action: NDArray[Any]) -> None:
        """Keep the actions, ``[N]`` or ``[N, A]``, for ``recv``."""
        self._inspection.action(action)
        self._action = action

    def recv(self) -> Step:
        """Step every live lane, reset every ended one."""
        with self._inspection.guarded():
            rows = [self._row(lane) for lane in range(self.info.lanes)]
            obs = np.stack([row.obs for row in rows]).astype(self.info.obs_dtype)
        step = Step(
            obs=obs,
            reward=np.array([row.reward for row in rows], np.float32),
            terminated=np.array([row.terminated for row in rows]),
            truncated=np.array([row.truncated for row in rows]),
            lane=self._lane,
            score=np.array([row.score for row in rows], np.float64),
            over=np.array([row.over for row in rows]),
        )
        self._ended = step.terminated | step.truncated
        return self._inspection.answered(step)

    def close(self) -> None:
        """Close every environment; idempotent."""
        for env in self._envs:
            env.close()
        self._envs = []

    def _row(self, lane: int) -> _Row:
        env = self._envs[lane]
        if self._ended[lane]:
            return _Row(np.asarray(env.reset()[0]))
        row = _stepped(env, self._action[lane])
        if self._fresh[lane]:
            self._inspection.first(lane, row.obs, self._raw)
            self._fresh[lane] = False
        return row


def made(id: str) -> Callable[[], Env]:  # noqa: A002  # Gymnasium's own word
    """How one lane of a registered environment is made, once it is known to exist."""
    if id not in gymnasium.registry:
        raise UnknownName("environment", id, gymnasium.registry, where="gymnasium")
    return lambda: gymnasium.make(id, disable_env_checker=True)


def _stepped(env: Env, action: NDArray[Any]) -> _Row:
    space = env.action_space
    chosen = action + space.start if isinstance(space, spaces.Discrete) else action
    obs, reward, terminated, truncated, info = env.step(chosen)
    facts: Mapping[str, Any] = info
    return _Row(
        obs=np.asarray(obs),
        reward=float(reward),
        terminated=bool(terminated),
        truncated=bool(truncated and not terminated),
        score=float(facts.get("score", reward)),
        over=bool(facts.get("over", terminated or truncated)),
    )


def _actions(name: str, space: gymnasium.Space[Any]) -> Discrete | Box:
    match space:
        case spaces.Discrete():
            return Discrete(int(space.n))
        case spaces.Box():
            return Box(np.asarray(space.low, np.float32), np.asarray(space.high, np.float32))
        case _:
            raise UsageError(f"{name}: actions are {space}; only Discrete and Box are played")
