"""The Atari table: the documented games, the documented settings of each algorithm, and the exceptions.

Settings: thu-ml/tianshou examples/atari (README tables, v0.2.7 – v0.4.4; unchanged defaults up to v2.0.1); PPO as
of the table since v0.4.11 (#780), SAC of v0.4.9 (#657).
"""

from __future__ import annotations

from rlbench.config.online import (
    C51HeadConfig,
    CuriosityConfig,
    DiscreteSACConfig,
    FQFHeadConfig,
    IQNHeadConfig,
    NatureConfig,
    PolicyGradientConfig,
    PPOConfig,
    PriorityConfig,
    QLearningConfig,
    QRDQNHeadConfig,
    ReplayConfig,
)
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Budget, Protocol, Spec
from rlbench.config.tasks import AtariTask

DOCUMENTED = tuple(
    f"{game}NoFrameskip-v4" for game in ("Pong", "Breakout", "Enduro", "Qbert", "MsPacman", "Seaquest", "SpaceInvaders")
)

GAMES = """
adventure air_raid alien amidar assault asterix asteroids atlantis atlantis2 backgammon bank_heist basic_math
battle_zone beam_rider berzerk blackjack bowling boxing breakout carnival casino centipede chopper_command
combat crazy_climber crossbow darkchambers defender demon_attack donkey_kong double_dunk earthworld
elevator_action enduro entombed et fishing_derby flag_capture freeway frogger frostbite galaxian gopher gravitar
hangman haunted_house hero human_cannonball ice_hockey jamesbond journey_escape joust kaboom kangaroo
keystone_kapers king_kong klax koolaid krull kung_fu_master laser_gates lost_luggage mario_bros maze_craze
miniature_golf montezuma_revenge mr_do ms_pacman name_this_game othello pacman phoenix pitfall pitfall2 pong
pooyan private_eye qbert riverraid road_runner robotank seaquest sir_lancelot skiing solaris space_invaders
space_war star_gunner superman surround tennis tetris tic_tac_toe_3d time_pilot trondead turmoil tutankham
up_n_down venture video_checkers video_chess video_cube video_pinball warlords wizard_of_wor word_zapper
yars_revenge zaxxon
""".split()  # noqa: SIM905 - a hundred quoted names are no easier to read
"""Every game of ALE by its own name."""


def task_id(game: str) -> str:
    """``space_invaders`` → ``SpaceInvadersNoFrameskip-v4``, as Gym named its environments."""
    return "".join(part.capitalize() for part in game.split("_")) + "NoFrameskip-v4"


TASKS = {name: name for name in DOCUMENTED} | {task_id(game): task_id(game) for game in GAMES}
_GAME = {task_id(game): game for game in GAMES}

THREE_STEP_REPLAY = ReplayConfig(n_step=3)
VALUE_BASED = {
    "dqn": QLearningConfig(replay=THREE_STEP_REPLAY),
    "c51": QLearningConfig(head=C51HeadConfig(), replay=THREE_STEP_REPLAY),
    "qrdqn": QLearningConfig(head=QRDQNHeadConfig(), replay=THREE_STEP_REPLAY),
    "iqn": QLearningConfig(head=IQNHeadConfig(), replay=THREE_STEP_REPLAY),
    "fqf": QLearningConfig(head=FQFHeadConfig(), lr=5e-5, replay=THREE_STEP_REPLAY),
    "rainbow": QLearningConfig(
        head=C51HeadConfig(),
        dueling=True,
        noisy=0.1,
        lr=6.25e-5,
        replay=ReplayConfig(n_step=3, priority=PriorityConfig()),
    ),
}
PPO = PolicyGradientConfig(
    # Tianshou's README asks for minibatches of 256 of 1000 rows; they have 256, 256 and 488, because the rest joins the
    # last one. Here four have 250: one shape, as close to the paper, and one more gradient step per epoch.
    method=PPOConfig(clip=0.1, value_clip=True, epochs=4, minibatches=4, value=0.25, entropy=0.01, normalize=True),
    torso=NatureConfig(scale=True),
    epsilon=1e-5,
    lr=2.5e-4,
    lr_decay_steps=10_000_000,
    rollout_length=100,
    scale_returns=False,
    normalize_obs=False,
)
ICM_SETTINGS = CuriosityConfig(torso=NatureConfig(scale=True))
"""The scripts' settings, with pixels divided by 255. With raw pixels the first bonuses are in the hundreds (measured:
660 a step on Pong) beside rewards of 1. In the scripts they never reached an n-step target, and no score is
documented."""

ALGORITHMS: dict[str, QLearningConfig | DiscreteSACConfig | PolicyGradientConfig] = {
    **VALUE_BASED,
    "ppo": PPO,
    "sac": DiscreteSACConfig(replay=THREE_STEP_REPLAY),
    "dqn+icm": QLearningConfig(replay=THREE_STEP_REPLAY, curiosity=ICM_SETTINGS),
    "ppo+icm": PPO.model_copy(update={"curiosity": ICM_SETTINGS}),
    "sac+icm": DiscreteSACConfig(replay=THREE_STEP_REPLAY, curiosity=ICM_SETTINGS),
}
BATCH_ON_PONG = 64
PONG, BREAKOUT, SEAQUEST = (f"{game}NoFrameskip-v4" for game in ("Pong", "Breakout", "Seaquest"))
EXCEPTIONS: dict[tuple[str, str], tuple[str, ...]] = {
    # every README row of Pong was made with --batch_size 64, and learning starts after ten batches
    **{(name, PONG): (f"algo.batch={BATCH_ON_PONG}", "algo.learning_starts=640") for name in VALUE_BASED},
    **{(name, BREAKOUT): ("algo.replay.n_step=1",) for name in VALUE_BASED if name != "dqn"},
    # the documented command of that row, examples/atari/README.md at f2402056b03a
    ("sac", BREAKOUT): ("algo.replay.n_step=1", "algo.actor_lr=1e-4", "algo.critic_lr=1e-4"),
    ("ppo", SEAQUEST): ("algo.lr=1e-4",),
}
"""Settings of cells whose references differ from the algorithm's common settings."""

DQN_EVAL_EPISODES = 100  # README rows of DQN other than Pong: --num_test_envs 100


def spec(algorithm: str, task: str, seed: int) -> Spec:
    """The documented settings of one cell of the Atari table."""
    row = algorithm.removesuffix("+icm")  # with ICM, the exceptions of the plain algorithm
    algo, pong = ALGORITHMS[algorithm], task == PONG
    more_episodes = row == "dqn" and not pong
    cell = Spec(
        suite="atari",
        algorithm=algorithm,
        task=AtariTask(id=task, game=_GAME[task]),
        algo=algo,
        protocol=Protocol(
            name="atari-nature-v4",
            episodes=DQN_EVAL_EPISODES if more_episodes else 10,
            envs=20 if more_episodes else 10,
            epsilon=0.005 if algo.epsilon_greedy else 0.0,
            stop=20.0 if pong else None,
        ),
        budget=Budget(steps=10_000_000, epoch=100_000, segment=1_000_000),
        seed=seed,
    )
    return apply_settings(cell, [parse(text) for text in EXCEPTIONS.get((row, task), ())])
