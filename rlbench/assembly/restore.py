"""A kept policy at play by the protocol of its run: the same networks, scale of observations, chance and full games.

Nothing of a replay, a rollout or recorded data is made for it.
"""

from __future__ import annotations

from typing import assert_never

import torch

from rlbench.assembly import assemble, offline, policy_gradient
from rlbench.assembly.device import device_of, stepping_threads, threads_of
from rlbench.assembly.environments import describe
from rlbench.assembly.evaluation import EvaluationSetup, protocol_evaluation
from rlbench.collectors.evaluate import Evaluation
from rlbench.config.offline import Offline
from rlbench.config.offline_discrete import OfflineQ
from rlbench.config.online import ActorCritic, DiscreteSAC, PolicyGradient, QLearning
from rlbench.config.run import Runtime, Spec
from rlbench.envs.base import EnvInfo
from rlbench.envs.normalize import Fixed, Scale
from rlbench.errors import RefusedFile, UsageError
from rlbench.ops.state_dict import State, branch, into_module, tensor
from rlbench.seeds import Seeds


def restore_evaluation(spec: Spec, kept: State, runtime: Runtime, seeds: Seeds) -> Evaluation:
    """Games about to be played by ``spec.protocol``, of the policy ``kept`` of a run of ``spec``.

    Raises:
        UsageError: the device is not there, or the run did not keep all that is needed.
        RefusedFile: what was kept is another network's.
    """
    device, info = device_of(runtime), describe(spec)
    torch.set_num_threads(threads_of(spec, runtime, device))
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False  # as in training
    torch.backends.cudnn.allow_tf32 = False
    return protocol_evaluation(spec, info, _stage(spec, kept, info, device, runtime), device, seeds)


def _stage(spec: Spec, kept: State, info: EnvInfo, device: torch.device, runtime: Runtime) -> EvaluationSetup:
    """Who plays and how, its parameters put in."""
    match spec.algo:
        case Offline() | OfflineQ():
            parts = offline.parts_of(spec, spec.algo, info, device)
            policy, stage = (
                parts.learner.policy(),
                offline.watching(parts, _fixed(spec, kept), stepping_threads(runtime)),
            )
        case PolicyGradient():
            learner, _, action = policy_gradient.build_on_policy(spec, spec.algo, info, device)
            scale = _scale(spec, spec.algo, kept, info)
            policy, stage = learner.policy(), assemble.rolling(spec.algo, info, action, learner, scale, runtime)
        case QLearning() | ActorCritic() | DiscreteSAC():
            own = assemble.parts_of(spec, spec.algo, info, device)
            policy, stage = own.learner.policy(), assemble.replaying(own, own.learner, runtime)
        case _:
            assert_never(spec.algo)
    try:
        into_module(policy, branch(kept, "policy"))
    except (RuntimeError, TypeError):
        raise RefusedFile(
            f"{spec.name}: the checkpoint holds another network than the Spec; --force runs it again"
        ) from None
    return stage


def _fixed(spec: Spec, kept: State) -> Fixed | None:
    """The scale of recorded observations, where the policy saw them in one."""
    if not (isinstance(spec.algo, Offline) and spec.algo.normalize_obs):
        return None
    scale = _kept_scale(spec, kept)
    mean, deviation = (tensor(scale, part).cpu().numpy() for part in ("mean", "deviation"))  # as checkpoints name them
    return Fixed(mean, deviation)


def _scale(spec: Spec, algo: PolicyGradient, kept: State, info: EnvInfo) -> Scale | None:
    """The scale that the observations of training had, which nothing moves any more."""
    if not algo.normalize_obs:
        return None
    scale = Scale(info.obs_shape)
    scale.load_state_dict(_kept_scale(spec, kept))
    return scale


def _kept_scale(spec: Spec, kept: State) -> State:
    found = branch(kept, "scale")
    if not found:
        raise UsageError(f"{spec.name}: its checkpoint has no scale of observations; --force runs it again")
    return found
