"""All lanes step together: act on what they show, wait for every answer, put it in the ring.

One of the two places where data cross between host and device: frames in, actions out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rlbench.collectors.action_log import ActionLog
from rlbench.collectors.base import Actor, Recorder
from rlbench.collectors.env_restore import env_state, restore_envs
from rlbench.collectors.episode_stats import EpisodeStats
from rlbench.collectors.explore import Explorer
from rlbench.envs.base import Snapshot, VectorEnv
from rlbench.ops.state_dict import State, Stateful, branch, tensor, whole


class Collector:
    """Steps the environments of one segment after another.

    Its state is exact at any step. Environments that can tell theirs do; of others the actions of the running segment
    are kept: an environment is a function of its seeds and its actions, so replaying them in a fresh one leads back.
    """

    def __init__(
        self,
        *,
        actor: Actor,
        recorder: Recorder,
        explorer: Explorer,
        open_envs: Callable[[int], VectorEnv],
        lanes: int,
        bound: Callable[[Tensor], Tensor] | None = None,
        scale: Stateful | None = None,
    ) -> None:
        self.scale = scale  # of observations, where the environments move one
        self.bound = bound  # from the action that is learned from to the one that is carried out; None is itself
        self.actor, self.recorder, self.explorer, self.open_envs = actor, recorder, explorer, open_envs
        self.segment, self.exact = -1, True
        self.envs: VectorEnv | None = None
        self.taken = ActionLog()
        self.shown = torch.empty(0)  # what every lane shows now, stacked, on the device
        self.ended = np.zeros(lanes, np.bool_)  # lanes that show a final observation: their next action does nothing
        self.games = EpisodeStats(lanes)

    def open(self, segment: int) -> None:
        """Close what runs, truncating it, and begin ``segment`` in fresh environments."""
        if self.envs is not None:
            self.recorder.close()
            self.close()
        self.segment, self.envs, self.taken = segment, self.open_envs(segment), ActionLog()
        self.ended[:] = False
        self.games.drop(np.ones_like(self.ended))
        self.shown = self.recorder.observe(self.envs.reset())

    def step(self) -> int:
        """One action in every lane; gives the number of live ones.

        Raises:
            RuntimeError: no segment was opened.
        """
        if self.envs is None:
            raise RuntimeError("open a segment first")
        action = self.explorer(self.actor.act(self.shown, "act"))
        chosen = (action if self.bound is None else self.bound(action)).cpu().numpy()
        self.envs.send(chosen)
        answer = self.envs.recv()
        if not isinstance(self.envs, Snapshot):
            self.taken.add(chosen)
        self.recorder.record(action, answer.reward, answer.terminated, answer.truncated)
        live = ~self.ended
        self.games.add(answer.score, live, answer.over)
        self.ended = answer.terminated | answer.truncated
        self.shown = self.recorder.observe(answer.obs)
        return int(live.sum())

    def close(self) -> None:
        """Let the environments go."""
        if self.envs is not None:
            self.envs.close()
            self.envs = None

    def state_dict(self) -> State:
        """The segment, where its environments stand or how they came there, and the games."""
        return {
            "segment": self.segment,
            **env_state(self.envs, self.taken),
            "ended": torch.from_numpy(self.ended.copy()),
            "games": self.games.state_dict(),
            "explorer": self.explorer.state_dict(),
            "scale": {} if self.scale is None else self.scale.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Take the segment over in fresh environments; the recorder must be loaded.

        Raises:
            BrokenEnvironment: they do not end where they were: another version, or not deterministic.
        """
        self.games.load_state_dict(branch(state, "games"))
        self.explorer.load_state_dict(branch(state, "explorer"))
        self.segment, self.ended = whole(state, "segment"), tensor(state, "ended").numpy().copy()
        if self.segment >= 0:
            self.taken, self.envs = ActionLog(), self.open_envs(self.segment)
            self.shown = restore_envs(self.envs, self.taken, self.recorder, state, self.segment)
        if self.scale is not None:  # at last, for opening environments moves it
            self.scale.load_state_dict(branch(state, "scale"))
