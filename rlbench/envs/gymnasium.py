"""Any Gymnasium environment, N of them in this process, one after the other.

Slow and exact: every lane is a plain ``gymnasium.Env``, reset when its episode has ended and never otherwise. An
environment whose reward is not its score, or whose episode is not a whole game, says so in its info: ``score`` (raw
points) and ``over`` (bool), as the Atari chain of ``envs/chain.py`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final, NamedTuple, TypeAlias, cast

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator
from gymnasium.error import Error
from numpy.typing import NDArray

from rlbench.envs.base import Box, Discrete, EnvInfo, Frames, Step
from rlbench.envs.checks import Inspection
from rlbench.errors import RlbenchError, UnknownName, UsageError
from rlbench.ops.state_dict import State, tensor, whole

Env: TypeAlias = gymnasium.Env[Any, Any]  # what it shows and takes, only its spaces know
NEVER: Final = 2**62  # steps


class GymnasiumVector:
    """N lanes of one environment; observations are uint8 where the environment's are, else float32.

    ``limit``: agent steps after which an episode is truncated, where the environment does not do so itself.
    """

    def __init__(
        self,
        *,
        name: str,
        factory: Callable[[], Env],
        seeds: Sequence[int],
        versions: Sequence[tuple[str, str]] = (),
        limit: int | None = None,
    ) -> None:
        if not seeds:
            raise UsageError("seeds: at least one lane is needed")
        self._envs = [factory() for _ in seeds]
        self._seeds = tuple(seeds)
        space = self._envs[0].observation_space
        if not isinstance(space, spaces.Box):
            raise UsageError(f"{name}: observations are {space}; only Box is played")
        self._raw: Final = np.dtype(space.dtype)
        self._stretch: Final = ActionScaling.by(name, self._envs[0].action_space)
        self._limit: Final = NEVER if limit is None else limit
        self.info: Final = EnvInfo(
            lanes=len(seeds),
            obs_shape=tuple(space.shape),
            obs_dtype=np.dtype(np.uint8 if self._raw == np.uint8 else np.float32),
            actions=self._stretch.actions,
            versions=(("env", f"gymnasium/{name}"), ("gymnasium", version("gymnasium")), *versions),
        )
        self._inspection = Inspection(name=name, info=self.info, seeds=seeds)
        self._ended = np.zeros(len(seeds), np.bool_)  # [N] the next send resets
        self._elapsed = np.zeros(len(seeds), np.int64)  # [N] agent steps of this episode
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
        self._action = self._stretch(action)

    def recv(self) -> Step:
        """Step every live lane, reset every ended one."""
        lanes = self.info.lanes
        step = Step(
            obs=np.empty((lanes, *self.info.obs_shape), self.info.obs_dtype),
            reward=np.zeros(lanes, np.float32),
            terminated=np.zeros(lanes, np.bool_),
            truncated=np.zeros(lanes, np.bool_),
            lane=self._lane,
            score=np.zeros(lanes, np.float64),
            over=np.zeros(lanes, np.bool_),
        )
        self._elapsed = np.where(self._ended, 0, self._elapsed + 1)
        with self._inspection.guarded():
            self._answer(step)
        self._ended = step.terminated | step.truncated
        return self._inspection.answered(step)

    def _answer(self, step: Step) -> None:
        """Every lane writes its own row."""
        self._advance(range(self.info.lanes), step)

    def _advance(self, lanes: range, step: Step) -> None:
        """Step or reset these lanes, one after the other."""
        for lane in lanes:
            try:
                if self._ended[lane]:
                    self._begin(lane, step)
                else:
                    self._play(lane, step)
            except (RlbenchError, MemoryError):
                raise
            except (Exception, SystemExit) as cause:
                raise self._inspection.broke(lane, cause) from cause

    def progress(self) -> State:
        """How far every lane is in its episode and its random stream: all that is not inside the environments."""
        streams = [_words(env.unwrapped.np_random) for env in self._envs]
        return {
            "streams": torch.from_numpy(np.stack(streams)),
            "elapsed": torch.from_numpy(self._elapsed.copy()),
            "ended": torch.from_numpy(self._ended.copy()),
            "steps": self._inspection.steps,
        }

    def proceed(self, state: State) -> None:
        """Begin new episodes, and go on from there with the progress of other ones."""
        self.reset()
        self._elapsed, self._ended = tensor(state, "elapsed").numpy().copy(), tensor(state, "ended").numpy().copy()
        self._inspection.steps = whole(state, "steps")
        for env, words in zip(self._envs, tensor(state, "streams").numpy(), strict=True):
            env.unwrapped.np_random.bit_generator.state = _stream(words)

    def inside(self, lane: int) -> Env:
        """A lane's environment itself, without whatever is wrapped around it."""
        return self._envs[lane].unwrapped

    def close(self) -> None:
        """Close every environment; idempotent."""
        for env in self._envs:
            env.close()
        self._envs = []

    def _begin(self, lane: int, step: Step) -> None:
        """The next episode of an ended lane, written into its row."""
        obs, _ = self._envs[lane].reset()
        self._inspection.alike(lane, obs, self._raw)
        step.obs[lane] = obs

    def _play(self, lane: int, step: Step) -> None:
        """One agent step of a live lane, written into its row."""
        obs, reward, terminated, truncated, info = self._envs[lane].step(self._action[lane])
        self._inspection.alike(lane, obs, self._raw)
        facts: Mapping[str, Any] = info
        ended = bool(terminated or truncated or self._elapsed[lane] >= self._limit)
        step.obs[lane] = obs
        step.reward[lane] = reward
        step.terminated[lane] = terminated
        step.truncated[lane] = ended and not terminated
        step.score[lane] = facts.get("score", reward)
        step.over[lane] = facts.get("over", ended)


class ActionScaling(NamedTuple):
    """What the environment takes for the actions it is sent: whole numbers moved, real ones stretched from [−1, 1]."""

    actions: Discrete | Box
    centre: Any
    half: Any

    @classmethod
    def by(cls, name: str, space: gymnasium.Space[Any]) -> ActionScaling:
        """The actions of a space; an unbounded one cannot be stretched to.

        Raises:
            UsageError: a bound is missing, or the actions are of a kind that nobody here can take.
        """
        match space:
            case spaces.Discrete():
                return cls(Discrete(int(space.n)), space.start, None)
            case spaces.Box():
                low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
                if not (np.isfinite(low).all() and np.isfinite(high).all()):
                    raise UsageError(f"{name}: actions are unbounded; only finite bounds can be stretched to")
                return cls(Box(low, high), (low + high) / 2, (high - low) / 2)
            case _:
                raise UsageError(f"{name}: actions are {space}; only Discrete and Box are played")

    def __call__(self, action: NDArray[Any]) -> NDArray[Any]:
        """``[N]`` or ``[N, A]``, a copy."""
        if isinstance(self.actions, Discrete):
            moved: NDArray[Any] = action + self.centre
        else:
            moved = np.minimum(np.maximum(self.half * action + self.centre, self.actions.low), self.actions.high)
        return moved


def bare(task: str, *, package: str) -> tuple[Callable[[], Env], int | None]:
    """How one lane of a package's task is made without any wrapper, and the steps an episode of it may last.

    Raises:
        UsageError: it is not one of the package's, or needs what is not installed.
        UnknownName: nobody knows a task of that name.
    """
    tasks = {name: spec for name, spec in gymnasium.registry.items() if str(spec.entry_point).startswith(package)}
    family = package.rsplit(".", 1)[-1]
    if task not in tasks:
        if task in gymnasium.registry:
            raise UsageError(f"{task}: not one of the {family} tasks, which are {', '.join(tasks)}")
        raise UnknownName("task", task, tasks, where=family)
    spec = tasks[task]

    def lane() -> Env:
        try:
            return cast("Env", load_env_creator(str(spec.entry_point))(**spec.kwargs))
        except (ImportError, Error) as cause:
            raise UsageError(f"{task}: {cause}") from cause

    return lane, spec.max_episode_steps


def _words(generator: np.random.Generator) -> NDArray[np.int64]:
    """The state of a PCG64, ``[6]``: two numbers of 128 bits, and the half of a draw that is still to be used."""
    state: Any = generator.bit_generator.state
    halves = [part for name in ("state", "inc") for part in divmod(state["state"][name], 2**64)]
    return np.array([*halves, state["has_uint32"], state["uinteger"]], np.uint64).view(np.int64)


def _stream(words: NDArray[np.int64]) -> dict[str, Any]:
    high, low, inc_high, inc_low, has, kept = (int(word) for word in words.view(np.uint64))
    numbers = {"state": high << 64 | low, "inc": inc_high << 64 | inc_low}
    return {"bit_generator": "PCG64", "state": numbers, "has_uint32": has, "uinteger": kept}
