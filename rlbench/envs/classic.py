"""Gymnasium's classic control tasks (CartPole, Pendulum, Acrobot, both mountain cars), N of them in this process.

Their ``state`` and generator are their whole state, so a snapshot is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

from rlbench.envs.gymnasium import GymnasiumVector, bare
from rlbench.ops.state_dict import State, branch, tensor

PACKAGE: Final = "gymnasium.envs.classic_control"


class ClassicVector(GymnasiumVector):
    """N envs of one task, such as ``CartPole-v1``; ``limit``: agent steps an episode may last, else the task's."""

    def __init__(self, *, task: str, seeds: Sequence[int], limit: int | None = None) -> None:
        factory, steps = bare(task, package=PACKAGE)
        super().__init__(name=task, factory=factory, seeds=seeds, limit=steps if limit is None else limit)

    def state_dict(self) -> State:
        """State of envs, episodes and generators."""
        places: State = {str(i): torch.tensor(np.array(env.state)) for i, env in enumerate(self._inner())}
        return {**self.progress(), "places": places}  # a tensor for each env: after a reset its type differs

    def load_state_dict(self, state: State) -> None:
        """Restore envs, episodes and generators."""
        with self._inspection.guard():
            self.proceed(state)
            for i, env in enumerate(self._inner()):
                env.state = tensor(branch(state, "places"), str(i)).numpy().copy()

    def _inner(self) -> list[Any]:
        return [env.unwrapped for env in self._envs]
