"""Lives, episode ends and rewards, on scripted emulator states."""

import numpy as np
import pytest

from rlbench.envs.atari import Answers, EpisodeTracker, one_seed_per_env
from rlbench.envs.base import Step


def step_of(
    tracker: EpisodeTracker, *, points: float = 0, lives: int = 3, ended: bool = False, capped: bool = False
) -> Step:
    return tracker.apply(
        Answers(
            obs=np.zeros((1, 2, 2), np.uint8),
            points=np.array([points], np.float64),
            lives=np.array([lives]),
            ended=np.array([ended]),
            capped=np.array([capped]),
        )
    )


def flags(step: Step) -> tuple[float, float, bool, bool, bool]:
    """Reward, score, terminated, truncated, over."""
    return step.reward[0], step.score[0], step.terminated[0], step.truncated[0], step.game_over[0]


@pytest.fixture
def training() -> EpisodeTracker:
    tracker = EpisodeTracker(num_envs=1, episodic_life=True, clip=True)
    tracker.begin(np.array([3]))
    return tracker


QUIET = (0, 0, False, False, False)


def test_a_lost_life_ends_the_episode_but_not_the_game(training: EpisodeTracker) -> None:
    assert flags(step_of(training, points=30, lives=2)) == (1, 30, True, False, False)
    assert training.emulator_action(np.array([5])).tolist() == [0]
    assert flags(step_of(training, points=10, lives=2)) == QUIET
    assert training.emulator_action(np.array([5])).tolist() == [5]
    assert flags(step_of(training, points=-7, lives=2)) == (-1, -7, False, False, False)


def test_life_lost_during_the_start_of_a_life_ends_nothing(training: EpisodeTracker) -> None:
    step_of(training, lives=2)
    assert flags(step_of(training, lives=1)) == QUIET
    assert flags(step_of(training, lives=1)) == QUIET


def test_gained_life_or_temporary_zero_lives_end_nothing(training: EpisodeTracker) -> None:
    assert flags(step_of(training, lives=4)) == QUIET
    assert flags(step_of(training, lives=0)) == QUIET
    assert flags(step_of(training, lives=3)) == QUIET


def test_a_game_over_on_the_last_life_ends_both(training: EpisodeTracker) -> None:
    assert flags(step_of(training, points=1, lives=0, ended=True)) == (1, 1, True, False, True)
    assert flags(step_of(training, points=9, lives=3)) == QUIET
    assert flags(step_of(training, lives=3)) == QUIET


def test_the_frame_limit_truncates_unless_a_life_is_lost_in_the_same_step(training: EpisodeTracker) -> None:
    assert flags(step_of(training, capped=True)) == (0, 0, False, True, True)
    step_of(training)
    assert flags(step_of(training, lives=2, capped=True)) == (0, 0, True, False, True)
    assert training.game_over[0] and not training.life_lost[0]  # what follows is a game, not a life


@pytest.mark.parametrize("why", ["ended", "capped"])
def test_game_ending_during_the_start_of_a_life_is_reported_one_row_later(training: EpisodeTracker, why: str) -> None:
    step_of(training, lives=2)
    assert flags(step_of(training, points=5, lives=2, **{why: True})) == QUIET
    assert not training.active[0]
    last = flags(step_of(training, points=5, lives=3))  # ignored: the step has no effect
    assert last == (0, 0, why == "ended", why == "capped", True)
    assert training.active[0]
    assert training.emulator_action(np.array([5])).tolist() == [0]
    assert flags(step_of(training, lives=3)) == QUIET


def test_evaluation_plays_whole_games_for_raw_points() -> None:
    tracker = EpisodeTracker(num_envs=1, episodic_life=False, clip=False)
    tracker.begin(np.array([3]))
    assert flags(step_of(tracker, points=30, lives=2)) == (30, 30, False, False, False)
    assert flags(step_of(tracker, points=-2, lives=0, ended=True)) == (-2, -2, True, False, True)


def test_seeds_are_reduced_to_the_engines_range() -> None:
    assert one_seed_per_env([0, 1, 2**31 - 3, 2**31 - 2, 2**63 + 5])[:4] == (1, 2, 2**31 - 2, 1)
    assert all(0 < seed < 2**31 - 1 for seed in one_seed_per_env([0, 2**31, 2**62, 2**64 - 1]))
