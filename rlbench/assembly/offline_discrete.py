"""IL, BCQ, CQL and CRR for discrete actions, from their Spec."""

from __future__ import annotations

from typing import assert_never

import torch

from rlbench.algorithms.base import Compiler, OffPolicyLearner
from rlbench.algorithms.behavior_cloning import BehaviorCloning
from rlbench.algorithms.discrete_offline import DiscreteCRR, behavior_cloning_loss, behavior_mask, cql_loss
from rlbench.algorithms.dqn import ActionMask, AuxiliaryLoss, QLearner
from rlbench.assembly.components import AlgorithmParts, adam, build_torso, discrete_action_count
from rlbench.assembly.dqn import build_head, fraction_loss, optimizers
from rlbench.collectors.explore import EpsilonGreedy
from rlbench.config import offline_discrete
from rlbench.config.offline_discrete import DiscreteOfflineConfig
from rlbench.config.run import Spec
from rlbench.envs.base import EnvInfo
from rlbench.nets.discrete_actor_critic import BehaviorPolicy, QNetWithPolicy
from rlbench.nets.dueling import DuelingMLP
from rlbench.nets.q_heads import QNet
from rlbench.ops.types import Transition


def discrete_parts(
    spec: Spec, algo: DiscreteOfflineConfig, info: EnvInfo, device: torch.device, compiler: Compiler | None = None
) -> AlgorithmParts:
    """Build the learner and its parts; torch's own generator draws the networks' weights.

    Raises:
        UsageError: actions are continuous.
    """
    actions = discrete_action_count(spec, info)
    return AlgorithmParts(
        learner=_learner(spec, algo, info, device, compiler),
        eval_explorer=lambda generator: EpsilonGreedy(
            actions=actions, generator=generator, epsilon=spec.protocol.epsilon
        ),
    )


def _learner(
    spec: Spec, algo: DiscreteOfflineConfig, info: EnvInfo, device: torch.device, compiler: Compiler | None
) -> OffPolicyLearner[Transition]:
    body, actions = build_torso(algo.torso, spec, info), discrete_action_count(spec, info)

    def streams(width: int) -> DuelingMLP:
        return DuelingMLP(
            features=body.features, hidden=algo.hidden, actions=actions, width=width, dueling=False, noisy=None
        )

    match algo.method:
        case offline_discrete.DiscreteBCConfig():
            actor = BehaviorPolicy(body, streams(1)).to(device)
            optimizer = adam(actor, lr=algo.lr, eps=algo.adam_epsilon)
            return BehaviorCloning(actor, actor_optimizer=optimizer, compiler=compiler)
        case offline_discrete.DiscreteCQLConfig(conservative_weight=weight):
            plain = QNet(body, build_head(algo.head, body.features, streams)).to(device)
            return _q_learner(algo, plain, compiler, cql_loss(weight))
        case offline_discrete.DiscreteBCQConfig(threshold=threshold, penalty=penalty):
            net = QNetWithPolicy(body, build_head(algo.head, body.features, streams), streams(1)).to(device)
            mask, loss = behavior_mask(net, threshold), behavior_cloning_loss(net, penalty)
            return _q_learner(algo, net, compiler, loss, mask)
        case offline_discrete.DiscreteCRRConfig() as method:
            net = QNetWithPolicy(body, build_head(algo.head, body.features, streams), streams(1)).to(device)
            return DiscreteCRR(
                net,
                optimizer=optimizers(algo.head, net, lr=algo.lr, epsilon=algo.adam_epsilon)[0],
                max_grad_norm=algo.max_grad_norm,
                target_update_interval=algo.target_update_interval,
                method=method,
                compiler=compiler,
            )
        case _:
            assert_never(algo.method)


def _q_learner(
    algo: DiscreteOfflineConfig,
    net: QNet,
    compiler: Compiler | None,
    auxiliary_loss: AuxiliaryLoss,
    action_mask: ActionMask | None = None,
) -> QLearner:
    return QLearner(
        net,
        optimizers=optimizers(algo.head, net, lr=algo.lr, epsilon=algo.adam_epsilon),
        max_grad_norm=algo.max_grad_norm,
        double=True,
        target_update_interval=algo.target_update_interval,
        action_mask=action_mask,
        auxiliary_loss=fraction_loss(net, auxiliary_loss),
        compiler=compiler,
    )
