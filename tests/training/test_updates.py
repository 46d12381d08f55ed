"""The inner loop of updates, with parts that record their calls."""

import torch
from torch import Tensor

from rlbench.algorithms.base import Periodic, Update
from rlbench.ops.types import Transition
from rlbench.records.types import Updated
from rlbench.training.updates import EagerUpdater, MeanMetrics


class Source:
    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.output: list[tuple[list[int], list[float]]] = []

    def sample(self, batch: int) -> Transition:
        self.sizes.append(batch)
        nothing = torch.zeros(batch)
        return Transition(
            nothing, nothing, nothing, nothing, nothing, nothing, torch.arange(batch) + 10 * len(self.sizes)
        )

    def update_priorities(self, slot: Tensor, priority: Tensor) -> None:
        self.output.append((slot.tolist(), priority.tolist()))


class Pupil:
    """Counts its updates, in cycles of four, and is to be synced after every third."""

    cycle_length = 4

    def __init__(self) -> None:
        self.phases: list[int] = []
        self.synced: list[int] = []
        self.periodic_actions = (Periodic(3, lambda: self.synced.append(len(self.phases))),)

    def update(self, batch: Transition, phase: int) -> Update:
        self.phases.append(phase)
        metrics = {"loss": torch.tensor(float(len(self.phases))), "q": torch.tensor(-1.0)}
        return Update(metrics, batch.slot * 2.0)


def test_the_phase_of_a_cycle_is_counted_over_all_calls() -> None:
    pupil = Pupil()
    for first, count in ((0, 2), (2, 3), (5, 1)):
        _eager(pupil, Source()).run(first, count)
    assert pupil.phases == [0, 1, 2, 3, 0, 1]


def updater_of() -> tuple[EagerUpdater, Source, list[int]]:
    source, pupil = Source(), Pupil()
    return _eager(pupil, source), source, pupil.synced


def _eager(pupil: Pupil, source: Source) -> EagerUpdater:
    return EagerUpdater(source=source, learner=pupil, batch=2, metrics=MeanMetrics(torch.device("cpu")))


def test_targets_are_copied_after_every_third_update_counted_over_all_calls() -> None:
    eager, _, synced = updater_of()
    eager.run(0, 2)
    eager.run(2, 5)
    eager.run(7, 3)
    assert synced == [3, 6, 9]


def test_priorities_are_written_back_to_their_slots() -> None:
    eager, source, _ = updater_of()
    eager.run(0, 2)
    assert source.sizes == [2, 2]
    assert source.output == [([10, 11], [20.0, 22.0]), ([20, 21], [40.0, 42.0])]


def test_an_epochs_means_are_over_its_own_updates() -> None:
    eager, _, _ = updater_of()
    assert eager.take() is None
    eager.run(0, 3)
    assert eager.take() == Updated(count=3, means={"loss": 2.0, "q": -1.0})
    eager.run(3, 1)
    assert eager.take() == Updated(count=1, means={"loss": 4.0, "q": -1.0})
