"""The actor of a finished run as a policy file: what ``datasets/policies.py`` reads.

Where observations were normalised in training, what was known of them goes with it. An actor that adds its spread
behind the bound, as those of IQL and CRR do, goes without it: the format has the spread before the bound.
"""

from __future__ import annotations

import re
from typing import NamedTuple, assert_never

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.config.footprint import world_of
from rlbench.config.offline import (
    TD3BC,
    BatchConstrained,
    Conservative,
    CriticRegularized,
    Imitation,
    ImplicitQ,
    Offline,
)
from rlbench.config.offline_discrete import OfflineQ
from rlbench.config.online import ActorCritic, DiscreteSAC, Mlp, PolicyGradient, QLearning, Soft
from rlbench.config.run import Algo, Spec
from rlbench.datasets.policies import serialize
from rlbench.envs.normalize import CLIP, EPSILON
from rlbench.errors import UsageError
from rlbench.ops.state_dict import State, branch, tensor

HIDDEN = re.compile(r"torso\.layers\.(\d+)\.weight")


class Actor(NamedTuple):
    """A network, and what of it a policy file must say."""

    state: State
    mean: str  # the layer that gives the preferred action
    activation: str = "relu"
    squash: str = "tanh"
    bounds: tuple[str, str] = ("", "")  # of the logarithm of its spread


def export_policy(spec: Spec, kept: State, *, name: str) -> bytes:
    """The bytes of a policy file, from what a run keeps of its best or last policy.

    Raises:
        UsageError: the run chooses among discrete actions or candidates, or did not keep the scale of its observations.
    """
    actor = _offline(spec.algo, kept, name) if isinstance(spec.algo, Offline) else _online(spec.algo, kept, name)
    if f"{actor.mean}.weight" not in actor.state:
        raise UsageError(f"{name}: chooses among discrete actions; only real ones are recorded")
    arrays = _layers(actor.state, actor.mean)
    facts = {
        "format": "actor-v1",
        "name": name,
        "algorithm": spec.algorithm,
        "env_evaluated": world_of(spec.task).id,
        "input_dim": str(next(iter(arrays.values())).shape[-1]),
        "action_dim": str(len(arrays["mean.bias"])),
        "hidden_layers": str(sum(key.startswith("layers.") for key in arrays) // 2),
        "activation": actor.activation,
        "squash": actor.squash,
        "log_std": "layer" if "log_std.bias" in arrays else "vector" if "log_std" in arrays else "none",
        "log_std_min": actor.bounds[0],
        "log_std_max": actor.bounds[1],
        "source": "rlbench",
    }
    if isinstance(spec.algo, PolicyGradient | Offline) and spec.algo.normalize_obs:
        arrays |= _scale(kept, name)
        facts["obs_norm"] = "true"
    if isinstance(spec.algo, PolicyGradient) and spec.algo.normalize_obs:
        facts |= {"obs_epsilon": repr(EPSILON), "obs_clip": repr(CLIP)}
    return serialize(arrays, facts)


def _online(algo: Algo, kept: State, name: str) -> Actor:
    match algo:
        case ActorCritic(policy=policy):
            if isinstance(policy, Soft):
                return Actor(branch(kept, "policy"), "mean", bounds=(str(policy.log_std_min), str(policy.log_std_max)))
            return Actor(branch(kept, "policy"), "action")
        case PolicyGradient(torso=Mlp(activation=activation), bound=squash):
            return Actor(_actor(branch(kept, "policy")), "mean", activation, squash)
        case PolicyGradient() | QLearning() | DiscreteSAC() | Offline() | OfflineQ():
            raise UsageError(f"{name}: games of Q-learning are recorded with --epsilon; else record another run's")
        case _:
            assert_never(algo)


def _offline(algo: Offline, kept: State, name: str) -> Actor:
    state = branch(kept, "policy")
    match algo.method:
        case BatchConstrained():
            raise UsageError(f"{name}: BCQ's actor chooses among sampled candidates; record another run's")
        case Conservative(log_std_min=low, log_std_max=high):
            return Actor(_folded(state), "mean", bounds=(str(low), str(high)))
        case Imitation() | TD3BC() | CriticRegularized() | ImplicitQ():
            mean = "action" if "action.weight" in state else "mean"
            return Actor({key: value for key, value in state.items() if key != "log_std"}, mean)
        case _:
            assert_never(algo.method)


def _folded(state: State) -> State:
    """The learned scale and shift of a log std, where an actor has them, in the layer that gives it."""
    if "affine" not in state:
        return state
    scale, shift = tensor(state, "affine")
    weight, bias = (scale * tensor(state, f"log_std.{part}") for part in ("weight", "bias"))
    return {**state, "log_std.weight": weight, "log_std.bias": bias + shift}


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
