"""CategoricalPolicy IL, BCQ, CQL and CRR against literal tables and independent losses in float64."""

import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp, softmax
from torch import Tensor, nn

from rlbench.algorithms.behavior_cloning import BehaviorCloning
from rlbench.algorithms.discrete_offline import DiscreteCRR, behavior_cloning_loss, behavior_mask, cql_loss
from rlbench.algorithms.dqn import ActionMask, AuxiliaryLoss, QLearner
from rlbench.config.offline import DiscreteCRRConfig
from rlbench.nets.discrete_actor_critic import BehaviorPolicy, QNetWithPolicy
from rlbench.nets.dueling import HeadMLP
from rlbench.nets.q_heads import DQNHead, QNet, QRDQNHead
from rlbench.nets.torsos import MLPTorso
from rlbench.ops.action_distributions import CategoricalPolicy
from rlbench.ops.losses import probable_actions
from rlbench.ops.types import Transition
from tests.algorithms import by_hand, small_nets
from tests.algorithms.recorded import BATCH, OBS, Array, gradients, numbers, rows
from tests.algorithms.recorded import batch as real_batch

ACTIONS, FEATURES = 4, 7
PLAIN = DiscreteCRRConfig()


def batch() -> Transition:
    return real_batch()._replace(action=torch.tensor([0, 3, 1, 2, 2]))


def streams(width: int = 1) -> HeadMLP:
    return HeadMLP(features=FEATURES, hidden=6, actions=ACTIONS, width=width)


def torso() -> MLPTorso:
    return MLPTorso(obs_shape=(OBS,), widths=(FEATURES,))


def advised(huber: float | None = 1.0) -> QNetWithPolicy:
    torch.manual_seed(0)
    net = QNetWithPolicy(torso(), DQNHead(streams(), huber=huber), streams()).double()
    small_nets.spread(net)
    small_nets.spread(net)
    return net


def q_learner(net: QNet, *, select: ActionMask | None = None, extra: AuxiliaryLoss | None = None) -> QLearner:
    options = {"max_grad_norm": None, "double": True, "target_update_interval": 9}
    adam = small_nets.adam(net)
    agent = QLearner(net, optimizers=[adam], **options, action_mask=select, auxiliary_loss=extra)
    small_nets.spread(agent.target)
    return agent


def bcq(threshold: float = 0.3, penalty: float = 0.01) -> QLearner:
    net = advised()
    return q_learner(net, select=behavior_mask(net, threshold), extra=behavior_cloning_loss(net, penalty))


def crr(method: DiscreteCRRConfig = PLAIN) -> DiscreteCRR:
    net = advised(huber=None)
    agent = DiscreteCRR(
        net, optimizer=small_nets.adam(net), max_grad_norm=None, target_update_interval=9, config=method
    )
    small_nets.spread(agent.target)
    return agent


def values(net: QNet, obs: Tensor) -> Array:
    return np.array([by_hand.through(numbers(row), net.torso, net.head.streams) for row in obs])


def logits(net: QNetWithPolicy | BehaviorPolicy, obs: Tensor) -> Array:
    return np.array([by_hand.through(numbers(row), net.torso, net.logits) for row in obs])


def huber(error: float) -> float:
    return 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5


def test_behavior_mask_is_exact_at_its_threshold() -> None:
    edge = math.log(0.3)
    table = torch.tensor([[0.0, edge, math.nextafter(edge, -9), -1.0]], dtype=torch.float64)
    assert probable_actions(table, 0.3).tolist() == [[True, True, False, True]]
    assert probable_actions(table + 5.0, 0.5).tolist() == [[True, False, False, False]]
    assert probable_actions(torch.tensor([[0.0, -1e4, -1e30]]), 0.0).tolist() == [[True] * 3]
    assert probable_actions(table, 1.0).tolist() == [[True, False, False, False]]
    assert probable_actions(torch.zeros(1, 3), 1.0).tolist() == [[True] * 3]
    share = torch.tensor([[0.6, 0.2, 0.17, 0.03]], dtype=torch.float64)  # relative to the largest
    assert probable_actions(share.log(), 0.3).tolist() == [[True, True, False, False]]


def test_bcq_loss_equals_a_hand_computation_of_the_paper() -> None:
    learner, b = bcq(), batch()
    loss, report = learner.loss(b)
    now, here = values(learner.online, b.obs), logits(learner.online, b.obs)
    chooser, model = values(learner.online, b.next_obs), softmax(logits(learner.online, b.next_obs), axis=1)
    future, total, extra, forbade = values(learner.target, b.next_obs), 0.0, 0.0, False
    for i, row in enumerate(rows(b)):
        allowed = [a for a in range(ACTIONS) if model[i, a] / model[i].max() >= 0.3]
        best = max(allowed, key=lambda a: chooser[i, a])
        forbade |= best != chooser[i].argmax()
        error = now[i, int(row.action)] - (row.reward + row.discount * future[i, best])
        surprise = 0.01 * np.square(here[i]).mean() - log_softmax(here[i])[int(row.action)]
        total += row.weight * huber(error) / BATCH
        extra += row.weight * surprise / BATCH
    assert forbade  # or the mask could be missing
    assert report.metrics["extra"].item() == pytest.approx(extra, rel=1e-9)
    assert loss.item() == pytest.approx(total + extra, rel=1e-9)


def test_imitation_loss_of_bcq_trains_the_shared_torso() -> None:
    learner, b = bcq(), batch()
    net = learner.online
    features = net.torso(b.obs)
    ours = gradients(learner.auxiliary_loss(features, net.head(features, "learn"), b), net.torso)
    table = net.policy(net.torso(b.obs)).logits
    surprise = nn.functional.cross_entropy(table, b.action, reduction="none") + 0.01 * table.pow(2).mean(1)
    theirs = gradients((b.weight * surprise).mean(), net.torso)
    torch.testing.assert_close(ours, theirs)
    assert all(bool(gradient.abs().sum() > 0) for gradient in theirs)


def test_bcq_chooses_the_best_of_the_likely_actions() -> None:
    learner, obs = bcq(), 3 * torch.randn(200, OBS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    model, mean = softmax(logits(learner.online, obs), axis=1), values(learner.online, obs)
    expected = np.where(model >= 0.3 * model.max(1, keepdims=True), mean, -np.inf).argmax(1).tolist()
    assert learner.act(obs, "eval").tolist() == expected
    assert expected != mean.argmax(1).tolist()


def test_a_selector_needs_the_online_network_to_choose() -> None:
    net = advised()
    options = {"max_grad_norm": None, "double": False, "target_update_interval": 1}
    with pytest.raises(ValueError, match="double=True"):
        QLearner(net, optimizers=[], **options, action_mask=behavior_mask(net, 0.3))


def test_cql_term_is_the_gap_of_mean_quantiles() -> None:
    torch.manual_seed(0)
    net, b = QNet(torso(), QRDQNHead(streams(5))).double(), batch()
    small_nets.spread(net)
    plain, pressed = q_learner(net), q_learner(net, extra=cql_loss(10.0))
    pressed.target.load_state_dict(plain.target.state_dict())
    loss, report = pressed.loss(b)
    expected = 0.0
    for row in rows(b):
        mean = by_hand.through(row.obs, net.torso, net.head.streams).reshape(ACTIONS, 5).mean(1)
        expected += 10 * row.weight * (logsumexp(mean) - mean[int(row.action)]) / BATCH
    assert report.metrics["extra"].item() == pytest.approx(expected, rel=1e-9)
    assert loss.item() == pytest.approx(plain.loss(b)[0].item() + expected, rel=1e-9)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (PLAIN, [math.exp(-2), math.exp(-1), 20.0]),  # e³ is 20.09
        (DiscreteCRRConfig(beta=2.0), [math.exp(-1), math.exp(-0.5), math.exp(1.5)]),
        (DiscreteCRRConfig(mode="binary"), [0.0, 0.0, 1.0]),
        (DiscreteCRRConfig(mode="all"), [1.0, 1.0, 1.0]),
    ],
)
def test_crr_weights_follow_the_advantages(method: DiscreteCRRConfig, expected: list[float]) -> None:
    """Three actions of value 1, 2 and 6, whose mean under the policy is 3."""
    mean = torch.tensor([[1.0, 2.0, 6.0]], dtype=torch.float64).expand(3, -1)
    policy = CategoricalPolicy(torch.zeros(3, 3, dtype=torch.float64))
    assert policy.expected_value(mean).tolist() == pytest.approx([3.0] * 3)
    assert crr(method).weight(policy, mean, torch.arange(3)).tolist() == pytest.approx(expected, rel=1e-12)


def test_action_of_expected_value_has_zero_advantage() -> None:
    policy, mean = CategoricalPolicy(torch.zeros(1, 2)), torch.full((1, 2), 3.0)
    assert crr(DiscreteCRRConfig(mode="binary")).weight(policy, mean, torch.tensor([0])).tolist() == [0.0]
    assert crr().weight(policy, mean, torch.tensor([0])).tolist() == [1.0]


@pytest.mark.parametrize("conservative", [None, 3.0])
@pytest.mark.parametrize("mode", ["exp", "binary", "all"])
def test_crr_loss_equals_a_hand_computation_of_the_paper(mode: str, conservative: float | None) -> None:
    settings = {"mode": mode, "beta": 0.7, "max_weight": 2.0, "conservative_weight": conservative}
    learner, b = crr(DiscreteCRRConfig.model_validate(settings)), batch()
    loss, _ = learner.loss(b)
    now, here = values(learner.online, b.obs), logits(learner.online, b.obs)
    future, there = values(learner.target, b.next_obs), softmax(logits(learner.target, b.next_obs), axis=1)
    total = 0.0
    for i, row in enumerate(rows(b)):
        a = int(row.action)
        goal = row.reward + row.discount * float(there[i] @ future[i])
        advantage = now[i, a] - float(softmax(here[i]) @ now[i])
        weight = {"exp": min(math.exp(advantage / 0.7), 2.0), "binary": float(advantage > 0), "all": 1.0}[mode]
        term = (now[i, a] - goal) ** 2 - weight * log_softmax(here[i])[a]
        term += (conservative or 0.0) * (logsumexp(now[i]) - now[i, a])
        total += row.weight * term / BATCH
    assert loss.item() == pytest.approx(total, rel=1e-9)


def test_advantages_have_no_gradient_in_the_values() -> None:
    """And no probability from the critic's error: of each other they only see the torso."""
    learner, b = crr(), batch()
    net = learner.online
    features = net.torso(b.obs)
    value = net.head(features, "learn")
    term = learner.weighted_cloning_loss(features, value, b)
    assert all(gradient is None for gradient in gradients(term, net.head.streams))
    assert all(bool(gradient.abs().sum() > 0) for gradient in gradients(term, net.logits))
    error = value.at(b.action).loss(learner.bootstrap_value(b.next_obs).backup(b.reward, b.discount)).mean()
    assert all(gradient is None for gradient in gradients(error, net.logits))


def test_policy_loss_trains_the_torso_with_constant_weights() -> None:
    learner, b = crr(), batch()
    net = learner.online
    features = net.torso(b.obs)
    value, policy = net.head(features, "learn"), net.policy(features)
    fixed = torch.tensor(learner.weight(policy, value.mean(), b.action).tolist(), dtype=torch.float64)
    expected = -(b.weight * fixed * policy.log_prob(b.action)).mean()
    ours = gradients(learner.weighted_cloning_loss(features, value, b), net.torso)
    torch.testing.assert_close(ours, gradients(expected, net.torso))


def test_conservative_gap_of_crr_trains_the_values() -> None:
    learner, b = crr(DiscreteCRRConfig(conservative_weight=1.0)), batch()
    features = learner.online.torso(b.obs)
    term = learner.weighted_cloning_loss(features, learner.online.head(features, "learn"), b)
    assert all(bool(gradient.abs().sum() > 0) for gradient in gradients(term, learner.online.head.streams))


def test_crr_evaluation_samples_unless_greedy() -> None:
    learner, obs = crr(), batch().obs[:1].expand(4000, -1)
    torch.manual_seed(1)
    share = torch.bincount(learner.act(obs, "eval"), minlength=ACTIONS) / 4000
    expected = softmax(logits(learner.online, obs[:1])[0])
    assert numbers(share) == pytest.approx(expected, abs=0.04)
    assert set(crr(DiscreteCRRConfig(greedy=True)).act(obs, "eval").tolist()) == {int(expected.argmax())}


def test_discrete_behavior_cloning_is_cross_entropy_with_an_error_rate() -> None:
    torch.manual_seed(0)
    actor, b = BehaviorPolicy(torso(), streams()).double(), batch()
    small_nets.spread(actor)
    learner = BehaviorCloning(actor, actor_optimizer=small_nets.adam(actor))
    loss, missed = learner.loss(b)
    table = logits(actor, b.obs)
    expected = [-log_softmax(table[i])[b.action[i]] for i in range(BATCH)]
    assert loss.item() == pytest.approx(np.dot(numbers(b.weight), expected) / BATCH, rel=1e-9)
    assert missed.tolist() == [float(a != c) for a, c in zip(table.argmax(1), b.action.tolist(), strict=True)]
    assert learner.act(b.obs, "eval").tolist() == table.argmax(1).tolist()
    torch.manual_seed(1)
    share = torch.bincount(learner.act(b.obs[:1].expand(4000, -1), "act"), minlength=ACTIONS) / 4000
    assert numbers(share) == pytest.approx(softmax(table[0]), abs=0.04)
