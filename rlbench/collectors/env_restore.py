"""Restore env state on resume, by snapshot or by replaying the recorded actions.

An environment without snapshots is a function of its seeds and its actions, so it is sent the same actions again.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.buffers.ring import RingBuffer
from rlbench.envs.base import Snapshot, VectorEnv
from rlbench.envs.normalize import Normalized, unnormalized
from rlbench.errors import BrokenEnvironment
from rlbench.ops.state_dict import State, subtree, tensor


def env_state(envs: VectorEnv | None, actions: ActionLog) -> State:
    """State of the environments: their snapshot, or the actions ``[T, N, ...]`` so far."""
    if envs is not None and isinstance(inner := unnormalized(envs), Snapshot):
        return {"envs": inner.state_dict()}
    rows = torch.from_numpy(actions.rows())
    is_small = rows.dtype == torch.int64 and not (rows.abs() > torch.iinfo(torch.int16).max).any()
    return {"taken": rows.to(torch.int16) if is_small else rows}


def restore_envs(envs: VectorEnv, log: ActionLog, buffer: RingBuffer, state: State, segment: int) -> Tensor:
    """Restore fresh ``envs``; return their observations ``[N, ...]``, stacked by the loaded ``buffer``.

    Raises:
        BrokenEnvironment: the replay does not end at the saved frames: another version, or not deterministic.
    """
    inner = unnormalized(envs)
    if isinstance(inner, Snapshot):
        inner.load_state_dict(subtree(state, "envs"))
        return buffer.newest_observations()
    actions = tensor(state, "taken")
    frames = inner.reset()  # without normalization, whose statistics have counted these observations
    for action in (actions.long() if actions.dtype == torch.int16 else actions).numpy():
        log.add(action)
        inner.send(action)
        frames = inner.recv().obs
    frames = envs.obs_transform(frames) if isinstance(envs, Normalized) else frames
    obs = buffer.newest_observations()
    newest = obs[:, -1] if obs.dim() > frames.ndim else obs
    if not np.array_equal(newest.cpu().numpy(), frames):
        raise BrokenEnvironment(
            f"segment {segment}: {log.count} replayed actions do not lead back to the saved frames; the "
            "environment's version differs from the checkpoint's: restore it, or start over with --force"
        )
    return obs


class ActionLog:
    """The actions of a segment, a row per step, in one array that doubles when it is full.

    A hundred thousand small arrays would fragment the memory between larger ones and keep its pages.
    """

    def __init__(self) -> None:
        self.block: NDArray[np.generic] = np.empty((0, 0))
        self.count = 0

    def add(self, action: NDArray[np.generic]) -> None:
        """Append a row, ``[N, ...]``."""
        if self.count == len(self.block):
            larger = np.empty((max(1024, 2 * self.count), *action.shape), action.dtype)
            larger[: self.count] = self.rows() if self.count else larger[:0]
            self.block = larger
        self.block[self.count] = action
        self.count += 1

    def rows(self) -> NDArray[np.generic]:
        """All rows, ``[T, N, ...]``; a view."""
        return self.block[: self.count]
