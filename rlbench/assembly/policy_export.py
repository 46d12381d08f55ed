"""The actor of a finished run as a policy file, which ``datasets/policies.py`` reads.

The file holds the normalization of observations, if the run has one. It has no std for actors that add noise after the
bound, as those of IQL and CRR do: in the format, noise comes before the bound.
"""

from __future__ import annotations

import re

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.config.run import Spec
from rlbench.config.tasks import world_of
from rlbench.datasets.policies import serialize
from rlbench.envs.normalize import CLIP, EPSILON
from rlbench.errors import UsageError
from rlbench.ops.state_dict import State, subtree, tensor

HIDDEN = re.compile(r"torso\.layers\.(\d+)\.weight")


def export_policy(spec: Spec, checkpoint: State, *, name: str) -> bytes:
    """Return the bytes of a policy file of the best or last policy in the ``checkpoint`` of a run.

    Raises:
        UsageError: the policy has discrete actions or candidates, or its checkpoint has no scale of observations.
    """
    export = spec.algo.export
    if isinstance(export, str):
        raise UsageError(f"{name}: {export}")
    state = _actor(subtree(checkpoint, "policy"))
    if not export.log_std:
        state.pop("log_std", None)
    mean = "action" if "action.weight" in state else "mean"
    if f"{mean}.weight" not in state:
        raise UsageError(f"{name}: chooses among discrete actions; only continuous ones are recorded")
    arrays = _layers(state, mean)
    facts = {
        "format": "actor-v1",
        "name": name,
        "algorithm": spec.algorithm,
        "env_evaluated": world_of(spec.task).id,
        "input_dim": str(next(iter(arrays.values())).shape[-1]),
        "action_dim": str(len(arrays["mean.bias"])),
        "hidden_layers": str(sum(key.startswith("layers.") for key in arrays) // 2),
        "activation": export.activation,
        "squash": export.squash,
        "log_std": "layer" if "log_std.bias" in arrays else "vector" if "log_std" in arrays else "none",
        "log_std_min": export.log_std_bounds[0],
        "log_std_max": export.log_std_bounds[1],
        "source": "rlbench",
    }
    if spec.algo.normalizes_obs:
        arrays |= _scale(checkpoint, name)
        facts["obs_norm"] = "true"
        if spec.algo.learns_from == "rollouts":
            facts |= {"obs_epsilon": repr(EPSILON), "obs_clip": repr(CLIP)}
    return serialize(arrays, facts)


def _actor(state: State) -> State:
    """The actor's part of an actor and critic; a learned scale and shift of its log std go into the layer."""
    own = {key.removeprefix("actor."): value for key, value in state.items() if key.startswith("actor.")}
    actor = own or dict(state)
    if "affine" in actor:
        scale, shift = tensor(actor, "affine")
        for part in ("weight", "bias"):
            actor[f"log_std.{part}"] = scale * tensor(actor, f"log_std.{part}")
        actor["log_std.bias"] = tensor(actor, "log_std.bias") + shift
    return actor


def _layers(state: State, mean: str) -> dict[str, NDArray[np.generic]]:
    numbers = sorted(int(match[1]) for key in state if (match := HIDDEN.fullmatch(key)))
    names = {f"torso.layers.{number}": f"layers.{place}" for place, number in enumerate(numbers)} | {mean: "mean"}
    if "log_std.weight" in state:
        names["log_std"] = "log_std"
    keys = {f"{here}.{part}": f"{there}.{part}" for here, there in names.items() for part in ("weight", "bias")}
    if "log_std" in state:
        keys["log_std"] = "log_std"
    return {there: _numbers(tensor(state, here)) for here, there in keys.items()}


def _scale(state: State, name: str) -> dict[str, NDArray[np.generic]]:
    """Mean and variance of the observations of the run's environments or data set."""
    scale = subtree(state, "scale")
    if not scale:
        raise UsageError(
            f"{name}: its checkpoint does not hold the scale of its observations; run it again with --force"
        )
    spread = tensor(scale, "deviation").double() ** 2 if "deviation" in scale else tensor(scale, "var").double()
    return {"obs_mean": _numbers(tensor(scale, "mean").double()), "obs_var": _numbers(spread)}


def _numbers(value: torch.Tensor) -> NDArray[np.generic]:
    array: NDArray[np.generic] = value.detach().cpu().numpy()
    return array
