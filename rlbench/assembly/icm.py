"""Curiosity around what a family brings, from its Spec."""

from __future__ import annotations

import torch

from rlbench.algorithms.icm import Curiosity
from rlbench.assembly.dqn import count
from rlbench.assembly.torsos import torso
from rlbench.config import online as spec_algo
from rlbench.config.run import Spec
from rlbench.envs.base import EnvInfo
from rlbench.nets.icm import ICM


def model(spec: Spec, wanted: spec_algo.Curiosity, lr: float, info: EnvInfo, device: torch.device) -> Curiosity:
    """The model, freshly drawn from torch's own generator; ``lr`` is the algorithm's, if it has none of its own.

    Raises:
        UsageError: actions are real vectors.
    """
    net = ICM(torso(wanted.torso, spec, info), hidden=wanted.hidden, actions=count(spec, info)).to(device)
    return Curiosity(
        net,
        optimizer=torch.optim.Adam(net.parameters(), lr=lr if wanted.lr is None else wanted.lr, fused=True),
        loss_scale=wanted.loss_scale,
        reward_scale=wanted.reward_scale,
        forward_share=wanted.forward_share,
    )
