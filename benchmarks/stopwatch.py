"""Where the time of a run goes: its parts wrapped from outside, so that the library knows nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from time import perf_counter
from typing import ParamSpec, TypeVar

from rlbench.envs.base import VectorEnv
from rlbench.learners.qlearning import QLearner
from rlbench.learners.sac import SAC
from rlbench.learners.td3 import TD3
from rlbench.trainers.online import Online

P = ParamSpec("P")
R = TypeVar("R")


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
        """Time these methods of one object as ``part``."""
        for method in methods:
            setattr(owner, method, self.timed(part, getattr(owner, method)))

    def reset(self) -> None:
        """Forget what was measured."""
        self.seconds.clear()


def watched(run: Online) -> Stopwatch:
    """A stopwatch on every part of a run whose environments are not open yet."""
    watch = Stopwatch()
    collector, updater, learner = run.collector, run.updater, run.learner

    def opened(segment: int) -> VectorEnv:
        envs = open_envs(segment)
        watch.attach("emulator", envs, "send", "recv")
        return envs

    open_envs: Callable[[int], VectorEnv] = getattr(collector, "open_envs")  # noqa: B009 - not in the trainer's protocol
    setattr(collector, "open_envs", opened)  # noqa: B010 - as above
    watch.attach("act", learner, "act")
    watch.attach("write", run.buffer, "observe", "newest", "record")
    watch.attach("sample", run.buffer, "sample")
    match learner:
        case QLearner():
            optimizers = learner.optimizers
            watch.attach("forward", learner, "loss")
        case SAC() | TD3():
            optimizers = (learner.actor_optimizer, learner.critic_optimizer)
            watch.attach("forward", learner, "critic_loss", "policy_loss")
        case _:
            raise TypeError(type(learner).__name__)
    for optimizer in optimizers:
        watch.attach("optimizer", optimizer, "step")
    watch.attach("backward", learner, "update")  # what is left of it
    watch.attach("bookkeeping", updater, "run")  # likewise
    return watch
