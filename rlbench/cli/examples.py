"""The examples at the end of every verb's help, each with its purpose.

A test parses every one of them, so that all names in them exist.
"""

from __future__ import annotations

from typing import Final

EXAMPLES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "": (
        ("see that everything works: a toy, learned in a minute", "rlbench run toy dqn --task Catch --seeds 0-2"),
        ("published scores beside what was measured here", "rlbench table toy"),
        ("what a verb does, and what it takes", "rlbench run --help"),
    ),
    "run": (
        (
            "a toy with a known best score: three seeds in a minute or two",
            "rlbench run toy dqn --task Catch --seeds 0-2",
        ),
        ("try the whole way on a tiny budget", "rlbench run atari dqn --task PongNoFrameskip-v4 --smoke"),
        ("a row of a table, packed on this machine", "rlbench run mujoco ppo --task '*' --seeds 0-9 --jobs auto"),
    ),
    "table": (
        ("every published Atari score beside the measured one", "rlbench table atari"),
        ("some cells only", "rlbench table mujoco --algo 'td3*' --task 'Hopper*'"),
        ("for a README", "rlbench table toy --format md --output toy.md"),
    ),
    "plan": (
        ("what ten seeds of everything would cost", "rlbench plan mujoco"),
        ("what decides most verdicts in two hours", "rlbench plan mujoco --budget 2h"),
        ("for a script: one cell a line", "rlbench plan all --seeds 0-2 --lines"),
    ),
    "report": (
        ("everything", "rlbench report --output report.html"),
        ("two suites", "rlbench report toy mujoco --output report.html"),
    ),
    "plot": (
        ("learning curves, the published ones behind them", "rlbench plot atari --task 'Pong*' --output pong.png"),
        ("the probability of improvement", "rlbench plot mujoco --kind improvement --output improvement.svg"),
    ),
    "eval": (
        ("as many episodes as its protocol plays", "rlbench eval RUN"),
        ("three of them, and a video of the first", "rlbench eval RUN --episodes 3 --video play.gif"),
    ),
    "import": (
        ("ten seeds in a table, and their verdict", "rlbench import runs.csv --as mujoco/sac --results theirs"),
        ("", "rlbench table mujoco --results theirs"),
        ("the evaluations of RL Zoo", "rlbench import logs/sac --as mujoco/sac --results theirs"),
    ),
    "export": (
        ("curves of every run, then look at them", "rlbench export tensorboard --output tracked"),
        ("only one suite's", "rlbench export tensorboard mujoco --output tracked"),
    ),
    "export csv": (
        ("every curve in one table", "rlbench export csv --output curves.csv"),
        ("only one suite's", "rlbench export csv mujoco --output curves.csv"),
    ),
    "export npz": (
        ("scores for rliable", "rlbench export npz mujoco --output scores.npz"),
        ("of your own runs only", "rlbench export npz --results runs --output scores.npz"),
    ),
    "export tensorboard": (
        ("curves of every run", "rlbench export tensorboard --output tracked"),
        ("only one suite's", "rlbench export tensorboard mujoco --output tracked"),
    ),
    "compare": (
        ("two algorithms, from the records below results/", "rlbench compare dqn c51 --suite toy"),
        ("two folders of records", "rlbench compare results results-of-another-machine"),
    ),
    "check": (
        ("against the published scores", "rlbench check atari"),
        ("against what was saved; undecided is an error too", "rlbench check all --baseline baseline.json --strict"),
        ("in CI", "rlbench check toy --baseline baseline.json --junit check.xml"),
    ),
    "baseline": (
        ("what check compares with from now on", "rlbench baseline save baseline.json --suite toy"),
        ("what is in it", "rlbench baseline show baseline.json"),
    ),
    "list": (
        ("where to begin", "rlbench list suites"),
        ("what run takes", "rlbench list algos --suite mujoco"),
        ("what --task takes", "rlbench list tasks --suite atari"),
        ("the folders of all runs", "rlbench list runs"),
    ),
    "show": (
        ("the documented settings", "rlbench show atari dqn PongNoFrameskip-v4"),
        ("what a change does to the memory", "rlbench show toy dqn Catch --set algo.replay.capacity=1e5"),
        ("every published number, with its source", "rlbench show mujoco sac Hopper-v4 --documented"),
    ),
    "status": (("once", "rlbench status"), ("while a sweep runs in another terminal", "rlbench status --watch")),
    "verify": (
        ("every record", "rlbench verify"),
        ("the records of one suite", "rlbench verify results/toy"),
        ("whether a run repeats to the bit", "rlbench verify --replay RUN --epochs 3"),
    ),
    "doctor": (("everything", "rlbench doctor"), ("what Atari games need", "rlbench doctor atari")),
    "data": (
        ("what there is", "rlbench data list"),
        ("make a data set, and learn from it", "rlbench data generate rlb-hopper-medium"),
        ("", "rlbench run offline td3bc --task rlb-hopper-medium"),
    ),
    "data generate": (
        ("from a recipe that comes with rlbench", "rlbench data generate rlb-halfcheetah-medium"),
        ("from a run of your own", "rlbench list runs --suite mujoco"),
        ("", "rlbench data generate Hopper-v4 --policy RUN --steps 100000 --name rlb-mine"),
        (
            "games of a run of DQN",
            "rlbench data generate PongNoFrameskip-v4 --policy RUN --epsilon 0.2 \\\n    --steps 200000 --name rlb-p",
        ),
    ),
    "data list": (
        ("what there is, and what is here", "rlbench data list"),
        ("Minari's too", "rlbench data list --remote"),
    ),
    "data show": (
        ("one of our own", "rlbench data show rlb-hopper-medium"),
        ("one of D4RL's, for scripts", "rlbench data show hopper-medium-v2 --json"),
    ),
    "data verify": (
        ("all on this machine", "rlbench data verify"),
        ("one of them", "rlbench data verify rlb-hopper-medium"),
    ),
    "data download": (
        ("one of D4RL's", "rlbench data download hopper-medium-v2"),
        ("one of Minari's", "rlbench data download mujoco/hopper/medium-v0"),
    ),
    "data subset": (
        ("the first 100,000 steps of recorded games", "rlbench data subset rlb-pong --steps 1e5 --name rlb-pong-small"),
        ("from a folder elsewhere", "rlbench data subset games/rlb-pong.frames --steps 5e4 --name rlb-fifty"),
    ),
    "data import": (
        ("a file of D4RL's that you have", "rlbench data import hopper_medium-v2.hdf5"),
        ("a policy of Stable-Baselines3", "rlbench data import sac.zip --task Hopper-v4"),
        ("shards of RL Unplugged", "rlbench data import rlu shard-0 shard-1 --name rlb-unplugged"),
    ),
}
"""Examples by verb; the empty verb is the command itself. An example without a purpose continues the one before."""


TYPICAL: Final = """\
rlbench run toy dqn Catch --seeds 0-2      train three seeds, a minute; the same command resumes
rlbench run atari dqn PongNoFrameskip-v4   train with the published settings
rlbench table mujoco                       published scores beside measured ones, with verdicts
rlbench plan mujoco --budget 2h            the runs that decide most verdicts in two hours
rlbench --help                             every verb; rlbench VERB --help explains one"""
"""The answer to ``rlbench`` alone."""


def of(verb: str) -> str:
    """The examples of a verb as the end of its help, which nothing wraps again."""
    lines = [
        line
        for purpose, command in EXAMPLES[verb]
        for line in ([f"  # {purpose}"] if purpose else []) + [f"  {command}"]
    ]
    return "\n".join(["\b", "Examples:", *lines])
