"""Tasks as data: all settings of environment and preprocessing that can change a score."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from rlbench.config import field_types
from rlbench.config.canonical import Frozen


class AtariTask(Frozen):
    """One game of the Arcade Learning Environment behind the preprocessing of the documented tables."""

    kind: Literal["atari"] = "atari"
    id: str = Field(description="the reference's name, e.g. PongNoFrameskip-v4")
    game: str = Field(description="ALE's name, e.g. space_invaders")
    env: Literal["ale", "envpool", "gymnasium"] = Field(default="ale", description="emulator library")
    envs: field_types.Envs = 10
    async_batch: field_types.AsyncBatch = None
    frame_skip: int = Field(default=4, ge=1, le=1_000, description="emulator frames per agent step")
    stack: int = Field(default=4, ge=1, le=100, description="frames per observation")
    size: int = Field(default=84, ge=36, le=1_000, description="pixels per side after area interpolation")
    noops: int = Field(default=30, ge=0, le=1_000, description="maximum of no-op frames after a reset")
    fire: bool = Field(default=True, description="press FIRE after a reset where the game has it")
    episodic_life: bool = Field(default=True, description="a lost life ends a training episode, not an evaluation's")
    clip: bool = Field(default=True, description="the training reward is its sign; evaluation counts raw points")
    sticky: float = Field(default=0.0, ge=0, le=1, description="probability that the emulator repeats the last action")
    full_actions: bool = Field(default=False, description="all 18 actions instead of the game's minimal set")
    max_frames: int = Field(default=108_000, ge=1, le=10**9, description="emulator frames per game, then truncation")


class ToyTask(Frozen):
    """A toy task with a known optimum, learned in seconds."""

    kind: Literal["toy"] = "toy"
    id: str = Field(description="Catch, Doors, or a Gymnasium id")
    envs: field_types.Envs = 8
    stack: Literal[1] = Field(default=1, description="frames per observation")


class MujocoTask(Frozen):
    """One of Gymnasium's MuJoCo tasks; actions lie in [−1, 1] and are scaled to the task's own bounds."""

    kind: Literal["mujoco"] = "mujoco"
    id: str = Field(description="Gymnasium's id with its version, e.g. HalfCheetah-v4")
    env: Literal["gymnasium", "envpool"] = Field(default="gymnasium", description="physics library")
    envs: field_types.Envs = 1
    async_batch: field_types.AsyncBatch = None
    stack: Literal[1] = Field(default=1, description="observations per input")


class GoalTask(Frozen):
    """A goal-conditioned task, observed as ``[observation | achieved goal | desired goal]``."""

    kind: Literal["goal"] = "goal"
    id: str = Field(description="Gymnasium's id, e.g. FetchReach-v4")
    envs: field_types.Envs = 1
    steps: int = Field(default=50, ge=1, le=10_000, description="time limit of an episode in agent steps")
    limit_terminates: bool = Field(
        default=False, description="the time limit terminates, so nothing is bootstrapped, as in the reference's runs"
    )
    stack: Literal[1] = Field(default=1, description="observations per input")


GYM: Final = "gym:"
"""Prefix of a task that Gymnasium's registry has, and no suite."""


class GymnasiumTask(Frozen):
    """An environment of an installed package: of Gymnasium's registry, or made by the suite of a plug-in."""

    kind: Literal["gymnasium"] = "gymnasium"
    id: str = Field(description="gym: and an id of Gymnasium's registry, or a task of the plug-in")
    package: str = Field(default="", description="import package that brings the environment")
    version: str = Field(default="", description="version of its distribution")
    suite: str = Field(default="", description="plug-in that makes the environment; empty: the registry")
    envs: field_types.Envs = 1
    size: int | None = Field(default=None, ge=36, le=1_000, description="pixels per side of gray frames; none: vectors")
    stack: int = Field(default=1, ge=1, le=100, description="frames per observation")
    clip: bool = Field(default=False, description="the training reward is its sign")

    @model_validator(mode="after")
    def _is_no_module(self) -> Self:
        if ":" in self.id.removeprefix(GYM):
            raise ValueError(f"{self.id}: an id of Gymnasium has no colon; name its package with --import")
        return self


EnvTask = Annotated[AtariTask | ToyTask | MujocoTask, Field(discriminator="kind")]


class OfflineTask(Frozen):
    """A data set, and the environment in which the policy is evaluated."""

    kind: Literal["offline"] = "offline"
    id: str = Field(description="the data set's id, e.g. halfcheetah-medium-v2; with dataset the environment's")
    world: EnvTask
    dataset: str = Field(default="", description="name of other data than those of the id")

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


def env_task_of(task: Task) -> AtariTask | ToyTask | MujocoTask | GoalTask | GymnasiumTask:
    """The task's environment: for a data set, the environment that evaluates its policies."""
    return task.world if isinstance(task, OfflineTask) else task
