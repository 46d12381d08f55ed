"""Small networks of learners' tests, in float64."""

import torch
from torch import Tensor, nn

from rlbench.nets.actors import BoundedGaussianActor, DeterministicActor, SquashedGaussianActor
from rlbench.nets.critics import Critics
from tests.algorithms.recorded import ACTIONS, OBS, WIDTHS


def critics(members: int = 2, units: tuple[Tensor, Tensor] | None = None) -> Critics:
    return Critics(members=members, obs=OBS, actions=ACTIONS, widths=WIDTHS, units=units).double()


def deterministic_actor() -> DeterministicActor:
    return DeterministicActor(obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS).double()


def bounded_actor() -> BoundedGaussianActor:
    bounds = {"log_std_min": -5, "log_std_max": 2}
    return BoundedGaussianActor(obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS, **bounds).double()


def squashed_actor(log_scale: float = 0.0) -> SquashedGaussianActor:
    bounds = {"log_std_min": -20, "log_std_max": 2, "log_scale": log_scale}
    return SquashedGaussianActor(obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS, **bounds).double()


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), lr=1e-3)


def spread(*nets: nn.Module) -> None:
    """Biases and all are made different, so that no mix-up of networks goes unseen."""
    with torch.no_grad():
        for net in nets:
            for parameter in net.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
