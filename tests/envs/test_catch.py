"""Catch against hand-computed episodes."""

from __future__ import annotations

import numpy as np

from rlbench.envs.toy import Catch


def columns(board: np.ndarray) -> tuple[int, int]:
    """Where ball and paddle are; the ball is the upper one."""
    places = np.argwhere(board == 255)
    return int(places[0][1]), int(places[-1][1])


def test_the_best_policy_always_catches() -> None:
    env = Catch(seeds=range(64))
    obs, scores = env.reset(), []
    for _ in range(30):
        ball, paddle = np.array([columns(board) for board in obs]).T
        env.send(1 + np.sign(ball - paddle))
        step = env.recv()
        obs = step.obs
        scores += step.score[step.over].tolist()
    assert scores == [1.0] * 192


def test_catch_episode_equals_a_hand_computation() -> None:
    env = Catch(seeds=[0])  # default_rng(0) drops the first ball in column 4, the second in column 3
    board = env.reset()[0]
    assert board.tolist() == [[0, 0, 0, 0, 255], *[[0] * 5] * 8, [0, 0, 255, 0, 0]]
    shown = []
    for action in [0, 0, 0, 2, 1, 2, 2, 2, 1, 0, 2]:
        env.send(np.array([action]))
        step = env.recv()
        ball = np.argwhere(step.obs[0] == 255)[0].tolist()
        shown.append((ball, columns(step.obs[0])[1], step.reward[0], step.terminated[0], step.over[0]))
    assert shown == [
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
    scores = []
    for _ in range(9):
        env.send(np.array([1]))
        scores.append(env.recv().score[0])
    assert scores == [0.0] * 8 + [-1.0]


def test_balls_fall_in_every_column_equally_often() -> None:
    starts = [columns(board)[0] for board in Catch(seeds=range(2000)).reset()]
    assert np.bincount(starts, minlength=5).min() > 340
