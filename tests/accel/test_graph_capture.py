"""Captured updates on the host, with a stand-in for a CUDA graph."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.parity import STRIDES
from benchmarks.rigs import CELLS, fill, rig, ring_of, spec_of, trained_tensors
from rlbench.accel.graph_capture import MAX_UPDATES, WARMUP, GraphUpdater
from rlbench.algorithms.iql import IQL
from rlbench.algorithms.td3 import TD3
from rlbench.assembly.environments import describe
from rlbench.buffers.hindsight import HindsightReplay
from rlbench.config.run import Runtime
from rlbench.ops.state_dict import State
from rlbench.training.offline import OfflineTrainer
from rlbench.training.online import OnlineTrainer
from rlbench.training.updates import EagerUpdater
from tests.accel.graph_tape import GraphRecorder, RecordingError
from tests.slow import slow_but

RUNTIME = Runtime(device="cpu", threads=1, update_engine="eager")
TD3_CELL, IQL_CELL, RAINBOW = "toy/td3/Pendulum-v1", "offline/iql/halfcheetah-medium-v2", "toy/rainbow/Catch"


def captured(run: OnlineTrainer | OfflineTrainer, *, checked: bool = False) -> GraphUpdater:
    """The run's updates, recorded by a recorder of graphs."""
    assert isinstance(run.updater, EagerUpdater)
    sampler = ring_of(run).sampler if isinstance(run, OnlineTrainer) else run.sampler
    streams = [sampler.generator, torch.default_generator]
    if isinstance(run, OnlineTrainer) and isinstance(run.buffer, HindsightReplay):
        streams.append(run.buffer.generator)
    recorder = GraphRecorder(streams, checked=checked)
    return GraphUpdater(run.updater, recorder=recorder, learner=run.learner, sampler=sampler, generators=streams)


def pair(cell: str) -> tuple[OnlineTrainer | OfflineTrainer, OnlineTrainer | OfflineTrainer, GraphUpdater]:
    """A run, the same again, and the updates of the second, captured."""
    plain, quick = rig(cell, RUNTIME), rig(cell, RUNTIME)
    return plain, quick, captured(quick, checked="icm" in cell)


def cells_of(
    cell: str, run: OnlineTrainer | OfflineTrainer, updater: Any, strides: tuple[int, ...] = STRIDES, seed: int = 3
) -> None:
    """Updates in strides of many lengths; between them a store grows."""
    torch.manual_seed(seed)
    first, info = 0, describe(spec_of(cell))
    for count in strides:
        updater.run(first, count)
        first += count
        if isinstance(run, OnlineTrainer):
            fill(ring_of(run), info, rows=3)


def same(one: OnlineTrainer | OfflineTrainer, other: OnlineTrainer | OfflineTrainer) -> None:
    expected = trained_tensors(one)
    for name, value in trained_tensors(other).items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize("cell", slow_but(CELLS, 0, 9))
def test_captured_updates_equal_eager_ones_bit_for_bit(cell: str) -> None:
    plain, quick, graphs = pair(cell)
    strides = STRIDES if "atari" not in cell else (4, 1, 4, 1, 1)
    cells_of(cell, plain, plain.updater, strides)
    cells_of(cell, quick, graphs, strides)
    assert graphs.refusal is None
    assert graphs.graphs or plain.updater.learner.cycle_length * WARMUP >= sum(strides)
    same(plain, quick)
    assert graphs.take() == plain.updater.take()


def test_replay_runs_no_python_of_the_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    _, quick, graphs = pair(TD3_CELL)
    graphs.run(0, 40)
    monkeypatch.setattr(quick.learner, "update", None)
    before = trained_tensors(quick)
    graphs.run(40, 16)
    after = trained_tensors(quick)
    assert not torch.equal(before["learner/actor/action.weight"], after["learner/actor/action.weight"])
    assert graphs.take().count == 56


def test_captures_have_few_lengths_of_powers_of_two() -> None:
    _, _, graphs = pair(TD3_CELL)
    cells_of(TD3_CELL, rig(TD3_CELL, RUNTIME), graphs)
    lengths = {key.length for key in graphs.graphs}
    assert lengths <= {1, 2, 4, 8, 16}
    assert max(lengths) <= MAX_UPDATES
    assert {key.phase for key in graphs.graphs} <= {0, 1}


def test_periodic_action_ends_a_capture_and_is_part_of_it() -> None:
    plain, quick, graphs = pair("toy/dqn/Catch")
    period = plain.updater.learner.periodic_actions[0].period
    for run, updater in ((plain, plain.updater), (quick, graphs)):
        updater.run(period - 30, 27)
        torch.manual_seed(1)
        updater.run(period - 3, 8)
        updater.run(2 * period - 1, 1)
        assert isinstance(run, OnlineTrainer)
    assert any(any(key.due) for key in graphs.graphs)
    same(plain, quick)


def test_loaded_state_is_captured_again() -> None:
    plain, quick, graphs = pair(RAINBOW)
    for run, updater in ((plain, plain.updater), (quick, graphs)):
        torch.manual_seed(1)
        updater.run(0, 20)
        assert run.learner is not None
    state: State = {"learner": plain.learner.state_dict(), "updater": plain.updater.state_dict()}
    ring = ring_of(plain).state_dict()
    third = rig(RAINBOW, RUNTIME)
    again = captured(third)
    again.run(0, 30)
    assert again.graphs
    third.learner.load_state_dict(copied(state)["learner"])
    ring_of(third).load_state_dict(copied(ring))
    again.load_state_dict(copied(state)["updater"])
    assert not again.graphs
    for updater in (plain.updater, graphs, again):
        torch.manual_seed(2)
        updater.run(20, 30)
    assert again.graphs
    same(plain, quick)
    same(plain, third)


def copied(state: State) -> dict[str, Any]:
    return {
        key: copied(value) if isinstance(value, dict) else value.clone() if isinstance(value, Tensor) else value
        for key, value in state.items()
    }


def test_annealed_beta_reaches_captured_updates() -> None:
    plain, quick, graphs = pair(RAINBOW)
    for run, updater in ((plain, plain.updater), (quick, graphs)):
        torch.manual_seed(1)
        for first in range(0, 40, 4):
            ring_of(run).sampler.set_beta(0.4 + first / 100)
            updater.run(first, 4)
    same(plain, quick)


@pytest.mark.parametrize("lies", ["a tensor", "a number"])
def test_learning_rate_schedule_reaches_captured_updates_as_a_tensor(lies: str) -> None:
    plain, quick, graphs = pair(IQL_CELL)
    runs = ((plain, plain.updater), (quick, graphs))
    for run, _ in runs:
        assert isinstance(run.learner, IQL)
        if lies == "a tensor":
            (group,) = run.learner.actor_optimizer.param_groups
            group["lr"] = torch.tensor(group["lr"], dtype=torch.float64)
    for run, updater in runs:
        torch.manual_seed(1)
        for first in range(0, 40, 4):
            put(run, 3e-4 * (1 - first / 40))
            updater.run(first, 4)
    agrees = all(torch.equal(value, trained_tensors(plain)[name]) for name, value in trained_tensors(quick).items())
    assert agrees == (lies == "a tensor")


def put(run: OnlineTrainer | OfflineTrainer, lr: float) -> None:
    assert isinstance(run.learner, IQL)
    (group,) = run.learner.actor_optimizer.param_groups
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


def waiting(run: OnlineTrainer | OfflineTrainer) -> Callable[..., Any]:
    """Updates that ask for a number."""
    plain = run.learner.update

    def update(batch: Any, phase: int) -> Any:
        report = plain(batch, phase)
        assert float(report.metrics["critic_loss"]) >= 0
        return report

    return update


def counting(run: OnlineTrainer | OfflineTrainer) -> Callable[..., Any]:
    """Updates that depend on how many there were, and let only Python know."""
    plain, calls = run.learner.update, [0]

    def update(batch: Any, phase: int) -> Any:
        calls[0] += 1
        return plain(batch._replace(reward=batch.reward * calls[0]), phase)

    return update


def exchanging(run: OnlineTrainer | OfflineTrainer) -> Callable[..., Any]:
    """Updates that put what they keep into a new tensor each time."""
    plain, learner = run.learner.update, run.learner
    assert isinstance(learner, TD3)

    def update(batch: Any, phase: int) -> Any:
        report = plain(batch._replace(reward=batch.reward + learner.actor_loss), phase)
        learner.actor_loss = learner.actor_loss + 1.0
        return report

    return update


@pytest.mark.parametrize(
    ("spoiled", "reason"),
    [(waiting, "could not be captured"), (counting, "gave other numbers"), (exchanging, "gave other numbers")],
)
def test_uncapturable_updates_stay_eager_with_a_reason(
    spoiled: Callable[[OnlineTrainer | OfflineTrainer], Callable[..., Any]],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, quick, graphs = pair(TD3_CELL)
    for run in (plain, quick):
        monkeypatch.setattr(run.learner, "update", spoiled(run))
    cells_of(TD3_CELL, plain, plain.updater)
    cells_of(TD3_CELL, quick, graphs)
    assert reason in str(graphs.refusal)
    assert not graphs.graphs
    if spoiled is waiting:  # the others' Python has run twice, once for the recorder
        same(plain, quick)
    assert graphs.take().count == sum(STRIDES)


IMPOSSIBLE: dict[str, Callable[[Tensor], object]] = {
    "a number for the host": lambda x: x.sum().item(),
    "a choice by a mask": lambda x: x[x > 1],
    "places of what is not zero": lambda x: x.nonzero(),
    "numbers from the host": lambda _: torch.tensor([1.0, 2.0]),
}


@pytest.mark.parametrize("work", IMPOSSIBLE)
def test_graph_stand_in_refuses_uncapturable_operations(work: str) -> None:
    x = torch.arange(3.0)
    with pytest.raises(RecordingError):
        GraphRecorder([]).record(lambda: IMPOSSIBLE[work](x))


def test_graph_stand_in_records_without_effects_and_replays() -> None:
    x, y = torch.arange(3.0), torch.zeros(3)

    def work() -> None:
        y.add_(x * 2)
        x.add_(1)

    graph = GraphRecorder([]).record(work)
    assert (x.tolist(), y.tolist()) == ([0, 1, 2], [0, 0, 0])
    graph.replay()
    graph.replay()
    assert (x.tolist(), y.tolist()) == ([2, 3, 4], [2, 6, 10])
