"""Small rings of tests."""

from collections.abc import Iterable
from typing import TypeVar

import torch

from rlbench.buffers.prioritized import PrioritizedSampler
from rlbench.buffers.ring import ArraySpec, RingBuffer
from rlbench.buffers.samplers import UniformSampler

RingT = TypeVar("RingT", bound=RingBuffer)
NUMBER = ArraySpec((), torch.float32)


def ring_of(
    num_envs: int,
    rows: int,
    n_step: int = 1,
    stack: int = 1,
    *,
    kind: type[RingT] = RingBuffer,
    obs: ArraySpec = NUMBER,
    gamma: float = 0.9,
    sampler: UniformSampler | PrioritizedSampler | None = None,
    seed: int = 0,
) -> RingT:
    """A ring of ``rows`` rows of discrete actions, sampled uniformly by default."""
    sampler = sampler or UniformSampler(torch.Generator().manual_seed(seed))
    columns = {"obs": obs, "action": ArraySpec((), torch.int64), "device": torch.device("cpu")}
    returns = {"n_step": n_step, "gamma": gamma, "stack": stack}
    return kind(capacity=rows * num_envs, num_envs=num_envs, sampler=sampler, **columns, **returns)


def same_batches(ours: Iterable[torch.Tensor], theirs: Iterable[torch.Tensor]) -> None:
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
