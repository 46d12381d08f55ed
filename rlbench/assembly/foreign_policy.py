"""Policies of other programs, evaluated by the protocol of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from rlbench.assembly.device import stepping_threads, threads_of
from rlbench.assembly.evaluation import EvaluationSetup, protocol_evaluation
from rlbench.collectors.evaluate import Evaluation
from rlbench.collectors.explore import EpsilonGreedy, Explorer, NoExploration
from rlbench.config.names import printable
from rlbench.config.run import Runtime, Spec
from rlbench.datasets.sb3_import import SB3Policy
from rlbench.envs.base import Box, Discrete, EnvInfo
from rlbench.errors import RefusedFile
from rlbench.evaluation.model_process import ModelClient, ModelFormat
from rlbench.ops.types import Role
from rlbench.seeds import Seeds

Model = Callable[[Tensor], NDArray[np.float64]]
"""From observations ``[N, F]`` float32 or ``[N, K, H, W]`` uint8 to ``[N, …]``."""

STRIDES = (4, 2, 1)  # of NatureCNN's convolutions


class ForeignActor:
    """Actor of another program; its outputs become actions of the task.

    Discrete: one number is the action; one number per action is a value or logit, and the greatest is taken.
    Continuous: outputs lie in [−1, 1] if ``normalized``, else between the environment's bounds; they are clipped.
    """

    def __init__(self, path: Path, model: Model, info: EnvInfo, *, normalized: bool) -> None:
        self.path, self.model, self.actions, self.normalized = path, model, info.actions, normalized
        self.frames = len(info.obs_shape) > 1 and info.obs_dtype == np.uint8

    def act(self, obs: Tensor, role: Role) -> Tensor:
        """Actions ``[N]`` int64 or ``[N, A]`` float32 in [−1, 1].

        Raises:
            RefusedFile: the outputs do not suit the task.
        """
        del role  # a foreign policy is deterministic
        obs = obs if self.frames else obs.reshape(len(obs), -1).float()
        try:
            output = torch.from_numpy(self.model(obs).copy())
        except RuntimeError as error:
            shape, reason = list(obs.shape[1:]), printable(str(error), 100)
            raise RefusedFile(f"{self.path}: does not take observations of shape {shape} ({reason})") from None
        if not torch.isfinite(output).all():
            raise RefusedFile(f"{self.path}: gives an output that is not a finite number; check the model")
        width = output.shape[1]
        match self.actions:
            case Discrete(n=n) if width in {1, n}:
                action = output[:, 0] if width == 1 else output.argmax(1)
                if not ((action == action.round()) & (action >= 0) & (action < n)).all():
                    raise RefusedFile(f"{self.path}: gives actions that are not among 0 to {n - 1}; check the model")
                return action.long()
            case Box(low=low, high=high) if width == len(low):
                bounds = torch.from_numpy(np.stack([low, high])).double()
                action_in_bounds = output if self.normalized else (2 * output - bounds.sum(0)) / (bounds[1] - bounds[0])
                return action_in_bounds.clamp(-1, 1).float()
            case _:
                expected = (
                    f"1 or {self.actions.n}" if isinstance(self.actions, Discrete) else str(len(self.actions.low))
                )
        raise RefusedFile(f"{self.path}: gives {width} outputs per observation, the task takes {expected}")


def sb3_actor(path: Path, policy: SB3Policy, info: EnvInfo) -> ForeignActor:
    """Build the actor of a zip of Stable-Baselines3.

    Raises:
        RefusedFile: its layers do not fit each other or the task.
    """
    convolutions, layers = (
        [tuple(map(torch.from_numpy, layer)) for layer in part] for part in (policy.convolutions, policy.layers)
    )
    features = None if policy.features is None else tuple(map(torch.from_numpy, policy.features))

    def model(obs: Tensor) -> NDArray[np.float64]:
        x = obs.float() / 255 if convolutions else obs
        for (weight, bias), stride in zip(convolutions, STRIDES, strict=False):
            x = F.relu(F.conv2d(x, weight, bias, stride))
        if features is not None:
            x = F.relu(F.linear(x.flatten(1), *features))
        for place, (weight, bias) in enumerate(layers, 1):
            x = F.linear(x, weight, bias)
            if place < len(layers):
                x = torch.tanh(x) if policy.activation == "tanh" else F.relu(x)
        return np.asarray(torch.tanh(x) if policy.squash == "tanh" else x, np.float64)

    actor = ForeignActor(path, model, info, normalized=policy.squash == "tanh")
    if bool(convolutions) != actor.frames:
        sees, shows = ("frames", "vectors") if convolutions else ("vectors", "frames")
        raise RefusedFile(f"{path}: its policy sees {sees}, the task shows {shows}; choose its own task")
    return actor


@contextmanager
def model_actor(path: Path, form: ModelFormat, info: EnvInfo) -> Iterator[ForeignActor]:
    """Run a file's model in a process of its own; its actions are in the environment's units."""
    with ModelClient(path, form) as client:
        yield ForeignActor(path, lambda obs: client(obs.cpu().numpy()), info, normalized=False)


def foreign_evaluation(spec: Spec, actor: ForeignActor, info: EnvInfo, seeds: Seeds) -> Evaluation:
    """Prepare the evaluation of a foreign policy by ``spec.protocol`` on the CPU."""
    runtime = Runtime(device="cpu")
    torch.set_num_threads(threads_of(spec, runtime, torch.device("cpu")))

    def explorer(generator: torch.Generator) -> Explorer:
        if isinstance(info.actions, Discrete) and spec.protocol.epsilon:
            return EpsilonGreedy(actions=info.actions.n, generator=generator, epsilon=spec.protocol.epsilon)
        return NoExploration()

    setup = EvaluationSetup(actor, stepping_threads(runtime), explorer)
    return protocol_evaluation(spec, info, setup, torch.device("cpu"), seeds)
