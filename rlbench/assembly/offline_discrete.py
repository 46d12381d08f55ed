"""IL, BCQ, CQL and CRR for discrete actions, from their Spec."""

from __future__ import annotations

from typing import assert_never

import torch

from rlbench.algorithms.base import Compiler, OffPolicyLearner
from rlbench.algorithms.behavior_cloning import Imitation
from rlbench.algorithms.discrete_offline import DiscreteCRR, behavior_mask, conservatism, imitation
from rlbench.algorithms.dqn import Extra, QLearner, Selector
from rlbench.assembly.components import OfflineParts, adam, count, torso
from rlbench.assembly.dqn import head, optimizers, proposing
from rlbench.buffers.ring import Column
from rlbench.collectors.explore import EpsilonGreedy
from rlbench.config import offline_discrete as methods
from rlbench.config.offline_discrete import OfflineQ
from rlbench.config.run import Spec
from rlbench.envs.base import EnvInfo
from rlbench.nets.discrete_actor_critic import BehaviorPolicy, QNetWithPolicy
from rlbench.nets.dueling import DuelingMLP
from rlbench.nets.q_heads import QNet
from rlbench.ops.types import Transition


def discrete_parts(
    spec: Spec, algo: OfflineQ, info: EnvInfo, device: torch.device, compiler: Compiler | None = None
) -> OfflineParts:
    """Build the learner and its parts; torch's own generator draws the networks' weights.

    Raises:
        UsageError: actions are continuous.
    """
    actions = count(spec, info)
    return OfflineParts(
        learner=_learner(spec, algo, info, device, compiler),
        action=Column((), torch.int64),
        schedules=[],
        eval_explorer=lambda generator: EpsilonGreedy(
            actions=actions, generator=generator, epsilon=spec.protocol.epsilon
        ),
    )


def _learner(
    spec: Spec, algo: OfflineQ, info: EnvInfo, device: torch.device, compiler: Compiler | None
) -> OffPolicyLearner[Transition]:
    body, actions = torso(algo.torso, spec, info), count(spec, info)

    def streams(width: int) -> DuelingMLP:
        return DuelingMLP(
            features=body.features, hidden=algo.hidden, actions=actions, width=width, dueling=False, noisy=None
        )

    match algo.method:
        case methods.DiscreteImitation():
            actor = BehaviorPolicy(body, streams(1)).to(device)
            optimizer = adam(actor, lr=algo.lr, eps=algo.adam_epsilon)
            return Imitation(actor, actor_optimizer=optimizer, compiler=compiler)
        case methods.DiscreteConservative(conservative_weight=weight):
            plain = QNet(body, head(algo.head, body.features, streams)).to(device)
            return _valued(algo, plain, compiler, extra=conservatism(weight))
        case methods.DiscreteBatchConstrained(threshold=threshold, penalty=penalty):
            net = QNetWithPolicy(body, head(algo.head, body.features, streams), streams(1)).to(device)
            select, extra = behavior_mask(net, threshold), imitation(net, penalty)
            return _valued(algo, net, compiler, select=select, extra=extra)
        case methods.DiscreteCriticRegularized() as method:
            net = QNetWithPolicy(body, head(algo.head, body.features, streams), streams(1)).to(device)
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


def _valued(
    algo: OfflineQ, net: QNet, compiler: Compiler | None, *, extra: Extra, select: Selector | None = None
) -> QLearner:
    """Double Q-learning with an additional loss ``extra`` and a restriction ``select`` of the greedy action."""
    return QLearner(
        net,
        optimizers=optimizers(algo.head, net, lr=algo.lr, epsilon=algo.adam_epsilon),
        max_grad_norm=algo.max_grad_norm,
        double=True,
        target_update_interval=algo.target_update_interval,
        select=select,
        extra=proposing(net, extra),
        compiler=compiler,
    )
