"""Properties of every on-policy learner on every network; new learners are added to the list."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlbench import suites
from rlbench.algorithms.onpolicy import RolloutBatch
from rlbench.algorithms.ppo import PPO
from rlbench.algorithms.reinforce import REINFORCE
from rlbench.algorithms.trpo import TRPO
from rlbench.assembly import policy_gradient
from rlbench.assembly.assemble import build
from rlbench.assembly.environments import describe
from rlbench.buffers.rollout_view import newest_rollout
from rlbench.config.online import PolicyGradientConfig
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.envs.base import Discrete, EnvInfo
from rlbench.ops.types import Rollout
from rlbench.training.online import OnlineTrainer
from tests.algorithms.contract import alike, check_actions, compiles_whole, drawn_from_their_seed, goes_on
from tests.slow import slow_but

FIVE = ("reinforce", "a2c", "ppo", "npg", "trpo")
CELLS = tuple(
    f"{suite}/{algorithm}/{task}"
    for suite, task in (("mujoco", "Hopper-v4"), ("toy", "CartPole-v1"), ("toy", "Catch"))
    for algorithm in FIVE
)
ROWS, ENVS = 6, 3
Learner = PPO | TRPO | REINFORCE


def spec_of(cell: str) -> Spec:
    changes = [f"task.envs={ENVS}", f"algo.rollout_length={ROWS}", "algo.torso.widths=8,8"]
    if "ppo" in cell:
        changes += ["algo.method.minibatches=3", "algo.method.epochs=2"]
    return apply_settings(suites.spec(*cell.split("/")), [parse(change) for change in changes])


def built(cell: str, seed: int = 0) -> tuple[OnlineTrainer, EnvInfo]:
    spec = spec_of(cell).model_copy(update={"seed": seed})
    info = describe(spec)
    return build(spec, Runtime(device="cpu", threads=1), info), info


def learner_and_rollout(cell: str, seed: int = 0) -> tuple[Learner, Rollout, EnvInfo]:
    """A learner and a rollout that it could have made, whose middle env ends twice."""
    trainer, info = built(cell, seed)
    learner = trainer.learner
    assert isinstance(learner, Learner)
    generator = torch.Generator().manual_seed(1)
    shape = (ROWS + 1, ENVS, *info.obs_shape)
    if info.obs_dtype == "uint8":
        obs = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    else:
        obs = torch.randn(shape, generator=generator)
    terminated, done, final = (torch.zeros(ROWS, ENVS, dtype=torch.bool) for _ in range(3))
    terminated[0, 1] = done[0, 1] = final[1, 1] = True
    done[3, 1] = final[4, 1] = True
    torch.manual_seed(1)
    action = learner.act(obs[:-1].flatten(0, 1), "act").unflatten(0, (ROWS, ENVS))
    reward = torch.randn(ROWS, ENVS, generator=generator) * ~final
    return learner, Rollout(obs, action, reward, terminated, done, final), info


@pytest.fixture(params=CELLS)
def cell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_an_update_changes_every_parameter_that_learns(cell: str) -> None:
    learner, rollout, _ = learner_and_rollout(cell)
    before = {name: value.clone() for name, value in learner.policy_net().named_parameters()}
    for _ in range(2):
        learner.update(rollout)
    unmoved = {name for name, value in learner.policy_net().named_parameters() if torch.equal(value, before[name])}
    assert not unmoved


def test_reported_metrics_are_finite(cell: str) -> None:
    learner, rollout, _ = learner_and_rollout(cell)
    for value in learner.update(rollout).values():
        assert value.shape == () and not value.requires_grad and bool(value.isfinite())


def test_nothing_in_a_dead_row_has_an_effect(cell: str) -> None:
    """But what it shows after a truncation, which is bootstrapped from."""
    (one, rollout, info), (other, _, _) = learner_and_rollout(cell), learner_and_rollout(cell)
    spoiled = rollout._replace(obs=rollout.obs.clone(), action=rollout.action.clone(), reward=rollout.reward.clone())
    spoiled.reward[rollout.final] = 100.0
    spoiled.obs[1, 1] = rollout.obs[5, 2]
    for row in (1, 4):
        if isinstance(info.actions, Discrete):
            spoiled.action[row, 1] = (spoiled.action[row, 1] + 1) % info.actions.n
        else:
            spoiled.action[row, 1] += 0.5
    for learner, data in ((one, rollout), (other, spoiled)):
        torch.manual_seed(2)
        for _ in range(2):
            learner.update(data)
    alike(one, other)


def test_actions_have_the_right_type_and_bounds_without_gradient(cell: str) -> None:
    learner, rollout, info = learner_and_rollout(cell)
    bound = policy_gradient.env_action_map(spec_of(cell).algo, info)
    for role in ("act", "eval"):
        action = learner.act(rollout.obs[0], role)
        check_actions(action, info, ENVS)
        if isinstance(info.actions, Discrete):
            assert bound is None
        else:
            assert float(bound(action * 100).abs().max()) <= 1
            torch.testing.assert_close(bound(0.01 * action), 0.01 * action, rtol=1e-3, atol=1e-6)


def test_learner_restored_from_its_state_continues_exactly(cell: str) -> None:
    one, rollout, _ = learner_and_rollout(cell)
    one.update(rollout)
    goes_on(one, learner_and_rollout(cell, seed=7)[0], lambda learner, _: learner.update(rollout))


def test_equal_seeds_draw_equal_networks_and_others_do_not(cell: str) -> None:
    drawn_from_their_seed(lambda seed: built(cell, seed)[0].learner)


def losses(learner: Learner) -> list[tuple[Callable[[RolloutBatch], Tensor], nn.Module]]:
    """Every loss as a function of a lesson alone, and the network that it teaches."""
    match learner:
        case PPO():
            return [(lambda batch: learner.loss(batch)[0], learner.net)]
        case TRPO():
            surrogate = lambda batch: learner.policy_loss(learner.net.actor(batch.obs), batch)
            return [(surrogate, learner.net.actor), (learner.value_loss, learner.net.critic)]
        case REINFORCE():
            loss = lambda b: learner.loss(b.obs, b.action, b.advantage, b.weight)[0]
            return [(loss, learner.actor)]


@pytest.mark.parametrize("cell", slow_but([c for c in CELLS if "CartPole" not in c and "npg" not in c], 0))
def test_every_loss_compiles_without_graph_breaks(cell: str) -> None:
    learner, rollout, _ = learner_and_rollout(cell)
    rows = ROWS * ENVS
    batch = RolloutBatch(
        obs=rollout.obs[:-1].flatten(0, 1),
        action=rollout.action.flatten(0, 1),
        log_prob=-torch.rand(rows),
        value=torch.randn(rows),
        advantage=torch.randn(rows),
        value_target=torch.randn(rows),
        weight=(~rollout.final).flatten().float(),
    )
    for loss, net in losses(learner):
        compiles_whole(loss, net, batch)


@pytest.mark.parametrize("cell", ["mujoco/ppo/InvertedPendulum-v4", "mujoco/trpo/InvertedPendulum-v4"])
def test_learning_rate_decays_linearly_to_zero(cell: str) -> None:
    """At each update it is that of the steps made before the rollout's last, as in the documented schedule but one."""
    spec = apply_settings(
        spec_of(cell), [parse(c) for c in ("algo.lr_decay_steps=72", "budget.steps=120", "budget.epoch=120")]
    )
    algo = spec.algo
    assert isinstance(algo, PolicyGradientConfig)
    trainer = build(spec, Runtime(device="cpu", threads=1), describe(spec))
    learner = trainer.learner
    assert isinstance(learner, PPO | TRPO)
    plain, rates, steps = learner.update, [], []

    def update(rollout: Rollout) -> object:
        (group,) = learner.optimizer.param_groups
        rates.append(group["lr"])
        steps.append(trainer.clock.env_steps)
        return plain(rollout)

    learner.update = update
    for _ in trainer:
        pass
    assert len(rates) > 120 // (ROWS * ENVS) - 1
    for rate, done in zip(rates, steps, strict=True):
        least, most = (algo.lr * max(0.0, 1 - s / 72) for s in (done, done - ENVS))
        assert least - 1e-12 <= rate <= most + 1e-12
    assert rates[-1] == 0
    assert all(np.diff(rates) <= 0)
    weights = [p.clone() for p in learner.policy_net().parameters()]
    if isinstance(learner, PPO):  # nothing moves any more
        plain(newest_rollout(trainer.buffer, ROWS))
        assert all(torch.equal(a, b) for a, b in zip(weights, learner.policy_net().parameters(), strict=True))
