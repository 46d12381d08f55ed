"""Lanes that answer late do not hold the others: act where an answer is, store it in its own lane, go on.

Between two steps every lane is on its way: it has an action and has not answered. Which lanes answer first is the
machine's, so two runs differ in the order of rows, never in what a lane holds for the actions it was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.collectors.base import Actor
from rlbench.collectors.episode_stats import EpisodeStats
from rlbench.collectors.explore import Explorer
from rlbench.envs.base import AsyncVectorEnv, Step
from rlbench.ops.state_dict import State, branch, whole


class LaneRecorder(Protocol):
    """What an asynchronous collector needs of a buffer."""

    def observe(self, frames: NDArray[np.generic], lane: NDArray[np.int64] | None = None) -> Tensor:
        """Begin a row in these lanes, or in all; gives the frames ``[M, ...]`` stacked, on the device."""

    def record(
        self,
        action: Tensor,
        reward: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        lane: NDArray[np.int64] | None = None,
    ) -> None:
        """Complete the rows ``[M, ...]``."""

    def close(self) -> None:
        """Truncate what is running."""


class AsyncCollector:
    """Steps the environments of one segment after another, whoever answers first.

    A step is one answer of the environments, of as many lanes as it has: who asks for a number of steps may get up to
    N − 1 more, and ``step`` says how many. A loaded collector does not go on in mid-game, for no order of answers comes
    again: what ran is truncated, as at the end of a segment, and the segment begins anew in fresh environments.
    ``exact`` says that this did not happen.
    """

    def __init__(
        self,
        *,
        actor: Actor,
        recorder: LaneRecorder,
        explorer: Explorer,
        open_envs: Callable[[int], AsyncVectorEnv],
        lanes: int,
    ) -> None:
        self.actor, self.recorder, self.explorer, self.open_envs = actor, recorder, explorer, open_envs
        self.segment, self.exact, self.scale = -1, True, None
        self.envs: AsyncVectorEnv | None = None
        self.lanes = np.arange(lanes)
        self.acted = torch.empty(0)  # [N, ...] what every lane is doing, on the device
        self.ended = np.zeros(lanes, np.bool_)  # lanes that show a final observation: what they do now does nothing
        self.games = EpisodeStats(lanes)

    def open(self, segment: int) -> None:
        """Close what runs, truncating it and losing what is on its way, and begin ``segment`` in fresh environments."""
        if self.envs is not None:
            self.recorder.close()
            self.close()
        self.segment, self.envs = segment, self.open_envs(segment)
        self.ended[:] = False
        self.games.drop(np.ones_like(self.ended))
        chosen = self._chosen(self.recorder.observe(self.envs.reset()))
        self.acted = chosen.clone()  # what was sent must not change under way
        self.envs.send(chosen.cpu().numpy(), self.lanes)

    def step(self) -> int:
        """Take the next answer and send those lanes on; gives the number of live steps that were stored.

        Raises:
            RuntimeError: no segment was opened.
        """
        if self.envs is None:
            raise RuntimeError("open a segment first")
        answer = self.envs.recv()
        where = torch.from_numpy(answer.lane).to(self.acted.device)
        self.recorder.record(self.acted[where], answer.reward, answer.terminated, answer.truncated, answer.lane)
        live = ~self.ended[answer.lane]
        self._count(answer, live)
        self.ended[answer.lane] = answer.terminated | answer.truncated
        chosen = self._chosen(self.recorder.observe(answer.obs, answer.lane))
        self.acted[where] = chosen
        self.envs.send(chosen.cpu().numpy(), answer.lane)
        return int(live.sum())

    def close(self) -> None:
        """Let the environments go."""
        if self.envs is not None:
            self.envs.close()
            self.envs = None

    def state_dict(self) -> State:
        """The segment, the games, and the explorer's stream."""
        return {
            "segment": self.segment,
            "games": self.games.state_dict(),
            "explorer": self.explorer.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Take games and explorer over and begin the segment anew; the recorder must be loaded, and is truncated."""
        self.games.load_state_dict(branch(state, "games"))
        self.explorer.load_state_dict(branch(state, "explorer"))
        self.close()
        self.segment = whole(state, "segment")
        if self.segment >= 0:
            self.exact = False
            self.recorder.close()
            self.open(self.segment)

    def _chosen(self, shown: Tensor) -> Tensor:
        return self.explorer(self.actor.act(shown, "act"))

    def _count(self, answer: Step, live: NDArray[np.bool_]) -> None:
        score, alive, over = np.zeros(len(self.lanes)), np.zeros_like(self.ended), np.zeros_like(self.ended)
        score[answer.lane], alive[answer.lane], over[answer.lane] = answer.score, live, answer.over
        self.games.add(score, alive, over)
