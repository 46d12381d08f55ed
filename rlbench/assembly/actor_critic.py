"""DDPG, TD3, SAC and REDQ, from their Spec."""

from __future__ import annotations

from functools import partial
from typing import assert_never

import torch
from torch import Tensor

from rlbench.algorithms.base import Compiler, OffPolicyLearner
from rlbench.algorithms.sac import SAC, Temperature
from rlbench.algorithms.td3 import TD3
from rlbench.assembly.components import AlgorithmParts, adam, vector_dims
from rlbench.collectors.explore import GaussianNoise
from rlbench.config.online import ActorCriticConfig, SACPolicyConfig, TD3PolicyConfig
from rlbench.config.run import Spec
from rlbench.envs.base import Box, EnvInfo
from rlbench.nets.actors import DeterministicActor, SquashedGaussianActor
from rlbench.nets.critics import Critics
from rlbench.ops.types import Transition


def actor_critic_parts(
    spec: Spec, algo: ActorCriticConfig, info: EnvInfo, device: torch.device, compiler: Compiler | None = None
) -> AlgorithmParts:
    """Build the learner and its parts; torch's own generator draws the networks' weights."""
    scale = algo.policy.noise if isinstance(algo.policy, TD3PolicyConfig) else 0.0
    return AlgorithmParts(
        learner=_learner(spec, algo, info, device, compiler),
        explorer=lambda generator: GaussianNoise(generator=generator, scale=scale),
        exploration=lambda env_steps: float(env_steps < algo.learning_starts),
    )


def _learner(
    spec: Spec, algo: ActorCriticConfig, info: EnvInfo, device: torch.device, compiler: Compiler | None
) -> OffPolicyLearner[Transition]:
    policy, widths = algo.policy, algo.widths
    features, actions = vector_dims(spec.name, info)
    units = _units(info) if algo.action_units == "environment" else None
    critics = partial(Critics, members=algo.critics, obs=features, actions=actions, widths=widths, units=units)
    match policy:
        case TD3PolicyConfig():
            plain = DeterministicActor(obs_shape=info.obs_shape, actions=actions, widths=widths).to(device)
            ensemble = critics().to(device)
            return TD3(
                plain,
                ensemble,
                actor_optimizer=adam(plain, lr=algo.actor_lr),
                critic_optimizer=adam(ensemble, lr=algo.critic_lr),
                tau=algo.tau,
                delay=algo.delay,
                policy=policy,
                compiler=compiler,
            )
        case SACPolicyConfig():
            actor = SquashedGaussianActor(
                obs_shape=info.obs_shape,
                actions=actions,
                widths=widths,
                log_std_min=policy.log_std_min,
                log_std_max=policy.log_std_max,
                log_scale=0.0 if units is None else units[0].double().log().sum().item(),
            ).to(device)
            ensemble = critics().to(device)
            target = -float(actions) if policy.target_entropy is None else policy.target_entropy
            return SAC(
                actor,
                ensemble,
                actor_optimizer=adam(actor, lr=algo.actor_lr),
                critic_optimizer=adam(ensemble, lr=algo.critic_lr),
                temperature=Temperature(policy.alpha, device=device, target=target, lr=policy.alpha_lr),
                tau=algo.tau,
                delay=algo.delay,
                redq_subset=algo.redq_subset,
                compiler=compiler,
            )
        case _:
            assert_never(policy)


def _units(info: EnvInfo) -> tuple[Tensor, Tensor]:
    """Half-width and center ``[A]`` of the environment's action bounds."""
    if not isinstance(info.actions, Box):
        raise TypeError("discrete actions have no units")
    low, high = torch.from_numpy(info.actions.low), torch.from_numpy(info.actions.high)
    return (high - low) / 2, (high + low) / 2
