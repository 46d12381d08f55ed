"""Small networks of learners' tests, in float64."""

import torch
from torch import Tensor, nn

from rlbench.nets.actors import BoundedActor, DeterministicActor, SquashedActor
from rlbench.nets.critics import Critics
from tests.algorithms.recorded import ACTIONS, OBS, WIDTHS


def critics(members: int = 2, units: tuple[Tensor, Tensor] | None = None) -> Critics:
    return Critics(members=members, obs=OBS, actions=ACTIONS, widths=WIDTHS, units=units).double()


def deterministic_actor() -> DeterministicActor:
    return DeterministicActor(obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS).double()


def bounded_actor() -> BoundedActor:
    return BoundedActor(obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS, log_std_min=-5, log_std_max=2).double()


def squashed_actor(log_scale: float = 0.0) -> SquashedActor:
    bounds = {"log_std_min": -20, "log_std_max": 2}
    return SquashedActor(obs_shape=(OBS,), actions=ACTIONS, widths=WIDTHS, log_scale=log_scale, **bounds).double()


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), lr=1e-3)


def spread(*nets: nn.Module) -> None:
    """Biases and all are made different, so that no mix-up of networks goes unseen."""
    with torch.no_grad():
        for net in nets:
            for parameter in net.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
