"""All lanes step together: act on what they show, wait for every answer, put it in the ring.

One of the two places where data cross between host and device: frames in, actions out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.collectors.explore import Explorer
from rlbench.envs.base import Snapshot, VectorEnv
from rlbench.errors import BrokenEnvironment
from rlbench.ops.state import State, Stateful, branch, tensor, whole
from rlbench.ops.types import Role


class Actor(Protocol):
    """What a collector needs of a learner."""

    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Preferred actions."""


class Recorder(Protocol):
    """What a collector needs of a buffer."""

    def observe(self, frames: NDArray[np.generic]) -> Tensor:
        """Begin a row; gives the frames stacked, on the device."""

    def newest(self) -> Tensor:
        """The row begun last, stacked."""

    def record(
        self, action: Tensor, reward: NDArray[np.float32], terminated: NDArray[np.bool_], truncated: NDArray[np.bool_]
    ) -> None:
        """Complete the row."""

    def close(self) -> None:
        """Truncate what is running."""


class Games:
    """Training games that ended since the last ``take``, and the running ones, in raw points."""

    def __init__(self, lanes: int) -> None:
        self.score, self.length = np.zeros(lanes), np.zeros(lanes, np.int64)
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.last: float | None = None
        self.latest = np.zeros(lanes), np.zeros(lanes, np.bool_), np.zeros(lanes, np.bool_)  # what ``add`` was told

    def add(self, score: NDArray[np.float64], live: NDArray[np.bool_], over: NDArray[np.bool_]) -> None:
        """One answer of every lane, each ``[N]``."""
        self.latest = score, live, over
        self.score += score
        self.length += live
        for lane in np.flatnonzero(over):
            self.last = float(self.score[lane])
            self.returns.append(self.last)
            self.lengths.append(int(self.length[lane]))
        self.drop(over)

    def drop(self, lanes: NDArray[np.bool_]) -> None:
        """Begin anew in these lanes."""
        self.score[lanes], self.length[lanes] = 0, 0

    def take(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Returns and lengths of the ended games, which are forgotten."""
        taken = tuple(self.returns), tuple(self.lengths)
        self.returns, self.lengths = [], []
        return taken

    def state_dict(self) -> State:
        """Ended and running games."""
        numbers = {
            "score": self.score,
            "length": self.length,
            "returns": np.array(self.returns),
            "lengths": np.array(self.lengths, np.int64),
        }
        state: State = {name: torch.from_numpy(value.copy()) for name, value in numbers.items()}
        return state if self.last is None else {**state, "last": self.last}

    def load_state_dict(self, state: State) -> None:
        """Take them over."""
        self.score, self.length = tensor(state, "score").numpy().copy(), tensor(state, "length").numpy().copy()
        self.returns, self.lengths = tensor(state, "returns").tolist(), tensor(state, "lengths").tolist()
        last = state.get("last")
        self.last = last if isinstance(last, float) else None


class Taken:
    """The actions of a segment, a row a step, in one block that doubles.

    A hundred thousand little arrays would lie scattered between the large passing ones and keep their pages.
    """

    def __init__(self) -> None:
        self.block: NDArray[np.generic] = np.empty((0, 0))
        self.count = 0

    def add(self, action: NDArray[np.generic]) -> None:
        """One more row."""
        if self.count == len(self.block):
            larger = np.empty((max(1024, 2 * self.count), *action.shape), action.dtype)
            larger[: self.count] = self.rows() if self.count else larger[:0]
            self.block = larger
        self.block[self.count] = action
        self.count += 1

    def rows(self) -> NDArray[np.generic]:
        """All of them, ``[T, N, ...]``; a view."""
        return self.block[: self.count]


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
        self.taken = Taken()
        self.shown = torch.empty(0)  # what every lane shows now, stacked, on the device
        self.ended = np.zeros(lanes, np.bool_)  # lanes that show a final observation: their next action does nothing
        self.games = Games(lanes)
        self._sent: tuple[Tensor, NDArray[np.generic]] = torch.empty(0), np.empty(0)  # as learned from, as carried out

    def open(self, segment: int) -> None:
        """Close what runs, truncating it, and begin ``segment`` in fresh environments."""
        if self.envs is not None:
            self.recorder.close()
            self.close()
        self.segment, self.envs, self.taken = segment, self.open_envs(segment), Taken()
        self.ended[:] = False
        self.games.drop(np.ones_like(self.ended))
        self.shown = self.recorder.observe(self.envs.reset())

    def step(self) -> int:
        """One action in every lane; gives the number of live ones."""
        self.send()
        return self.receive()

    def send(self) -> None:
        """Set every lane going; what follows until ``receive`` happens meanwhile."""
        if self.envs is None:
            raise RuntimeError("open a segment first")
        action = self.explorer(self.actor.act(self.shown, "act"))
        chosen = (action if self.bound is None else self.bound(action)).cpu().numpy()
        self.envs.send(chosen)
        self._sent = action, chosen

    def receive(self) -> int:
        """Wait for every answer and store it; gives the number of live lanes."""
        if self.envs is None:
            raise RuntimeError("open a segment first")
        action, chosen = self._sent
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
            **self._place(),
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
            self._return(state)
        if self.scale is not None:  # at last, for opening environments moves it
            self.scale.load_state_dict(branch(state, "scale"))

    def _return(self, state: State) -> None:
        """Open the segment again and go to where it was."""
        self.taken, self.envs = Taken(), self.open_envs(self.segment)
        if isinstance(self.envs, Snapshot):
            self.envs.load_state_dict(branch(state, "envs"))
            self.shown = self.recorder.newest()
        else:
            self._replay(self.envs, tensor(state, "taken"))

    def _place(self) -> State:
        if isinstance(self.envs, Snapshot):
            return {"envs": self.envs.state_dict()}
        taken = torch.from_numpy(self.taken.rows())
        return {"taken": taken.to(torch.int16) if taken.dtype == torch.int64 else taken}

    def _replay(self, envs: VectorEnv, taken: Tensor) -> None:
        frames = envs.reset()
        for action in (taken.long() if taken.dtype == torch.int16 else taken).numpy():
            self.taken.add(action)
            envs.send(action)
            frames = envs.recv().obs
        self.shown = self.recorder.newest()
        newest = self.shown[:, -1] if self.shown.dim() > frames.ndim else self.shown
        if not np.array_equal(newest.cpu().numpy(), frames):
            raise BrokenEnvironment(
                f"segment {self.segment}: {self.taken.count} replayed actions do not lead back to the saved frames; "
                "the environment's version differs from the checkpoint's: restore it, or start over with --force"
            )
