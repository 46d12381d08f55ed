"""The offline loop with scripted evaluation workers: order, waiting, and state."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from rlbench.config.run import Budget
from rlbench.errors import RefusedFile
from rlbench.ops.state_dict import State, integer, tensor
from rlbench.records.types import Epoch, Evaluated, Progress, Updated
from rlbench.training.clock import RngState
from rlbench.training.offline import MAX_PENDING, DatasetIdentity, OfflineTrainer
from tests.training.test_online import Part

BUDGET = Budget(steps=100, epoch=30, segment=1000)


class CountingLearner:
    """Learns by counting, and reports its calls since the last report."""

    def __init__(self) -> None:
        self.net, self.count = nn.Linear(1, 1, bias=False), 0
        nn.init.zeros_(self.net.weight)

    def policy_net(self) -> nn.Module:
        return self.net

    def state_dict(self) -> State:
        return {"count": self.count, "weight": self.net.weight.detach().clone()}

    def load_state_dict(self, state: State) -> None:
        self.count = integer(state, "count")
        self.net.load_state_dict({"weight": tensor(state, "weight")})

    def run(self, first: int, count: int) -> None:
        self.count += count
        with torch.no_grad():
            self.net.weight += count

    def take(self) -> Updated | None:
        count, self.count = self.count, 0
        return Updated(count=count, means={"loss": 0.5, "q": 1.25}) if count else None


class Remembering:
    """Workers, ``most`` at a time, that answer in order, or ``backwards``, an epoch every ``looks`` polls."""

    def __init__(self, policy: nn.Module, most: int, *, looks: int = 3, backwards: bool = False) -> None:
        self.policy, self.max_workers, self.looks, self.backwards = policy, most, looks, backwards
        self.weights: dict[int, dict[str, torch.Tensor]] = {}
        self.answered: set[int] = set()
        self.waited: list[float] = []
        self.longest = 0

    def submit(self, epoch: int) -> None:
        self.weights[epoch] = {name: value.clone() for name, value in self.policy.state_dict().items()}
        self.longest = max(self.longest, len(self.weights))

    def poll(self, epoch: int, seconds: float) -> Evaluated | int:
        self.waited.append(seconds)
        if len(self.waited) % self.looks == 0:
            pending = sorted(set(self.weights) - self.answered, reverse=self.backwards)
            self.answered |= set(pending[:1])
        return evaluated(epoch, self.weights[epoch]["weight"]) if epoch in self.answered else 0

    def take(self, epoch: int) -> State:
        return dict(self.weights.pop(epoch))

    def state_dict(self) -> State:
        return {str(epoch): dict(policy) for epoch, policy in self.weights.items()}

    def load_state_dict(self, state: State) -> None:
        self.weights = {int(epoch): policy for epoch, policy in state.items() if isinstance(policy, dict)}

    def close(self) -> None:
        self.weights.clear()


def evaluated(epoch: int, weight: torch.Tensor) -> Evaluated:
    return Evaluated(returns=(float(weight.detach()), float(epoch)), lengths=(1, 1), seeds=(0, 1), seconds=0.0)


class Within:
    """An evaluation here and now, of two steps."""

    def __init__(self, evaluated_now: Evaluated) -> None:
        self.evaluated_now = evaluated_now

    def __iter__(self) -> Iterator[int]:
        return iter((0, 1))

    def result(self) -> Evaluated:
        return self.evaluated_now


def trainer(most: int, **how: Any) -> tuple[OfflineTrainer, Remembering]:
    learner = CountingLearner()
    workers = Remembering(learner.net, most, **how)
    offline_trainer = OfflineTrainer(
        updater=learner,
        sampler=Part(),
        learner=learner,
        rng=RngState(None),
        evaluate=lambda epoch: Within(evaluated(epoch, learner.net.weight)),
        eval_pool=workers,
        budget=BUDGET,
        schedules=(),
        data=DatasetIdentity("x", None),
    )
    return offline_trainer, workers


def lines_of(offline_trainer: OfflineTrainer) -> list[tuple[object, ...]]:
    """Every epoch, its times left out, and the policy that goes with it."""
    return [
        (
            e.number,
            e.updates,
            e.updated,
            e.evaluated,
            float(next(iter(offline_trainer.evaluated_policy.values())).sum()),
        )
        for e in offline_trainer
        if isinstance(e, Epoch)
    ]


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("looks", [1, 2, 30])
def test_epochs_evaluated_by_workers_keep_their_order(most: int, looks: int, *, backwards: bool) -> None:
    here, _ = trainer(0)
    golden = lines_of(here)
    assert [row[0] for row in golden] == [0, 1, 2, 3, 4]
    assert [row[4] for row in golden] == [0, 30, 60, 90, 100]
    there, _ = trainer(most, looks=looks, backwards=backwards)
    assert lines_of(there) == golden


def test_training_continues_during_evaluation_and_waits_at_a_limit() -> None:
    offline_trainer, workers = trainer(1, looks=1000)
    records: list[Progress | Epoch] = []
    for record in offline_trainer:
        records.append(record)
        if len(workers.waited) == 999:
            break
    assert workers.longest == MAX_PENDING + 1
    assert offline_trainer.clock.updates == 30 * MAX_PENDING + 25, "a stride beyond the epoch that nobody has time for"
    assert offline_trainer.clock.epochs == 0
    assert not any(isinstance(record, Epoch) for record in records)
    assert {0.0, 0.2} == set(workers.waited), "it looks while there is room, and waits when there is none"


@pytest.mark.parametrize("then", [0, 1])
def test_state_contains_pending_evaluations_which_come_first(then: int) -> None:
    golden = lines_of(trainer(0)[0])
    offline_trainer, _ = trainer(2, looks=1000)
    steps = iter(offline_trainer)
    while offline_trainer.clock.updates < 75:
        next(steps)
    state = offline_trainer.state_dict()
    assert [epoch.number for epoch in offline_trainer.pending] == [0, 1, 2]
    again, _ = trainer(then)
    again.load_state_dict(state)
    assert lines_of(again) == golden


def test_older_state_without_evaluation_workers_is_loaded() -> None:
    offline_trainer, _ = trainer(0)
    state = offline_trainer.state_dict()
    del state["judges"], state["pending"]
    again, _ = trainer(1)
    again.load_state_dict(state)
    assert lines_of(again) == lines_of(trainer(0)[0])


def test_state_of_other_data_is_refused() -> None:
    offline_trainer, _ = trainer(0)
    with pytest.raises(RefusedFile, match="made with other data than x"):
        offline_trainer.load_state_dict({**offline_trainer.state_dict(), "data": "y"})
