"""PrioritizedSampler sampling against the exact distribution."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from rlbench.buffers.prioritized import EPSILON, MAX_PRIORITY, PrioritizedSampler
from rlbench.buffers.ring import RingBuffer
from tests.buffers.counting import Touched
from tests.rings import ring_of, same_batches

NUM_ENVS, ROWS = 3, 12
NONE = np.zeros(NUM_ENVS, np.bool_)


def step(replay: RingBuffer, number: int, ends: np.ndarray = NONE) -> None:
    replay.add_transitions(torch.zeros(NUM_ENVS, dtype=torch.int64), np.zeros(NUM_ENVS, np.float32), ends, NONE)
    replay.add_observations(np.full(NUM_ENVS, number + 1, np.float32))


def ring(
    alpha: float = 0.7, beta: float = 0.4, horizon: int = 2, stack: int = 2, *, rows: int = ROWS, steps: int = 0
) -> tuple[RingBuffer, PrioritizedSampler]:
    """A ring after so many steps without an end."""
    generator, capacity = torch.Generator().manual_seed(0), rows * NUM_ENVS
    sampler = PrioritizedSampler(generator, capacity=capacity, num_envs=NUM_ENVS, alpha=alpha, beta=beta)
    replay = ring_of(NUM_ENVS, rows, horizon, stack, sampler=sampler)
    replay.add_observations(np.zeros(NUM_ENVS, np.float32))
    for number in range(steps):
        step(replay, number)
    return replay, sampler


def usable(replay: RingBuffer) -> set[int]:
    """Flat slots that are complete, whole and alive: counted one by one, from the ring's own words."""
    span = replay.sample_range()
    rows = [int((span.head - span.n_step - i) % span.length) for i in range(int(span.rows))]
    return {row * NUM_ENVS + env for row in rows for env in range(NUM_ENVS) if not replay.final[row, env]}


def frequencies(replay: RingBuffer, sampler: PrioritizedSampler, batches: int = 4000, batch: int = 16) -> np.ndarray:
    slots = torch.cat([sampler.draw(batch, replay.sample_range())[0] for _ in range(batches)])
    return torch.bincount(slots, minlength=ROWS * NUM_ENVS).numpy()


@pytest.mark.parametrize("steps", [9, 40])
def test_slots_are_drawn_in_proportion_to_their_priorities(steps: int) -> None:
    """Before the ring is full and after it has wrapped around, with final rows, after new priorities."""
    replay, sampler = ring()
    for number in range(steps):
        step(replay, number, np.array([number % 5 == 3, False, number % 7 == 2]))
    slots = sorted(usable(replay))
    priority = torch.rand(len(slots), generator=torch.Generator().manual_seed(3)) * 5
    sampler.update_priorities(torch.tensor(slots), priority)
    shares = frequencies(replay, sampler)
    mass = np.zeros(ROWS * NUM_ENVS)
    mass[slots] = (priority.double().numpy() + EPSILON) ** 0.7
    assert steps <= ROWS or (sampler.mass.view(-1)[slots] > 0).all(), "every slot the ring allows has mass"
    live = mass > 0
    assert shares[~live].sum() == 0
    assert chisquare(shares[live], mass[live] / mass.sum() * shares.sum()).pvalue > 1e-4


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_a_new_transition_has_the_highest_priority_so_far(alpha: float) -> None:
    replay, sampler = ring(alpha=alpha, steps=6)
    (slot,) = sampler.draw(1, replay.sample_range())[0].tolist()
    sampler.update_priorities(torch.tensor([slot]), torch.tensor([9.0]))
    assert sampler.mass.view(-1)[slot].item() == pytest.approx(9.0**alpha)
    sampler.update_priorities(torch.tensor([slot]), torch.tensor([0.5]))
    step(replay, 6)
    fresh = int((replay.head - replay.n_step) % replay.length) * NUM_ENVS
    assert sampler.mass.view(-1)[fresh : fresh + NUM_ENVS].tolist() == pytest.approx([9.0**alpha] * NUM_ENVS)


def test_higher_priority_of_a_slot_sampled_twice_counts() -> None:
    replay, sampler = ring(alpha=1.0, steps=8)
    a, b = sorted(usable(replay))[:2]
    sampler.update_priorities(torch.tensor([a, b, a]), torch.tensor([5.0, 0.5, 2.0]))
    assert sampler.mass.view(-1)[[a, b]].tolist() == pytest.approx([5.0, 0.5])
    sampler.update_priorities(torch.tensor([a]), torch.tensor([0.25]))
    assert sampler.mass.view(-1)[a].item() == pytest.approx(0.25)


def test_a_priority_that_is_no_number_leaves_every_mass_finite() -> None:
    replay, sampler = ring(alpha=1.0, steps=8)
    slots = torch.tensor(sorted(usable(replay))[:4])
    sampler.update_priorities(slots, torch.tensor([torch.nan, torch.inf, -torch.inf, -3.0]))
    assert sampler.mass.view(-1)[slots].tolist() == pytest.approx([EPSILON, MAX_PRIORITY, EPSILON, EPSILON])
    assert sampler.top == MAX_PRIORITY


def test_a_dead_slot_cannot_be_given_a_priority() -> None:
    replay, sampler = ring()
    for number in range(8):
        step(replay, number, np.array([number == 3, False, False]))
    final = int(torch.nonzero(replay.final[:, 0])[0]) * NUM_ENVS
    assert sampler.mass.view(-1)[final] == 0
    sampler.update_priorities(torch.tensor([final]), torch.tensor([7.0]))
    assert sampler.mass.view(-1)[final] == 0


def test_importance_weights_are_normalized_by_the_batch_maximum() -> None:
    """Schaul et al. 2016, section 3.4: w = (N P(i))^-β / max w."""
    replay, sampler = ring(alpha=1.0, beta=0.6, steps=9)
    slots = sorted(usable(replay))
    sampler.update_priorities(torch.tensor(slots), torch.arange(1.0, len(slots) + 1))
    rows_drawn, weight = sampler.draw(12, replay.sample_range())
    share = sampler.mass.view(-1) / sampler.mass.sum()
    want = [(len(slots) * share[s].item()) ** -0.6 for s in rows_drawn.tolist()]
    assert weight.tolist() == pytest.approx([w / max(want) for w in want], rel=1e-5)
    sampler.set_beta(0.0)
    assert sampler.draw(12, replay.sample_range())[1].tolist() == [1.0] * 12
    sampler.set_beta(1.0)
    rows_drawn, weight = sampler.draw(12, replay.sample_range())
    assert (weight.double() * share[rows_drawn]).tolist() == pytest.approx(
        [share[rows_drawn].min().item()] * 12, rel=1e-5
    )


def test_a_batch_is_stratified() -> None:
    """One slot from each equal share: with equal masses and as many draws as slots, each comes at most twice."""
    replay, sampler = ring(alpha=1.0, steps=9)
    count = len(usable(replay))
    for _ in range(50):
        assert torch.bincount(sampler.draw(count, replay.sample_range())[0]).max() <= 2


def test_the_sums_do_not_drift_over_ten_million_updates() -> None:
    """10⁷ changes of priorities over nine orders of magnitude: the block sums stay the sums of their masses."""
    sampler = PrioritizedSampler(torch.Generator(), capacity=4096, num_envs=1, alpha=0.5, beta=0.4)
    sampler.mass.fill_(1.0)
    generator = torch.Generator().manual_seed(1)
    for _ in range(500):
        slot = torch.randint(4096, (20_000,), generator=generator)
        sampler.update_priorities(slot, 10 ** (9 * torch.rand(20_000, generator=generator) - 6))
    assert torch.equal(sampler.sums, sampler.mass.sum(1))
    exact = sum(sampler.mass.view(-1).tolist())
    assert float(sampler.sums.sum()) == pytest.approx(exact, rel=1e-12)


def test_a_draw_and_an_update_cost_the_square_root_of_the_capacity() -> None:
    counts = {}
    for rows in (1_000, 100_000):
        replay, sampler = ring(rows=rows, steps=40)
        with Touched(writes=False) as touched:
            slot, weight = sampler.draw(8, replay.sample_range())
            sampler.update_priorities(slot, weight)
        counts[rows] = touched.elements
    assert counts[100_000] / counts[1_000] < 1.5 * 10.0  # √100 = 10
    assert counts[100_000] < 100_000 * NUM_ENVS / 10


def test_prioritized_sampler_resumes_from_its_state() -> None:
    replay, sampler = ring(steps=20)
    slots, weight = sampler.draw(8, replay.sample_range())
    sampler.update_priorities(slots, weight * 3)
    copy, other = ring()
    copy.load_state_dict(replay.state_dict())
    for _ in range(3):
        same_batches(sampler.draw(8, replay.sample_range()), other.draw(8, copy.sample_range()))
    for each in (replay, copy):
        step(each, 20)  # new transitions begin with the highest priority so far, 3
    assert float(sampler.top) > 1
    assert torch.equal(other.sums, sampler.sums)
