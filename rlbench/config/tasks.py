"""Tasks as data: all settings of environment and preprocessing that can change a score."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from rlbench.config.canonical import Frozen


class AtariTask(Frozen):
    """One game of the Arcade Learning Environment behind the preprocessing of the documented tables."""

    kind: Literal["atari"] = "atari"
    id: str  # the documented name, e.g. "PongNoFrameskip-v4"
    game: str  # ALE's own, e.g. "space_invaders"
    env: Literal["ale", "envpool", "gymnasium"] = "ale"  # who steps the emulator; differences: envs/*.py docstrings
    envs: int = Field(default=10, ge=1, le=10_000)  # emulators stepped side by side
    async_batch: int | None = Field(default=None, ge=1)  # envs to wait for before the next action; None: all
    frame_skip: int = Field(default=4, ge=1)  # emulator frames per agent step
    stack: int = Field(default=4, ge=1)  # frames an observation holds
    size: int = Field(default=84, ge=36)  # pixels per side after area interpolation
    noops: int = Field(default=30, ge=0)  # at most this many no-op frames after a reset
    fire: bool = True  # press FIRE after a reset where the game has it
    episodic_life: bool = True  # in training a lost life ends the episode; evaluation always plays full games
    clip: bool = True  # in training the reward is its sign; evaluation always counts raw points
    sticky: float = Field(default=0.0, ge=0, le=1)  # probability that the emulator repeats the last action
    full_actions: bool = False  # all 18 actions instead of the game's minimal set
    max_frames: int = Field(default=108_000, ge=1)  # emulator frames per game, then truncation


class ToyTask(Frozen):
    """A toy task with a known optimum, learned in seconds."""

    kind: Literal["toy"] = "toy"
    id: str  # "Catch", "Doors", or a Gymnasium id
    envs: int = Field(default=8, ge=1, le=10_000)  # number of vectorized envs
    stack: Literal[1] = 1


class MujocoTask(Frozen):
    """One of Gymnasium's MuJoCo tasks; actions lie in [−1, 1] and are scaled to the task's own bounds."""

    kind: Literal["mujoco"] = "mujoco"
    id: str  # with the version that is stepped, e.g. "HalfCheetah-v4"
    env: Literal["gymnasium", "envpool"] = "gymnasium"  # who steps the physics
    envs: int = Field(default=1, ge=1, le=10_000)  # number of vectorized envs
    async_batch: int | None = Field(default=None, ge=1)  # envs to wait for before the next action; None: all
    stack: Literal[1] = 1


class GoalTask(Frozen):
    """A goal-conditioned task, observed as ``[observation | achieved goal | desired goal]``."""

    kind: Literal["goal"] = "goal"
    id: str  # e.g. "FetchReach-v4"
    envs: int = Field(default=1, ge=1, le=10_000)  # number of vectorized envs
    steps: int = Field(default=50, ge=1, le=10_000)  # of an episode, then truncation
    limit_terminates: bool = False  # … or a termination, which bootstraps nothing: as in the documented runs
    stack: Literal[1] = 1


GYM: Final = "gym:"
"""Prefix of a task that Gymnasium's registry has, and no suite."""


class GymnasiumTask(Frozen):
    """An environment of an installed package: of Gymnasium's registry, or made by the suite of a plug-in."""

    kind: Literal["gymnasium"] = "gymnasium"
    id: str  # "gym:" and an id of the registry, or a task of the plug-in
    package: str = ""  # import package that brings the environment
    version: str = ""  # of its distribution
    suite: str = ""  # plug-in that makes it; empty: the registry
    envs: int = Field(default=1, ge=1, le=10_000)  # environments side by side
    size: int | None = Field(default=None, ge=36, le=1_000)  # pixels per side of gray frames; None: vectors
    stack: int = Field(default=1, ge=1, le=100)  # frames an observation holds
    clip: bool = False  # in training the reward is its sign

    @model_validator(mode="after")
    def _is_no_module(self) -> Self:
        if ":" in self.id.removeprefix(GYM):
            raise ValueError(f"{self.id}: an id of Gymnasium has no colon; name its package with --import")
        return self


World = Annotated[AtariTask | ToyTask | MujocoTask, Field(discriminator="kind")]


class OfflineTask(Frozen):
    """A data set, and the environment in which the policy is evaluated."""

    kind: Literal["offline"] = "offline"
    id: str  # the data set's, e.g. "halfcheetah-medium-v2"; with ``dataset`` the world's
    world: World
    dataset: str = ""  # name of other data than the ones ``id`` names

    @property
    def envs(self) -> int:
        """Number of envs of the data: one, with its episodes one after another."""
        return 1

    @property
    def stack(self) -> int:
        """Frames an observation holds."""
        return self.world.stack

    @property
    def data(self) -> str:
        """The name of the data set."""
        return self.dataset or self.id


Task = Annotated[AtariTask | ToyTask | MujocoTask | GoalTask | GymnasiumTask | OfflineTask, Field(discriminator="kind")]
