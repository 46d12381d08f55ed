"""How a run computes its updates: eagerly, compiled, captured on a card, or for small networks on the host by hand."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Literal, NamedTuple

import torch

from rlbench.accel.compiled import Backend, Compiled
from rlbench.accel.cuda_graph import CudaGraphs
from rlbench.accel.graph_capture import GraphUpdater, Updates
from rlbench.accel.numpy_ppo import Regression, Surrogate
from rlbench.algorithms.bcq import BCQ
from rlbench.algorithms.behavior_cloning import Imitation
from rlbench.algorithms.cql import CQL
from rlbench.algorithms.crr import CRR
from rlbench.algorithms.discrete_sac import DiscreteSAC
from rlbench.algorithms.dqn import QLearner
from rlbench.algorithms.icm_wrappers import CuriousReplay, CuriousRollouts
from rlbench.algorithms.iql import IQL
from rlbench.algorithms.onpolicy import OnPolicyLearner
from rlbench.algorithms.ppo import PPO
from rlbench.algorithms.reinforce import Reinforce
from rlbench.algorithms.sac import SAC
from rlbench.algorithms.td3 import TD3
from rlbench.algorithms.trpo import Natural
from rlbench.config.online import PolicyGradient
from rlbench.config.run import Runtime, Spec
from rlbench.errors import UsageError
from rlbench.nets.actor_critic import SeparateActorCritic
from rlbench.ops.state_dict import Stateful
from rlbench.training.protocols import Updater

SMALL = 2**23  # multiplications of one layer for one batch, beyond which a framework costs nothing beside them
NO_ROLLOUTS = "steps on a rollout are not captured"
UNTRIED = "captured updates have never met a card; ask for them with --update-engine cuda-graph"
COMPILERS = ("g++", "clang++", "c++")  # inductor's, for the host


class Engine(NamedTuple):
    """How updates are computed, and why not as was asked or might be thought."""

    name: Literal["eager", "numpy", "compiled", "cuda-graph"]
    reason: str = ""

    @property
    def told(self) -> str:
        """In one line, for a record."""
        return f"{self.name}: {self.reason}" if self.reason else self.name


def engine_of(spec: Spec, runtime: Runtime, device: torch.device) -> Engine:
    """The engine of a run; what fails only once it is tried is told by ``refusals``."""
    rollouts = isinstance(spec.algo, PolicyGradient)
    match runtime.update_engine:
        case "eager":
            return Engine("eager")
        case "compiled":
            lacking = _lacking(device)
            return Engine("eager", lacking) if lacking else Engine("compiled")
        case "numpy":
            return Engine("numpy") if rollouts else Engine("eager", "only rollouts are learned from by hand")
        case "cuda-graph":
            return captured(device) if not rollouts else Engine("eager", NO_ROLLOUTS)
        case "auto":
            return _chosen(device, rollouts=rollouts)


def _chosen(device: torch.device, *, rollouts: bool) -> Engine:
    """What nobody has asked for; capture is not until ``scripts/gpu_check`` has passed on a card."""
    if rollouts:
        by_hand = Engine("numpy", "where networks are small, else eager")
        return by_hand if device.type == "cpu" else Engine("eager", NO_ROLLOUTS)
    return Engine("eager", UNTRIED) if device.type == "cuda" else captured(device)


def captured(device: torch.device) -> Engine:
    """Capture where there is a card, else none."""
    return Engine("cuda-graph") if device.type == "cuda" else Engine("eager", "no CUDA GPU")


def _lacking(device: torch.device) -> str:
    """What ``torch.compile`` would need on this machine and does not find; nothing if it may work."""
    if device.type == "cuda":
        return "" if find_spec("triton") else "no Triton"
    found = any(shutil.which(name) for name in (os.environ.get("CXX", ""), *COMPILERS) if name)
    return "" if found else "no C++ compiler"


def select_engine(
    eager: Updates,
    engine: Engine,
    *,
    learner: Stateful,
    sampler: Stateful,
    generators: Sequence[torch.Generator],
) -> Updater:
    """Updates by ``update_engine``; eager ones draw from ``generators`` and change only ``learner`` and ``sampler``."""
    if engine.name == "compiled":
        compile_losses(learner)
    if engine.name != "cuda-graph":
        return eager
    card = next(generator.device for generator in generators)
    streams = (*generators, torch.cuda.default_generators[card.index or 0])
    recorder = CudaGraphs(card, streams)
    return GraphUpdater(eager, recorder=recorder, learner=learner, sampler=sampler, generators=streams)


def select_rollout_engine(learner: OnPolicyLearner, runtime: Runtime, device: torch.device, *, rows: int) -> None:
    """Let ``learner``, which sees ``rows`` steps in a rollout, compute as ``runtime`` says.

    Raises:
        UsageError: by hand was asked for where it is not written out.
    """
    if runtime.update_engine == "compiled" and not _lacking(device):
        compile_losses(learner)
    if runtime.update_engine not in {"auto", "numpy"}:
        return
    match learner:
        case PPO(net=SeparateActorCritic() as net) if device.type == "cpu":
            if runtime.update_engine == "numpy" or _multiplications(net, rows // learner.passes.minibatches) <= SMALL:
                learner.through = Surrogate(
                    net, learner.optimizer, learner.objective, max_grad_norm=learner.max_grad_norm
                )
        case Natural(net=SeparateActorCritic() as net) if device.type == "cpu":
            if runtime.update_engine == "numpy" or _multiplications(net, rows) <= SMALL:
                learner.regress = Regression(net, learner.optimizer, steps=learner.critic_steps)
        case _ if runtime.update_engine == "numpy":
            raise UsageError("update_engine=numpy: only PPO, A2C, NPG and TRPO with algo.torso=mlp on a CPU; use auto")
        case _:
            return


def compile_losses(learner: object, *, backend: str | Backend = "inductor") -> None:
    """Put a compiled function in the place of every loss; steps stay what they are, for each is one kernel already.

    Raises:
        TypeError: nobody has said which functions of this learner are losses.
    """
    found = list(losses(learner))
    if not found:
        raise TypeError(type(learner).__name__)
    for owner, name in found:
        setattr(owner, name, Compiled(getattr(owner, name), backend=backend))


def losses(learner: object) -> Iterator[tuple[object, str]]:
    """Every pure loss of a learner and of those within it: whose it is, and its name."""
    match learner:
        case CuriousReplay() | CuriousRollouts():
            yield from losses(learner.inner)  # curiosity's own is two sums over what its network has found before
        case QLearner() | Imitation() | PPO() | Reinforce():
            yield learner, "loss"
        case Natural():
            yield learner, "value_loss"
        case CQL():
            yield learner, "critic_loss"
            yield learner.sac, "policy_loss"
        case TD3() | SAC() | DiscreteSAC() | CRR():
            yield learner, "critic_loss"
            yield learner, "policy_loss"
        case IQL() | BCQ():
            yield learner, "critic_loss"
            yield learner, "policy_loss"
            yield learner, "value_loss" if isinstance(learner, IQL) else "model_loss"
        case _:
            return


def refusals(updater: object, learner: object) -> tuple[str, ...]:
    """Why updates are eager although another engine was chosen, as far as it has been tried; each once."""
    wrapped = (getattr(owner, name) for owner, name in losses(learner))
    tried = [loss.refusal for loss in wrapped if isinstance(loss, Compiled)]
    found = [updater.refusal if isinstance(updater, GraphUpdater) else None, *tried]
    return tuple(dict.fromkeys(reason for reason in found if reason is not None))


def engaged(updater: object, learner: object) -> str:
    """The engine that computes the updates, as a checkpoint names it: a name of ``Engine``'s."""
    inner = learner.inner if isinstance(learner, CuriousReplay | CuriousRollouts) else learner
    wrapped = [getattr(owner, name) for owner, name in losses(learner)]
    by_hand = getattr(inner, "through", None), getattr(inner, "regress", None)
    if isinstance(updater, GraphUpdater) and updater.refusal is None:
        return "cuda-graph"
    if any(isinstance(loss, Compiled) and loss.refusal is None for loss in wrapped):
        return "compiled"
    return "numpy" if isinstance(by_hand[0], Surrogate) or isinstance(by_hand[1], Regression) else "eager"


def _multiplications(net: SeparateActorCritic, rows: int) -> int:
    """Of the widest layer, forwards."""
    return rows * max(parameter.numel() for parameter in net.parameters())
