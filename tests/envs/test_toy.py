"""Catch and Doors by hand computation."""

import numpy as np
import pytest

from rlbench.envs.toy import KEYS, LIMIT, Catch, Doors
from tests.envs.factories import answer_to


def columns(board: np.ndarray) -> tuple[int, int]:
    """The places of ball and paddle; the ball is the upper one."""
    places = np.argwhere(board == 255)
    return int(places[0][1]), int(places[-1][1])


def test_the_best_policy_always_catches() -> None:
    env = Catch(seeds=range(64))
    obs, scores = env.reset(), []
    for _ in range(30):
        ball, paddle = np.array([columns(board) for board in obs]).T
        step = answer_to(env, 1 + np.sign(ball - paddle))
        obs = step.obs
        scores += step.score[step.game_over].tolist()
    assert scores == [1.0] * 192


def test_catch_episode_equals_a_hand_computation() -> None:
    env = Catch(seeds=[0])  # default_rng(0) drops the first ball in column 4, the second in column 3
    assert env.reset()[0].tolist() == [[0, 0, 0, 0, 255], *[[0] * 5] * 8, [0, 0, 255, 0, 0]]
    boards = []
    for action in [0, 0, 0, 2, 1, 2, 2, 2, 1, 0, 2]:
        step = answer_to(env, np.array([action]))
        ball = np.argwhere(step.obs[0] == 255)[0].tolist()
        boards.append((ball, columns(step.obs[0])[1], step.reward[0], step.terminated[0], step.game_over[0]))
    assert boards == [
        ([1, 4], 1, 0, False, False),
        ([2, 4], 0, 0, False, False),
        ([3, 4], 0, 0, False, False),  # the wall
        ([4, 4], 1, 0, False, False),
        ([5, 4], 1, 0, False, False),
        ([6, 4], 2, 0, False, False),
        ([7, 4], 3, 0, False, False),
        ([8, 4], 4, 0, False, False),
        ([9, 4], 4, 1, True, True),
        ([0, 3], 2, 0, False, False),  # a fresh board, whatever the action
        ([1, 3], 3, 0, False, False),
    ]


def test_missed_ball_gives_minus_one() -> None:
    env = Catch(seeds=[0])
    env.reset()
    assert [answer_to(env, np.array([1])).score[0] for _ in range(9)] == [0.0] * 8 + [-1.0]


def test_balls_fall_in_every_column_equally_often() -> None:
    starts = [columns(board)[0] for board in Catch(seeds=range(2000)).reset()]
    assert np.bincount(starts, minlength=5).min() > 340


def test_right_keys_open_all_doors_and_only_the_last_gives_a_reward() -> None:
    env = Doors(seeds=[1, 2])
    observations, rewards, over = [env.reset()], [], []
    for key in [*KEYS, KEYS[0]]:  # the action after the end does nothing
        step = answer_to(env, np.full(2, key))
        observations.append(step.obs)
        rewards.append(step.reward.tolist())
        over.append((step.terminated & step.game_over & ~step.truncated).tolist())
    assert [int(obs[0].argmax()) for obs in observations] == [*range(15), 0]
    assert all(np.array_equal(obs[0], obs[1]) and obs[0].sum() == 255 for obs in observations)
    assert rewards == [[0.0, 0.0]] * 13 + [[1.0, 1.0], [0.0, 0.0]]
    assert over == [[False] * 2] * 13 + [[True] * 2, [False] * 2]


@pytest.mark.parametrize("door", [0, 1, 13])
def test_a_wrong_key_leads_back_to_the_first_door(door: int) -> None:
    env = Doors(seeds=[0])
    env.reset()
    for key in KEYS[:door]:
        answer_to(env, np.array([key]))
    step = answer_to(env, (KEYS[door : door + 1] + 1) % 4)
    assert int(step.obs[0].argmax()) == 0
    assert not (step.terminated | step.truncated).any()


def test_episode_is_truncated_at_its_limit() -> None:
    env = Doors(seeds=[0])
    env.reset()
    cut = []
    for _ in range(2 * LIMIT + 2):
        step = answer_to(env, np.array([1]))
        assert not step.terminated.any()
        cut.append(bool(step.truncated[0]))
    assert [i for i, ended in enumerate(cut) if ended] == [LIMIT - 1, 2 * LIMIT]  # a reset between
