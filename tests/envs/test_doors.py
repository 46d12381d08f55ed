"""Doors against hand-computed episodes."""

from __future__ import annotations

import numpy as np
import pytest

from rlbench.envs.toy import KEYS, LIMIT, Doors
from rlbench.errors import UsageError


def test_right_keys_open_all_doors_and_only_the_last_gives_a_reward() -> None:
    env = Doors(seeds=[1, 2])
    shown, paid, over = [env.reset()], [], []
    for key in [*KEYS, 0]:
        env.send(np.full(2, key))
        step = env.recv()
        shown.append(step.obs)
        paid.append(step.reward.tolist())
        over.append((step.terminated & step.over & ~step.truncated).tolist())
    assert [int(obs[0].argmax()) for obs in shown] == [*range(15), 0]
    assert all(np.array_equal(obs[0], obs[1]) and obs[0].sum() == 255 for obs in shown)
    assert paid == [[0.0, 0.0]] * 13 + [[1.0, 1.0], [0.0, 0.0]]
    assert over == [[False] * 2] * 13 + [[True] * 2, [False] * 2]


@pytest.mark.parametrize("door", [0, 1, 13])
def test_a_wrong_key_leads_back_to_the_first_door(door: int) -> None:
    env = Doors(seeds=[0])
    env.reset()
    for key in KEYS[:door]:
        env.send(np.array([key]))
        env.recv()
    env.send((KEYS[door : door + 1] + 1) % 4)
    step = env.recv()
    assert int(step.obs[0].argmax()) == 0
    assert not (step.terminated | step.truncated).any()


def test_episode_is_truncated_at_its_limit() -> None:
    env = Doors(seeds=[0])
    env.reset()
    cut = []
    for _ in range(2 * LIMIT + 2):
        env.send(np.array([1]))
        step = env.recv()
        assert not step.terminated.any()
        cut.append(bool(step.truncated[0]))
    assert [i for i, ended in enumerate(cut) if ended] == [LIMIT - 1, 2 * LIMIT]  # a reset between


def test_the_action_after_an_end_does_nothing() -> None:
    env = Doors(seeds=[0])
    env.reset()
    for key in KEYS:
        env.send(np.array([key]))
        env.recv()
    env.send(KEYS[:1])
    assert int(env.recv().obs[0].argmax()) == 0


def test_doors_without_envs_is_refused() -> None:
    with pytest.raises(UsageError, match="env"):
        Doors(seeds=[])
