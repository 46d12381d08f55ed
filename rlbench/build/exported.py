"""The actor of a finished run as a policy file: what ``datasets/policies.py`` reads.

Where observations were normalised in training, what was known of them goes with it.
"""

from __future__ import annotations

import re
from typing import assert_never

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.datasets.policies import serialized
from rlbench.envs.normalize import CUT, EPSILON
from rlbench.errors import UsageError
from rlbench.ops.state import State, branch, tensor
from rlbench.spec.algo import ActorCritic, Deterministic, DiscreteSAC, Mlp, PolicyGradient, QLearning, Soft
from rlbench.spec.offline import Offline
from rlbench.spec.offline_discrete import OfflineQ
from rlbench.spec.run import Spec

HIDDEN = re.compile(r"torso\.layers\.(\d+)\.weight")


def exported(spec: Spec, kept: State, *, name: str) -> bytes:
    """The bytes of a policy file, from what a run keeps of its best or last policy.

    Raises:
        UsageError: the run chooses among numbered actions, or did not keep the scale of its observations.
    """
    match spec.algo:
        case ActorCritic(policy=policy):
            state, mean, activation, squash = branch(kept, "policy"), "mean", "relu", "tanh"
            bounds = (str(policy.low), str(policy.high)) if isinstance(policy, Soft) else ("", "")
            if isinstance(policy, Deterministic):
                mean = "action"
        case PolicyGradient(torso=Mlp(activation=activation), bound=squash):
            state, mean, bounds = _actor(branch(kept, "policy")), "mean", ("", "")
        case PolicyGradient() | QLearning() | DiscreteSAC() | Offline() | OfflineQ():
            raise UsageError(f"{name}: games of Q-learning are recorded with --epsilon; else record another run's")
        case _:
            assert_never(spec.algo)
    if f"{mean}.weight" not in state:
        raise UsageError(f"{name}: chooses among numbered actions; only real ones are recorded")
    arrays = _layers(state, mean)
    facts = {
        "format": "actor-v1",
        "name": name,
        "algorithm": spec.algorithm,
        "env_evaluated": spec.task.id,
        "input_dim": str(next(iter(arrays.values())).shape[-1]),
        "action_dim": str(len(arrays["mean.bias"])),
        "hidden_layers": str(sum(key.startswith("layers.") for key in arrays) // 2),
        "activation": activation,
        "squash": squash,
        "log_std": "layer" if "log_std.bias" in arrays else "vector" if "log_std" in arrays else "none",
        "log_std_min": bounds[0],
        "log_std_max": bounds[1],
        "source": "rlbench",
    }
    if isinstance(spec.algo, PolicyGradient) and spec.algo.normalize_obs:
        arrays |= _scale(kept, name)
        facts |= {"obs_norm": "true", "obs_epsilon": repr(EPSILON), "obs_clip": repr(CUT)}
    return serialized(arrays, facts)


def _actor(state: State) -> State:
    """The actor's part of an actor and critic."""
    own = {key.removeprefix("actor."): value for key, value in state.items() if key.startswith("actor.")}
    return own or state


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
    """Mean and variance of the observations that the run saw."""
    scale = branch(kept, "scale")
    if not scale:
        raise UsageError(
            f"{name}: its checkpoint does not hold the scale of its observations; run it again with --force"
        )
    return {f"obs_{part}": _numbers(tensor(scale, part).double()) for part in ("mean", "var")}


def _numbers(value: torch.Tensor) -> NDArray[np.generic]:
    found: NDArray[np.generic] = value.detach().cpu().numpy()
    return found
