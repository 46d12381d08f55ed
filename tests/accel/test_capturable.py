"""Captured updates on the meta device, which has no values: nothing may cross to the host or wait for a value.

Torch's ``meta`` device stands for the GPU. On it shapes and places are real and numbers are not, so whatever would
wait for a GPU, or copy something from the host, fails or is counted here.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import adam, optimizer, rmsprop
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks import rigs
from benchmarks.rigs import CELLS, rig
from rlbench.assembly import assemble
from rlbench.config.run import Runtime
from rlbench.seeds import Seeds
from rlbench.training.updates import EagerUpdater
from tests.slow import slow_but

META = torch.device("meta")


class Elsewhere(torch.Generator):
    """A generator that reports the GPU as its device."""

    @property
    def device(self) -> torch.device:
        return META


class TransferMonitor(TorchDispatchMode):
    """Sees every operation, those of gradients too."""

    def __init__(self) -> None:
        super().__init__()
        self.crossings: set[str] = set()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        name = func.overloadpacket.__name__
        result = None if name == "_fused_adam_" else func(*args, **(kwargs or {}))
        places = {x.device.type for x in tree_leaves((args, kwargs, result)) if isinstance(x, Tensor)}
        if places - {"meta"} or name in {"lift_fresh", "lift_fresh_copy", "_local_scalar_dense", "nonzero"}:
            self.crossings.add(f"{func} on {sorted(places)}")
        return result


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "device_of", lambda _: META)
    monkeypatch.setattr(Seeds, "torch", lambda seeds, _: Elsewhere().manual_seed(seeds.number()))
    monkeypatch.setattr(rigs, "ROWS", 0)  # what is stored has no numbers either
    for module in (optimizer, adam, rmsprop):
        for supported in ("_get_fused_kernels_supported_devices", "_get_capturable_supported_devices"):
            monkeypatch.setattr(module, supported, lambda: ["meta"], raising=False)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("cell", slow_but(CELLS, 0, 9, 17))
def test_captured_updates_never_leave_the_device(cell: str) -> None:
    run = rig(cell, Runtime(device="cpu", threads=1, update_engine="eager"))
    assert isinstance(run.updater, EagerUpdater)
    cycle = run.updater.learner.cycle_length
    with TransferMonitor():
        run.updater.run(0, cycle)  # optimizers begin: before anything is captured
    with TransferMonitor() as monitor:
        run.updater.run(cycle, cycle)
        for periodic in run.updater.learner.periodic_actions:
            periodic.action()
    assert monitor.calls > 10 * cycle
    assert monitor.crossings == set()


CROSSINGS: dict[str, Callable[[Tensor], object]] = {
    "a number of the host's": lambda x: x * torch.ones(()),
    "numbers brought along": lambda x: x + torch.ones(3).to(META),
}
"""Beside a tensor of Python's numbers, which only the recorder of test_graph_capture.py notices."""


@pytest.mark.parametrize("work", CROSSINGS)
def test_transfer_to_the_host_is_detected(work: str) -> None:
    x = torch.ones(3, device=META)
    with TransferMonitor() as monitor:
        CROSSINGS[work](x)
    assert monitor.crossings


def test_item_on_a_meta_tensor_fails() -> None:
    x = torch.ones(3, device=META)
    for work in (lambda: x.sum().item(), lambda: x[x > 0], lambda: bool(x.sum() > 0)):
        with pytest.raises((RuntimeError, NotImplementedError)):
            work()
