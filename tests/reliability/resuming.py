"""Memory of a ring beside its loaded state: ``python -m tests.reliability.resuming`` as JSON."""

import json
from pathlib import Path

import torch

from rlbench.assembly.device import keep_memory
from rlbench.buffers.ring import COLUMNS, SAVED_NAMES, ArraySpec
from tests.reliability.measured import resident
from tests.rings import ring_of

FRAME = ArraySpec((84, 84), torch.uint8)

if __name__ == "__main__":
    keep_memory()
    full = ring_of(1, 20_000, stack=4, obs=FRAME)
    state = {**full.state_dict(), "size": full.length - 1}
    for name in COLUMNS:
        state[SAVED_NAMES.get(name, name)] = torch.ones_like(getattr(full, name))
    ring = full.obs.nbytes
    del full
    Path("/proc/self/clear_refs").write_text("5")
    base = resident("VmRSS")
    ring_of(1, 20_000, stack=4, obs=FRAME).load_state_dict(state)
    print(json.dumps({"growth": resident("VmHWM") - base, "ring": ring}))  # noqa: T201 - to who started it
