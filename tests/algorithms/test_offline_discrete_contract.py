"""Properties of every offline learner with discrete actions; new learners are added to the list."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rlbench import suites
from rlbench.algorithms.behavior_cloning import Imitation
from rlbench.algorithms.discrete_offline import DiscreteCRR
from rlbench.algorithms.dqn import QLearner
from rlbench.assembly.components import OfflineParts
from rlbench.assembly.environments import describe
from rlbench.assembly.offline_discrete import discrete_parts
from rlbench.config import offline_discrete as asked
from rlbench.config.offline_discrete import OfflineQ
from rlbench.config.online import Categorical, Expected, Head, Implicit, Proposed, Quantiles
from rlbench.errors import UsageError
from rlbench.nets.discrete_actor_critic import QNetWithPolicy
from rlbench.ops.types import Transition
from tests.algorithms.contract import compiles_whole, goes_on
from tests.slow import slow_but

BATCH, CPU = 6, torch.device("cpu")
KINDS: dict[str, tuple[asked.Method, Head]] = {
    "il": (asked.DiscreteImitation(), Expected()),
    "bcq": (asked.DiscreteBatchConstrained(), Expected(huber=1.0)),
    "bcq of fractions": (asked.DiscreteBatchConstrained(), Implicit()),
    "cql": (asked.DiscreteConservative(), Quantiles(n_quantiles=9)),
    "cql of atoms": (asked.DiscreteConservative(), Categorical()),
    "cql of proposed fractions": (asked.DiscreteConservative(), Proposed(n_quantiles=5, lr=1e-3)),
    "crr": (asked.DiscreteCriticRegularized(mode="all"), Expected()),
    "crr with cql": (asked.DiscreteCriticRegularized(conservative_weight=2.0), Expected()),
}
SPEC = suites.spec("offline", "bcq", "Catch")
INFO = describe(SPEC)


def brought(name: str, seed: int = 0) -> OfflineParts:
    assert isinstance(SPEC.algo, OfflineQ)
    method, head = KINDS[name]
    torch.manual_seed(seed)
    return discrete_parts(SPEC, SPEC.algo.model_copy(update={"method": method, "head": head, "hidden": 9}), INFO, CPU)


def made(name: str, seed: int = 0) -> tuple[Imitation | QLearner, Transition]:
    draw = torch.Generator().manual_seed(1)

    def boards() -> Tensor:
        return torch.randint(0, 256, (BATCH, 10, 5), generator=draw, dtype=torch.uint8)

    learner = brought(name, seed).learner
    assert isinstance(learner, Imitation | QLearner)
    return learner, Transition(
        obs=boards(),
        action=torch.randint(0, 3, (BATCH,), generator=draw),
        reward=torch.randn(BATCH, generator=draw),
        discount=torch.full((BATCH,), 0.97),
        next_obs=boards(),
        weight=torch.tensor([1.0, 1, 1, 1, 1, 0]),
        slot=torch.arange(BATCH),
    )


def net(learner: Imitation | QLearner) -> nn.Module:
    return learner.actor if isinstance(learner, Imitation) else learner.online


@pytest.fixture(params=KINDS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_an_update_changes_every_parameter_that_learns(name: str) -> None:
    learner, batch = made(name)
    before = {key: value.detach().clone() for key, value in net(learner).named_parameters()}
    learner.update(batch)
    assert not [key for key, value in net(learner).named_parameters() if torch.equal(value, before[key])]


def test_actions_are_valid_and_carry_no_gradient(name: str) -> None:
    learner, batch = made(name)
    for role in ("act", "eval"):
        action = learner.act(batch.obs, role)
        assert (action.dtype, action.shape, action.requires_grad) == (torch.int64, (BATCH,), False)
        assert 0 <= int(action.min()) <= int(action.max()) < 3


@pytest.mark.parametrize("name", sorted(set(KINDS) - {"cql of proposed fractions"}))  # FQF's loss counts every row
def test_a_row_of_weight_zero_has_no_effect(name: str) -> None:
    (one, batch), (other, _) = made(name), made(name)
    spoiled = batch._replace(obs=batch.obs.clone(), action=batch.action.clone(), reward=batch.reward.clone())
    spoiled.obs[5], spoiled.action[5], spoiled.reward[5] = 255 - spoiled.obs[5], (spoiled.action[5] + 1) % 3, 100.0
    for learner, seen in ((one, batch), (other, spoiled)):
        torch.manual_seed(2)
        for _ in range(2):
            learner.update(seen)
    assert all(torch.equal(a, b) for a, b in zip(net(one).parameters(), net(other).parameters(), strict=True))


def test_update_returns_finite_metrics_and_one_priority_per_row(name: str) -> None:
    learner, batch = made(name)
    report = learner.update(batch)
    assert report.priority.shape == (BATCH,)
    assert bool((report.priority >= 0).all())
    figures = report.metrics.values()
    assert all(x.shape == () and not x.requires_grad and bool(x.isfinite()) for x in figures)


def test_learner_restored_from_its_state_continues_exactly(name: str) -> None:
    one, batch = made(name)
    one.update(batch)
    goes_on(one, made(name, seed=7)[0], lambda learner, _: learner.update(batch))


def test_copied_target_is_constant_until_its_interval(name: str) -> None:
    learner, batch = made(name)
    if isinstance(learner, Imitation):
        assert learner.every == ()
        return
    before = [value.clone() for value in learner.target.parameters()]
    learner.update(batch)
    assert all(torch.equal(a, b) for a, b in zip(before, learner.target.parameters(), strict=True))
    (due,) = learner.every
    due.action()
    assert due.period == 50
    assert all(torch.equal(a, b) for a, b in zip(learner.online.parameters(), learner.target.parameters(), strict=True))


@pytest.mark.parametrize("name", slow_but(["il", "bcq", "cql", "crr with cql"], 0))
def test_every_loss_compiles_without_graph_breaks(name: str) -> None:
    learner, batch = made(name)
    compiles_whole(lambda seen: learner.loss(seen)[0], net(learner), batch)


def test_continuous_actions_are_refused_in_one_line() -> None:
    hopper = describe(suites.spec("offline", "il", "Hopper-v4"))
    assert isinstance(SPEC.algo, OfflineQ)
    with pytest.raises(UsageError, match=r"^offline/bcq/Catch: [^\n]*continuous actions[^\n]*$"):
        discrete_parts(SPEC, SPEC.algo, hopper, CPU)


def asked_for(method: asked.Method, head: Head, **changes: object) -> QLearner | Imitation:
    torch.manual_seed(0)
    assert isinstance(SPEC.algo, OfflineQ)
    learner = discrete_parts(
        SPEC, SPEC.algo.model_copy(update={"method": method, "head": head, **changes}), INFO, CPU
    ).learner
    assert isinstance(learner, Imitation | QLearner)
    return learner


def added(method: asked.Method, head: Head) -> float:
    learner = asked_for(method, head)
    assert isinstance(learner, QLearner)
    return learner.loss(made("bcq")[1])[1].metrics["extra"].item()


def test_weights_of_loss_terms_are_the_configured_ones() -> None:
    light, heavy = (
        added(asked.DiscreteConservative(conservative_weight=weight), Quantiles(n_quantiles=9)) for weight in (1.5, 6.0)
    )
    assert light > 0 and heavy == pytest.approx(4 * light, rel=1e-5)
    none, some, more = (added(asked.DiscreteBatchConstrained(penalty=p), Expected(huber=1.0)) for p in (0.0, 3.0, 6.0))
    assert some > none and more - none == pytest.approx(2 * (some - none), rel=1e-3)


def test_threshold_is_the_configured_one() -> None:
    obs = torch.randint(0, 256, (300, 10, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    likeliest, best = (asked_for(asked.DiscreteBatchConstrained(threshold=t), Expected(huber=1.0)) for t in (1.0, 0.0))
    assert isinstance(likeliest, QLearner) and isinstance(likeliest.online, QNetWithPolicy)
    net = likeliest.online
    features = net.torso(obs)
    preferred, worth = net.policy(features).mode(), net.head(features, "eval").mean().argmax(-1)
    assert torch.equal(likeliest.act(obs, "eval"), preferred) and torch.equal(best.act(obs, "eval"), worth)
    assert not torch.equal(preferred, worth)


def test_other_settings_reach_the_learner() -> None:
    method = asked.DiscreteCriticRegularized(
        mode="binary", beta=0.5, max_weight=7.0, conservative_weight=2.0, greedy=True
    )
    steps = {"lr": 0.03, "adam_epsilon": 1e-3, "max_grad_norm": 0.7, "target_update_interval": 11}
    crr = asked_for(method, Expected(), **steps)
    assert isinstance(crr, DiscreteCRR)
    assert crr.config == method
    bcq = asked_for(asked.DiscreteBatchConstrained(), Expected(), **steps)
    cql = asked_for(asked.DiscreteConservative(), Quantiles(n_quantiles=9), **steps)
    for learner in (crr, bcq, cql):
        assert isinstance(learner, QLearner)
        (group,) = (group for optimizer in learner.optimizers for group in optimizer.param_groups)
        assert (group["lr"], group["eps"], learner.max_grad_norm) == (0.03, 1e-3, 0.7)
        assert [periodic.period for periodic in learner.every] == [11] and learner.double
    il = asked_for(asked.DiscreteImitation(), Expected(), **steps)
    assert isinstance(il, Imitation)
    (group,) = il.actor_optimizer.param_groups
    assert (group["lr"], group["eps"]) == (0.03, 1e-3)


def test_evaluation_uses_the_protocols_epsilon() -> None:
    assert isinstance(SPEC.algo, OfflineQ)
    judged = SPEC.model_copy(update={"protocol": SPEC.protocol.model_copy(update={"epsilon": 0.25})})
    eval_explorer = discrete_parts(judged, SPEC.algo, INFO, CPU).eval_explorer
    assert eval_explorer is not None
    explorer = eval_explorer(torch.Generator().manual_seed(0))
    changed = explorer(torch.full((4000,), 2)) != 2
    assert changed.float().mean().item() == pytest.approx(0.25 * 2 / 3, abs=0.03)
