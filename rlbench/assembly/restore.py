"""Saved policies: evaluated by the protocol of their run, played with any exploration, or exported as policy files."""

from __future__ import annotations

import re
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.assembly import assemble, policy_gradient
from rlbench.assembly.device import device_of, stepping_threads, threads_of
from rlbench.assembly.environments import describe
from rlbench.assembly.evaluation import EvaluationSetup, protocol_evaluation
from rlbench.collectors.evaluate import Evaluation
from rlbench.collectors.recording import ShardRecorder
from rlbench.config.online import PolicyGradientConfig, QLearningConfig
from rlbench.config.run import Runtime, Spec
from rlbench.config.tasks import env_task_of
from rlbench.datasets import episodes
from rlbench.datasets.policies import serialize
from rlbench.envs.base import EnvInfo
from rlbench.envs.normalize import CLIP, EPSILON, ObsNormalizer, ObsTransform
from rlbench.errors import RefusedFile, UsageError
from rlbench.ops.state_dict import State, load_module, subtree, tensor
from rlbench.seeds import Seeds

HIDDEN = re.compile(r"torso\.layers\.(\d+)\.weight")


def restore_evaluation(spec: Spec, state: State, runtime: Runtime, seeds: Seeds) -> Evaluation:
    """Prepare the evaluation by ``spec.protocol`` of the policy in the ``state`` of a run of ``spec``.

    Raises:
        UsageError: the device is missing, or the checkpoint lacks the normalization of observations.
        RefusedFile: the checkpoint holds another network.
    """
    device, info = device_of(runtime), describe(spec)
    torch.set_num_threads(threads_of(spec, runtime, device))
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False  # as in training
    torch.backends.cudnn.allow_tf32 = False
    return protocol_evaluation(spec, info, _setup(spec, state, info, device, runtime), device, seeds)


def _setup(spec: Spec, state: State, info: EnvInfo, device: torch.device, runtime: Runtime) -> EvaluationSetup:
    algo, threads, obs_transform = spec.algo, stepping_threads(runtime), _obs_transform(spec, state, info)
    if isinstance(algo, PolicyGradientConfig):
        learner, _ = policy_gradient.build_on_policy(spec, algo, info, device)
        policy, to_env_action = learner.policy_net(), policy_gradient.env_action_map(algo, info)
        setup = EvaluationSetup(learner, threads, to_env_action=to_env_action, obs_transform=obs_transform)
    else:
        parts = assemble.parts_of(spec, algo, info, device)
        policy = parts.learner.policy_net()
        setup = EvaluationSetup(parts.learner, threads, parts.eval_explorer, obs_transform=obs_transform)
    try:
        load_module(policy, subtree(state, "policy"))
    except (RuntimeError, TypeError):
        raise RefusedFile(
            f"{spec.name}: the checkpoint holds another network than the Spec; --force runs it again"
        ) from None
    return setup


def _obs_transform(spec: Spec, state: State, info: EnvInfo) -> ObsTransform | None:
    """The normalization of the training's observations, now constant, if the policy uses one."""
    if not spec.algo.normalizes_obs:
        return None
    saved = _saved_moments(state, spec.name)
    if spec.algo.learns_from == "data":
        return episodes.ObsScaler(*(tensor(saved, part).cpu().numpy() for part in episodes.ObsScaler._fields))
    obs_transform = ObsNormalizer(info.obs_shape)
    obs_transform.load_state_dict(saved)
    return obs_transform


def record_games(spec: Spec, state: State, *, epsilon: float, seed: int, recorder: ShardRecorder) -> Evaluation:
    """Prepare games of the policy in the ``state`` of a run of ``spec``, played on the CPU for the ``recorder``.

    Equal seeds give equal games.

    Raises:
        RefusedFile: the checkpoint holds another network.
    """
    changes = {"episodes": recorder.num_envs, "envs": recorder.num_envs, "epsilon": epsilon}  # the recorder ends it
    spec = spec.model_copy(update={"protocol": spec.protocol.model_copy(update=changes)})
    device, info = torch.device("cpu"), describe(spec)
    setup = _setup(spec, state, info, device, Runtime(device="cpu"))
    return protocol_evaluation(spec, info, setup, device, Seeds(seed).child("games"), recorder)


def refuse_other_than_q_learning(spec: Spec) -> None:
    """Refuse a run whose games cannot be recorded.

    Raises:
        UsageError: it does not learn the values of discrete actions.
    """
    if not isinstance(spec.algo, QLearningConfig):
        raise UsageError(f"{spec.name}: is not Q-learning; only Q-learning, such as dqn or rainbow, records games")


def fingerprint(state: State) -> str:
    """SHA-256 of a saved policy's parameters, as in ``outcome.json``; equal for two runs of equal results."""
    total = sha256()
    for name, value in sorted(subtree(state, "policy").items()):
        if isinstance(value, torch.Tensor):
            total.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def export_policy(spec: Spec, checkpoint: State, *, name: str) -> bytes:
    """Return the bytes of a policy file of the best or last policy in the ``checkpoint`` of a run.

    The file holds the normalization of observations, if the run has one. It has no std for actors that add noise after
    the bound, as those of IQL and CRR do: in the format, noise comes before the bound.

    Raises:
        UsageError: the policy has discrete actions or candidates, or its checkpoint lacks the normalization.
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
        "env_evaluated": env_task_of(spec.task).id,
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
        arrays |= _obs_moments(_saved_moments(checkpoint, name))
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


def _saved_moments(state: State, name: str) -> State:
    """The saved normalization of observations, refused if there is none."""
    if moments := subtree(state, "scale"):
        return moments
    raise UsageError(f"{name}: its checkpoint lacks the normalization of observations; --force runs it again")


def _obs_moments(moments: State) -> dict[str, NDArray[np.generic]]:
    """Mean and variance of the observations of the run's environments or data set."""
    spread = tensor(moments, "deviation").double() ** 2 if "deviation" in moments else tensor(moments, "var").double()
    return {"obs_mean": _numbers(tensor(moments, "mean").double()), "obs_var": _numbers(spread)}


def _numbers(value: torch.Tensor) -> NDArray[np.generic]:
    array: NDArray[np.generic] = value.detach().cpu().numpy()
    return array
