"""REINFORCE, A2C, PPO, NPG and TRPO, from their Spec."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rlbench.accel import numpy_ppo
from rlbench.accel.numpy_ppo import NumpyValueRegression
from rlbench.algorithms.base import Compiler, OnPolicyLearner
from rlbench.algorithms.onpolicy import ActorCriticNet, AdvantageEstimator
from rlbench.algorithms.ppo import PPO
from rlbench.algorithms.reinforce import REINFORCE
from rlbench.algorithms.trpo import TRPO
from rlbench.assembly.components import adam, build_torso
from rlbench.config import online
from rlbench.config.run import EngineName, Spec
from rlbench.envs.base import Discrete, EnvInfo
from rlbench.errors import UsageError
from rlbench.nets.actor_critic import (
    DiscreteActor,
    GaussianActor,
    SeparateActorCritic,
    SharedActorCritic,
    init_orthogonal,
)
from rlbench.nets.torsos import MLPTorso
from rlbench.seeds import Seeds
from rlbench.training.protocols import Schedule

MAX_MULTIPLICATIONS = 2**23  # multiplications of one layer for one batch; with more, torch's overhead does not matter
MEAN_LAYER_GAIN = 0.01  # factor of the initial weights of the layer of the mean


def build_on_policy(
    spec: Spec,
    algo: online.PolicyGradientConfig,
    info: EnvInfo,
    device: torch.device,
    engine: EngineName = "eager",
    compiler: Compiler | None = None,
) -> tuple[OnPolicyLearner, torch.optim.Optimizer]:
    """Build the learner, drawn from torch's own generator, whose updates ``engine`` computes, and its optimizer.

    Raises:
        UsageError: NPG or TRPO has a torso shared by actor and critic; or ``engine`` is numpy, and the method or the
            networks have no numpy engine.
    """
    if engine == "numpy" and (device.type != "cpu" or algo.torso.kind != "mlp" or algo.method.kind == "reinforce"):
        raise UsageError("update_engine=numpy: only PPO, A2C, NPG and TRPO with algo.torso=mlp on a CPU; use auto")
    if not isinstance(algo.method, online.ReinforceConfig):
        return _actor_critic_learner(spec, algo, algo.method, info, device, engine, compiler)
    actor = _actor(spec, algo, info).to(device)
    optimizer = _optimizer(algo, actor)
    reinforce = REINFORCE(
        actor,
        optimizer=optimizer,
        gamma=algo.gamma,
        normalize_returns=algo.scale_returns,
        greedy=algo.greedy,
        compiler=compiler,
    )
    return reinforce, optimizer


def _actor_critic_learner(
    spec: Spec,
    algo: online.PolicyGradientConfig,
    method: online.PPOConfig | online.TRPOConfig,
    info: EnvInfo,
    device: torch.device,
    engine: EngineName,
    compiler: Compiler | None,
) -> tuple[PPO | TRPO, torch.optim.Optimizer]:
    net, rows = actor_critic_network(spec, algo, info).to(device), algo.rollout_length * spec.task.envs
    like = next(net.parameters()).detach()
    estimator = AdvantageEstimator(
        gamma=algo.gamma, gae_lambda=algo.gae_lambda, scale_returns=algo.scale_returns, like=like
    )
    if isinstance(method, online.PPOConfig):
        optimizer = _optimizer(algo, net)
        numpy_engine = None
        if isinstance(net, SeparateActorCritic) and _numpy_pays(net, engine, rows // method.minibatches):
            numpy_engine = numpy_ppo.NumpyPPO(net, optimizer, method)
        return PPO(
            net,
            optimizer=optimizer,
            estimator=estimator,
            config=method,
            greedy=algo.greedy,
            generator=Seeds(spec.seed).child("shuffle").torch(device),
            engine=numpy_engine,
            compiler=compiler,
        ), optimizer
    if not isinstance(net, SeparateActorCritic):
        raise UsageError(f"{spec.name}: needs separate actor and critic networks; choose algo.torso=mlp")
    optimizer = _optimizer(algo, net.critic)
    pays = _numpy_pays(net, engine, rows)
    return TRPO(
        net,
        optimizer=optimizer,
        estimator=estimator,
        config=method,
        greedy=algo.greedy,
        engine=NumpyValueRegression(net, optimizer, steps=method.critic_steps) if pays else None,
        compiler=compiler,
    ), optimizer


def _numpy_pays(net: SeparateActorCritic, engine: EngineName, rows: int) -> bool:
    """True if ``engine`` is numpy, or is auto and a batch takes at most ``MAX_MULTIPLICATIONS``."""
    multiplications = rows * max(parameter.numel() for parameter in net.parameters())
    on_cpu = next(net.parameters()).device.type == "cpu"
    return on_cpu and (engine == "numpy" or (engine == "auto" and multiplications <= MAX_MULTIPLICATIONS))


def actor_critic_network(spec: Spec, algo: online.PolicyGradientConfig, info: EnvInfo) -> ActorCriticNet:
    """Build actor and critic: separate networks on vectors, shared convolutions on frames.

    Raises:
        UsageError: the torso is convolutional and actions are continuous.
    """
    torso = build_torso(algo.torso, spec, info)
    if isinstance(torso, MLPTorso):
        net = SeparateActorCritic(_actor(spec, algo, info), torso)
        init_orthogonal(net.critic)
        return net
    if not isinstance(info.actions, Discrete):
        raise UsageError(f"{spec.name}: a convolutional torso needs discrete actions; choose algo.torso=mlp")
    shared = SharedActorCritic(torso, hidden=algo.hidden, actions=info.actions.n)
    if torso.scale:  # the published settings with scaled frames also use orthogonal initialization
        init_orthogonal(shared.torso)
    return shared


def _actor(spec: Spec, algo: online.PolicyGradientConfig, info: EnvInfo) -> GaussianActor | DiscreteActor:
    torso = build_torso(algo.torso, spec, info)
    if not isinstance(torso, MLPTorso):
        raise UsageError(f"{spec.name}: a separate actor needs an MLP; choose algo.torso=mlp")
    if isinstance(info.actions, Discrete):
        discrete = DiscreteActor(torso=torso, actions=info.actions.n)
        init_orthogonal(discrete)
        return discrete
    actor = GaussianActor(torso=torso, actions=len(info.actions.low), log_std=algo.log_std)
    init_orthogonal(actor)
    actor.mean.weight.data.mul_(MEAN_LAYER_GAIN)
    return actor


def _optimizer(algo: online.PolicyGradientConfig, net: nn.Module) -> torch.optim.Optimizer:
    if algo.optimizer == "adam":
        return adam(net, lr=algo.lr, eps=algo.epsilon)
    return torch.optim.RMSprop(net.parameters(), lr=algo.lr, eps=algo.epsilon, alpha=0.99, foreach=True)


def schedules(algo: online.PolicyGradientConfig, optimizer: torch.optim.Optimizer) -> list[Schedule]:
    """The schedule of the learning rate, linear to 0, if it decays."""
    if algo.lr_decay_steps is None:
        return []

    def set_lr(lr: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = lr

    return [(online.LinearSchedule(start=algo.lr, end=0.0, steps=algo.lr_decay_steps).at, set_lr)]


def env_action_map(algo: online.PolicyGradientConfig, info: EnvInfo) -> Callable[[Tensor], Tensor] | None:
    """The map of continuous actions ``[B, A]`` to [−1, 1]; none of discrete ones."""
    if isinstance(info.actions, Discrete):
        return None
    return Tensor.tanh if algo.bound == "tanh" else lambda action: action.clamp(-1, 1)
