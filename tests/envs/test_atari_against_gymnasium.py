"""Every Atari adapter, row by row, against games made of Gymnasium's own wrappers, which share no code with ours."""

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, MaxAndSkipObservation, ResizeObservation, TransformObservation

from tests.envs.factories import answer_to, make_atari
from tests.slow import slow_but

gymnasium.register_envs(ale_py)
STEPS = 300


class Oracle:
    """One env as the contract has it, written out."""

    def __init__(self, env: gymnasium.Env, *, training: bool) -> None:
        self.env, self.training = env, training
        self.emulator = env.unwrapped.ale
        self.fire = "FIRE" in env.unwrapped.get_action_meanings()
        self.next = "game"

    def begin(self) -> np.ndarray:
        obs = self.env.reset()[0] if self.next == "game" else self.env.step(0)[0]
        if self.fire:
            obs = self.env.step(1)[0]
        self.lives, self.next = self.emulator.lives(), "step"
        return obs

    def row(self, action: int) -> tuple:
        """Observation, reward, terminated, truncated, score, over."""
        if self.next != "step":
            return self.begin(), 0.0, False, False, 0.0, False
        obs, score, over, truncated, _ = self.env.step(action)
        lost = self.training and 0 < self.emulator.lives() < self.lives
        self.lives = self.emulator.lives()
        self.next = "game" if over else "life" if lost else "step"
        return obs, np.sign(score) if self.training else score, over or lost, truncated, score, over


def grey_first(name: str, noops: int) -> gymnasium.Env:
    raw = gymnasium.make(f"ALE/{name}-v5", frameskip=1, repeat_action_probability=0.0)
    return AtariPreprocessing(raw, noop_max=noops, frame_skip=4, screen_size=84)


def colour_first(name: str, noops: int) -> gymnasium.Env:
    assert noops == 0
    env = MaxAndSkipObservation(gymnasium.make(f"ALE/{name}-v5", frameskip=1, repeat_action_probability=0.0), skip=4)
    space = gymnasium.spaces.Box(0, 255, (210, 160), np.uint8)
    grey = TransformObservation(env, lambda frame: cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), space)
    return ResizeObservation(grey, (84, 84))


CASES = [  # the game, its Gymnasium name, envs, training
    ("breakout", "Breakout", 2, True),  # two envs: one loses a life and presses FIRE while the other plays on
    ("breakout", "Breakout", 2, False),
    ("seaquest", "Seaquest", 1, True),
    ("seaquest", "Seaquest", 1, False),
    ("pong", "Pong", 1, True),
    ("ms_pacman", "MsPacman", 1, True),  # without FIRE
]
YARDSTICKS = {  # the adapter's no-ops and the composition it must equal; EnvPool cannot begin without a no-op
    "ale": (0, grey_first),
    "envpool": (1, grey_first),
    "gymnasium": (0, colour_first),
}


@pytest.mark.parametrize(("game", "name", "count", "training"), slow_but(CASES, 0, 3), ids=str)
@pytest.mark.parametrize("adapter", YARDSTICKS)
def test_every_row_equals_gymnasiums_own_wrappers(
    adapter: str, game: str, name: str, count: int, *, training: bool
) -> None:
    noops, yardstick = YARDSTICKS[adapter]
    env = make_atari(adapter, game, seeds=range(count), training=training, noops=noops)
    num_envs = [Oracle(yardstick(name, noops), training=training) for _ in range(count)]
    first = env.reset()
    for env_id, oracle in enumerate(num_envs):
        assert np.array_equal(first[env_id], oracle.begin()), f"env {env_id}"
    generator = np.random.default_rng(1)
    lost = over = 0
    for at in range(STEPS):
        action = generator.integers(env.info.actions.n, size=count)
        step = answer_to(env, action)
        for env_id, oracle in enumerate(num_envs):
            obs, *rest = oracle.row(int(action[env_id]))
            columns = (step.reward, step.terminated, step.truncated, step.score, step.game_over)
            assert [column[env_id] for column in columns] == rest, f"env {env_id}, step {at}"
            # what a game shows as it ends is each engine's own (see their docstrings): ALE's is AtariPreprocessing's
            if adapter == "ale" or not step.game_over[env_id]:
                assert np.array_equal(step.obs[env_id], obs), f"env {env_id}, step {at}"
        lost += int((step.terminated & ~step.game_over).sum())
        over += int(step.game_over.sum())
    env.close()
    if game == "breakout":
        assert over > 0
    assert (lost > 0) == (training and game != "pong")


def test_the_engines_grey_differs_from_the_documented_grey_only_where_colours_overlap() -> None:
    engine = make_atari("ale", "seaquest", seeds=[3], training=True, noops=0)
    documented = make_atari("gymnasium", "seaquest", seeds=[3], training=True, noops=0)
    assert np.array_equal(engine.reset(), documented.reset())
    differing = []
    for action in np.random.default_rng(0).integers(18, size=(150, 1)):
        ours, theirs = answer_to(engine, action), answer_to(documented, action)
        assert (ours.reward == theirs.reward).all() and (ours.terminated == theirs.terminated).all()
        gap = np.abs(ours.obs.astype(int) - theirs.obs)
        if not ours.game_over[0]:
            assert gap.max() <= 16
        differing.append((gap > 0).mean())
    assert np.mean(differing) < 0.002
