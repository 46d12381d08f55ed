"""Gradient steps: only the optimizer's parameters change, and the fused Adam equals torch's."""

import copy

import pytest
import torch
from torch import nn

from rlbench.algorithms import steps
from rlbench.algorithms.steps import optimize, optimizer_step
from rlbench.ops.state_dict import load_optimizer, optimizer_state
from tests.algorithms.recorded import same_parameters


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))


def adam(net: nn.Module, **options: object) -> torch.optim.Adam:
    return torch.optim.Adam(net.parameters(), lr=1e-2, **{"fused": True, **options})


OPTIMIZERS = (
    {}, {"betas": (0.5, 0.9), "eps": 1e-5}, {"fused": False}, {"weight_decay": 0.1}, {"amsgrad": True},
    {"maximize": True},
)  # fmt: skip


@pytest.mark.parametrize("options", OPTIMIZERS, ids=str)
def test_step_equals_the_optimizers_step_bit_for_bit(options: dict[str, object]) -> None:
    ours, theirs = network(), network()
    short, long = adam(ours, **options), adam(theirs, **options)
    for number in range(30):
        x = torch.randn(11, 5, generator=torch.Generator().manual_seed(number))
        if number == 20:  # a schedule's way of setting the rate
            for optimizer in (short, long):
                optimizer.param_groups[0]["lr"] = 5e-3
        optimize(ours(x).square().mean(), short)
        long.zero_grad()
        theirs(x).square().mean().backward()
        long.step()
    same_parameters(ours, theirs, rtol=0, atol=0)
    mine, other = optimizer_state(short), optimizer_state(long)
    assert all(torch.equal(mine[key], other[key]) for key in other)


def test_fused_kernel_is_used_only_for_plain_fused_adam(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = []
    kernel = torch._fused_adam_
    monkeypatch.setattr(steps.torch, "_fused_adam_", lambda *a, **k: kernels.append(1) or kernel(*a, **k))
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: pytest.fail("the long way"))
    net = network()
    plain = adam(net)
    load_optimizer(plain, optimizer_state(begun()))
    optimize(net(torch.ones(1, 5)).sum(), plain)
    assert kernels == [1]
    for options in OPTIMIZERS[2:]:
        with pytest.raises(pytest.fail.Exception, match="the long way"):
            optimizer_step(begun_like(copy.deepcopy(net), options))


def test_optimizer_inspected_before_its_first_step_works() -> None:
    ours, theirs = network(), network()
    short, long = adam(ours), adam(theirs)
    optimizer_state(short)  # as a checkpoint of a run that has not learned yet does
    for net, optimizer in ((ours, short), (theirs, long)):
        for _ in range(2):
            optimize(net(torch.ones(4, 5)).sum(), optimizer)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def begun() -> torch.optim.Adam:
    """An optimizer of such a network that has made a step, by kernels of its own."""
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for parameter in net.parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(1.0),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.ones_like(parameter),
        }
    return optimizer


def begun_like(net: nn.Module, options: dict[str, object]) -> torch.optim.Adam:
    optimizer = adam(net, **options)
    load_optimizer(optimizer, optimizer_state(begun()))
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return optimizer


def test_only_the_optimizers_parameters_change_or_keep_gradients() -> None:
    ours, other = network(), nn.Linear(3, 1)
    optimizer = adam(ours)
    before = [p.detach().clone() for p in other.parameters()]
    for _ in range(2):
        optimize(other(ours(torch.ones(4, 5))).sum(), optimizer)
    assert all(torch.equal(p, b) and p.grad is None for p, b in zip(other.parameters(), before, strict=True))


def test_gradient_norm_is_clipped() -> None:
    net = nn.Linear(2, 1, bias=False)
    net.weight.data.fill_(0.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    optimize((net(torch.tensor([[30.0, 40.0]]))).sum(), optimizer, max_norm=5.0)
    assert torch.allclose(net.weight, torch.tensor([[-3.0, -4.0]]), atol=1e-4)


class Transposed(torch.autograd.Function):
    """A sum whose gradient ``[2, 3]`` lies in memory column by column."""

    @staticmethod
    def forward(_ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.sum()

    @staticmethod
    def backward(_ctx: object, *_: torch.Tensor) -> torch.Tensor:
        return torch.arange(6.0).view(3, 2).T


def test_gradient_of_any_memory_layout_updates_its_parameter() -> None:
    """The fused kernel reads memory as it comes."""
    weight = nn.Parameter(torch.zeros(2, 3))
    optimizer = torch.optim.Adam([weight], lr=1.0, fused=True)
    for _ in range(2):  # the second is the kernel's alone
        optimize(Transposed.apply(weight), optimizer)
    torch.testing.assert_close(optimizer.state[weight]["exp_avg"], (1 - 0.9**2) * torch.arange(6.0).view(3, 2).T)


def test_loaded_moments_have_their_parameters_memory_layout() -> None:
    """A checkpoint stores row by row; the fused kernel would add the moments of other elements."""
    weight = nn.Parameter(torch.zeros(3, 2).T)
    optimizer = torch.optim.Adam([weight], lr=1.0, fused=True)
    moments = torch.arange(6.0).view(2, 3)
    load_optimizer(optimizer, {"0.step": torch.tensor(1.0), "0.exp_avg": moments, "0.exp_avg_sq": moments})
    loaded = optimizer.state[weight]["exp_avg"]
    assert loaded.stride() == weight.stride() == (1, 2)
    assert torch.equal(loaded, moments)
