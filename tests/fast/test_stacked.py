"""Learners side by side against the same learners alone: the draws of each to the bit, its weights within rounding."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from rlbench import suites
from rlbench.build.assemble import build
from rlbench.build.environments import describe
from rlbench.build.stacked import Member, stack
from rlbench.fast.noise import Stream
from rlbench.fast.stacked import Draws
from rlbench.fast.updater import Eager
from rlbench.learners.base import descend
from rlbench.ops.state import State
from rlbench.ops.types import Transition
from rlbench.spec.override import applied, parse
from rlbench.spec.run import Runtime

SMALL = (
    "budget.epoch=100", "algo.replay.capacity=200", "algo.warmup=50", "algo.batch=8", "algo.widths=16,16",
)  # fmt: skip
CELLS = (
    ("ddpg", ()),
    ("td3", ()),
    ("sac", ()),
    ("sac", ("algo.action_units=environment",)),
    ("redq", ("algo.updates_per_step=1",)),
)
MORE = 7  # updates, so that a cycle's end is among them


def waiting(algorithm: str, seed: int, changes: tuple[str, ...]) -> Member:
    """A run that has made its first cycle of updates."""
    spec = applied(suites.spec("toy", algorithm, "Pendulum-v1", seed=seed), [parse(c) for c in (*SMALL, *changes)])
    member = Member(torch.device("cpu"))
    with member.stream:
        trainer = build(spec, Runtime(device="cpu", threads=1, engine="eager"), describe(spec))
        member.join(trainer)
        trainer.clock.epochs = 1
        records = iter(trainer)
        while not member.due.count:
            next(records)
        member.due.eager.run(0, trainer.learner.cycle)
    return member


def tensors(state: State, prefix: str = "") -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        found |= tensors(value, f"{prefix}{name}.") if isinstance(value, dict) else {}
        found |= {prefix + name: value} if isinstance(value, Tensor) else {}
    return found


def state_of(run: Eager[Transition]) -> dict[str, Tensor]:
    learner, source = run.learner, run.source
    return tensors({"learner": learner.state_dict(), "metrics": run.state_dict(), "source": source.state_dict()})


@pytest.mark.parametrize(("algorithm", "changes"), CELLS)
def test_every_seed_learns_from_its_own_draws_what_it_would_alone(algorithm: str, changes: tuple[str, ...]) -> None:
    members = [waiting(algorithm, seed, changes) for seed in range(3)]
    first = members[0].due.eager.learner.cycle
    alone = copy.deepcopy([(member.due.eager, member.stream.own.get_state()) for member in members])
    stack(members).run(first, MORE + first)
    for member, (twin, stream) in zip(members, alone, strict=True):
        torch.set_rng_state(stream)
        twin.run(first, MORE + first)
        assert torch.equal(member.stream.own.get_state(), torch.get_rng_state())
        ours, theirs = state_of(member.due.eager), state_of(twin)
        assert ours.keys() == theirs.keys()
        assert member.due.eager.metrics.count == twin.metrics.count
        for name, value in theirs.items():
            assert torch.allclose(ours[name].double(), value.double(), rtol=1e-4, atol=1e-5), name


def test_a_seed_that_is_broken_leaves_the_others_as_they_were() -> None:
    members = [waiting("sac", seed, ()) for seed in range(3)]
    twins = copy.deepcopy(members)
    with torch.no_grad():
        next(members[1].due.eager.learner.policy().parameters()).fill_(torch.nan)
    for those in (members, twins):
        stack(those).run(1, 4)
    for i in (0, 2):
        ours, theirs = (state_of(those[i].due.eager) for those in (members, twins))
        assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    assert state_of(members[1].due.eager)["learner.held"].isnan().any()


def test_who_was_parted_from_the_others_moves_nobody_else() -> None:
    members = [waiting("td3", seed, ()) for seed in range(2)]
    together = stack(members)
    together.run(2, 1)
    together.part()
    before = {name: value.clone() for name, value in state_of(members[1].due.eager).items()}
    members[0].due.eager.run(3, 2)
    after = state_of(members[1].due.eager)
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_a_step_down_is_the_same_for_slopes_that_lie_otherwise_in_memory() -> None:
    """As a map over seeds gives them; the fused kernel reads memory as it comes."""

    class Turned(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: object, x: Tensor) -> Tensor:
            return x.sum()

        @staticmethod
        def backward(_ctx: object, *_: Tensor) -> Tensor:
            return torch.arange(6.0).view(3, 2).T

    weight = nn.Parameter(torch.zeros(2, 3))
    optimizer = torch.optim.Adam([weight], lr=1.0, fused=True)
    for _ in range(2):  # the second is the kernel's alone
        descend(Turned.apply(weight), (optimizer,))
    assert torch.equal(optimizer.state[weight]["exp_avg"] > 0, torch.arange(6.0).view(3, 2).T > 0)


def test_numbers_that_nobody_knows_how_to_draw_for_each_seed_are_refused() -> None:
    with Draws([torch.Generator()], torch.tensor(0)), pytest.raises(NotImplementedError, match="uniform"):
        torch.empty(3).uniform_()


def test_a_stream_goes_on_where_it_stopped_whatever_others_draw() -> None:
    stream = Stream(None)
    with stream:
        torch.manual_seed(3)
        found = [torch.randn(1)]
    torch.randn(5)
    found.append(torch.randn(1, generator=stream.own))
    with stream:
        found.append(torch.randn(1))
    torch.manual_seed(3)
    assert torch.equal(torch.cat(found), torch.cat([torch.randn(1) for _ in range(3)]))
