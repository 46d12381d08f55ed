"""Memory of a ring beside its loaded state: ``python -m tests.reliability.resuming`` as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from rlbench.assembly.device import keep_memory
from rlbench.buffers.ring import Column, Ring
from rlbench.buffers.samplers import Uniform
from tests.reliability.measured import resident


def blank() -> Ring:
    """Of twenty thousand frames."""
    return Ring(
        capacity=20_000,
        num_envs=1,
        obs=Column((84, 84), torch.uint8),
        action=Column((), torch.int64),
        n_step=1,
        gamma=0.9,
        stack=4,
        sampler=Uniform(torch.Generator()),
        device=torch.device("cpu"),
    )


if __name__ == "__main__":
    keep_memory()
    full = blank()
    state = {**full.state_dict(), "size": full.length - 1}
    for name in ("obs", "action", "reward", "terminated", "done", "dead", "age"):
        state[name] = torch.ones_like(getattr(full, name))
    ring = full.obs.nbytes
    del full
    Path("/proc/self/clear_refs").write_text("5")
    base = resident("VmRSS")
    blank().load_state_dict(state)
    print(json.dumps({"growth": resident("VmHWM") - base, "ring": ring}))  # noqa: T201 - to who started it
