"""What every learner promises, on every network it is built with; one list, to which each new learner is added."""

from __future__ import annotations

import pytest
import torch

from rlbench import suites
from rlbench.build.assemble import build
from rlbench.build.environments import describe
from rlbench.learners.qlearning import QLearner
from rlbench.ops.types import Transition
from rlbench.spec.override import applied, parse
from rlbench.spec.run import Runtime, Spec

CELLS = (
    "toy/dqn/CartPole-v1",
    "atari/dqn/PongNoFrameskip-v4",
    *(f"toy/{algorithm}/Catch" for algorithm in ("dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow")),
)


def spec_of(cell: str) -> Spec:
    suite, algorithm, task = cell.split("/")
    spec = suites.spec(suite, algorithm, task)
    return applied(spec, [parse("algo.replay.capacity=400"), parse("algo.batch=6")])


def made(cell: str, seed: int = 0) -> tuple[QLearner, Transition, int]:
    spec = spec_of(cell).model_copy(update={"seed": seed})
    info = describe(spec)
    learner = build(spec, Runtime(device="cpu", threads=1), info).learner
    assert isinstance(learner, QLearner)
    shape = (6, *((spec.task.stack,) if spec.task.stack > 1 else ()), *info.obs_shape)
    generator = torch.Generator().manual_seed(1)

    def observations() -> torch.Tensor:
        if info.obs_dtype == "uint8":
            return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        return torch.randn(shape, generator=generator)

    actions = info.actions.n
    batch = Transition(
        obs=observations(),
        action=torch.randint(0, actions, (6,), generator=generator),
        reward=torch.randn(6, generator=generator),
        discount=torch.full((6,), 0.97),
        next_obs=observations(),
        weight=torch.tensor([1.0, 1, 1, 1, 1, 0]),
        slot=torch.arange(6),
    )
    return learner, batch, actions


@pytest.fixture(params=CELLS)
def cell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_an_update_changes_every_parameter_that_learns_and_no_other(cell: str) -> None:
    learner, batch, _ = made(cell)
    before = {k: v.clone() for k, v in learner.policy().named_parameters()}
    target = [v.clone() for v in learner.target.parameters()]
    learner.update(batch)
    changed = {k for k, v in learner.policy().named_parameters() if not torch.equal(v, before[k])}
    assert changed == set(before)
    assert all(torch.equal(a, b) for a, b in zip(target, learner.target.parameters(), strict=True))


def test_actions_are_whole_numbers_within_bounds(cell: str) -> None:
    learner, batch, actions = made(cell)
    for role in ("act", "eval"):
        action = learner.act(batch.obs, role)
        assert action.dtype == torch.int64
        assert action.shape == (6,)
        assert int(action.min()) >= 0
        assert int(action.max()) < actions
        assert not action.requires_grad


def test_a_row_of_weight_zero_has_no_effect(cell: str) -> None:
    one, batch, _ = made(cell)
    other, _, _ = made(cell)
    spoiled = batch._replace(reward=batch.reward.clone(), discount=batch.discount.clone())
    spoiled.reward[5], spoiled.discount[5] = 100.0, 0.0
    torch.manual_seed(2)
    a = one.update(batch)
    torch.manual_seed(2)
    b = other.update(spoiled)
    assert torch.equal(a.loss, b.loss)
    for ours, theirs in zip(one.policy().parameters(), other.policy().parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_priorities_are_not_negative_and_one_per_row(cell: str) -> None:
    learner, batch, _ = made(cell)
    priority = learner.update(batch).priority
    assert priority.shape == (6,)
    assert bool((priority >= 0).all())


def test_a_learner_goes_on_from_its_state_as_if_it_had_never_stopped(cell: str) -> None:
    one, batch, _ = made(cell)
    one.update(batch)
    one.sync()
    one.update(batch)
    other, _, _ = made(cell, seed=7)
    other.load_state_dict(one.state_dict())
    for seed in range(2):
        for learner in (one, other):
            torch.manual_seed(seed)
            learner.update(batch)
    for ours, theirs in zip(one.policy().parameters(), other.policy().parameters(), strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(one.target.parameters(), other.target.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_equal_seeds_draw_equal_networks_and_others_do_not(cell: str) -> None:
    first, again, other = (list(made(cell, seed=s)[0].policy().parameters()) for s in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_the_loss_compiles_whole(cell: str) -> None:
    learner, batch, _ = made(cell)
    torch._dynamo.reset()
    # the partitioner of aot_eager may draw a noisy layer's numbers in another order, and they would not compare
    compiled = torch.compile(learner.loss, fullgraph=True, backend="eager" if "rainbow" in cell else "aot_eager")
    torch.manual_seed(4)
    loss, _ = compiled(batch)
    torch.manual_seed(4)
    plain, _ = learner.loss(batch)
    torch.testing.assert_close(loss, plain)
    slopes = torch.autograd.grad(loss, list(learner.policy().parameters()))
    wanted = torch.autograd.grad(plain, list(learner.policy().parameters()))
    for ours, theirs in zip(slopes, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)
