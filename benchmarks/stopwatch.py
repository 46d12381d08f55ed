"""The time of each part of a run, measured by wrapping its functions from outside."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from time import perf_counter
from typing import ParamSpec, TypeVar

import torch

from rlbench.accel.numpy_ppo import NumpyPPO, NumpyValueRegression
from rlbench.algorithms import base, ppo, steps, trpo
from rlbench.algorithms.bcq import BCQ
from rlbench.algorithms.discrete_sac import DiscreteSAC
from rlbench.algorithms.ppo import PPO
from rlbench.algorithms.reinforce import REINFORCE
from rlbench.algorithms.trpo import TRPO
from rlbench.assembly.engine import composites
from rlbench.envs.base import VectorEnv
from rlbench.envs.normalize import Normalized
from rlbench.training.offline import OfflineTrainer
from rlbench.training.online import OnlineTrainer

P = ParamSpec("P")
R = TypeVar("R")

PARTS = (
    "emulator",
    "normalise",
    "act",
    "write",
    "sample",
    "returns",
    "forward",
    "backward",
    "optimizer",
    "targets",
    "bookkeeping",
    "other",
)
"""Parts in the order of a step; ``returns`` are those of a rollout, ``targets`` are target networks."""


class Stopwatch:
    """Seconds by part; an inner part is subtracted from the outer one. A reading costs under a microsecond."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running: list[float] = []  # seconds spent in inner parts, for each running part

    def timed(self, part: str, call: Callable[P, R]) -> Callable[P, R]:
        """Wrap a call so that its time is added to ``part``."""

        @wraps(call)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            self._running.append(0.0)
            began = perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                seconds = perf_counter() - began
                self.seconds[part] = self.seconds.get(part, 0.0) + seconds - self._running.pop()
                if self._running:
                    self._running[-1] += seconds

        return wrapper

    def attach(self, part: str, owner: object, *methods: str) -> None:
        """Time these methods of one object, or functions of one module, as ``part``."""
        for method in methods:
            setattr(owner, method, self.timed(part, getattr(owner, method)))

    def reset(self) -> None:
        """Clear the seconds."""
        self.seconds.clear()


def attach_stopwatch(run: OnlineTrainer | OfflineTrainer) -> Stopwatch:
    """Attach a stopwatch to every part of a run whose environments are not open yet, for the rest of this process."""
    watch, learner = Stopwatch(), run.learner
    if isinstance(run, OnlineTrainer):
        _attach_collector(watch, run)
        watch.attach("act", learner, "act")
    for part in composites(learner):
        if isinstance(part, base.Compilable):
            watch.attach("forward", part, *part.losses())
    if isinstance(learner, DiscreteSAC):
        watch.attach("forward", learner, "td_target")
    if isinstance(learner, BCQ):
        watch.attach("forward", learner, "proposals")
    if isinstance(learner, PPO | TRPO | REINFORCE):
        _attach_rollouts(watch, run, learner)
    else:
        source = getattr(run.updater, "source")  # noqa: B009 - not in the trainer's protocol
        watch.attach("sample", run.buffer if isinstance(run, OnlineTrainer) else source, "sample")
    watch.attach("backward", torch.autograd, "grad")
    watch.attach("optimizer", steps, "optimizer_step")
    watch.attach("targets", steps, "polyak_update")
    watch.attach("bookkeeping", run.updater, "run")  # the rest of an update
    return watch


def _attach_collector(watch: Stopwatch, run: OnlineTrainer) -> None:
    """Time the parts of a vector step."""
    collector = run.collector

    def open_and_attach(segment: int) -> VectorEnv:
        envs = open_envs(segment)
        if isinstance(envs, Normalized):
            watch.attach("normalise", envs, "recv")
            watch.attach("emulator", envs.envs, "send", "recv")
        else:
            watch.attach("emulator", envs, "send", "recv")
        return envs

    open_envs: Callable[[int], VectorEnv] = getattr(collector, "open_envs")  # noqa: B009 - not in the trainer's protocol
    setattr(collector, "open_envs", open_and_attach)  # noqa: B010 - as above
    watch.attach("write", run.buffer, "add_observations", "newest_observations", "add_transitions")


def _attach_rollouts(watch: Stopwatch, run: OnlineTrainer | OfflineTrainer, learner: PPO | TRPO | REINFORCE) -> None:
    """Time the parts of an update from a rollout, by torch or by the numpy engine."""
    watch.attach("sample", run.updater, "rollout")
    match learner:
        case PPO():
            watch.attach("returns", ppo, "rollout_batch", "state_values")
            watch.attach("forward", learner, "engine" if learner.engine else "train_minibatches")
            _attach_numpy(watch, learner.engine)
        case TRPO():
            watch.attach("returns", trpo, "rollout_batch")
            watch.attach("forward", learner, "actor_step", "engine" if learner.engine else "train_critic")
            _attach_numpy(watch, learner.engine)
        case REINFORCE():
            watch.attach("returns", learner, "return_weights")


def _attach_numpy(watch: Stopwatch, steps: object) -> None:
    """Time gradients and optimizer steps of the numpy engine; the rest of it counts as ``forward``."""
    steps = getattr(steps, "__wrapped__", steps)
    if isinstance(steps, NumpyPPO | NumpyValueRegression):
        watch.attach("backward", steps.stack, "backward")
        watch.attach("optimizer", steps.optimizer, "begin", "step", "end")
