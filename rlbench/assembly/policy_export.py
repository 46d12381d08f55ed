"""The actor of a finished run as a policy file: what ``datasets/policies.py`` reads.

Where observations were normalised in training, what was known of them goes with it. An actor that adds its spread
behind the bound, as those of IQL and CRR do, goes without it: the format has the spread before the bound.
"""

from __future__ import annotations

import re

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.config.footprint import world_of
from rlbench.config.run import Spec
from rlbench.datasets.policies import serialize
from rlbench.envs.normalize import CLIP, EPSILON
from rlbench.errors import UsageError
from rlbench.ops.state_dict import State, branch, tensor

HIDDEN = re.compile(r"torso\.layers\.(\d+)\.weight")


def export_policy(spec: Spec, kept: State, *, name: str) -> bytes:
    """The bytes of a policy file, from what a run keeps of its best or last policy.

    Raises:
        UsageError: the run chooses among discrete actions or candidates, or did not keep the scale of its observations.
    """
    export = spec.algo.export
    if isinstance(export, str):
        raise UsageError(f"{name}: {export}")
    state = _actor(branch(kept, "policy"))
    if not export.log_std:
        state.pop("log_std", None)
    mean = "action" if "action.weight" in state else "mean"
    if f"{mean}.weight" not in state:
        raise UsageError(f"{name}: chooses among discrete actions; only real ones are recorded")
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
        arrays |= _scale(kept, name)
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
    """Every layer under the name that a policy file has for it, the first one first."""
    numbers = sorted(int(found[1]) for key in state if (found := HIDDEN.fullmatch(key)))
    names = {f"torso.layers.{number}": f"layers.{place}" for place, number in enumerate(numbers)} | {mean: "mean"}
    if "log_std.weight" in state:
        names["log_std"] = "log_std"
    keys = {f"{here}.{part}": f"{there}.{part}" for here, there in names.items() for part in ("weight", "bias")}
    if "log_std" in state:
        keys["log_std"] = "log_std"
    return {there: _numbers(tensor(state, here)) for here, there in keys.items()}


def _scale(kept: State, name: str) -> dict[str, NDArray[np.generic]]:
    """Mean and variance of the observations that the run saw, or that are in the data it learned from."""
    scale = branch(kept, "scale")
    if not scale:
        raise UsageError(
            f"{name}: its checkpoint does not hold the scale of its observations; run it again with --force"
        )
    spread = tensor(scale, "deviation").double() ** 2 if "deviation" in scale else tensor(scale, "var").double()
    return {"obs_mean": _numbers(tensor(scale, "mean").double()), "obs_var": _numbers(spread)}


def _numbers(value: torch.Tensor) -> NDArray[np.generic]:
    found: NDArray[np.generic] = value.detach().cpu().numpy()
    return found
