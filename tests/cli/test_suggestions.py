"""Mistyped names: exit code 2, one line with the nearest names, and no file written."""

import shlex
from pathlib import Path

import pytest

from tests.commands import line_of_refusal, stderr_of
from tests.conftest import Patch, RecordRun

SLIPS = {
    # verbs and options
    "tabel atari": "unknown verb 'tabel'; did you mean 'table'? (see: rlbench --help)",
    "frobnicate": "known: run, table, plan",
    "data shw": "unknown verb 'shw'; did you mean 'show'? (see: rlbench data --help)",
    "run toy dqn --sede 3": "unknown option '--sede'; did you mean '--seeds'",
    "status --wach": "did you mean '--watch'",
    "data list --al": "did you mean '--all'",
    "--versoin": "did you mean '--version'",
    # suites
    "run atri dqn": "unknown suite 'atri'; did you mean 'atari'?",
    "table mujuco": "did you mean 'mujoco'?",
    "plan atri": "did you mean 'atari'?",
    "report atri --output a.html": "did you mean 'atari'?",
    "plot atri --output a.png": "did you mean 'atari'?",
    "compare dqn c51 --suite atri": "did you mean 'atari'?",
    "check atri": "did you mean 'atari'?",
    "baseline save a.json --suite atri": "did you mean 'atari'?",
    "list runs --suite atri": "did you mean 'atari'?",
    "list algos --suite atri": "did you mean 'atari'?",
    "show atri dqn X": "did you mean 'atari'?",
    "show atri dqn X --documented": "did you mean 'atari'?",
    "doctor ofline": "did you mean 'offline'?",
    # algorithms
    "run atari dqm": "unknown algorithm 'dqm'; did you mean 'dqn'",
    "table atari --algo dqqn": "unknown algorithm 'dqqn'; did you mean 'dqn'",
    "plan atari dqqn": "unknown algorithm 'dqqn'; did you mean 'dqn'",
    "plot atari --algo dqqn --output a.png": "unknown algorithm 'dqqn'; did you mean 'dqn'",
    "show atari dqqn X": "unknown algorithm 'dqqn'; did you mean 'dqn'",
    "show atari dqqn X --documented": "unknown algorithm 'dqqn'; did you mean 'dqn'",
    "compare dqqn c51": "unknown folder or algorithm with runs 'dqqn'; did you mean 'dqn'?",
    # tasks
    "run atari dqn --task Pog": "unknown task 'Pog'; did you mean 'PongNoFrameskip-v4'",
    "run atari dqn --task Breakuot": "did you mean 'BreakoutNoFrameskip-v4'",
    "run offline cql --task hopper-medum-v2": "unknown task 'hopper-medum-v2'; did you mean 'hopper-medium-v2'",
    "table atari --task Pongg": "unknown task 'Pongg'; did you mean 'PongNoFrameskip-v4'?",
    "plot mujoco --task Hoper --output a.png": "unknown task 'Hoper'; did you mean 'Hopper-v4'",
    "show toy dqn Cach": "unknown task 'Cach'; did you mean 'Catch'?",
    "show atari dqn Pongg --documented": "unknown task 'Pongg'; did you mean 'PongNoFrameskip-v4'?",
    "data generate Hoper-v4 --policy hopper-openai_imitation-trpo_iter500 --steps 10 --name rlb-x": "'Hopper-v4'",
    # fields, and what they can be
    "run toy dqn --task Catch --dry-run --set algo.lrr=1": "unknown field 'lrr'; did you mean 'lr'?",
    "show toy dqn Catch --config setings.toml": "did you mean 'settings.toml'?",
    # data sets
    "run offline cql --dataset hopper-medum-v2": "unknown data set 'hopper-medum-v2'; did you mean 'hopper-medium-v2'",
    "data show hopper-medum-v2": "unknown data set 'hopper-medum-v2'; did you mean 'hopper-medium-v2'",
    "data show rlb-hoper-medium": "games with --epsilon 0.2; did you mean 'rlb-hopper-medium'",
    "data show corpis.hdf5": "did you mean 'corpus.hdf5'?",
    "data download hopper-medum-v2": "unknown data set 'hopper-medum-v2'; did you mean 'hopper-medium-v2'",
    "data generate rlb-hoper-medium": "unknown recipe 'rlb-hoper-medium'; did you mean 'rlb-hopper-medium'",
    "data subset rlb-hoper --steps 10 --name rlb-x": "did you mean 'rlb-hopper-medium'",
    "data import rluu a b": "did you mean 'rlu'?",
    "data import corpis.hdf5": "corpis.hdf5: no such file; did you mean 'corpus.hdf5'?",
    # runs, folders, files
    "verify resluts": "resluts: no such folder; did you mean 'results'?",
    "verify results/atari/dqm": "did you mean 'results/atari/dqn'?",
    "compare results resluts": "resluts: not a folder of records; did you mean 'results'?",
    "data generate X --policy results/atari/dqm --steps 9 --name rlb-x": "did you mean 'results/atari/dqn'?",
    "data generate X --policy resluts --steps 9 --epsilon 0.1 --name rlb-x": "no such run; did you mean 'results'?",
    "data generate X --policy results --steps 9 --name rlb-x --checkpoint bset": "did you mean 'best'",
    "check atari --baseline baselin.json": "no such baseline; did you mean 'baseline.json'?",
    # words with a fixed choice
    "list algs": "unknown kind 'algs'; did you mean 'algos'?",
    "run toy": "Missing argument 'ALGO'; write: rlbench run [OPTIONS] SUITE ALGO",
    "eval": "write: rlbench eval [OPTIONS] RUN [TASK] (see: ",
    "import": "write: rlbench import [OPTIONS] FILE|DIR… (see: ",
    "doctor toy atari": "write: rlbench doctor [OPTIONS] [SUITE] (see: ",
    "run": "write: rlbench run [OPTIONS] SUITE ALGO [TASK]... (see: ",
    'table toy --format "it\'s"': 'unknown format "it\'s"; known: rich, md, csv, json, html, latex (see: ',
    "list algos toy": "argument(s) (toy); write: rlbench list [OPTIONS] suites|algos|tasks|runs",
    "baseline sav a.json": "unknown action 'sav'; did you mean 'save'?",
    "table atari --format jsn": "unknown format 'jsn'; did you mean 'json'?",
    "plot atari --kind curvs --output a.png": "unknown kind 'curvs'; did you mean 'curves'?",
    "run toy dqn --task Catch --executor lokal": "unknown executor 'lokal'; did you mean 'local'?",
}


@pytest.mark.parametrize("line", SLIPS)
def test_mistyped_name_is_refused_with_the_nearest_names(
    line: str, tmp_path: Path, monkeypatch: Patch, record_run: RecordRun
) -> None:
    for name in ("RLBENCH_DATASETS", "D4RL_DATASET_DIR", "MINARI_DATASETS_PATH"):
        monkeypatch.setenv(name, str(tmp_path / "sets"))
    Path("sets").mkdir()
    record_run([1.0])
    for name in ("settings.toml", "corpus.hdf5", "baseline.json"):
        Path(name).touch()
    before = sorted(tmp_path.rglob("*"))
    error = line_of_refusal(shlex.split(line))
    assert error.startswith("rlbench: ") and SLIPS[line] in error
    assert sorted(tmp_path.rglob("*")) == before


def test_unknown_rlbench_variable_is_refused_with_the_nearest(monkeypatch: Patch) -> None:
    monkeypatch.setenv("RLBENCH_STEP", "5")
    assert "unknown environment variable 'RLBENCH_STEP'; did you mean 'RLBENCH_STEPS'" in stderr_of(
        "show toy dqn Catch"
    )
