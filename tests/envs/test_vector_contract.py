"""The contract of ``envs/base.py`` for every adapter: next-step autoreset, flags, scores, seeds, determinism."""

from hashlib import sha256

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing

from rlbench.envs.base import Step, VectorEnv
from tests.envs.factories import answer_to, draw, make_any, make_atari
from tests.slow import slow_but

gymnasium.register_envs(ale_py)
REAL = ["hopper", "cheetah", "fetch", "envpool-hopper", "pendulum"]  # their actions are real numbers
KINDS = ["ale", "envpool", "cartpole", "catch", *REAL, "gymnasium"]
ATARI = slow_but(["ale", "envpool", "gymnasium"], 0, 1)  # the third are Gymnasium's own wrappers

STEPS = 120
SEEDS = [11, 13, 11]


def actions(env: VectorEnv, steps: int) -> np.ndarray:
    return draw(env.info.actions, seed=7, size=(steps, env.info.num_envs))


def play(env: VectorEnv, steps: int, *, after_an_end: int | None = None) -> list[Step]:
    """Step with the same random actions as ever, or with a given one where it should not matter; close."""
    env.reset()
    rows: list[Step] = []
    for action in actions(env, steps):
        ended = rows[-1].terminated | rows[-1].truncated if rows else np.zeros(env.info.num_envs, bool)
        ignored = action if after_an_end is None else np.full_like(action, after_an_end)
        rows.append(answer_to(env, np.where(ended.reshape(-1, *[1] * (action.ndim - 1)), ignored, action)))
    env.close()
    return rows


def digest(rows: list[Step]) -> str:
    return sha256(b"".join(column.tobytes() for row in rows for column in row)).hexdigest()


@pytest.fixture(scope="module", params=slow_but(KINDS, *range(9)), name="kind")
def kind_fixture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", name="rows")
def rows_fixture(kind: str) -> list[Step]:
    """The recorded answers of one of each, which the tests below read."""
    return play(make_any(kind, seeds=SEEDS), STEPS)


def test_the_row_after_an_end_has_no_reward_no_score_and_no_flag(rows: list[Step]) -> None:
    ended, ends = np.zeros(len(SEEDS), bool), 0
    for row in rows:
        assert not row.reward[ended].any() and not row.score[ended].any()
        assert not (row.terminated | row.truncated | row.game_over)[ended].any()
        ended = row.terminated | row.truncated
        ends += int(ended.sum())
    assert ends >= 4


def test_an_end_has_one_reason_and_a_game_only_ends_where_an_episode_does(rows: list[Step]) -> None:
    for row in rows:
        assert not (row.terminated & row.truncated).any()
        assert not (row.game_over & ~(row.terminated | row.truncated)).any()


def test_rows_have_the_promised_shapes_and_types(kind: str, rows: list[Step]) -> None:
    env = make_any(kind, seeds=[1])
    first = env.reset()
    assert first.shape == (1, *env.info.obs_shape) and first.dtype == env.info.obs_dtype
    for row in rows:
        assert row.obs.shape == (3, *env.info.obs_shape) and row.obs.dtype == first.dtype
        assert [column.shape for column in row[1:]] == [(3,)] * 6
        assert [column.dtype for column in row[1:]] == [np.float32, bool, bool, np.int64, np.float64, bool]
        assert row.env_id.tolist() == [0, 1, 2]
    env.close()
    env.close()


def test_equal_seeds_and_actions_give_equal_bytes(kind: str, rows: list[Step]) -> None:
    assert digest(play(make_any(kind, seeds=SEEDS), STEPS, after_an_end=1)) == digest(rows)


def test_a_step_keeps_its_observation_while_the_next_is_made(kind: str) -> None:
    env = make_any(kind, seeds=[1])
    env.reset()
    pairs = []
    for action in actions(env, 12):
        row = answer_to(env, action)
        pairs.append((row.obs, row.obs.copy()))
    assert all(np.array_equal(obs_row, copy) for obs_row, copy in pairs)
    assert len({copy.tobytes() for _, copy in pairs}) > 6


def test_envs_differ_only_by_their_seeds(kind: str, rows: list[Step]) -> None:
    env = make_any(kind, seeds=[11, 13, 14, 11])
    env.reset()
    alike = [answer_to(env, np.repeat(action[:1], 4, axis=0)).obs for action in actions(env, STEPS)]
    one, *others, again = (np.stack(alike)[:, env_id].tobytes() for env_id in range(4))
    assert one == again
    assert {one} < {one, *others}  # in Breakout a no-op more is not always seen
    assert not all(np.array_equal(row.obs[0], row.obs[2]) for row in rows)  # the same seed, other actions


@pytest.mark.parametrize("kind", REAL)
def test_continuous_env_is_independent_of_the_other_envs(kind: str) -> None:
    crowd, alone = make_any(kind, seeds=[5, 6, 7, 8, 9]), make_any(kind, seeds=[8])
    assert np.array_equal(crowd.reset()[3], alone.reset()[0])
    for action in actions(crowd, 70):
        many, one = answer_to(crowd, action), answer_to(alone, action[3:4])
        assert all(ours[3].tobytes() == theirs[0].tobytes() for ours, theirs in zip(many[:4], one[:4], strict=True))
    crowd.close()
    alone.close()


@pytest.mark.parametrize("kind", ["cheetah", "fetch", "pendulum"])
def test_step_limit_is_a_truncation_with_the_final_observation(kind: str) -> None:
    rows, free = play(make_any(kind, seeds=[1]), 62), play(make_any(kind, seeds=[1], limit=49), 62)
    assert [bool(row.truncated[0]) for row in rows] == [at in {29, 60} for at in range(62)]  # a reset between
    assert not any(row.terminated[0] for row in rows)
    assert [np.array_equal(row.obs, other.obs) for row, other in zip(rows[:31], free, strict=False)] == [True] * 30 + [
        False
    ]


@pytest.mark.parametrize("kind", REAL)
def test_a_score_is_its_reward(kind: str) -> None:
    for row in play(make_any(kind, seeds=SEEDS), 60):
        assert np.array_equal(row.score.astype(np.float32), row.reward)


def test_envpools_bytes_do_not_depend_on_its_threads() -> None:
    bytes_by_threads = {
        digest(play(make_atari("envpool", "breakout", seeds=range(3), training=True, threads=threads), 60))
        for threads in (1, 3)
    }
    assert len(bytes_by_threads) == 1


def test_ale_env_is_independent_of_the_other_envs() -> None:
    crowd = make_atari("ale", "breakout", seeds=range(3), training=True)
    alone = make_atari("ale", "breakout", seeds=[2], training=True)
    assert np.array_equal(crowd.reset()[2], alone.reset()[0])
    for action in actions(crowd, 150):
        many, one = answer_to(crowd, action), answer_to(alone, action[2:3])
        assert np.array_equal(many.obs[2], one.obs[0]) and many.terminated[2] == one.terminated[0]


@pytest.mark.parametrize("adapter", ATARI)
def test_a_breakout_game_has_five_lives_in_training_and_one_episode_in_evaluation(adapter: str) -> None:
    training = play(make_atari(adapter, "breakout", seeds=[1], training=True), 320)
    over = [i for i, row in enumerate(training) if row.game_over[0]]
    assert len(over) >= 1
    assert sum(row.terminated[0] for row in training[: over[0] + 1]) == 5
    evaluation = play(make_atari(adapter, "breakout", seeds=[1], training=False), 320)
    assert [bool(row.terminated[0]) for row in evaluation] == [bool(row.game_over[0]) for row in evaluation]
    assert any(row.game_over[0] for row in evaluation)


@pytest.mark.parametrize("adapter", ATARI)
def test_rewards_are_signs_in_training_and_points_in_evaluation_and_scores_are_always_points(adapter: str) -> None:
    for training in (True, False):
        rows = play(make_atari(adapter, "space_invaders", seeds=[1], training=training), 150)
        reward, score = np.stack([row.reward for row in rows]), np.stack([row.score for row in rows])
        assert set(score.ravel()) >= {0, 5, 10}
        assert np.array_equal(reward, np.sign(score) if training else score)


@pytest.mark.parametrize("adapter", ATARI)
def test_the_frame_limit_truncates_the_game_and_the_next_row_begins_another(adapter: str) -> None:
    env = make_atari(adapter, "pong", seeds=[1], training=True, noops=1, max_frames=61)
    first = env.reset()
    rows = [answer_to(env, np.array([2])) for _ in range(40)]
    # 1 no-op, FIRE for 4 frames, then 14 steps of 4 frames: 61. EnvPool counts steps and not the no-op: 16, one FIRE
    steps = 15 if adapter == "envpool" else 14
    ends = [i for i, row in enumerate(rows) if row.truncated[0]]
    assert ends == [steps - 1, 2 * steps]
    assert all(row.game_over[0] and not row.terminated[0] for row in (rows[i] for i in ends))
    assert np.array_equal(rows[steps].obs, first)
    assert not np.array_equal(rows[steps - 1].obs, rows[steps - 2].obs)


@pytest.mark.parametrize("adapter", ATARI)
def test_a_game_that_reaches_its_limit_while_a_life_is_begun_says_so_one_row_later(adapter: str) -> None:
    free = play(make_atari(adapter, "breakout", seeds=[1], training=True, noops=1), 60)
    lost = next(i for i, row in enumerate(free) if row.terminated[0])
    steps = 1 + (lost + 1) + 2  # FIRE at the start, the first life, no-op and FIRE after it
    limit = 4 * steps + (adapter != "envpool")
    env = make_atari(adapter, "breakout", seeds=[1], training=True, noops=1, max_frames=limit)
    first = make_atari(adapter, "breakout", seeds=[1], training=True, noops=1).reset()
    rows = play(env, lost + 5)
    assert digest(rows[: lost + 2]) == digest(free[: lost + 2])
    late, fresh = rows[lost + 2 : lost + 4]
    assert late.truncated[0] and late.game_over[0] and not late.terminated[0] and not late.score[0]
    if adapter != "gymnasium":  # ALE's own limit lets one more frame pass
        assert np.array_equal(late.obs, rows[lost + 1].obs)
    assert np.array_equal(fresh.obs, first) and not (fresh.truncated | fresh.terminated)[0]
    assert not np.array_equal(rows[lost + 4].obs, first)


def test_the_last_frame_of_a_truncated_game_is_the_true_one() -> None:
    limited = make_atari("ale", "pong", seeds=[1], training=True, noops=1, max_frames=61)
    free = make_atari("ale", "pong", seeds=[1], training=True, noops=1)
    limited.reset()
    free.reset()
    for _ in range(14):
        cut, whole = answer_to(limited, np.array([2])), answer_to(free, np.array([2]))
        assert np.array_equal(cut.obs, whole.obs)
    assert cut.truncated[0] and not whole.truncated[0]


@pytest.mark.parametrize("adapter", ATARI)
def test_games_begin_after_a_random_number_of_noop_frames(adapter: str) -> None:
    raw = gymnasium.make("ALE/Freeway-v5", frameskip=1, repeat_action_probability=0.0)
    oracle = AtariPreprocessing(raw, noop_max=0, frame_skip=1, screen_size=84)  # traffic moves in every frame
    frames = [oracle.reset()[0].tobytes(), *(oracle.step(0)[0].tobytes() for _ in range(3))]
    assert len(set(frames)) == 4
    env = make_atari(adapter, "freeway", seeds=range(4), training=False, noops=2, fire=False)
    assert {frame.tobytes() for frame in env.reset()} == set(frames[1:3])


@pytest.mark.parametrize("adapter", ATARI)
def test_sticky_actions_follow_the_seed(adapter: str) -> None:
    def games(sticky: float, *seeds: int) -> list[bytes]:
        env = make_atari(adapter, "pong", seeds=seeds, training=True, noops=1, sticky=sticky)
        env.reset()
        action_ids = np.random.default_rng(7).integers(6, size=40)
        frames = np.stack([answer_to(env, np.full(len(seeds), action)).obs for action in action_ids])
        return [frames[:, env_id].tobytes() for env_id in range(len(seeds))]

    one, other, again = games(0.5, 1, 2, 1)
    assert one == again != other
    assert len(set(games(0.0, 1, 2))) == 1


@pytest.mark.parametrize("adapter", ATARI)
def test_full_action_space_of_eighteen_actions(adapter: str) -> None:
    few, many = (make_atari(adapter, "breakout", seeds=[1], training=True, full_actions=full) for full in (False, True))
    assert (few.info.actions.n, many.info.actions.n) == (4, 18)


def test_the_record_names_engine_and_versions(kind: str) -> None:
    names = dict(make_any(kind, seeds=[1]).info.versions)
    assert names["env"].split("/")[0] in {"ale", "envpool", "gymnasium", "rlbench"}
    assert len(names) >= 2 and all(names.values())
