"""The families of discrete actions: Q-learning, whose head determines the algorithm, discrete SAC, offline methods."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import assert_never

import torch
from torch import Tensor

from rlbench.algorithms.base import Compiler, OffPolicyLearner
from rlbench.algorithms.behavior_cloning import BehaviorCloning
from rlbench.algorithms.discrete_offline import DiscreteCRR, behavior_cloning_loss, behavior_mask, cql_loss
from rlbench.algorithms.discrete_sac import DiscreteSAC
from rlbench.algorithms.dqn import ActionMask, AuxiliaryLoss, QLearner
from rlbench.algorithms.sac import Temperature
from rlbench.assembly.components import AlgorithmParts, adam, build_torso, discrete_action_count
from rlbench.collectors.explore import EpsilonGreedy, Explorer
from rlbench.config import offline, online
from rlbench.config.run import Spec
from rlbench.envs.base import EnvInfo
from rlbench.nets import q_heads
from rlbench.nets.discrete_actor_critic import BehaviorPolicy, DiscreteActorCritic, QNetWithPolicy
from rlbench.nets.dueling import HeadMLP
from rlbench.nets.iqn_fqf import FQFHead, IQNHead
from rlbench.nets.q_heads import QNet
from rlbench.ops.return_distributions import ReturnDistribution
from rlbench.ops.types import Role, Transition


def q_learning_parts(
    spec: Spec, algo: online.QLearningConfig, info: EnvInfo, device: torch.device, compiler: Compiler | None = None
) -> AlgorithmParts:
    """Build the learner and its parts; torch's own generator draws the networks' weights."""
    actions = discrete_action_count(spec, info)
    net = build_q_network(spec, algo, info).to(device)
    return AlgorithmParts(
        learner=_q_learner(algo, net, compiler, double=algo.double),
        explorer=lambda generator: EpsilonGreedy(actions=actions, generator=generator),
        eval_explorer=_eval_explorer(spec, actions),
        exploration=algo.epsilon.at,
    )


def build_q_network(spec: Spec, algo: online.QLearningConfig, info: EnvInfo) -> QNet:
    """Build the value network; torch's own generator draws its weights."""
    torso, actions = build_torso(algo.torso, spec, info), discrete_action_count(spec, info)
    mlp = partial(HeadMLP, features=torso.features, hidden=algo.hidden, actions=actions)
    mlp_of = partial(mlp, dueling=algo.dueling, noisy=algo.noisy)
    return QNet(torso, build_head(algo.head, torso.features, mlp_of))


def _eval_explorer(spec: Spec, actions: int) -> Callable[[torch.Generator], Explorer]:
    return lambda generator: EpsilonGreedy(actions=actions, generator=generator, epsilon=spec.protocol.epsilon)


def _q_learner(
    algo: online.QLearningConfig | offline.DiscreteOfflineConfig,
    net: QNet,
    compiler: Compiler | None,
    auxiliary_loss: AuxiliaryLoss | None = None,
    action_mask: ActionMask | None = None,
    *,
    double: bool = True,
) -> QLearner:
    return QLearner(
        net,
        optimizers=optimizers(algo.head, net, lr=algo.lr, epsilon=algo.adam_epsilon),
        max_grad_norm=algo.max_grad_norm,
        double=double,
        target_update_interval=algo.target_update_interval,
        action_mask=action_mask,
        auxiliary_loss=fraction_loss(net, auxiliary_loss),
        compiler=compiler,
    )


def build_head(config: online.HeadConfig, features: int, mlp_of: Callable[[int], HeadMLP]) -> q_heads.QHead:
    """The head of DQN, C51, QR-DQN, IQN or FQF; ``mlp_of`` builds its MLP from the number of outputs per action."""
    match config:
        case online.DQNHeadConfig(huber=huber):
            return q_heads.DQNHead(mlp_of(1), huber=huber)
        case online.C51HeadConfig(n_atoms=atoms, v_min=low, v_max=high):
            return q_heads.C51Head(mlp_of(atoms), v_min=low, v_max=high)
        case online.QRDQNHeadConfig(n_quantiles=count):
            return q_heads.QRDQNHead(mlp_of(count))
        case online.IQNHeadConfig(
            n_taus=learn, n_target_taus=target, n_policy_taus=act, n_eval_taus=evaluate, cosines=cosines
        ):
            samples: dict[Role, int] = {"learn": learn, "target": target, "act": act, "eval": evaluate}
            return IQNHead(mlp_of(1), features=features, samples=samples, cosines=cosines)
        case online.FQFHeadConfig(n_quantiles=count, entropy=entropy, cosines=cosines):
            return FQFHead(mlp_of(1), features=features, count=count, entropy=entropy, cosines=cosines)
        case _:
            assert_never(config)


def fraction_loss(net: QNet, other: AuxiliaryLoss | None = None) -> AuxiliaryLoss | None:
    """The loss of FQF's fractions plus the ``other`` term; for other heads that term alone."""
    if not isinstance(net.head, FQFHead):
        return other
    head = net.head

    def loss(features: Tensor, values: ReturnDistribution, batch: Transition) -> Tensor:
        fractions = head.fraction_loss(features, batch.action, values.at(batch.action))
        return fractions if other is None else fractions + other(features, values, batch)

    return loss


def optimizers(config: online.HeadConfig, net: QNet, *, lr: float, epsilon: float) -> list[torch.optim.Optimizer]:
    """Adam for all parameters except FQF's fraction proposal, which has an RMSprop of a far lower rate."""
    proposal = list(net.head.proposal.parameters()) if isinstance(net.head, FQFHead) else []
    own = {id(p) for p in proposal}
    rest = [p for p in net.parameters() if id(p) not in own]
    main = torch.optim.Adam(rest, lr=lr, eps=epsilon, fused=True)
    match config:
        case online.FQFHeadConfig(lr=slow):
            on_gpu = proposal[0].device.type != "cpu"  # capture needs the step count on the GPU
            return [main, torch.optim.RMSprop(proposal, lr=slow, capturable=on_gpu)]
        case _:
            return [main]


def discrete_sac_parts(
    spec: Spec, algo: online.DiscreteSACConfig, info: EnvInfo, device: torch.device, compiler: Compiler | None = None
) -> AlgorithmParts:
    """Build the learner and its parts; torch's own generator draws the network's weights."""
    actions = discrete_action_count(spec, info)
    torso = build_torso(algo.torso, spec, info)
    net = DiscreteActorCritic(torso, hidden=algo.hidden, actions=actions, critics=algo.critics).to(device)
    target = algo.target_entropy * math.log(actions)
    learner = DiscreteSAC(
        net,
        actor_optimizer=adam(net.torso, net.logits, lr=algo.actor_lr),
        critic_optimizers=[adam(net.torso, critic, lr=algo.critic_lr) for critic in net.critics],
        temperature=Temperature(algo.alpha, device=device, target=target, lr=algo.alpha_lr),
        tau=algo.tau,
        compiler=compiler,
    )
    return AlgorithmParts(learner)


def discrete_offline_parts(
    spec: Spec,
    algo: offline.DiscreteOfflineConfig,
    info: EnvInfo,
    device: torch.device,
    compiler: Compiler | None = None,
) -> AlgorithmParts:
    """Build the learner and its parts; torch's own generator draws the networks' weights.

    Raises:
        UsageError: actions are continuous.
    """
    return AlgorithmParts(
        learner=_offline_learner(spec, algo, info, device, compiler),
        eval_explorer=_eval_explorer(spec, discrete_action_count(spec, info)),
    )


def _offline_learner(
    spec: Spec, algo: offline.DiscreteOfflineConfig, info: EnvInfo, device: torch.device, compiler: Compiler | None
) -> OffPolicyLearner[Transition]:
    torso, actions = build_torso(algo.torso, spec, info), discrete_action_count(spec, info)
    mlp_of = partial(HeadMLP, features=torso.features, hidden=algo.hidden, actions=actions)
    match algo.method:
        case offline.DiscreteBCConfig():
            actor = BehaviorPolicy(torso, mlp_of(1)).to(device)
            optimizer = adam(actor, lr=algo.lr, eps=algo.adam_epsilon)
            return BehaviorCloning(actor, actor_optimizer=optimizer, compiler=compiler)
        case offline.DiscreteCQLConfig(conservative_weight=weight):
            plain = QNet(torso, build_head(algo.head, torso.features, mlp_of)).to(device)
            return _q_learner(algo, plain, compiler, cql_loss(weight))
        case offline.DiscreteBCQConfig(threshold=threshold, penalty=penalty):
            net = QNetWithPolicy(torso, build_head(algo.head, torso.features, mlp_of), mlp_of(1)).to(device)
            return _q_learner(algo, net, compiler, behavior_cloning_loss(net, penalty), behavior_mask(net, threshold))
        case offline.DiscreteCRRConfig() as method:
            net = QNetWithPolicy(torso, build_head(algo.head, torso.features, mlp_of), mlp_of(1)).to(device)
            return DiscreteCRR(
                net,
                optimizer=optimizers(algo.head, net, lr=algo.lr, epsilon=algo.adam_epsilon)[0],
                max_grad_norm=algo.max_grad_norm,
                target_update_interval=algo.target_update_interval,
                config=method,
                compiler=compiler,
            )
        case _:
            assert_never(algo.method)
