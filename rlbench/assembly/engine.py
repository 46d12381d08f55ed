"""The engine of a run's updates: eager, compiled, CUDA graphs, or numpy for small networks on a CPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Literal, NamedTuple, get_args

import torch

from rlbench.accel.graph_capture import CapturableUpdater, CompiledLoss, CudaGraphRecorder, GraphUpdater
from rlbench.algorithms.base import Compilable, Compiler
from rlbench.algorithms.ppo import PPO
from rlbench.algorithms.trpo import TRPO
from rlbench.config.online import PolicyGradientConfig
from rlbench.config.run import EngineName, Runtime, Spec
from rlbench.ops.state_dict import Composite, Stateful
from rlbench.training.protocols import Updater

NO_ROLLOUTS = "steps on a rollout are not captured"
COMPILERS = ("g++", "clang++", "c++")  # inductor's, for the host


class Engine(NamedTuple):
    """The engine of the updates, and why it is not the requested or usual one."""

    name: Literal["eager", "numpy", "compiled", "cuda-graph"]
    reason: str = ""

    @property
    def description(self) -> str:
        """The engine and the reason in one line, for a record."""
        return f"{self.name}: {self.reason}" if self.reason else self.name


class SavedNumerics(NamedTuple):
    """Device, threads, update engines and rounding of a checkpoint; a resumed run takes over threads and engine."""

    device: str
    threads: int  # of torch
    engine: str  # of its latest gradient step, as ``active_engine`` names it
    rounding: str  # values of ``run.ROUNDING_FACTORS``, in JSON
    requested: EngineName  # ``Runtime.update_engine`` of its process, or of one before that requested another


def compiler_of(spec: Spec, runtime: Runtime, device: torch.device) -> Compiler | None:
    """The compiler of a run's losses, if it has one."""
    return CompiledLoss if engine_of(spec, runtime, device).name == "compiled" else None


def engine_of(spec: Spec, runtime: Runtime, device: torch.device) -> Engine:
    """The engine of a run; ``refusals`` reports what fails only when it is tried."""
    rollouts = isinstance(spec.algo, PolicyGradientConfig)
    match runtime.update_engine:
        case "eager":
            return Engine("eager")
        case "compiled":
            lacking = _missing_requirement(device)
            return Engine("eager", lacking) if lacking else Engine("compiled")
        case "numpy":
            return Engine("numpy") if rollouts else Engine("eager", "only on-policy algorithms have a numpy engine")
        case "cuda-graph":
            return graph_engine(device) if not rollouts else Engine("eager", NO_ROLLOUTS)
        case "auto":
            return default_engine(device, rollouts=rollouts)


def with_saved(runtime: Runtime, previous: SavedNumerics | None) -> Runtime:
    """Take over the checkpoint's threads and, unless another one is requested, its engine, for a bit-exact resume.

    After a failed compilation that engine is ``eager``, although the same command requests ``compiled`` again.
    """
    if previous is None:
        return runtime
    names: tuple[EngineName, ...] = get_args(EngineName)
    same_request = runtime.update_engine in ("auto", previous.requested)
    engine = next((name for name in names if name == previous.engine and same_request), runtime.update_engine)
    return runtime.model_copy(update={"saved_threads": previous.threads, "update_engine": engine})


def default_engine(device: torch.device, *, rollouts: bool) -> Engine:
    """The default engine: CUDA graphs, whose updates equal eager ones in every cell of ``scripts/gpu_check``."""
    if rollouts:
        by_hand = Engine("numpy", "where networks are small, else eager")
        return by_hand if device.type == "cpu" else Engine("eager", NO_ROLLOUTS)
    return graph_engine(device)


def graph_engine(device: torch.device) -> Engine:
    """CUDA graphs with a GPU, else eager updates."""
    return Engine("cuda-graph") if device.type == "cuda" else Engine("eager", "no CUDA GPU")


def _missing_requirement(device: torch.device) -> str:
    """The requirement of ``torch.compile`` that this machine or process lacks; empty if it may work."""
    for variable in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        if os.environ.get(variable) == "1":
            return f"{variable}=1"
    if device.type == "cuda":
        return "" if find_spec("triton") else "no Triton"
    installed = any(shutil.which(name) for name in (os.environ.get("CXX", ""), *COMPILERS) if name)
    return "" if installed else "no C++ compiler"


def select_engine(
    eager: CapturableUpdater,
    engine: Engine,
    *,
    learner: Stateful,
    sampler: Stateful,
    generators: Sequence[torch.Generator],
) -> Updater:
    """Updates by ``engine``; eager ones draw from ``generators`` and change only ``learner`` and ``sampler``."""
    if engine.name != "cuda-graph":
        return eager
    gpu = next(generator.device for generator in generators)
    streams = (*generators, torch.cuda.default_generators[gpu.index or 0])
    recorder = CudaGraphRecorder(gpu, streams)
    return GraphUpdater(eager, recorder=recorder, learner=learner, sampler=sampler, generators=streams)


def refusals(updater: object, learner: object) -> tuple[str, ...]:
    """The distinct reasons why updates are eager although another engine was chosen, as far as it has been tried."""
    reasons = _refusals(learner)
    if isinstance(updater, GraphUpdater):
        reasons.append(updater.refusal)
    return tuple(dict.fromkeys(reason for reason in reasons if reason is not None))


def active_engine(updater: object, learner: object) -> str:
    """The engine that computes the updates, as a checkpoint names it: a name of ``Engine``'s."""
    if isinstance(updater, GraphUpdater) and updater.refusal is None:
        return "cuda-graph"
    if any(isinstance(part, Compilable) and part.compiler and not part.compiled for part in composites(learner)):
        return "compiled"
    if None in _refusals(learner):
        return "compiled"
    numpy = any(isinstance(part, PPO | TRPO) and part.engine is not None for part in composites(learner))
    return "numpy" if numpy else "eager"


def _refusals(learner: object) -> list[str | None]:
    """For each loss to be compiled, the reason why it is eager; None for a compiled loss."""
    parts = [part for part in composites(learner) if isinstance(part, Compilable)]
    return [loss.refusal for part in parts for loss in part.compiled.values() if isinstance(loss, CompiledLoss)]


def composites(learner: object) -> Iterator[Composite]:
    """A learner and every learner within it."""
    if isinstance(learner, Composite):
        yield learner
        for part in learner.parts.values():
            yield from composites(part)
