"""Memory of a run: ``python -m tests.reliability.measured SUITE ALGO TASK FOLDER FIELD=VALUE…`` as JSON.

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
from rlbench.assembly.environments import environments
from rlbench.buffers.ring import RingBuffer
from rlbench.config.footprint import footprint
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.run import run
from rlbench.signals import Stop
from tests.forging import locked


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


def measure(spec: Spec, folder: Path, dataset: str | None = None) -> dict[str, int]:
    """Run it, and tell base, growth at its peak and what was foreseen."""
    rlbench.run.build = fill
    warm(spec)
    Path("/proc/self/clear_refs").write_text("5")
    base = resident("VmRSS")
    store = locked(spec, folder)
    for _ in run(spec, Runtime(device="cpu", threads=1, dataset=dataset), store, Stop()):
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


if __name__ == "__main__":
    suite, algorithm, task, folder, *changes = sys.argv[1:]
    dataset = next((c.removeprefix("dataset=") for c in changes if c.startswith("dataset=")), None)
    settings = [parse(change) for change in changes if not change.startswith("dataset=")]
    print(json.dumps(measure(apply_settings(suites.spec(suite, algorithm, task), settings), Path(folder), dataset)))  # noqa: T201 - to who started it
