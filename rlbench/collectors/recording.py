"""Games as they are recorded: every lane gives its share of the steps, in whole games of which the last may be cut."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rlbench.collectors.base import Actor, Recorder
from rlbench.collectors.explore import Explorer
from rlbench.datasets.recording_writer import RecordingWriter, last, step
from rlbench.envs.base import Frames, Step, VectorEnv


class ShardRecorder:
    """The lanes of a film, each up to its share of ``steps``, and what its whole games were worth."""

    def __init__(self, film: RecordingWriter, *, lanes: int, steps: int) -> None:
        self.film, self.count = film, np.zeros(lanes, np.int64)
        self.quota = np.full(lanes, steps // lanes)
        self.quota[: steps % lanes] += 1
        self.score = np.zeros(lanes)
        self.returns: list[list[float]] = [[] for _ in range(lanes)]
        self.cut = 0  # games that their lane's share has cut

    @property
    def full(self) -> bool:
        """Whether every lane has met its share."""
        return bool((self.count == self.quota).all())

    def add(self, live: NDArray[np.bool_], obs: Frames, action: NDArray[np.int64], answer: Step) -> None:
        """What every ``live`` lane ``[N]`` saw, did and met; of lanes that are full nothing is kept."""
        ended = answer.terminated | answer.truncated
        for lane in np.flatnonzero(live & (self.count < self.quota)).tolist():
            self.count[lane] += 1
            self.score[lane] += answer.score[lane]
            cut = bool(self.count[lane] == self.quota[lane] and not ended[lane])
            piece = step(
                lane,
                obs[lane],
                int(action[lane]),
                float(answer.score[lane]),
                terminated=bool(answer.terminated[lane]),
                truncated=bool(answer.truncated[lane]) or cut,
            )
            self.film.add(piece)
            if ended[lane] or cut:
                self.film.add(last(lane, answer.obs[lane]))
                self._closed(lane, cut=cut)

    def _closed(self, lane: int, *, cut: bool) -> None:
        self.cut += cut
        if not cut:
            self.returns[lane].append(float(self.score[lane]))
        self.score[lane] = 0.0


def record(
    actor: Actor, stacked: Recorder, explorer: Explorer, envs: VectorEnv, tracks: ShardRecorder
) -> Iterator[int]:
    """Play until every lane has met its share; gives the number of steps so far after every vector step."""
    shown = envs.reset()
    live = np.ones(len(shown), np.bool_)
    seen = stacked.observe(shown)
    while not tracks.full:
        action = explorer(actor.act(seen, "eval"))
        chosen = action.cpu().numpy()
        envs.send(chosen)
        answer = envs.recv()
        tracks.add(live, shown, chosen, answer)
        stacked.record(action, answer.reward, answer.terminated, answer.truncated)
        live, shown = ~(answer.terminated | answer.truncated), answer.obs
        seen = stacked.observe(shown)
        yield int(tracks.count.sum())
    tracks.film.flush()
