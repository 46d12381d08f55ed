"""The offline table: recorded experience, and the documented settings of each algorithm.

A cell has the settings of its primary reference (Tianshou, CORL, robomimic, OfflineRL-Lib): ``offline_settings.csv``
has every field with file and commit. Cells without a reference, and our own data, have those of ``ALGORITHMS``:
thu-ml/tianshou examples/offline at v0.4.9 (IL, BCQ, CQL, TD3+BC), without the errors of its CQL and BCQ. Tianshou has
no settings for IQL and CRR. IQL has its paper's settings; CRR its paper's losses (exp, β 1, weights up to 20), with the
minimum of two critics, τ 0.005, batches of 256 and evaluation by the mode. That is neither the paper's setting
(distributional critics) nor d3rlpy's. The names of our own data begin with ``rlb-``: no score on them is compared with
one on D4RL's. On the nine with a recipe CQL's gap weighs 5 and has no multiplier (its authors: 5 or 10 for these
robots): under the documented threshold of 10 the gap stayed at 1 to 5, the multiplier fell to 0.02 within 20,000
updates and the values diverged (one seed, on a data set of HalfCheetah that no longer exists). Discrete actions:
``offline_discrete``.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rlbench.config.offline import BCConfig, BCQConfig, CQLConfig, CRRConfig, IQLConfig, OfflineConfig, TD3BCConfig
from rlbench.config.overrides import Setting, apply_settings
from rlbench.config.run import Budget, Protocol, Spec
from rlbench.config.tasks import MujocoTask, OfflineTask
from rlbench.suites import offline_discrete

ROBOTS = {"halfcheetah": "HalfCheetah", "hopper": "Hopper", "walker2d": "Walker2d", "ant": "Ant"}
QUALITIES = ("random", "medium", "expert", "medium-replay", "medium-expert", "full-replay")
OWN_QUALITIES = ("medium", "expert", "medium-expert")
"""Qualities of our own data sets."""

D4RL_IDS = tuple(f"{body}-{quality}-v2" for body in ("halfcheetah", "hopper", "walker2d") for quality in QUALITIES)
"""D4RL's ids whose observations equal those of Gymnasium's ``-v4``; Ant-v4 lacks 84 contact forces."""

OWN_IDS = tuple(f"rlb-{body}-{quality}" for body in ("halfcheetah", "hopper", "walker2d") for quality in OWN_QUALITIES)
MINARI_IDS = tuple(
    f"mujoco/{body}/{quality}-v0"
    for body in ("halfcheetah", "hopper", "walker2d")
    for quality in ("simple", "medium", "expert")
)
"""Minari's ids; recorded on ``-v5`` tasks and evaluated, as all here, on ``-v4``."""

MUJOCO_ENVS = tuple(
    f"{name}-v4" for name in ("HalfCheetah", "Hopper", "Walker2d", "Swimmer", "Ant", "InvertedPendulum")
)
ENVS = (*MUJOCO_ENVS, *offline_discrete.ENVS)
"""Environments of other data, given with ``--dataset``."""

DOCUMENTED = (*D4RL_IDS, *OWN_IDS)
TASKS = {name: name for name in (*D4RL_IDS, *OWN_IDS, *MINARI_IDS, *ENVS)}

PUBLISHED_DATA_STEPS, OWN_DATA_STEPS = 1_000_000, 100_000
"""Gradient steps on published data, as documented, and on our own sets."""

CQL_ON_OWN_DATA = CQLConfig(conservative_weight=5.0, lagrange_threshold=None, soft_q_backup=False)
"""CQL on ``OWN_IDS``: https://github.com/aviralkumar2907/CQL, ``min_q_weight`` 5 with ``lagrange_thresh`` −1."""

ALGORITHMS: dict[str, OfflineConfig] = {
    "il": OfflineConfig(method=BCConfig(), actor_lr=1e-4),
    "bcq": OfflineConfig(method=BCQConfig(), actor_lr=1e-3, critic_lr=1e-3),
    "cql": OfflineConfig(method=CQLConfig(), actor_lr=1e-4, critic_lr=3e-4),
    "crr": OfflineConfig(method=CRRConfig()),
    "td3bc": OfflineConfig(method=TD3BCConfig(), n_step=3, normalize_obs=True),
    "td3bc-raw": OfflineConfig(method=TD3BCConfig(), n_step=3),
    "iql": OfflineConfig(method=IQLConfig(lr_decay_steps=PUBLISHED_DATA_STEPS), return_span=1000.0),
}
"""``td3bc-raw`` is TD3+BC on observations as they are, the other half of the documented pairs."""

IMPOSSIBLE = frozenset(
    (name, task) for name in ALGORITHMS if name not in offline_discrete.ALGORITHMS for task in offline_discrete.ENVS
)
"""These learn continuous actions alone; the others have settings for both."""

EPOCH = 5_000


def env_id_of(task: str) -> str:
    """The environment that evaluates policies of the data set ``task``."""
    if task in ENVS:
        return task
    words = task.removeprefix("rlb-").removeprefix("mujoco/").replace("/", "-").split("-")
    return f"{ROBOTS[words[0]]}-v4"


def spec(algorithm: str, task: str, seed: int, dataset: str = "") -> Spec:
    """The settings of one cell of the offline table."""
    if task in offline_discrete.ENVS:
        return offline_discrete.spec(algorithm, task, seed, dataset)
    cell = _cell(algorithm, task)
    return cell.model_copy(update={"seed": seed, "task": cell.task.model_copy(update={"dataset": dataset})})


def sources(algorithm: str, task: str) -> dict[str, str]:
    """The file and commit of each documented field of a cell."""
    return {setting.path: setting.source for setting in settings(algorithm, task)}


@cache
def _cell(algorithm: str, task: str) -> Spec:
    """A cell with the settings of its primary reference, or ours where no reference documents the cell."""
    steps, algo = OWN_DATA_STEPS if task in OWN_IDS else PUBLISHED_DATA_STEPS, ALGORITHMS[algorithm]
    if algorithm == "iql":
        algo = algo.model_copy(update={"method": IQLConfig(lr_decay_steps=steps)})
    if algorithm == "cql" and task in OWN_IDS:
        algo = algo.model_copy(update={"method": CQL_ON_OWN_DATA})
    ours = Spec(
        suite="offline",
        algorithm=algorithm,
        task=OfflineTask(id=task, world=MujocoTask(id=env_id_of(task))),
        algo=algo,
        protocol=Protocol(name="d4rl-mujoco-v4", episodes=10, envs=10),
        budget=Budget(steps=steps, epoch=EPOCH, segment=100_000),
    )
    return apply_settings(ours, settings(algorithm, task))


FILE = Path(__file__).with_name("offline_settings.csv")


class Row(NamedTuple):
    """One field of the cells of one algorithm, as one system sets it."""

    system: str
    algorithm: str
    tasks: str  # data sets, separated by blanks
    field: str  # as overrides name it
    value: str
    in_source: str  # the setting in the source's own words
    source: str  # repository@commit:path; {task}, {body} and {quality} stand for those of the data set


@cache
def rows() -> tuple[Row, ...]:
    """Every row of the file."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(Row(**line) for line in csv.DictReader(file))


@cache
def settings(algorithm: str, task: str) -> tuple[Setting, ...]:
    """The documented fields of one cell, each with its source; none where no reference documents the cell."""
    body, _, quality = task.removesuffix("-v2").partition("-")
    names = {"task": task, "body": body, "quality": quality.replace("-", "_")}
    return tuple(
        Setting(row.field, row.value, row.source.format(**names))
        for row in rows()
        if row.algorithm == algorithm and task in row.tasks.split()
    )


def system(algorithm: str, task: str) -> str:
    """The system whose settings a cell has; empty where no reference documents the cell."""
    return next((row.system for row in rows() if row.algorithm == algorithm and task in row.tasks.split()), "")
