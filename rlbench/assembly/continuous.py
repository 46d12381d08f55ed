"""The families of continuous actions: DDPG, TD3, SAC and REDQ, and the offline methods."""

from __future__ import annotations

import math
from typing import NamedTuple, assert_never

import torch
from torch import Tensor

from rlbench.algorithms import bcq, iql
from rlbench.algorithms.base import Compiler, OffPolicyLearner
from rlbench.algorithms.behavior_cloning import BehaviorCloning
from rlbench.algorithms.cql import CQL, LagrangeMultiplier, SACWithCloning
from rlbench.algorithms.crr import CRR
from rlbench.algorithms.sac import SAC, Temperature
from rlbench.algorithms.td3 import TD3, TD3BC
from rlbench.assembly.components import AlgorithmParts, adam, vector_dims
from rlbench.collectors.explore import GaussianNoise
from rlbench.config import offline, online
from rlbench.config.offline import OfflineConfig
from rlbench.config.run import Spec
from rlbench.envs.base import Box, EnvInfo
from rlbench.nets import actors
from rlbench.nets.actors import BoundedGaussianActor, DeterministicActor, SquashedGaussianActor, StateDependentStdActor
from rlbench.nets.bcq_vae import ActionVAE, BCQPolicy, PerturbationNet
from rlbench.nets.critics import Critics, StateValue
from rlbench.ops.types import Transition
from rlbench.training.protocols import Schedule


class NetworkSetup(NamedTuple):
    """Dimensions and device of the networks, and the compiler of their losses."""

    obs: int  # dimensions of an observation
    actions: int  # dimensions of an action
    device: torch.device
    compiler: Compiler | None = None


def actor_critic_parts(
    spec: Spec, algo: online.ActorCriticConfig, info: EnvInfo, device: torch.device, compiler: Compiler | None = None
) -> AlgorithmParts:
    """Build an online learner and its parts; torch's own generator draws the networks' weights."""
    std = algo.policy.noise if isinstance(algo.policy, online.TD3PolicyConfig) else 0.0
    return AlgorithmParts(
        learner=_online_learner(algo, info, NetworkSetup(*vector_dims(spec.name, info), device, compiler)),
        explorer=lambda generator: GaussianNoise(generator=generator, std=std),
        exploration=lambda env_steps: float(env_steps < algo.learning_starts),
    )


def _online_learner(algo: online.ActorCriticConfig, info: EnvInfo, setup: NetworkSetup) -> TD3 | SAC:
    policy, units = algo.policy, _units(info) if algo.action_units == "environment" else None
    match policy:
        case online.TD3PolicyConfig():
            plain = _deterministic_actor(algo, setup)
            critics = _critics(algo, setup, algo.critics, units)
            return TD3(
                plain,
                critics,
                actor_optimizer=adam(plain, lr=algo.actor_lr),
                critic_optimizer=adam(critics, lr=algo.critic_lr),
                tau=algo.tau,
                delay=algo.delay,
                config=policy,
                compiler=setup.compiler,
            )
        case online.SACPolicyConfig():
            actor = SquashedGaussianActor(
                obs_shape=(setup.obs,),
                actions=setup.actions,
                widths=algo.widths,
                log_std_min=policy.log_std_min,
                log_std_max=policy.log_std_max,
                log_scale=0.0 if units is None else units[0].double().log().sum().item(),
            ).to(setup.device)
            critics = _critics(algo, setup, algo.critics, units)
            return SAC(
                actor,
                critics,
                actor_optimizer=adam(actor, lr=algo.actor_lr),
                critic_optimizer=adam(critics, lr=algo.critic_lr),
                temperature=_temperature(policy, setup),
                tau=algo.tau,
                delay=algo.delay,
                redq_subset=algo.redq_subset,
                compiler=setup.compiler,
            )
        case _:
            assert_never(policy)


def _units(info: EnvInfo) -> tuple[Tensor, Tensor]:
    """Half-width and center ``[A]`` of the environment's action bounds."""
    if not isinstance(info.actions, Box):
        raise TypeError("discrete actions have no units")
    low, high = torch.from_numpy(info.actions.low), torch.from_numpy(info.actions.high)
    return (high - low) / 2, (high + low) / 2


def _temperature(entropy: online.SACPolicyConfig | offline.CQLConfig, setup: NetworkSetup) -> Temperature:
    target = -float(setup.actions) if entropy.target_entropy is None else entropy.target_entropy
    return Temperature(entropy.alpha, device=setup.device, target=target, lr=entropy.alpha_lr)


def continuous_offline_parts(
    name: str, algo: OfflineConfig, info: EnvInfo, device: torch.device, compiler: Compiler | None = None
) -> AlgorithmParts:
    """Build an offline learner and its parts; torch's own generator draws the networks' weights.

    Raises:
        UsageError: actions are discrete, or observations are no vectors; ``name`` is the run's.
    """
    learner = _offline_learner(algo, NetworkSetup(*vector_dims(name, info), device, compiler))
    return AlgorithmParts(learner, schedules=_schedules(algo, learner))


def _schedules(algo: OfflineConfig, learner: OffPolicyLearner[Transition]) -> list[Schedule]:
    """By gradient step: cosine annealing of the learning rate of IQL's actor; the end of CQL's behavior cloning."""
    match learner:
        case CQL(sac=SACWithCloning(cloning=cloning), config=method):  # set once per ``STRIDE``, 25 updates
            return [(lambda updates: float(updates < method.bc_steps), cloning.fill_)]
        case iql.IQL(config=offline.IQLConfig(lr_decay_steps=int(steps))):
            return [_cosine(algo.actor_lr, steps, learner.actor_optimizer)]
        case _:
            return []


def _cosine(initial: float, steps: int, optimizer: torch.optim.Optimizer) -> Schedule:
    """Cosine annealing of an optimizer's learning rate from ``initial`` to 0."""
    (group,) = optimizer.param_groups
    weight = group["params"][0]
    if weight.device.type != "cpu":
        group["lr"] = weight.new_tensor(initial)  # a captured graph reads the tensor

    def at(updates: int) -> float:
        return initial * 0.5 * (1 + math.cos(math.pi * min(updates / steps, 1.0)))

    def set_lr(lr: float) -> None:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr

    return at, set_lr


def _offline_learner(algo: OfflineConfig, setup: NetworkSetup) -> OffPolicyLearner[Transition]:
    match algo.method:
        case offline.BCConfig(policy=policy):
            actor = _deterministic_actor(algo, setup) if policy == "deterministic" else _gaussian_actor(algo, setup)
            return BehaviorCloning(actor, actor_optimizer=adam(actor, lr=algo.actor_lr), compiler=setup.compiler)
        case offline.BCQConfig() as method:
            return _bcq(algo, method, setup)
        case offline.CQLConfig() as method:
            return _cql(algo, method, setup)
        case offline.CRRConfig() as method:
            return _crr(algo, method, setup)
        case offline.TD3BCConfig() as method:
            deterministic, critics = _deterministic_actor(algo, setup), _critics(algo, setup)
            return TD3BC(
                deterministic,
                critics,
                actor_optimizer=adam(deterministic, lr=algo.actor_lr),
                critic_optimizer=adam(critics, lr=algo.critic_lr),
                tau=algo.tau,
                delay=method.delay,
                config=method,
                compiler=setup.compiler,
            )
        case offline.IQLConfig() as method:
            return _iql(algo, method, setup)
        case _:
            assert_never(algo.method)


def _bcq(algo: OfflineConfig, method: offline.BCQConfig, setup: NetworkSetup) -> bcq.BCQ:
    proposer = ActionVAE(
        obs=setup.obs,
        actions=setup.actions,
        latent=method.latent_dim or method.latent * setup.actions,
        widths=method.vae_widths,
        clip=method.latent_clip,
    )
    perturbation = PerturbationNet(
        obs=setup.obs, actions=setup.actions, widths=algo.widths, perturbation=method.perturbation
    )
    net = BCQPolicy(proposer, perturbation, _critics(algo, setup)).to(setup.device)
    return bcq.BCQ(
        net,
        proposer_optimizer=adam(net.proposer, lr=method.vae_lr),
        critic_optimizer=adam(net.critics, lr=algo.critic_lr),
        perturbation_optimizer=adam(net.perturbation, lr=algo.actor_lr),
        tau=algo.tau,
        config=method,
        compiler=setup.compiler,
    )


def _cql(algo: OfflineConfig, method: offline.CQLConfig, setup: NetworkSetup) -> CQL:
    actor, critics = _cql_actor(algo, method, setup), _critics(algo, setup, orthogonal=method.orthogonal_init)
    sac = (SACWithCloning if method.bc_steps else SAC)(
        actor,
        critics,
        actor_optimizer=adam(actor, lr=algo.actor_lr),
        critic_optimizer=adam(critics, lr=algo.critic_lr),
        temperature=_temperature(method, setup),
        tau=algo.tau,
        delay=1,
        redq_subset=None,
        compiler=setup.compiler,
    )
    multiplier = LagrangeMultiplier(
        device=setup.device,
        lagrange_threshold=method.lagrange_threshold,
        lr=method.multiplier_lr,
        max_multiplier=method.max_multiplier,
    )
    return CQL(sac, multiplier=multiplier, config=method)


def _cql_actor(algo: OfflineConfig, method: offline.CQLConfig, setup: NetworkSetup) -> SquashedGaussianActor:
    actor = SquashedGaussianActor(
        obs_shape=(setup.obs,),
        actions=setup.actions,
        widths=algo.widths,
        log_std_min=method.log_std_min,
        log_std_max=method.log_std_max,
        log_std_offset=method.log_std_offset,
        mean_bound=method.mean_bound,
    )
    match method.final_init:
        case "linear":
            pass
        case "xavier":
            actors.init_xavier(actor.mean, actor.log_std)
        case "uniform":
            actors.init_uniform(actor.mean, actor.log_std)
        case _:
            assert_never(method.final_init)
    return actor.to(setup.device)


def _crr(algo: OfflineConfig, method: offline.CRRConfig, setup: NetworkSetup) -> CRR:
    actor, critics = _gaussian_actor(algo, setup), _critics(algo, setup, method.critics)
    return CRR(
        actor,
        critics,
        actor_optimizer=adam(actor, lr=algo.actor_lr),
        critic_optimizer=adam(critics, lr=algo.critic_lr),
        tau=algo.tau,
        config=method,
        compiler=setup.compiler,
    )


def _iql(algo: OfflineConfig, method: offline.IQLConfig, setup: NetworkSetup) -> iql.IQL:
    actor, critics = _iql_actor(algo, method, setup), _critics(algo, setup)
    value = StateValue(obs=setup.obs, widths=algo.widths).to(setup.device)
    return iql.IQL(
        actor,
        critics,
        value,
        actor_optimizer=adam(actor, lr=algo.actor_lr),
        critic_optimizer=adam(critics, lr=algo.critic_lr),
        value_optimizer=adam(value, lr=algo.critic_lr),
        tau=algo.tau,
        config=method,
        compiler=setup.compiler,
    )


def _iql_actor(algo: OfflineConfig, method: offline.IQLConfig, setup: NetworkSetup) -> iql.IQLActor:
    match method.policy:
        case "gaussian":
            return _gaussian_actor(algo, setup, method.log_std_min, method.log_std_max)
        case "deterministic":
            return _deterministic_actor(algo, setup)
        case "conditional":
            actor = StateDependentStdActor(
                obs_shape=(setup.obs,),
                actions=setup.actions,
                widths=algo.widths,
                log_std_min=method.log_std_min,
                log_std_max=method.log_std_max,
            )
            return actor.to(setup.device)
        case _:
            assert_never(method.policy)


def _deterministic_actor(algo: online.ActorCriticConfig | OfflineConfig, setup: NetworkSetup) -> DeterministicActor:
    return DeterministicActor(obs_shape=(setup.obs,), actions=setup.actions, widths=algo.widths).to(setup.device)


def _gaussian_actor(
    algo: OfflineConfig, setup: NetworkSetup, low: float = -5.0, high: float = 2.0
) -> BoundedGaussianActor:
    actor = BoundedGaussianActor(
        obs_shape=(setup.obs,), actions=setup.actions, widths=algo.widths, log_std_min=low, log_std_max=high
    )
    return actor.to(setup.device)


def _critics(
    algo: online.ActorCriticConfig | OfflineConfig,
    setup: NetworkSetup,
    members: int = 2,
    units: tuple[Tensor, Tensor] | None = None,
    *,
    orthogonal: bool = False,
) -> Critics:
    critics = Critics(members=members, obs=setup.obs, actions=setup.actions, widths=algo.widths, units=units)
    if orthogonal:
        actors.init_orthogonal_critics(critics)
    return critics.to(setup.device)
