"""Gymnasium's classic control tasks (CartPole, Pendulum, Acrobot, both mountain cars), N of them in this process.

They are whole in their ``state`` and their random stream, so a snapshot is exact.
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
    """N lanes of one task, such as ``CartPole-v1``; ``limit``: agent steps an episode may last, else the task's."""

    def __init__(self, *, task: str, seeds: Sequence[int], limit: int | None = None) -> None:
        factory, steps = bare(task, package=PACKAGE)
        super().__init__(name=task, factory=factory, seeds=seeds, limit=steps if limit is None else limit)

    def state_dict(self) -> State:
        """Where everything is, episodes and random streams."""
        places: State = {str(i): torch.tensor(np.array(lane.state)) for i, lane in enumerate(self._inner())}
        return {**self.progress(), "places": places}  # a lane's own tensor: one that was just reset has another type

    def load_state_dict(self, state: State) -> None:
        """Take them over."""
        with self._inspection.guarded():
            self.proceed(state)
            for i, lane in enumerate(self._inner()):
                lane.state = tensor(branch(state, "places"), str(i)).numpy().copy()

    def _inner(self) -> list[Any]:
        return [env.unwrapped for env in self._envs]
