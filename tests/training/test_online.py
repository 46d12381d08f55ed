"""The bookkeeping of the online loop, with parts that only count."""

from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace

import pytest
import torch

from rlbench.config.online import LinearSchedule
from rlbench.config.run import Budget
from rlbench.ops.state_dict import State, subtree, tensor
from rlbench.records.types import Epoch, Evaluated, Progress, Updated
from rlbench.training.clock import ReplayRatio, RngState, RolloutSchedule
from rlbench.training.online import OnlineTrainer


class Part:
    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass


class Counting(Part):
    """A collector of ten envs of which one idles every third step."""

    def __init__(self) -> None:
        self.segment, self.steps, self.steps_taken, self.exact = -1, 0, 0, True
        self.opened: list[tuple[int, int]] = []
        self.amounts: list[tuple[int, float]] = []
        self.episode_stats = SimpleNamespace(last=None, take=lambda: ((), ()))

    def open(self, segment: int) -> None:
        self.segment = segment
        self.opened.append((segment, self.steps))

    def step(self) -> int:
        self.steps_taken += 1
        live = 9 if self.steps_taken % 3 == 0 else 10
        self.steps += live
        return live


class Updates(Part):
    def __init__(self, collector: Counting) -> None:
        self.collector, self.ran, self.count = collector, [], 0

    def run(self, first: int, count: int) -> None:
        self.ran += [(n, self.collector.steps) for n in range(first, first + count)]
        self.count += count

    def take(self) -> Updated | None:
        count, self.count = self.count, 0
        return Updated(count=count, means={"loss": 0.0, "q": 0.0}) if count else None


class Scored:
    """An evaluation of three steps that plays with torch's own generator."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        for n in range(3):
            torch.rand(5)
            yield n

    def result(self) -> Evaluated:
        return Evaluated(returns=(float(self.epoch),), lengths=(1,), seeds=(0,), seconds=0.0)


def trainer(**changes: object) -> tuple[OnlineTrainer, Counting, Updates]:
    collector = Counting()
    updates = Updates(collector)
    settings = {
        "budget": Budget(steps=1000, epoch=300, segment=400),
        "schedules": [
            (LinearSchedule(start=1.0, end=0.1, steps=500).at, lambda v: collector.amounts.append((collector.steps, v)))
        ],
        "update_schedule": ReplayRatio(100, 0.1),
        **changes,
    }
    parts = {"collector": collector, "updater": updates, "buffer": Part(), "learner": Part()}
    return OnlineTrainer(rng=RngState(None), evaluate=Scored, **parts, **settings), collector, updates


def test_epochs_start_at_the_untrained_policy_and_end_at_their_steps() -> None:
    online_trainer, _, _ = trainer()
    epochs = [r for r in online_trainer if isinstance(r, Epoch)]
    assert [e.number for e in epochs] == [0, 1, 2, 3, 4]
    assert [e.evaluated.mean for e in epochs if e.evaluated] == [0, 1, 2, 3, 4]
    ends = [e.env_steps for e in epochs]
    assert ends[0] == 0
    for end, due in zip(ends[1:], (300, 600, 900, 1000), strict=True):
        assert due <= end < due + 10
    assert [e.collected.steps for e in epochs] == [b - a for a, b in zip([0, *ends], ends, strict=False)]
    assert epochs[0].updated is None


def test_gradient_steps_follow_live_steps_after_learning_starts() -> None:
    online_trainer, _, updates = trainer(update_schedule=ReplayRatio(100, 0.25))
    last = list(online_trainer)[-1]
    assert [n for n, _ in updates.ran] == list(range(len(updates.ran)))
    for number, steps in updates.ran:
        assert steps >= 100 + (number + 1) * 4, "an update came before its steps"
        assert steps < 100 + (number + 1) * 4 + 10, "an update came late"
    assert isinstance(last, Epoch)
    assert last.updates == len(updates.ran) == int((last.env_steps - 100) * 0.25)


def test_exploration_follows_the_clock() -> None:
    online_trainer, collector, _ = trainer()
    list(online_trainer)
    for steps, amount in collector.amounts:
        assert amount == pytest.approx(max(0.1, 1.0 - 0.9 * steps / 500))
    assert collector.amounts[0] == (0, 1.0)
    assert collector.amounts[-1][1] == pytest.approx(0.1)


def test_segments_begin_in_fresh_environments_at_their_multiples() -> None:
    online_trainer, collector, _ = trainer()
    list(online_trainer)
    assert [s for s, _ in collector.opened] == [0, 1, 2]
    assert [steps // 400 for _, steps in collector.opened] == [0, 1, 2]
    assert all(steps % 400 < 10 for _, steps in collector.opened)


def test_evaluation_does_not_advance_training_generators() -> None:
    online_trainer, _, _ = trainer()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    records = iter(online_trainer)
    while not isinstance(next(records), Epoch):
        assert torch.equal(tensor(subtree(online_trainer.state_dict(), "noise"), "host"), before), (
            "a checkpoint in mid-evaluation must hold the training's stream"
        )
    assert torch.equal(torch.get_rng_state(), before)


def test_state_restores_the_training_generators() -> None:
    online_trainer, _, _ = trainer()
    torch.manual_seed(5)
    state, number = online_trainer.state_dict(), torch.rand(())
    online_trainer.load_state_dict(state)
    assert torch.rand(()) == number


def test_segments_of_rollouts_begin_between_two_rollouts() -> None:
    online_trainer, collector, updates = trainer(update_schedule=RolloutSchedule(rollout_length=8, updates=3))
    rows = []
    collector.open = lambda segment: (setattr(collector, "segment", segment), rows.append(collector.steps_taken))
    list(online_trainer)
    assert rows == [0, 48, 88]  # the first multiples of eight rows after 0, 400 and 800 steps
    assert len(updates.ran) == collector.steps_taken // 8 * 3


def test_progress_is_yielded_after_every_vector_step() -> None:
    online_trainer, collector, _ = trainer(budget=Budget(steps=100, epoch=100, segment=100))
    steps = [r.env_steps for r in online_trainer if isinstance(r, Progress)]
    assert sorted(set(steps)) == [0, 10, 20, 29, 39, 49, 58, 68, 78, 87, 97, 107]
    assert collector.steps_taken == 11


def test_a_linear_schedule_is_a_function_of_absolute_steps() -> None:
    schedule = LinearSchedule(start=1.0, end=0.05, steps=1_000_000)
    assert schedule.at(0) == 1.0
    assert schedule.at(500_000) == pytest.approx(0.525)
    assert schedule.at(1_000_000) == schedule.at(9_000_000) == 0.05


def test_steps_of_inexact_resumes_are_kept_in_later_states() -> None:
    online_trainer, collector, _ = trainer()
    list(islice(online_trainer, 5))
    state = online_trainer.state_dict()
    del state["inexact"]  # as checkpoints were before
    online_trainer.load_state_dict(state)
    assert online_trainer.inexact == ()
    collector.exact = False
    online_trainer.load_state_dict(online_trainer.state_dict())
    first = online_trainer.clock.env_steps
    list(islice(online_trainer, 5))
    online_trainer.load_state_dict(online_trainer.state_dict())
    assert online_trainer.inexact == (first, online_trainer.clock.env_steps)
    collector.exact = True
    online_trainer.load_state_dict(online_trainer.state_dict())
    assert online_trainer.inexact == (first, online_trainer.clock.env_steps)
