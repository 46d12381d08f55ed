"""Generate data sets from recipes: each part's policy acts in parallel envs, and every transition is recorded.

Each env contributes its share of a part's steps, and its last episode is truncated there, as by a time limit. The data
have one env after another. Episodes of a Q-learning run are recorded in the same way and written as they come. The data
depend on the recipe alone, not on any clock.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

import rlbench
from rlbench import checkpoint, suites
from rlbench.assembly.environments import environments
from rlbench.assembly.restore import export_policy, record_games, refuse_other_than_q_learning
from rlbench.collectors.recording import ShardRecorder
from rlbench.config.run import Spec
from rlbench.config.tasks import Task
from rlbench.datasets import recording_writer
from rlbench.datasets.d4rl import D4RLArrays
from rlbench.datasets.policies import Policy, parse_policy
from rlbench.datasets.recipes import Recipe, RecipePart, RecordingRecipe
from rlbench.datasets.recording_writer import RecordingWriter
from rlbench.datasets.summary import EXPERT
from rlbench.envs.base import Box, EnvInfo, Step, VectorEnv
from rlbench.errors import RefusedFile, UnknownName, UsageError
from rlbench.ops.state_dict import State
from rlbench.records import manifest
from rlbench.records.store import Record, read_record
from rlbench.seeds import Seeds

CONTINUOUS = ("mujoco", "goals", "toy")
"""Suites whose tasks may take continuous actions; an id is looked up in this order."""


@dataclass(frozen=True, slots=True)
class NoisyPolicy:
    """A policy with the noise of a recipe's part; every step draws equally many numbers."""

    policy: Policy
    part: RecipePart
    generator: np.random.Generator

    def __call__(self, obs: NDArray[np.float32], elapsed: NDArray[np.int64]) -> NDArray[np.float32]:
        """Actions ``[N, A]`` in [−1, 1] for observations ``[N, F]``, ``[N]`` steps after the reset."""
        part, shape = self.part, (len(obs), self.policy.metadata.action_dim)
        normal_noise = self.generator.standard_normal(shape) if part.sampled else None
        action = self.policy(obs, elapsed, normal_noise)
        if part.noise:
            action = np.clip(action + part.noise * self.generator.standard_normal(shape), -1, 1).astype(np.float32)
        return action


class TransitionRecorder:
    """Records the transitions of N envs, each up to its quota ``[N]``."""

    def __init__(self, quota: NDArray[np.int64], info: EnvInfo, actions: int) -> None:
        shape = (len(quota), int(quota.max()))
        (features,) = info.obs_shape
        self.quota, self.count, self.cut = quota, np.zeros_like(quota), np.zeros(len(quota), np.bool_)
        self.rows = D4RLArrays(
            observations=np.zeros((*shape, features), np.float32),
            actions=np.zeros((*shape, actions), np.float32),
            rewards=np.zeros(shape, np.float32),
            terminals=np.zeros(shape, np.bool_),
            timeouts=np.zeros(shape, np.bool_),
            next_observations=np.zeros((*shape, features), np.float32),
        )

    @property
    def full(self) -> bool:
        """True if every env has met its quota."""
        return bool((self.count == self.quota).all())

    def add(self, live: NDArray[np.bool_], obs: NDArray[np.float32], action: NDArray[np.float32], step: Step) -> None:
        """Store the step of every ``live`` env ``[N]`` that has not met its quota."""
        envs = np.flatnonzero(live & (self.count < self.quota))
        index = envs, self.count[envs]
        columns = (obs, action, step.reward, step.terminated, step.truncated, step.obs)
        for column, rows in zip(self.rows, columns, strict=True):
            column[index] = rows[envs]
        self.count[envs] += 1
        last = envs[self.count[envs] == self.quota[envs]]
        self.cut[last] = ~(step.terminated | step.truncated)[last]
        self.rows.timeouts[last, self.quota[last] - 1] |= self.cut[last]

    def in_order(self) -> tuple[D4RLArrays, NDArray[np.bool_]]:
        """The data, env after env, and flags ``[rows]`` of episodes that were cut at their env's quota."""
        in_quota = np.arange(self.quota.max()) < self.quota[:, None]
        rows = D4RLArrays._make(column[in_quota] for column in self.rows)
        cut = np.zeros(len(rows.rewards), np.bool_)
        cut[self.quota.cumsum() - 1] = self.cut
        return rows, cut


class DatasetGenerator:
    """Generates the data of one recipe: iterate over it, a vector step at a time, then call ``result``."""

    def __init__(self, recipe: Recipe, policies: Sequence[Policy]) -> None:
        self.recipe, self.policies, self.task = recipe, policies, task_of(recipe.task)
        self.versions: dict[str, str] = {}
        self._parts: list[tuple[D4RLArrays, NDArray[np.bool_]]] = []
        for part, policy in zip(recipe.parts, policies, strict=True):
            if part.sha256 != policy.sha256:
                raise UsageError(
                    f"{part.policy}: has SHA-256 {policy.sha256[:12]}…, the recipe {part.sha256[:12]}…; restore it"
                )
            if part.sampled and policy.log_std is None:
                raise UsageError(f"{part.policy}: is deterministic, nothing can be sampled; use --deterministic")

    def __iter__(self) -> Iterator[int]:
        """Act, and yield the number of steps so far after every vector step."""
        before = 0
        for part, policy, steps in zip(self.recipe.parts, self.policies, self.recipe.portions(), strict=True):
            # recipes had a field `uniform`: with it, streams and files are those of the committed records
            stream = part.model_dump_json(exclude={"share"}).removesuffix("}") + ',"uniform":0.0}'
            seeds = Seeds(self.recipe.seed).child("generate", stream)
            env_seeds = seeds.child("env").numbers(self.recipe.lanes)
            envs = environments(self.task, seeds=env_seeds, training=False)
            try:
                self.versions = dict(envs.info.versions)
                recorder = _recorder(self.task, policy, envs.info, steps)
                for done in _record(envs, NoisyPolicy(policy, part, seeds.child("action").numpy()), recorder):
                    yield before + done
            finally:
                envs.close()
            self._parts.append(recorder.in_order())
            before += steps

    def result(self) -> D4RLArrays:
        """The data, ordered by part, env and step."""
        return concatenate_columns([rows for rows, _ in self._parts])

    def provenance(self) -> dict[str, str | float]:
        """The metadata that reproduce the data set, and statistics of its returns."""
        recipe = self.recipe
        return {
            "name": recipe.name,
            "recipe": recipe.to_json(),
            "task": recipe.task,
            "policies": ", ".join(part.policy for part in recipe.parts),
            "policies_sha256": ", ".join(part.sha256 for part in recipe.parts),
            "not_d4rl": "made by rlbench; other policies, another simulator and another size than any D4RL set",
            "rlbench": rlbench.__version__,
            "numpy": np.__version__,
            **self.versions,
            **returns(self.result(), np.concatenate([cut for _, cut in self._parts])),
        }


class EpisodeRecorder:
    """Records episodes of a run's policy in place of the set in ``folder``: iterate over it, then call ``finish``."""

    def __init__(self, recipe: RecordingRecipe, run: Path, which: Literal["best", "last"], folder: Path) -> None:
        spec, state = stored_run(run, which)
        outcome = read_record(run).outcome
        self.expert = None if outcome is None else outcome.best if which == "best" else outcome.final
        if spec.task.id != recipe.task:
            raise UsageError(f"{run}: was trained on {spec.task.id}, not {recipe.task}; name its own task")
        refuse_other_than_q_learning(spec)
        self.recipe, self.spec, self.state, self.folder = recipe, spec, state, folder
        writer = RecordingWriter(folder, request=recipe.model_dump())
        self.shards = ShardRecorder(writer, num_envs=recipe.lanes, steps=recipe.steps)
        self.versions: dict[str, str] = {}

    def __iter__(self) -> Iterator[int]:
        """Act, and yield the number of steps so far after every vector step."""
        games = record_games(
            self.spec, self.state, epsilon=self.recipe.epsilon, seed=self.recipe.seed, recorder=self.shards
        )
        self.versions = dict(games.envs.info.versions)
        yield from games
        self.shards.writer.flush()

    def finish(self) -> dict[str, str | float]:
        """Mark the data set as complete; return the metadata that reproduce it, and statistics of its returns."""
        whole = np.array([value for returns in self.shards.returns for value in returns])
        provenance: dict[str, str | float] = {
            "name": self.recipe.name,
            "recipe": self.recipe.model_dump_json(exclude_defaults=True),
            "task": self.recipe.task,
            "spec": self.spec.id,
            "smoke": str(self.spec.smoke).lower(),
            "rewards": "raw points of whole games",
            "rlbench": rlbench.__version__,
            "numpy": np.__version__,
            "torch": torch.__version__,
            "zlib": zlib.ZLIB_RUNTIME_VERSION,
            **self.versions,
            **({} if self.expert is None else {EXPERT: self.expert}),
            **_return_statistics(whole, self.shards.cut),
        }
        recording_writer.finish(self.folder, self.shards.writer.digests, provenance)
        return provenance


def task_of(name: str) -> Task:
    """The task with an id, as in the suites' tables.

    Raises:
        UnknownName: no suite has it.
    """
    cells: dict[str, tuple[str, str]] = {}
    for suite in CONTINUOUS:
        for task in suites.tasks(suite):
            algorithms = [name for name in suites.algorithms(suite) if suites.has_cell(suite, name, task)]
            cells.setdefault(task, (suite, algorithms[0]))
    if name not in cells:
        raise UnknownName("task", name, cells)
    suite, algorithm = cells[name]
    return suites.spec(suite, algorithm, name).task


def stored_policy(folder: Path, which: Literal["best", "last"]) -> Policy:
    """The saved policy of a run, ``best`` or ``last``.

    Raises:
        UsageError: the run has none, or its actions are discrete.
        RefusedFile: the record or the checkpoint is damaged.
    """
    spec, state = stored_run(folder, which)
    name = f"{spec.name} {spec.id} seed={spec.seed} {which}"
    return parse_policy(export_policy(spec, state, name=name), str(folder / "checkpoint" / which))


def stored_run(folder: Path, which: Literal["best", "last"]) -> tuple[Spec, State]:
    """A run's settings and its saved policy, ``best`` or ``last``.

    Raises:
        UsageError: the run has none.
        RefusedFile: the record or the checkpoint is damaged.
    """
    record, place = read_record(folder), folder / "checkpoint" / which
    spec = record.spec
    if not checkpoint.exists(place):
        train = f"rlbench run {spec.suite} {spec.algorithm} --task {spec.task.id} --seeds {spec.seed}"
        raise UsageError(f"{folder}: has no weights, as records in git have none; train them with: {train}")
    with suppress(RefusedFile, OSError):  # a run may be replacing it now: read it once more
        return spec, _load(place, record)
    return spec, _load(place, read_record(folder))


def _load(place: Path, record: Record) -> State:
    values = manifest.read_manifest(manifest.current(place)).values
    manifest.refuse_foreign(place, values, record.spec, record.environment_sums, record.epoch_sums)
    return checkpoint.load(place)


def concatenate_columns(parts: Sequence[D4RLArrays]) -> D4RLArrays:
    """Concatenate the columns of data sets."""
    return D4RLArrays(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def returns(data: D4RLArrays, cut: NDArray[np.bool_]) -> dict[str, float]:
    """Statistics of the returns of whole episodes; ``cut`` ``[N]`` flags the last rows of truncated ones."""
    ends = np.flatnonzero(data.terminals | data.timeouts)
    totals = np.add.reduceat(data.rewards.astype(np.float64), [0, *(ends[:-1] + 1)])
    return _return_statistics(totals[~cut[ends]], int(cut.sum()))


def _return_statistics(whole: NDArray[np.float64], cut: int) -> dict[str, float]:
    counts: dict[str, float] = {"episodes": len(whole), "episodes_cut": cut}
    if not len(whole):
        return counts
    statistics = {"mean": whole.mean(), "std": whole.std(), "min": whole.min(), "max": whole.max()}
    return counts | {f"return_{name}": float(value) for name, value in statistics.items()}


def _recorder(task: Task, policy: Policy, info: EnvInfo, steps: int) -> TransitionRecorder:
    """A recorder for a part's steps; refuses a policy that does not fit the task."""
    if not isinstance(info.actions, Box) or len(info.obs_shape) != 1:
        raise UsageError(
            f"{task.id}: only vector observations and continuous actions are recorded; choose another task"
        )
    actions = len(info.actions.low)
    policy.fits(task.id, features=info.obs_shape[0], actions=actions)
    quota = np.full(info.num_envs, steps // info.num_envs)
    quota[: steps % info.num_envs] += 1
    return TransitionRecorder(quota, info, actions)


def _record(envs: VectorEnv, player: NoisyPolicy, recorder: TransitionRecorder) -> Iterator[int]:
    """Fill the recorder, and yield the number of steps so far after every vector step."""
    obs = envs.reset()
    live, elapsed = np.ones(len(obs), np.bool_), np.zeros(len(obs), np.int64)
    while not recorder.full:
        action = player(obs, elapsed)
        envs.send(action)
        step = envs.recv()
        recorder.add(live, obs, action, step)
        elapsed = np.where(live, elapsed + 1, 0)
        live, obs = ~(step.terminated | step.truncated), step.obs
        yield int(recorder.count.sum())
