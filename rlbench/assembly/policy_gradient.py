"""REINFORCE, A2C, PPO, NPG and TRPO, from their Spec."""

from __future__ import annotations

from typing import NamedTuple, Protocol, assert_never

import torch
from torch import Tensor, nn

from rlbench.algorithms.onpolicy import ActorValue, OnPolicyLearner, Returns
from rlbench.algorithms.ppo import PPO, Objective, Passes
from rlbench.algorithms.reinforce import Reinforce
from rlbench.algorithms.trpo import Natural, Step
from rlbench.buffers.ring import Column
from rlbench.config import online as spec_algo
from rlbench.config.online import Linear, Mlp, Nature, PolicyGradient
from rlbench.config.run import Spec
from rlbench.envs.base import Box, Discrete, EnvInfo
from rlbench.errors import UsageError
from rlbench.nets.actor_critic import DiscreteActor, GaussianActor, SeparateActorCritic, SharedActorCritic, orthogonal
from rlbench.nets.torsos import MlpTorso, NatureTorso
from rlbench.records.types import PGUpdated
from rlbench.seeds import Seeds
from rlbench.training.protocols import Schedule

METRICS = ("policy_loss", "value_loss", "entropy", "divergence")
LAST = 0.01  # what the weights of the layer that gives the mean are multiplied by at the start


class OnPolicyParts(NamedTuple):
    """The family's share of a run."""

    learner: OnPolicyLearner
    optimizer: torch.optim.Optimizer
    action: Column


def build_on_policy(spec: Spec, algo: PolicyGradient, info: EnvInfo, device: torch.device) -> OnPolicyParts:
    """The learner, its networks freshly drawn from torch's own generator.

    Raises:
        UsageError: natural gradients are asked for, and actor and critic share their torso.
    """
    real = isinstance(info.actions, Box)
    column = Column((_actions(info),), torch.float32) if real else Column((), torch.int64)
    method = algo.method
    if isinstance(method, spec_algo.Reinforce):
        actor = _actor(spec, algo, info).to(device)
        optimizer = _optimizer(algo, actor)
        learner: OnPolicyLearner = Reinforce(
            actor, optimizer=optimizer, gamma=algo.gamma, normalize_returns=algo.scale_returns, greedy=algo.greedy
        )
        return OnPolicyParts(learner, optimizer, column)
    net = network(spec, algo, info).to(device)
    returns = Returns(
        gamma=algo.gamma, gae_lambda=algo.gae_lambda, scaled=algo.scale_returns, like=next(net.parameters()).detach()
    )
    match method:
        case spec_algo.Surrogate():
            optimizer = _optimizer(algo, net)
            learner = _ppo(algo, method, net, optimizer, returns, Seeds(spec.seed).child("shuffle").torch(device))
        case spec_algo.Natural():
            if not isinstance(net, SeparateActorCritic):
                raise UsageError(f"{spec.name}: natural gradients need an actor of its own: choose algo.torso=mlp")
            optimizer = _optimizer(algo, net.critic)
            learner = _natural(algo, method, net, optimizer, returns)
        case _:
            assert_never(method)
    return OnPolicyParts(learner, optimizer, column)


def _ppo(
    algo: PolicyGradient,
    method: spec_algo.Surrogate,
    net: ActorValue,
    optimizer: torch.optim.Optimizer,
    returns: Returns,
    generator: torch.Generator,
) -> PPO:
    return PPO(
        net,
        optimizer=optimizer,
        returns=returns,
        objective=Objective(
            clip=method.clip,
            dual_clip=method.dual_clip,
            value_clip=method.value_clip,
            value=method.value,
            entropy=method.entropy,
            normalize=method.normalize,
        ),
        max_grad_norm=method.max_grad_norm,
        passes=Passes(epochs=method.epochs, minibatches=method.minibatches, recompute=method.recompute),
        greedy=algo.greedy,
        generator=generator,
    )


def _natural(
    algo: PolicyGradient,
    method: spec_algo.Natural,
    net: SeparateActorCritic,
    optimizer: torch.optim.Optimizer,
    returns: Returns,
) -> Natural:
    step = Step(
        size=method.step,
        max_kl=method.max_kl,
        backtrack_coef=method.backtrack_coef,
        max_backtracks=method.max_backtracks,
        iterations=method.iterations,
        damping=method.damping,
    )
    return Natural(
        net, optimizer=optimizer, returns=returns, step=step, critic_steps=method.critic_steps, greedy=algo.greedy
    )


def network(spec: Spec, algo: PolicyGradient, info: EnvInfo) -> ActorValue:
    """Actor and critic: apart on vectors, with shared convolutions on frames.

    Raises:
        UsageError: convolutions are asked for, and actions are real.
    """
    match algo.torso:
        case Nature(scale=scale):
            if not isinstance(info.actions, Discrete):
                raise UsageError(f"{spec.name}: convolutions choose among discrete actions; choose algo.torso=mlp")
            torso = NatureTorso(stack=spec.task.stack, size=info.obs_shape[-1], scale=scale)
            shared = SharedActorCritic(torso, hidden=algo.hidden, actions=info.actions.n)
            if scale:  # as documented: the newer settings came together
                orthogonal([shared.torso])
            return shared
        case Mlp():
            critic = _torso(spec, algo.torso, info)
            net = SeparateActorCritic(_actor(spec, algo, info), critic)
            orthogonal([net.critic])
            return net
        case _:
            assert_never(algo.torso)


def _actor(spec: Spec, algo: PolicyGradient, info: EnvInfo) -> GaussianActor | DiscreteActor:
    if not isinstance(algo.torso, Mlp):
        raise UsageError(f"{spec.name}: an actor of its own reads vectors; choose algo.torso=mlp")
    torso = _torso(spec, algo.torso, info)
    if isinstance(info.actions, Discrete):
        discrete = DiscreteActor(torso=torso, actions=_actions(info))
        orthogonal([discrete])
        return discrete
    actor = GaussianActor(torso=torso, actions=_actions(info), log_std=algo.log_std)
    orthogonal([actor])
    actor.mean.weight.data.mul_(LAST)
    return actor


def _torso(spec: Spec, mlp: Mlp, info: EnvInfo) -> MlpTorso:
    stacked = (spec.task.stack,) if spec.task.stack > 1 else ()
    return MlpTorso(obs_shape=(*stacked, *info.obs_shape), widths=mlp.widths, activation=mlp.activation)


def _actions(info: EnvInfo) -> int:
    return info.actions.n if isinstance(info.actions, Discrete) else int(info.actions.low.shape[0])


def _optimizer(algo: PolicyGradient, net: nn.Module) -> torch.optim.Optimizer:
    if algo.optimizer == "adam":
        return torch.optim.Adam(net.parameters(), lr=algo.lr, eps=algo.epsilon, fused=True)
    return torch.optim.RMSprop(net.parameters(), lr=algo.lr, eps=algo.epsilon, alpha=0.99, foreach=True)


def schedules(algo: PolicyGradient, optimizer: torch.optim.Optimizer) -> list[Schedule]:
    """The learning rate, where it falls: from its start to 0."""
    if algo.lr_decay_steps is None:
        return []

    def put(lr: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = lr

    return [(Linear(start=algo.lr, end=0.0, steps=algo.lr_decay_steps).at, put)]


def summary(number: int, means: tuple[float, ...]) -> PGUpdated:
    """The record of an epoch's ``number`` gradient steps."""
    return PGUpdated(count=number, **dict(zip(METRICS, means, strict=True)))


class Bound(Protocol):
    """Brings chosen actions to what the environment takes."""

    def __call__(self, action: Tensor) -> Tensor:
        """``[N, ...]`` to the same."""


def bound(algo: PolicyGradient, info: EnvInfo) -> Bound:
    """How a chosen action is carried out: real ones are brought into [−1, 1]."""
    if isinstance(info.actions, Discrete):
        return as_it_is
    return _squashed if algo.bound == "tanh" else _clipped


def as_it_is(action: Tensor) -> Tensor:
    """The action itself, ``[N]``."""
    return action


def _squashed(action: Tensor) -> Tensor:
    return action.tanh()


def _clipped(action: Tensor) -> Tensor:
    return action.clamp(-1, 1)
