"""Every kind of learner with tiny settings, for the tests of R1 to R3 and for the soak."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pytest

from rlbench import suites
from rlbench.cli.resolve import resolve
from rlbench.config.run import Spec
from rlbench.records.store import folder_of


class Family(NamedTuple):
    """One run of a second or so; smoke runs, so that offline ones bring their own data."""

    suite: str
    algorithm: str
    task: str
    sets: tuple[str, ...]
    smoke: bool = True
    dataset: str = ""

    @property
    def name(self) -> str:
        return f"{self.suite}/{self.algorithm}/{self.task}" + (f"@{self.dataset}" if self.dataset else "")

    def spec(self, seed: int = 0) -> Spec:
        more = {"seed": seed, "sets": self.sets, "smoke": self.smoke, "dataset": self.dataset}
        return resolve(self.suite, self.algorithm, self.task, **more).spec

    def folder(self, results: Path, seed: int = 0) -> Path:
        return folder_of(self.spec(seed), results)

    def words(self, results: Path, seeds: str = "0") -> list[str]:
        sets = [word for change in self.sets for word in ("--set", change)]
        place = ["--device", "cpu", "--results", str(results), "--seeds", seeds]
        place += (["--smoke"] if self.smoke else []) + (["--dataset", self.dataset] if self.dataset else [])
        return ["run", self.suite, self.algorithm, "--task", self.task, *place, *sets]


EVALUATION = ("protocol.episodes=2", "protocol.envs=2", "protocol.stop=none")
REPLAYED = ("algo.replay.capacity=400", "algo.replay.n_step=3", "algo.batch=8", *EVALUATION)
BOARD = ("budget.steps=400", "budget.epoch=130", "budget.segment=170", "algo.learning_starts=80", *REPLAYED)
REAL = (
    "budget.steps=160", "budget.epoch=60", "budget.segment=90", "algo.learning_starts=40", "task.envs=2",
    "algo.widths=16,16", *REPLAYED,
)  # fmt: skip
ROLLED = (
    "budget.steps=200", "budget.epoch=90", "budget.segment=70", "task.envs=3", "algo.rollout_length=8",
    "algo.lr_decay_steps=150", "algo.torso.widths=8,8", *EVALUATION,
)  # fmt: skip
PASSES = ("algo.method.epochs=2", "algo.method.minibatches=3")
DOORS = ("budget.steps=600", "budget.epoch=200", "budget.segment=250", "algo.rollout_length=8", *EVALUATION)
CURIOUS = ("algo.curiosity=curiosity", "algo.curiosity.torso=mlp", "algo.curiosity.hidden=16")
OFFLINE = ("budget.steps=60", "budget.epoch=20", "budget.segment=25", "algo.batch=8", *EVALUATION[:2])
WIDTHS = ("algo.widths=16,16",)
PONG = (
    "budget.steps=200", "budget.epoch=70", "budget.segment=90", "task.envs=3", "task.max_frames=200",
    "algo.learning_starts=30", "algo.replay.capacity=400", "algo.batch=4", "protocol.episodes=2", "protocol.envs=2",
)  # fmt: skip

CATCH = Family("toy", "dqn", "Catch", BOARD)
HOPPER = Family("mujoco", "ppo", "Hopper-v4", (*ROLLED, *PASSES))
GAME = Family("atari", "dqn", "PongNoFrameskip-v4", PONG)
SHORT = CATCH._replace(sets=(*BOARD, "budget.steps=160", "budget.epoch=50", "budget.segment=70"))
FEW_GAMES = GAME._replace(sets=(*PONG, "task.envs=2", "algo.hidden=16", "protocol.episodes=1", "protocol.envs=1"))
RAINBOW = Family("toy", "rainbow", "CartPole-v1", BOARD)
PENDULUM = Family("toy", "sac", "Pendulum-v1", REAL[:4] + REAL[5:])
CURIOUS_DOORS = Family("toy", "ppo+icm", "Doors", DOORS)
REACH = Family("goals", "ddpg+her", "FetchReach-v4", (*REAL, "task.steps=20"))
FLAT = Family("offline", "td3bc", "rlb-hopper-medium", (*OFFLINE, *WIDTHS))
GRID = Family("offline", "cql", "Catch", OFFLINE)

GENERATED = FLAT._replace(task="Hopper-v4", smoke=False, dataset="rlb-soak")
"""From a data set that somebody has to make first."""
REGISTERED = Family("mujoco", "ppo", "gym:Pendulum-v1", HOPPER.sets)
"""Without snapshots, and with normalized observations."""

FEW = (CATCH, RAINBOW, PENDULUM, HOPPER, CURIOUS_DOORS, REACH, FLAT, GRID)
"""One of each family."""

ALL = (
    *FEW,
    GAME,
    *(Family("toy", name, "Catch", BOARD) for name in ("c51", "qrdqn", "iqn", "fqf", "rainbow", "sac")),
    *(Family("toy", name, "Catch", (*BOARD, *CURIOUS)) for name in ("dqn", "sac")),
    Family("toy", "ddpg", "Pendulum-v1", PENDULUM.sets),
    Family("toy", "td3", "Pendulum-v1", PENDULUM.sets),
    Family("toy", "redq", "Pendulum-v1", (*PENDULUM.sets, "algo.updates_per_step=1")),
    Family("mujoco", "sac", "Hopper-v4", REAL),
    Family("mujoco", "td3", "Walker2d-v4", (*REAL, "algo.replay.priority=priority")),
    *(Family("mujoco", name, "Walker2d-v4", ROLLED) for name in ("a2c", "trpo", "npg", "reinforce")),
    Family("toy", "ppo", "Catch", (*ROLLED, *PASSES)),
    Family("toy", "a2c", "CartPole-v1", (*ROLLED, "algo.normalize_obs=true")),
    *(
        Family("offline", name, "rlb-hopper-medium", (*OFFLINE, *WIDTHS))
        for name in suites.algorithms("offline")
        if name != "td3bc"
    ),
    *(Family("offline", name, "Catch", OFFLINE) for name in ("il", "bcq", "crr")),
)
"""Every learner that there is."""


def marked(families: Collection[Family], quick: Collection[Family], mark: pytest.MarkDecorator) -> list[object]:
    """Parameters of a test, all but the quick ones marked."""
    return [
        pytest.param(family, marks=() if family in quick else mark, id="-".join((family.name, *family.sets[-2:])))
        for family in families
    ]
