"""Properties of every online learner on every network; new learners are added to the list."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rlbench import suites
from rlbench.algorithms.base import OffPolicyLearner
from rlbench.algorithms.discrete_sac import DiscreteSAC
from rlbench.algorithms.dqn import QLearner
from rlbench.algorithms.sac import SAC
from rlbench.algorithms.td3 import TD3
from rlbench.assembly.assemble import build
from rlbench.assembly.environments import describe
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.envs.base import Discrete, EnvInfo
from rlbench.ops.types import Transition
from tests.algorithms.contract import compiles_whole, cycled, drawn_from_their_seed, goes_on
from tests.slow import slow_but

CELLS = (
    "toy/dqn/CartPole-v1",
    "atari/dqn/PongNoFrameskip-v4",
    "atari/sac/PongNoFrameskip-v4",
    "toy/sac/Catch",
    *(f"toy/{algorithm}/Catch" for algorithm in ("dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow")),
    *(f"toy/{algorithm}/Pendulum-v1" for algorithm in ("ddpg", "td3", "sac", "redq")),
    *(f"mujoco/{algorithm}/Hopper-v4" for algorithm in ("ddpg", "td3", "sac", "redq")),
)


def spec_of(cell: str) -> Spec:
    suite, algorithm, task = cell.split("/")
    spec = suites.spec(suite, algorithm, task)
    return apply_settings(spec, [parse("algo.replay.capacity=400"), parse("algo.batch=6")])


def made(cell: str, seed: int = 0) -> tuple[OffPolicyLearner[Transition], Transition, EnvInfo]:
    spec = spec_of(cell).model_copy(update={"seed": seed})
    info = describe(spec)
    learner = build(spec, Runtime(device="cpu", threads=1), info).learner
    assert isinstance(learner, QLearner | TD3 | SAC | DiscreteSAC)
    shape = (6, *((spec.task.stack,) if spec.task.stack > 1 else ()), *info.obs_shape)
    generator = torch.Generator().manual_seed(1)

    def observations() -> Tensor:
        if info.obs_dtype == "uint8":
            return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        return torch.randn(shape, generator=generator)

    if isinstance(info.actions, Discrete):
        action = torch.randint(0, info.actions.n, (6,), generator=generator)
    else:
        action = torch.rand((6, *info.actions.low.shape), generator=generator) * 2 - 1
    batch = Transition(
        obs=observations(),
        action=action,
        reward=torch.randn(6, generator=generator),
        discount=torch.full((6,), 0.97),
        next_obs=observations(),
        weight=torch.tensor([1.0, 1, 1, 1, 1, 0]),
        slot=torch.arange(6),
    )
    return learner, batch, info


def networks(learner: OffPolicyLearner[Transition]) -> dict[str, nn.Module]:
    """What learns, by name; targets follow and are not among them."""
    match learner:
        case QLearner():
            return {"online": learner.online}
        case TD3() | SAC():
            return {"actor": learner.actor, "critics": learner.critics}
        case DiscreteSAC():
            return {"net": learner.net}
        case _:
            raise TypeError(type(learner).__name__)


def losses(learner: OffPolicyLearner[Transition]) -> dict[str, Callable[[Transition], Tensor]]:
    """Every loss as a function of the batch alone, by the network that it teaches."""
    match learner:
        case QLearner():
            return {"online": lambda batch: learner.loss(batch)[0]}
        case TD3():
            return {"critics": lambda batch: learner.critic_loss(batch)[0], "actor": learner.policy_loss}
        case SAC():
            return {
                "critics": lambda batch: learner.critic_loss(batch)[0],
                "actor": lambda batch: learner.policy_loss(batch)[0],
            }
        case DiscreteSAC():
            return {"net": lambda batch: _all_of(learner, batch)}
        case _:
            raise TypeError(type(learner).__name__)


def _all_of(learner: DiscreteSAC, batch: Transition) -> Tensor:
    goal = learner.td_target(batch)
    critics = [learner.critic_loss(batch, goal, member)[0] for member in range(2)]
    return learner.policy_loss(batch)[0] + torch.stack(critics).sum()


@pytest.fixture(params=CELLS)
def cell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_cycle_of_updates_changes_every_parameter_that_learns(cell: str) -> None:
    learner, batch, _ = made(cell)
    before = {n: {k: v.clone() for k, v in net.named_parameters()} for n, net in networks(learner).items()}
    for phase in range(learner.cycle):
        learner.update(batch, phase)
    for name, net in networks(learner).items():
        assert {k for k, v in net.named_parameters() if not torch.equal(v, before[name][k])} == set(before[name])


@pytest.mark.parametrize(
    "cell", [c for c in CELLS if not c.endswith(("Pendulum-v1", "Hopper-v4")) and "/sac/" not in c]
)
def test_copied_target_is_constant_until_its_interval(cell: str) -> None:
    learner, batch, _ = made(cell)
    assert isinstance(learner, QLearner)
    target = [v.clone() for v in learner.target.parameters()]
    learner.update(batch)
    assert all(torch.equal(a, b) for a, b in zip(target, learner.target.parameters(), strict=True))


def test_actions_are_within_bounds_and_carry_no_gradient(cell: str) -> None:
    learner, batch, info = made(cell)
    for role in ("act", "eval"):
        action = learner.act(batch.obs, role)
        assert not action.requires_grad
        if isinstance(info.actions, Discrete):
            assert action.dtype == torch.int64
            assert action.shape == (6,)
            assert int(action.min()) >= 0
            assert int(action.max()) < info.actions.n
        else:
            assert action.dtype == torch.float32
            assert action.shape == (6, *info.actions.low.shape)
            assert float(action.abs().max()) <= 1


def test_a_row_of_weight_zero_has_no_effect(cell: str) -> None:
    one, batch, _ = made(cell)
    other, _, _ = made(cell)
    spoiled = batch._replace(reward=batch.reward.clone(), discount=batch.discount.clone(), obs=batch.obs.clone())
    spoiled.reward[5], spoiled.discount[5] = 100.0, 0.0
    if spoiled.obs.is_floating_point():
        spoiled.obs[5] += 1.0
    for learner, seen in ((one, batch), (other, spoiled)):
        torch.manual_seed(2)
        cycled(learner, seen)
    for name, net in networks(one).items():
        for ours, theirs in zip(net.parameters(), networks(other)[name].parameters(), strict=True):
            assert torch.equal(ours, theirs), name


def test_priorities_are_not_negative_and_one_per_row(cell: str) -> None:
    learner, batch, _ = made(cell)
    priority = learner.update(batch, 0).priority
    assert priority.shape == (6,)
    assert bool((priority >= 0).all())


def test_learner_restored_from_its_state_continues_exactly(cell: str) -> None:
    one, batch, _ = made(cell)
    cycled(one, batch)
    one.update(batch, 0)
    goes_on(one, made(cell, seed=7)[0], lambda learner, time: learner.update(batch, (1 + time) % learner.cycle))


def test_equal_seeds_draw_equal_networks_and_others_do_not(cell: str) -> None:
    drawn_from_their_seed(lambda seed: made(cell, seed)[0])


@pytest.mark.parametrize("cell", slow_but(CELLS, 4))
def test_every_loss_compiles_without_graph_breaks(cell: str) -> None:
    learner, batch, _ = made(cell)
    # the partitioner of aot_eager may draw a layer's or a policy's numbers in another order, and they would not compare
    draws = "rainbow" in cell or not isinstance(learner, QLearner)
    for name, loss in losses(learner).items():
        compiles_whole(loss, networks(learner)[name], batch, "eager" if draws else "aot_eager")
