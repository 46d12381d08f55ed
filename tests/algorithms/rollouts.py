"""Helpers of on-policy learners' tests: tiny networks in float64, and rollouts with every kind of episode end."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor, nn

from rlbench.algorithms.onpolicy import AdvantageEstimator
from rlbench.algorithms.ppo import PPO
from rlbench.algorithms.reinforce import REINFORCE
from rlbench.algorithms.trpo import TRPO
from rlbench.config.online import PPOConfig, TRPOConfig
from rlbench.nets.actor_critic import DiscreteActor, GaussianActor, SeparateActorCritic, SharedActorCritic
from rlbench.nets.torsos import MLPTorso
from rlbench.ops.types import Rollout
from tests.algorithms.recorded import Array, numbers

OBS, ACTIONS, ROWS, ENVS = 3, 2, 12, 4


def torso(widths: tuple[int, ...]) -> MLPTorso:
    return MLPTorso(obs_shape=(OBS,), widths=widths, activation="tanh")


def net_of(kind: str) -> SeparateActorCritic | SharedActorCritic:
    """All numbers different, so that no mix-up goes unseen."""
    torch.manual_seed(0)
    if kind == "shared":
        net: SeparateActorCritic | SharedActorCritic = SharedActorCritic(torso((5,)), hidden=4, actions=3)
    elif kind == "discrete":
        net = SeparateActorCritic(DiscreteActor(torso=torso((4,)), actions=3), torso((5, 4)))
    else:
        net = SeparateActorCritic(GaussianActor(torso=torso((4,)), actions=ACTIONS, log_std=-0.5), torso((5, 4)))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net.double()


def sgd(net: nn.Module, lr: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=lr)


def estimator_of(*, normalize: bool = False) -> AdvantageEstimator:
    return AdvantageEstimator(gamma=0.9, gae_lambda=0.8, scale_returns=normalize, like=torch.empty(0))


def ppo(kind: str = "gaussian", *, max_grad_norm: float | None = None, lr: float = 1e-2, normalize: bool = False,
        **method: float | bool | None) -> PPO:  # fmt: skip
    net = net_of(kind)
    return PPO(
        net,
        optimizer=sgd(net, lr),
        estimator=estimator_of(normalize=normalize),
        config=PPOConfig.model_validate({"max_grad_norm": max_grad_norm, **method}),
        greedy=False,
        generator=torch.Generator().manual_seed(8),
    )


def rollout_of(net: SeparateActorCritic | SharedActorCritic | None = None, seed: int = 1) -> Rollout:
    """Ends of both kinds and final rows; every observation begins with its own number."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    code = torch.randint(0, 6, (ROWS, ENVS), generator=generator)
    final = torch.zeros(ROWS, ENVS, dtype=torch.bool)
    final[0, 1] = True
    for row in range(1, ROWS):
        final[row] = (code[row - 1] > 3) & ~final[row - 1]
    obs = normal(ROWS + 1, ENVS, OBS)
    obs[..., 0] = torch.arange((ROWS + 1) * ENVS).view(ROWS + 1, ENVS) / 50
    numbered = net is not None and (isinstance(net, SharedActorCritic) or isinstance(net.actor, DiscreteActor))
    action = torch.randint(0, 3, (ROWS, ENVS), generator=generator) if numbered else normal(ROWS, ENVS, ACTIONS)
    assert int(final.sum()) > 5
    return Rollout(
        obs=obs, action=action, reward=normal(ROWS, ENVS) * ~final, terminated=(code == 4) & ~final,
        done=(code > 3) & ~final, final=final,
    )  # fmt: skip


def through(net: nn.Module, x: Array) -> Array:
    """Fully connected layers, whichever activations lie between them."""
    for layer in net.modules():
        match layer:
            case nn.Linear():
                x = x @ numbers(layer.weight).T + numbers(layer.bias)
            case nn.Tanh():
                x = np.tanh(x)
            case nn.ReLU():
                x = np.maximum(x, 0)
    return x


@dataclass
class RowOutput:
    """The networks' outputs for one row, by plain arithmetic."""

    log_prob: float
    value: float
    entropy: float


def row_output(net: SeparateActorCritic | SharedActorCritic, obs: Array, action: Array) -> RowOutput:
    if isinstance(net, SeparateActorCritic) and isinstance(net.actor, GaussianActor):
        mean, std = through(net.actor, obs), np.exp(numbers(net.actor.log_std))
        log_prob = float(stats.norm.logpdf(action, mean, std).sum())
        return RowOutput(log_prob, float(through(net.critic, obs)[0]), float(stats.norm.entropy(0, std).sum()))
    if isinstance(net, SharedActorCritic):
        features = through(net.torso, obs)
        logits, value = through(net.logits, features), through(net.value, features)
    else:
        logits, value = through(net.actor, obs), through(net.critic, obs)
    log = special.log_softmax(logits)
    return RowOutput(float(log[int(action)]), float(value[0]), float(-(np.exp(log) * log).sum()))


def reinforce(*, standardise: bool) -> REINFORCE:
    net = net_of("gaussian")
    assert isinstance(net, SeparateActorCritic)
    return REINFORCE(net.actor, optimizer=sgd(net.actor), gamma=0.9, normalize_returns=standardise, greedy=False)


def natural(kind: str = "gaussian", **method: float | None) -> TRPO:
    net = net_of(kind)
    assert isinstance(net, SeparateActorCritic)
    settings = {"iterations": 60, "critic_steps": 1, **method}
    return TRPO(
        net,
        optimizer=sgd(net.critic),
        estimator=estimator_of(),
        config=TRPOConfig.model_validate(settings),
        greedy=False,
        tolerance=1e-28,  # until it is exact
    )
