"""Discrete SAC, from its Spec."""

from __future__ import annotations

import math

import torch
from torch import nn

from rlbench.algorithms.base import Compiler
from rlbench.algorithms.discrete_sac import DiscreteSAC
from rlbench.algorithms.sac import Temperature
from rlbench.assembly.components import Parts, count, torso
from rlbench.buffers.ring import Column
from rlbench.collectors.explore import NoExploration
from rlbench.config import online as spec_algo
from rlbench.config.run import Spec
from rlbench.envs.base import EnvInfo
from rlbench.nets.discrete_actor_critic import DiscreteActorCritic


def parts(
    spec: Spec,
    algo: spec_algo.DiscreteSAC,
    info: EnvInfo,
    device: torch.device,
    compiler: Compiler | None = None,
) -> Parts:
    """The learner, its network freshly drawn from torch's own generator, and what goes with it."""
    actions = count(spec, info)
    body = torso(algo.torso, spec, info)
    net = DiscreteActorCritic(body, hidden=algo.hidden, actions=actions, critics=algo.critics).to(device)
    learner = DiscreteSAC(
        net,
        actor_optimizer=_adam(net, net.logits, algo.actor_lr),
        critic_optimizers=[_adam(net, critic, algo.critic_lr) for critic in net.critics],
        temperature=_temperature(algo, actions, device),
        tau=algo.tau,
        compiler=compiler,
    )
    return Parts(
        learner=learner,
        action=Column((), torch.int64),
        training=lambda _: NoExploration(),
        judging=lambda _: NoExploration(),
        exploration=lambda _: 0.0,
    )


def _adam(net: DiscreteActorCritic, head: nn.Module, lr: float) -> torch.optim.Optimizer:
    return torch.optim.Adam([*net.torso.parameters(), *head.parameters()], lr=lr, fused=True)


def _temperature(algo: spec_algo.DiscreteSAC, actions: int, device: torch.device) -> Temperature:
    if algo.alpha_lr is None:
        return Temperature(algo.alpha, device=device)
    return Temperature(algo.alpha, device=device, target=algo.target_entropy * math.log(actions), lr=algo.alpha_lr)
