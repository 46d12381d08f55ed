"""Where the environments of a segment stand, and the way back there in fresh ones.

Those that can tell do. Any other is a function of its seeds and its actions, so it is sent the same actions again.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlbench.collectors.action_log import ActionLog
from rlbench.collectors.base import Recorder
from rlbench.envs.base import Snapshot, VectorEnv
from rlbench.errors import BrokenEnvironment
from rlbench.ops.state_dict import State, branch, tensor


def env_state(envs: VectorEnv | None, taken: ActionLog) -> State:
    """What leads back to where they stand: their own state, or the actions ``[T, N, ...]`` so far."""
    if isinstance(envs, Snapshot):
        return {"envs": envs.state_dict()}
    rows = torch.from_numpy(taken.rows())
    return {"taken": rows.to(torch.int16) if rows.dtype == torch.int64 else rows}


def restore_envs(envs: VectorEnv, taken: ActionLog, recorder: Recorder, state: State, segment: int) -> Tensor:
    """What every lane shows ``[N, ...]``, stacked, once fresh ``envs`` stand where they did; ``recorder`` is loaded.

    Raises:
        BrokenEnvironment: they do not end where they were: another version, or not deterministic.
    """
    if isinstance(envs, Snapshot):
        envs.load_state_dict(branch(state, "envs"))
        return recorder.newest()
    frames, actions = envs.reset(), tensor(state, "taken")
    for action in (actions.long() if actions.dtype == torch.int16 else actions).numpy():
        taken.add(action)
        envs.send(action)
        frames = envs.recv().obs
    shown = recorder.newest()
    newest = shown[:, -1] if shown.dim() > frames.ndim else shown
    if not np.array_equal(newest.cpu().numpy(), frames):
        raise BrokenEnvironment(
            f"segment {segment}: {taken.count} replayed actions do not lead back to the saved frames; the "
            "environment's version differs from the checkpoint's: restore it, or start over with --force"
        )
    return shown
