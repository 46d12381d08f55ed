"""Captured updates, rehearsed on the host: a tape stands where on a card a CUDA graph stands."""

from __future__ import annotations

import pytest
import torch

from benchmarks.rigs import CELLS, learned, rig, ring_of
from rlbench.buffers.hindsight import Hindsight
from rlbench.fast.capture import Captured
from rlbench.fast.updater import Eager
from rlbench.spec.run import Runtime
from rlbench.trainers.offline import Offline
from rlbench.trainers.online import Online
from tests.fast.tape import Tape

UPDATES = 50
RUNTIME = Runtime(device="cpu", threads=1, engine="eager")


def streams(run: Online | Offline) -> list[torch.Generator]:
    sampler = ring_of(run).sampler if isinstance(run, Online) else run.sampler
    own = [sampler.generator]
    if isinstance(run, Online) and isinstance(run.buffer, Hindsight):
        own.append(run.buffer.generator)
    return [*own, torch.default_generator]


def captured(run: Online | Offline, tape: Tape) -> Captured:
    assert isinstance(run.updater, Eager)
    sampler = ring_of(run).sampler if isinstance(run, Online) else run.sampler
    return Captured(run.updater, recorder=tape, learner=run.learner, sampler=sampler, generators=tape.generators)


def strides(updater: Captured | Eager) -> None:
    """Fifty updates in strides of many lengths."""
    first = 0
    for count in (1, 2, 3, 7, 1, 1, 16, 4, 15):
        updater.run(first, count)
        first += count
    assert first == UPDATES


@pytest.mark.parametrize("cell", CELLS)
def test_captured_updates_are_the_eager_ones_bit_for_bit(cell: str) -> None:
    plain, quick = rig(cell, RUNTIME), rig(cell, RUNTIME)
    tape = Tape(streams(quick), checked="icm" in cell)
    recorded = captured(quick, tape)
    torch.manual_seed(3)
    strides(plain.updater)
    torch.manual_seed(3)
    strides(recorded)
    assert recorded.refusal is None
    assert recorded.recordings
    wanted = learned(plain)
    for name, value in learned(quick).items():
        assert torch.equal(value, wanted[name]), name
    assert recorded.take() == plain.updater.take()
