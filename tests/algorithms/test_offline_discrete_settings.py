"""Settings of offline learners with discrete actions, as the learners use them."""

import pytest
import torch

from rlbench import suites
from rlbench.algorithms.behavior_cloning import BehaviorCloning
from rlbench.algorithms.discrete_offline import DiscreteCRR
from rlbench.algorithms.dqn import QLearner
from rlbench.assembly.discrete import discrete_offline_parts
from rlbench.assembly.environments import describe
from rlbench.config import offline
from rlbench.config.offline import DiscreteOfflineConfig
from rlbench.config.online import DQNHeadConfig, HeadConfig, QRDQNHeadConfig
from rlbench.errors import UsageError
from rlbench.nets.discrete_actor_critic import QNetWithPolicy
from tests.algorithms.test_contract import transitions

CPU = torch.device("cpu")
SPEC = suites.spec("offline", "bcq", "Catch")
INFO = describe(SPEC)


def test_continuous_actions_are_refused_in_one_line() -> None:
    hopper = describe(suites.spec("offline", "il", "Hopper-v4"))
    assert isinstance(SPEC.algo, DiscreteOfflineConfig)
    with pytest.raises(UsageError, match=r"^offline/bcq/Catch: [^\n]*continuous actions[^\n]*$"):
        discrete_offline_parts(SPEC, SPEC.algo, hopper, CPU)


def learner_of(method: offline.DiscreteMethod, head: HeadConfig, **changes: object) -> QLearner | BehaviorCloning:
    torch.manual_seed(0)
    assert isinstance(SPEC.algo, DiscreteOfflineConfig)
    learner = discrete_offline_parts(
        SPEC, SPEC.algo.model_copy(update={"method": method, "head": head, **changes}), INFO, CPU
    ).learner
    assert isinstance(learner, BehaviorCloning | QLearner)
    return learner


def extra_loss(method: offline.DiscreteMethod, head: HeadConfig) -> float:
    learner = learner_of(method, head)
    assert isinstance(learner, QLearner)
    return learner.loss(transitions(INFO))[1].metrics["extra"].item()


def test_weights_of_loss_terms_are_the_configured_ones() -> None:
    light, heavy = (
        extra_loss(offline.DiscreteCQLConfig(conservative_weight=weight), QRDQNHeadConfig(n_quantiles=9))
        for weight in (1.5, 6.0)
    )
    assert light > 0 and heavy == pytest.approx(4 * light, rel=1e-5)
    none, some, more = (
        extra_loss(offline.DiscreteBCQConfig(penalty=p), DQNHeadConfig(huber=1.0)) for p in (0.0, 3.0, 6.0)
    )
    assert some > none and more - none == pytest.approx(2 * (some - none), rel=1e-3)


def test_threshold_is_the_configured_one() -> None:
    obs = torch.randint(0, 256, (300, 10, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    likeliest, best = (learner_of(offline.DiscreteBCQConfig(threshold=t), DQNHeadConfig(huber=1.0)) for t in (1.0, 0.0))
    assert isinstance(likeliest, QLearner) and isinstance(likeliest.online, QNetWithPolicy)
    net = likeliest.online
    features = net.torso(obs)
    preferred, best_action = net.policy(features).mode(), net.head(features, "eval").mean().argmax(-1)
    assert torch.equal(likeliest.act(obs, "eval"), preferred) and torch.equal(best.act(obs, "eval"), best_action)
    assert not torch.equal(preferred, best_action)


def test_other_settings_reach_the_learner() -> None:
    method = offline.DiscreteCRRConfig(mode="binary", beta=0.5, max_weight=7.0, conservative_weight=2.0, greedy=True)
    steps = {"lr": 0.03, "adam_epsilon": 1e-3, "max_grad_norm": 0.7, "target_update_interval": 11}
    crr = learner_of(method, DQNHeadConfig(), **steps)
    assert isinstance(crr, DiscreteCRR)
    assert crr.config == method
    bcq = learner_of(offline.DiscreteBCQConfig(), DQNHeadConfig(), **steps)
    cql = learner_of(offline.DiscreteCQLConfig(), QRDQNHeadConfig(n_quantiles=9), **steps)
    for learner in (crr, bcq, cql):
        assert isinstance(learner, QLearner)
        (group,) = (group for optimizer in learner.optimizers for group in optimizer.param_groups)
        assert (group["lr"], group["eps"], learner.max_grad_norm) == (0.03, 1e-3, 0.7)
        assert [periodic.period for periodic in learner.periodic_actions] == [11] and learner.double
    il = learner_of(offline.DiscreteBCConfig(), DQNHeadConfig(), **steps)
    assert isinstance(il, BehaviorCloning)
    (group,) = il.actor_optimizer.param_groups
    assert (group["lr"], group["eps"]) == (0.03, 1e-3)


def test_evaluation_uses_the_protocols_epsilon() -> None:
    assert isinstance(SPEC.algo, DiscreteOfflineConfig)
    spec = SPEC.model_copy(update={"protocol": SPEC.protocol.model_copy(update={"epsilon": 0.25})})
    eval_explorer = discrete_offline_parts(spec, SPEC.algo, INFO, CPU).eval_explorer
    assert eval_explorer is not None
    differs = eval_explorer(torch.Generator().manual_seed(0))(torch.full((4000,), 2)) != 2
    assert differs.float().mean().item() == pytest.approx(0.25 * 2 / 3, abs=0.03)
