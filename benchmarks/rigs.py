"""Small runs of every learner with a filled buffer, built as a run builds them, on any device and engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from torch import Tensor

from rlbench import suites
from rlbench.assembly.assemble import build
from rlbench.assembly.environments import describe
from rlbench.buffers.hindsight import HindsightReplay
from rlbench.buffers.ring import RingBuffer
from rlbench.config.online import PolicyGradientConfig
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.envs.base import Discrete, EnvInfo
from rlbench.ops.state_dict import State
from rlbench.training.offline import OfflineTrainer
from rlbench.training.online import OnlineTrainer

STORE: Final = ("algo.replay.capacity=400", "algo.batch=6")
SMALL: Final = ("algo.widths=[8,7]", *STORE)
FRAMES: Final = (*STORE, "algo.batch=2", "algo.hidden=16")
ROWS: Final = 60  # steps of every env that are stored

REPLAYED: Final[dict[str, tuple[str, ...]]] = {
    **{f"toy/{name}/Catch": STORE for name in ("dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow", "sac")},
    **{f"toy/{name}/Pendulum-v1": SMALL for name in ("ddpg", "td3", "sac", "redq")},
    "goals/ddpg+her/FetchReach-v4": SMALL,
    "atari/dqn/PongNoFrameskip-v4": FRAMES,
    "atari/rainbow/PongNoFrameskip-v4": (*FRAMES, "task.async_batch=2"),
    "atari/dqn+icm/PongNoFrameskip-v4": FRAMES,
    "atari/sac+icm/PongNoFrameskip-v4": FRAMES,
}
"""Cells with a replay buffer, by name, with the settings that make them small; one steps its envs asynchronously."""

DATASET_STEPS: Final[dict[str, tuple[str, ...]]] = {
    **{f"offline/{name}/halfcheetah-medium-v2": SMALL[:1] for name in ("il", "bcq", "cql", "crr", "td3bc", "iql")},
    **{f"offline/{name}/Catch": () for name in ("il", "bcq", "cql", "crr")},
}
"""Cells that learn from a data set; here one of random actions."""

CELLS: Final = (*REPLAYED, *DATASET_STEPS)


def spec_with(suite: str, algorithm: str, task: str, *changes: str) -> Spec:
    """The documented settings of a cell with changes of a benchmark."""
    return apply_settings(suites.spec(suite, algorithm, task), [parse(text, "benchmark") for text in changes])


def spec_of(cell: str) -> Spec:
    """The small run of a cell."""
    suite, algorithm, task = cell.split("/")
    changes = REPLAYED[cell] if cell in REPLAYED else (*DATASET_STEPS[cell], "algo.batch=6")
    spec = apply_settings(suites.spec(suite, algorithm, task), [parse(text) for text in changes])
    return spec.model_copy(update={"smoke": True})


def rig(cell: str, runtime: Runtime) -> OnlineTrainer | OfflineTrainer:
    """Build the run and fill its buffer with noise, the same each time."""
    spec = spec_of(cell)
    if isinstance(spec.algo, PolicyGradientConfig):
        raise TypeError(cell)
    info = describe(spec)
    run = build(spec, runtime, info)
    if isinstance(run, OnlineTrainer):
        fill(ring_of(run), info)
    return run


def online(spec: Spec, runtime: Runtime, info: EnvInfo) -> OnlineTrainer:
    """Build a run that collects its own experience."""
    run = build(spec, runtime, info)
    if not isinstance(run, OnlineTrainer):
        raise TypeError(spec.name)
    return run


def offline(spec: Spec, runtime: Runtime) -> OfflineTrainer:
    """Build a run that learns from a data set."""
    run = build(spec, runtime, describe(spec))
    if not isinstance(run, OfflineTrainer):
        raise TypeError(spec.name)
    return run


def ring_of(run: OnlineTrainer) -> RingBuffer:
    """The ring buffer of a run."""
    source = run.buffer.ring if isinstance(run.buffer, HindsightReplay) else run.buffer
    if not isinstance(source, RingBuffer):
        raise TypeError(type(source).__name__)
    return source


def fill(ring: RingBuffer, info: EnvInfo, rows: int | None = None) -> None:
    """Store ``rows`` steps of noise in every env, ``ROWS`` by default; one in ten ends an episode."""
    draw, num_envs = np.random.default_rng(0), ring.num_envs
    for _ in range(ROWS if rows is None else rows):
        if np.dtype(info.obs_dtype) == np.uint8:
            ring.add_observations(draw.integers(0, 256, (num_envs, *info.obs_shape), dtype=np.uint8))
        else:
            ring.add_observations(draw.standard_normal((num_envs, *info.obs_shape)).astype(np.float32))
        reward, ended = draw.standard_normal(num_envs).astype(np.float32), draw.random((2, num_envs)) < 0.05
        ring.add_transitions(_actions(draw, num_envs, info).to(ring.action), reward, ended[0], ended[1])


def _actions(draw: np.random.Generator, num_envs: int, info: EnvInfo) -> Tensor:
    if isinstance(info.actions, Discrete):
        return torch.from_numpy(draw.integers(info.actions.n, size=num_envs))
    return torch.from_numpy(draw.uniform(-1, 1, (num_envs, *info.actions.low.shape)).astype(np.float32))


def leaves(state: State, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a state, by its path."""
    for key, value in state.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}/")
        elif isinstance(value, Tensor):
            yield prefix + key, value.detach()


def trained_tensors(run: OnlineTrainer | OfflineTrainer) -> dict[str, Tensor]:
    """Copies of all tensors that updates change: those of learner, sampler and updater."""
    sampler = ring_of(run).sampler if isinstance(run, OnlineTrainer) else run.sampler
    parts: State = {
        "learner": run.learner.state_dict(),
        "sampler": sampler.state_dict(),
        "updater": run.updater.state_dict(),
    }
    return {name: value.clone() for name, value in leaves(parts)}
