"""A run as data: ``Spec`` has all settings that can change a score, ``Runtime`` those that cannot."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from rlbench.config import online
from rlbench.config.canonical import Frozen, canonical, digest, fields
from rlbench.config.names import check_name
from rlbench.config.offline import DiscreteOfflineConfig, OfflineConfig
from rlbench.config.tasks import AtariTask, GymnasiumTask, MujocoTask, OfflineTask, Task, ToyTask, env_task_of

AlgoConfig = Annotated[
    online.QLearningConfig
    | online.ActorCriticConfig
    | online.DiscreteSACConfig
    | online.PolicyGradientConfig
    | OfflineConfig
    | DiscreteOfflineConfig,
    Field(discriminator="family"),
]

MAX_THREADS: Final = 1024
"""Threads of torch, at most, that a request, a record or a checkpoint may ask for."""

EngineName = Literal["auto", "eager", "numpy", "compiled", "cuda-graph"]


class Protocol(Frozen):
    """The evaluation of a policy: a named, versioned protocol on environments of its own."""

    name: str = Field(description="name and version of the evaluation protocol")
    episodes: int = Field(default=10, ge=1, le=100_000, description="episodes per evaluation, equally many per env")
    envs: int = Field(default=10, ge=1, le=10_000, description="vectorized envs in evaluation; must divide episodes")
    epsilon: float = Field(default=0.0, ge=0, le=1, description="probability of a random action in evaluation")
    stop: float | None = Field(default=None, description="mean evaluation return at which the run ends; none: never")

    @model_validator(mode="after")
    def _check_envs(self) -> Self:
        if self.episodes % self.envs:
            raise ValueError(
                f"envs={self.envs} must divide episodes={self.episodes}, so that each env plays the same number"
            )
        return self


class Budget(Frozen):
    """The length of a run in agent steps (Atari frames are steps × frame skip), offline in gradient steps.

    A step that only resets an environment is no agent step.
    """

    steps: int = Field(ge=1, description="length of the run in agent steps, offline in gradient steps")
    epoch: int = Field(ge=1, description="steps between evaluations")
    segment: int = Field(ge=1, description="steps between fresh envs; there and at checkpoints, resuming is exact")


class Spec(Frozen):
    """All settings of a run: equal specs on equal machines give equal numbers."""

    suite: str = Field(description="the suite's name")
    algorithm: str = Field(description="the algorithm's name in the table")
    task: Task
    algo: AlgoConfig
    protocol: Protocol
    budget: Budget
    smoke: bool = Field(default=False, description="a tiny run of the whole path, which enters no table")
    seed: int = Field(default=0, ge=0, description="seed of all random numbers")

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits of a hash of all settings but the seed: runs of equal id repeat each other."""
        return digest(canonical(self, frozenset({"seed"})))

    @property
    def name(self) -> str:
        """``suite/algorithm/task[@dataset]``: the cell this run belongs to."""
        return f"{self.suite}/{self.algorithm}/{self.task_folder}"

    @property
    def task_folder(self) -> str:
        """``task``, or ``task@dataset`` where the data are not the task's own."""
        other = self.task.dataset if isinstance(self.task, OfflineTask) else ""
        return f"{self.task.id}@{other}" if other else self.task.id

    @property
    def async_batch(self) -> int | None:
        """Number of envs to wait for before the next action; None: all, which alone is bit-exact."""
        return self.task.async_batch if isinstance(self.task, AtariTask | MujocoTask) else None

    @model_validator(mode="after")
    def _texts_are_names(self) -> Self:
        for path, value in fields(self):
            if isinstance(value, str) and value:
                check_name(value)
            if value and path in {"suite", "algorithm"} and "/" in str(value):
                raise ValueError(f"{path}={value}: a name without / is needed")
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if (self.algo.learns_from == "data") != isinstance(self.task, OfflineTask):
            raise ValueError(
                f"{self.algorithm} and {self.task.id}: offline algorithms learn from data sets, and only they"
            )
        if isinstance(self.algo, OfflineConfig):
            return self
        if not isinstance(self.algo, online.ActorCriticConfig):
            self._torso_fits(self.algo.torso, "algo")
            if not isinstance(self.algo, DiscreteOfflineConfig) and self.algo.curiosity is not None:
                self._torso_fits(self.algo.curiosity.torso, "algo.curiosity")
        if self.protocol.epsilon > 0 and not self.algo.epsilon_greedy:
            raise ValueError(
                f"protocol.epsilon={self.protocol.epsilon}: only Q-learning is evaluated with it; set it to 0"
            )
        if isinstance(self.algo, online.PolicyGradientConfig):
            self._rollouts_fit(self.algo)
        elif not isinstance(self.algo, DiscreteOfflineConfig):
            self._replay_fits(self.algo)
        return self

    def _torso_fits(self, torso: online.TorsoConfig, where: str) -> None:
        if torso.kind == "nature" and not _shows_frames(env_task_of(self.task)):
            raise ValueError(f"{where}.torso=nature needs 84×84 frames; {self.task.id} has none, use {where}.torso=mlp")

    def _rollouts_fit(self, algo: online.PolicyGradientConfig) -> None:
        if self.async_batch is not None:
            raise ValueError("task.async_batch: a rollout needs rows of every env by the same policy; set it to none")
        steps = algo.rollout_length * self.task.envs
        if isinstance(algo.method, online.PPOConfig) and algo.method.minibatches > steps:
            raise ValueError(f"algo.method.minibatches={algo.method.minibatches}: a rollout has only {steps} steps")
        is_catch = isinstance(self.task, ToyTask) and self.task.id == "Catch"
        if algo.normalize_obs and (_shows_frames(self.task) or is_catch):
            raise ValueError(f"algo.normalize_obs: {self.task.id} shows bytes, which stay as they are; set it to false")
        if algo.normalize_obs and isinstance(self.task, MujocoTask) and self.task.env != "gymnasium":
            raise ValueError("algo.normalize_obs: EnvPool cannot tell where it stands; choose task.env=gymnasium")

    def _replay_fits(self, algo: online.OffPolicyConfig) -> None:
        if self.async_batch is not None and self.async_batch > self.task.envs:
            raise ValueError(
                f"task.async_batch={self.async_batch}: there are {self.task.envs} envs; wait for no more of them"
            )
        stack = self.task.stack
        replay, envs = algo.replay, self.task.envs
        rows, least = replay.capacity // envs, replay.n_step + stack + 1
        if rows < least:
            raise ValueError(
                f"algo.replay.capacity={replay.capacity} leaves {rows} rows for each of {envs} envs; "
                f"n_step {replay.n_step} and stack {stack} need at least {least}"
            )
        complete = 2 * (replay.n_step + 1) * envs
        if algo.learning_starts < complete:
            raise ValueError(
                f"algo.learning_starts={algo.learning_starts}: no transition is complete before {complete} steps"
            )
        if replay.hindsight is not None and self.task.kind != "goal":
            raise ValueError(f"algo.replay.hindsight: {self.task.id} has no goals; set it to none")


def _shows_frames(task: Task) -> bool:
    return isinstance(task, AtariTask) or (isinstance(task, GymnasiumTask) and task.size is not None)


class Runtime(Frozen):
    """Settings of the execution of a run; none may change a score beyond rounding."""

    device: str = "auto"  # auto, cpu, cuda or cuda:<i>
    threads: int | None = Field(default=None, ge=1, le=MAX_THREADS)  # of torch; None is chosen by the machine
    saved_threads: int | None = Field(default=None, ge=1, le=MAX_THREADS)  # those of a resumed checkpoint; overrules
    update_engine: EngineName = "auto"  # of gradient steps
    eval_workers: int | None = Field(default=None, ge=0)  # evaluation workers of offline training; None: automatic
    dataset: str | None = None  # file or folder in which recorded experience lies; None looks in the usual places
    dataset_sha256: str | None = None  # of that file; another one is refused
    checkpoint_seconds: float = Field(default=600.0, gt=0)  # between checkpoints inside a segment
    env_timeout: float = Field(default=600.0, gt=0, allow_inf_nan=True)  # seconds for one answer of the environments


def recorded_settings(content: object) -> object:
    """The settings of a ``spec.json``, without a setting that only older code has."""
    match content:
        case {"algo": {"lag": 0, **algo}, **rest}:  # 0 stood for the one order of learning that is left
            return {**rest, "algo": algo}
        case _:
            return content
