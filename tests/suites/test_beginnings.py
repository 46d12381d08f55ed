"""Initialization of on-policy networks and bounds of their actions, as in the reference code."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlbench import suites
from rlbench.assembly.policy_gradient import actor_critic_network, env_action_map
from rlbench.config.online import PolicyGradientConfig
from rlbench.config.run import Spec
from rlbench.envs.base import Box, Discrete, EnvInfo
from rlbench.nets.actor_critic import GaussianActor, SeparateActorCritic, SharedActorCritic

REAL = EnvInfo(1, (17,), np.dtype(np.float32), Box(-np.ones(6, np.float32), np.ones(6, np.float32)), ())
PIXELS = EnvInfo(1, (84, 84), np.dtype(np.uint8), Discrete(6), ())


def algo_of(spec: Spec) -> PolicyGradientConfig:
    assert isinstance(spec.algo, PolicyGradientConfig)
    return spec.algo


def gain(layer: nn.Linear | nn.Conv2d) -> float | None:
    """The factor of an orthogonal matrix, None if the weights are no such multiple."""
    weight = layer.weight.detach().double().flatten(1)
    short = weight @ weight.T if len(weight) <= weight.shape[1] else weight.T @ weight
    scale = float(short.diagonal().mean())
    near = torch.allclose(short, scale * torch.eye(len(short)).double(), atol=1e-4 * scale)
    return math.sqrt(scale) if near else None


def layers(net: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    return [layer for layer in net.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]


@pytest.mark.parametrize("algorithm", ["a2c", "ppo", "npg", "trpo"])
def test_actor_and_critic_have_orthogonal_initialization_with_a_small_mean(algorithm: str) -> None:
    spec = suites.spec("mujoco", algorithm, "HalfCheetah-v4")
    net = actor_critic_network(spec, algo_of(spec), REAL)
    assert isinstance(net, SeparateActorCritic)
    assert isinstance(net.actor, GaussianActor)
    *inner, mean = layers(net.actor)
    assert mean is net.actor.mean
    assert [gain(x) for x in (*inner, *layers(net.critic))] == pytest.approx([math.sqrt(2)] * 5, rel=1e-4)
    assert gain(mean) == pytest.approx(0.01 * math.sqrt(2), rel=1e-4)
    assert all(not x.bias.any() for x in layers(net) if x.bias is not None)
    assert net.actor.log_std.tolist() == [-0.5] * 6


def test_atari_torso_has_orthogonal_initialization() -> None:
    spec = suites.spec("atari", "ppo", "PongNoFrameskip-v4")
    net = actor_critic_network(spec, algo_of(spec), PIXELS)
    assert isinstance(net, SharedActorCritic)
    assert [gain(x) for x in layers(net.torso)] == pytest.approx([math.sqrt(2)] * 4, rel=1e-4)
    assert all(not x.bias.any() for x in layers(net.torso) if x.bias is not None)
    assert gain(net.logits) is None
    assert net.logits.bias.any()
    assert float(net.value.weight.detach().abs().max()) <= 512**-0.5  # torch's own beginning is uniform within that
    assert net.value.bias.any()


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [("reinforce", torch.tanh), *((name, lambda action: action.clip(-1, 1)) for name in ("a2c", "ppo", "npg", "trpo"))],
)
def test_reinforce_squashes_actions_and_others_clip_them(algorithm: str, expected: Callable[[Tensor], Tensor]) -> None:
    action = Tensor([[-2.0, -1.0, -0.5, 0.0, 0.7, 9.0]])
    bound_of_algorithm = env_action_map(algo_of(suites.spec("mujoco", algorithm, "HalfCheetah-v4")), REAL)
    assert bound_of_algorithm is not None
    torch.testing.assert_close(bound_of_algorithm(action), expected(action))
