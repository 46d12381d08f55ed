"""The torso that a Spec names, as wide as its task's observations."""

from __future__ import annotations

from typing import assert_never

from rlbench.config.online import Mlp, Nature, Torso
from rlbench.config.run import Spec
from rlbench.envs.base import EnvInfo
from rlbench.nets.torsos import MlpTorso, NatureTorso


def torso(chosen: Torso, spec: Spec, info: EnvInfo) -> NatureTorso | MlpTorso:
    """Freshly drawn from torch's own generator."""
    match chosen:
        case Nature(scale=scale):
            return NatureTorso(stack=spec.task.stack, size=info.obs_shape[-1], scale=scale)
        case Mlp(widths=widths, activation=activation):
            shape = (spec.task.stack, *info.obs_shape)
            return MlpTorso(obs_shape=shape, widths=widths, activation=activation)
        case _:
            assert_never(chosen)
