"""Where the time of a run goes: its parts wrapped from outside, so that the library knows nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from time import perf_counter
from typing import ParamSpec, TypeVar

import torch

from rlbench.accel.numpy_ppo import Regression, Surrogate
from rlbench.algorithms import base, ppo, steps, trpo
from rlbench.algorithms.bcq import BCQ
from rlbench.algorithms.discrete_sac import DiscreteSAC
from rlbench.algorithms.ppo import PPO
from rlbench.algorithms.reinforce import Reinforce
from rlbench.algorithms.trpo import Natural
from rlbench.assembly.engine import composites
from rlbench.envs.base import VectorEnv
from rlbench.envs.normalize import Normalized
from rlbench.training.offline import Offline
from rlbench.training.online import Online

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
"""In the order in which a step has them; ``returns`` are those of a rollout, ``targets`` are target networks."""


class Stopwatch:
    """Seconds by part; a part within another is taken off the outer one. A reading costs under a microsecond."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running: list[float] = []  # seconds spent in inner parts, for each part that is under way

    def timed(self, part: str, call: Callable[P, R]) -> Callable[P, R]:
        """The same call, its own time added to ``part``."""

        @wraps(call)
        def measured(*args: P.args, **kwargs: P.kwargs) -> R:
            self._running.append(0.0)
            began = perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                took = perf_counter() - began
                self.seconds[part] = self.seconds.get(part, 0.0) + took - self._running.pop()
                if self._running:
                    self._running[-1] += took

        return measured

    def attach(self, part: str, owner: object, *methods: str) -> None:
        """Time these methods of one object, or functions of one module, as ``part``."""
        for method in methods:
            setattr(owner, method, self.timed(part, getattr(owner, method)))

    def reset(self) -> None:
        """Forget what was measured."""
        self.seconds.clear()


def watched(run: Online | Offline) -> Stopwatch:
    """A stopwatch on every part of a run whose environments are not open yet; for the rest of this process."""
    watch, learner = Stopwatch(), run.learner
    if isinstance(run, Online):
        _collecting(watch, run)
        watch.attach("act", learner, "act")
    for part in composites(learner):
        if isinstance(part, base.Compilable):
            watch.attach("forward", part, *part.losses())
    if isinstance(learner, DiscreteSAC):
        watch.attach("forward", learner, "td_target")
    if isinstance(learner, BCQ):
        watch.attach("forward", learner, "proposals")
    if isinstance(learner, PPO | Natural | Reinforce):
        _rollouts(watch, run, learner)
    else:
        watch.attach("sample", run.buffer if isinstance(run, Online) else getattr(run.updater, "source"), "sample")  # noqa: B009 - not in the trainer's protocol
    watch.attach("backward", torch.autograd, "grad")
    watch.attach("optimizer", steps, "step")
    watch.attach("targets", steps, "polyak_update")
    watch.attach("bookkeeping", run.updater, "run")  # what is left of it
    return watch


def _collecting(watch: Stopwatch, run: Online) -> None:
    """What a vector step is made of."""
    collector = run.collector

    def opened(segment: int) -> VectorEnv:
        envs = open_envs(segment)
        if isinstance(envs, Normalized):
            watch.attach("normalise", envs, "recv")
            watch.attach("emulator", envs.envs, "send", "recv")
        else:
            watch.attach("emulator", envs, "send", "recv")
        return envs

    open_envs: Callable[[int], VectorEnv] = getattr(collector, "open_envs")  # noqa: B009 - not in the trainer's protocol
    setattr(collector, "open_envs", opened)  # noqa: B010 - as above
    watch.attach("write", run.buffer, "observe", "newest", "record")


def _rollouts(watch: Stopwatch, run: Online | Offline, learner: PPO | Natural | Reinforce) -> None:
    """What learning from a rollout is made of, by a framework or by hand."""
    watch.attach("sample", getattr(run.updater, "source"), "rollout")  # noqa: B009 - not in the trainer's protocol
    match learner:
        case PPO():
            watch.attach("returns", ppo, "rollout_batch", "state_values")
            watch.attach("forward", learner, "engine" if learner.engine else "eagerly")
            _by_hand(watch, learner.engine)
        case Natural():
            watch.attach("returns", trpo, "rollout_batch")
            watch.attach("forward", learner, "actor_step", "engine" if learner.engine else "eagerly")
            _by_hand(watch, learner.engine)
        case Reinforce():
            watch.attach("returns", learner, "return_weights")


def _by_hand(watch: Stopwatch, steps: object) -> None:
    """Slopes and steps of what needs no framework; what is left of it counts as ``forward``."""
    steps = getattr(steps, "__wrapped__", steps)
    if isinstance(steps, Surrogate | Regression):
        watch.attach("backward", steps.stack, "backward")
        watch.attach("optimizer", steps.descent, "begin", "step", "end")
