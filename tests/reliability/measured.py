"""Memory that a process of its own takes, as JSON: ``python -m tests.reliability.measured WORK WORDS…``.

What the interpreter, torch and the emulators take before anything is built is the base; the rest, at its peak, is what
``footprint`` promises to know.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

import rlbench.run
from rlbench import suites
from rlbench.assembly.assemble import build
from rlbench.assembly.device import keep_memory
from rlbench.assembly.environments import describe, environments
from rlbench.buffers.ring import COLUMNS, SAVED_NAMES, ArraySpec, RingBuffer
from rlbench.config.footprint import footprint
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.datasets import checksums
from rlbench.run import run
from rlbench.signals import Stop
from tests.forging import locked
from tests.rings import ring_of


def resident(name: str) -> int:
    """Bytes: ``VmRSS`` now, or ``VmHWM`` at most since it was forgotten."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


def warm(spec: Spec) -> None:
    """Load what is loaded on first use: kernels, optimizers, emulators."""
    keep_memory()
    torch.set_num_threads(1)
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(2 * 36, 8))
    optimizer = torch.optim.Adam(network.parameters(), fused=True)
    network(torch.ones(2, 1, 8, 8)).square().sum().backward()
    optimizer.step()
    environment = environments(spec.task, seeds=(0,), training=True)
    environment.reset()
    environment.close()


def fill(*parts: Any) -> Any:
    """A run whose ring holds something everywhere, as after millions of steps."""
    trainer = build(*parts)
    ring = getattr(getattr(trainer, "buffer", None), "ring", getattr(trainer, "buffer", None))
    if isinstance(ring, RingBuffer):
        for column in (ring.obs, ring.action):
            column.zero_()
    return trainer


def base_now() -> int:
    """The bytes of this process, whose peak is forgotten."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def run_grown(suite: str, algorithm: str, task: str, folder: str, *changes: str) -> dict[str, int]:
    """A run with changes of its settings: base, growth at its peak and the estimate."""
    spec = apply_settings(suites.spec(suite, algorithm, task), [parse(change) for change in changes])
    rlbench.run.build = fill
    warm(spec)
    base = base_now()
    store = locked(spec, Path(folder))
    for _ in run(spec, Runtime(device="cpu", threads=1), store, Stop()):
        pass
    store.release()
    need = footprint(spec)
    return {
        "base": base,
        "growth": resident("VmHWM") - base,
        "foreseen": need.total - need.base,
        "replay": need.replay,
        "networks": need.networks,
        "emulators": need.emulators,
    }


def loaded_data(path: str, algorithm: str) -> dict[str, int]:
    """Loading a data set, beside the estimate."""
    spec = suites.spec("offline", algorithm, "rlb-halfcheetah-medium", seed=0)
    info = describe(spec)
    warm(spec)
    checksums.seal_of(Path(path))
    base = base_now()
    trainer = build(spec, Runtime(device="cpu", threads=1, dataset=path), info)
    growth = resident("VmHWM") - base
    del trainer
    return {"growth": growth, "foreseen": footprint(spec).replay}


def loaded_ring() -> dict[str, int]:
    """Loading the state of a ring, beside the ring."""
    keep_memory()
    frame = ArraySpec((84, 84), torch.uint8)
    full = ring_of(1, 20_000, stack=4, obs=frame)
    state = {**full.state_dict(), "size": full.length - 1}
    for name in COLUMNS:
        state[SAVED_NAMES.get(name, name)] = torch.ones_like(getattr(full, name))
    ring = full.obs.nbytes
    del full
    base = base_now()
    ring_of(1, 20_000, stack=4, obs=frame).load_state_dict(state)
    return {"growth": resident("VmHWM") - base, "ring": ring}


WORK = {"run": run_grown, "data": loaded_data, "ring": loaded_ring}

if __name__ == "__main__":
    print(json.dumps(WORK[sys.argv[1]](*sys.argv[2:])))  # noqa: T201 - to who started it
