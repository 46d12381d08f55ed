"""Any Gymnasium environment, N of them stepped in this process, one after the other.

Every env is a plain ``gymnasium.Env``, reset only when its episode has ended. An environment whose reward is not its
score, or whose episode is not a whole game, has a wrapper that adds ``SCORE`` (raw points) and ``OVER`` (bool) to its
info, as in ``envs/atari_wrappers.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias, cast

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator
from gymnasium.error import Error
from numpy.typing import NDArray

from rlbench.envs.base import OVER, SCORE, Box, Discrete, EnvInfo, Frames, Step
from rlbench.envs.checks import UNRELATED, Inspection
from rlbench.errors import BrokenEnvironment, UnknownName, UsageError
from rlbench.ops.state_dict import State, integer, subtree, tensor
from rlbench.versions import version

Env: TypeAlias = gymnasium.Env[Any, Any]  # its spaces have the types of observations and actions
NEVER: Final = 2**62  # steps
CLASSIC_CONTROL: Final = "gymnasium.envs.classic_control"
MUJOCO: Final = "gymnasium.envs.mujoco"


class GymnasiumVector:
    """N envs of one task; observations are uint8 where the environment's are, else float32.

    ``limit``: agent steps after which an episode is truncated, for environments without a limit of their own;
    ``external``: they are of another package than the suites'.
    """

    def __init__(
        self,
        *,
        name: str,
        factory: Callable[[], Env],
        seeds: Sequence[int],
        versions: Sequence[tuple[str, str]] = (),
        limit: int | None = None,
        external: bool = False,
    ) -> None:
        self._envs = [factory() for _ in seeds]
        self._seeds = tuple(seeds)
        space = self._envs[0].observation_space
        if not isinstance(space, spaces.Box):
            raise UsageError(f"{name}: observations are {space}; only Box is supported")
        self._raw: Final = np.dtype(space.dtype)
        self._scaling: Final = ActionScaling.of_space(name, self._envs[0].action_space)
        self._limit: Final = NEVER if limit is None else limit
        self.info: Final = EnvInfo(
            num_envs=len(seeds),
            obs_shape=tuple(space.shape),
            obs_dtype=np.dtype(np.uint8 if self._raw == np.uint8 else np.float32),
            actions=self._scaling.actions,
            versions=(("env", f"gymnasium/{name}"), ("gymnasium", version("gymnasium")), *versions),
        )
        self._inspection = Inspection(name=name, info=self.info, seeds=seeds, external=external)
        self._ended = np.zeros(len(seeds), np.bool_)  # [N] the next send resets the env
        self._elapsed = np.zeros(len(seeds), np.int64)  # [N] agent steps of this episode
        self._action: NDArray[Any] = np.zeros(0, np.int64)
        self._env_ids = np.arange(len(seeds))
        self._env_ids.flags.writeable = False

    def reset(self) -> Frames:
        """Seed every env and begin its first episode, ``[N, *obs_shape]``."""
        with self._inspection.engine_errors():
            first = [np.asarray(env.reset(seed=seed)[0]) for env, seed in zip(self._envs, self._seeds, strict=True)]
            for env_id, obs in enumerate(first):
                self._inspection.check_first_obs(env_id, obs, self._raw)
            return np.stack(first).astype(self.info.obs_dtype)

    def send(self, action: NDArray[Any]) -> None:
        """Store the actions, ``[N]`` or ``[N, A]``, for ``recv``."""
        self._inspection.check_action(action)
        self._action = self._scaling(action)

    def recv(self) -> Step:
        """Step every live env, reset every ended one."""
        num_envs = self.info.num_envs
        step = Step(
            obs=np.empty((num_envs, *self.info.obs_shape), self.info.obs_dtype),
            reward=np.zeros(num_envs, np.float32),
            terminated=np.zeros(num_envs, np.bool_),
            truncated=np.zeros(num_envs, np.bool_),
            env_id=self._env_ids,
            score=np.zeros(num_envs, np.float64),
            game_over=np.zeros(num_envs, np.bool_),
        )
        self._elapsed = np.where(self._ended, 0, self._elapsed + 1)
        with self._inspection.engine_errors():
            self._step_envs(step)
        self._ended = step.terminated | step.truncated
        return self._inspection.check_step(step)

    def _step_envs(self, step: Step) -> None:
        self._step_range(range(self.info.num_envs), step)

    def _step_range(self, env_ids: range, step: Step) -> None:
        """Step or reset these envs, one after the other."""
        for env_id in env_ids:
            try:
                if self._ended[env_id]:
                    obs, _ = self._envs[env_id].reset()
                    self._inspection.check_obs(env_id, obs, self._raw)
                    step.obs[env_id] = obs
                else:
                    self._step_env(env_id, step)
            except UNRELATED:
                raise
            except BaseException as cause:
                raise self._inspection.env_error(env_id, cause) from cause

    def episodes_state(self) -> State:
        """State of the episodes and generators: all that is not inside the environments."""
        with self._inspection.engine_errors():
            streams = [_generator_state(env.np_random) for env in self.unwrapped()]
        return {
            "streams": torch.from_numpy(np.stack(streams)),
            "elapsed": torch.from_numpy(self._elapsed.copy()),
            "ended": torch.from_numpy(self._ended.copy()),
            "steps": self._inspection.steps,
        }

    def load_episodes_state(self, state: State) -> None:
        """Reset every env, then load the progress of other episodes."""
        self.reset()
        self._elapsed, self._ended = tensor(state, "elapsed").numpy().copy(), tensor(state, "ended").numpy().copy()
        self._inspection.steps = integer(state, "steps")
        with self._inspection.engine_errors():
            for env, words in zip(self.unwrapped(), tensor(state, "streams").numpy(), strict=True):
                env.np_random.bit_generator.state = _pcg64(words)

    def unwrapped(self) -> list[Any]:
        """The envs without their wrappers."""
        return [env.unwrapped for env in self._envs]

    def close(self) -> None:
        """Close every environment; idempotent. Its errors change no result, so they are ignored."""
        for env in self._envs:
            with suppress(BrokenEnvironment), self._inspection.engine_errors():
                env.close()
        self._envs = []

    def _step_env(self, env_id: int, step: Step) -> None:
        """Take one agent step of a live env and fill its row of ``step``."""
        obs, reward, terminated, truncated, info = self._envs[env_id].step(self._action[env_id])
        self._inspection.check_obs(env_id, obs, self._raw)
        self._inspection.check_types(env_id, reward, terminated, truncated)
        metadata: Mapping[str, Any] = info
        ended = bool(terminated or truncated or self._elapsed[env_id] >= self._limit)
        step.obs[env_id] = obs
        step.reward[env_id] = reward
        step.terminated[env_id] = terminated
        step.truncated[env_id] = ended and not terminated
        step.score[env_id] = metadata.get(SCORE, reward)
        step.game_over[env_id] = metadata.get(OVER, ended)


class ActionScaling(NamedTuple):
    """From the learner's actions to the environment's: discrete ones shifted, continuous ones scaled from [−1, 1]."""

    actions: Discrete | Box
    centre: Any
    half: Any

    @classmethod
    def of_space(cls, name: str, space: gymnasium.Space[Any]) -> ActionScaling:
        """Build the scaling to a space.

        Raises:
            UsageError: the space is unbounded, of matrices, or neither Discrete nor Box.
        """
        match space:
            case spaces.Discrete():
                return cls(Discrete(int(space.n)), space.start, None)
            case spaces.Box():
                low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
                if not (np.isfinite(low).all() and np.isfinite(high).all()):
                    raise UsageError(f"{name}: actions are unbounded; only finite bounds are supported")
                if low.ndim != 1:
                    raise UsageError(f"{name}: actions have the shape {list(low.shape)}; only vectors are supported")
                return cls(Box(low, high), (low + high) / 2, (high - low) / 2)
            case _:
                raise UsageError(f"{name}: actions are {space}; only Discrete and Box are supported")

    def __call__(self, action: NDArray[Any]) -> NDArray[Any]:
        """``[N]`` or ``[N, A]``, a copy."""
        if isinstance(self.actions, Discrete):
            bounded: NDArray[Any] = action + self.centre
        else:
            bounded = np.minimum(np.maximum(self.half * action + self.centre, self.actions.low), self.actions.high)
        return bounded


def registered_task(task: str, *, package: str) -> tuple[Callable[[], Env], int | None]:
    """Return a factory of a package's task without Gymnasium's wrappers, and the step limit of its episodes.

    Raises:
        UsageError: the task is another package's, or a package that it needs is not installed.
        UnknownName: no such task is registered.
    """
    tasks = {name: spec for name, spec in gymnasium.registry.items() if str(spec.entry_point).startswith(package)}
    family = package.rsplit(".", 1)[-1]
    if task not in tasks:
        if task in gymnasium.registry:
            raise UsageError(f"{task}: not one of the {family} tasks, which are {', '.join(tasks)}")
        raise UnknownName("task", task, tasks, where=family)
    spec = tasks[task]

    def make_env() -> Env:
        try:
            return cast("Env", load_env_creator(str(spec.entry_point))(**spec.kwargs))
        except (ImportError, Error) as cause:
            raise UsageError(f"{task}: {cause}") from cause

    return make_env, spec.max_episode_steps


def _generator_state(generator: np.random.Generator) -> NDArray[np.int64]:
    """State of a PCG64, ``[6]``: two numbers of 128 bits, and the unused half of its last draw."""
    state: Any = generator.bit_generator.state
    halves = [part for name in ("state", "inc") for part in divmod(state["state"][name], 2**64)]
    return np.array([*halves, state["has_uint32"], state["uinteger"]], np.uint64).view(np.int64)


def _pcg64(words: NDArray[np.int64]) -> dict[str, Any]:
    high, low, inc_high, inc_low, has_uint32, uinteger = (int(word) for word in words.view(np.uint64))
    numbers = {"state": high << 64 | low, "inc": inc_high << 64 | inc_low}
    return {"bit_generator": "PCG64", "state": numbers, "has_uint32": has_uint32, "uinteger": uinteger}


class ClassicVector(GymnasiumVector):
    """N envs of one task, such as ``CartPole-v1``; ``limit``: agent steps an episode may last, else the task's."""

    def __init__(self, *, task: str, seeds: Sequence[int], limit: int | None = None) -> None:
        factory, steps = registered_task(task, package=CLASSIC_CONTROL)
        super().__init__(name=task, factory=factory, seeds=seeds, limit=steps if limit is None else limit)

    def state_dict(self) -> State:
        """State of envs, episodes and generators."""
        places: State = {str(i): torch.tensor(np.array(env.state)) for i, env in enumerate(self.unwrapped())}
        return {**self.episodes_state(), "places": places}  # a tensor for each env: after a reset its type differs

    def load_state_dict(self, state: State) -> None:
        """Restore envs, episodes and generators."""
        with self._inspection.engine_errors():
            self.load_episodes_state(state)
            for i, env in enumerate(self.unwrapped()):
                env.state = tensor(subtree(state, "places"), str(i)).numpy().copy()
