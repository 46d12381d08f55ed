"""Every format of curves on files written by the library itself; ``fixtures/README.md`` describes them."""

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.tensor_pb2 import TensorProto

from rlbench.curves.formats import ImportOptions, read_curves, resolved_task
from rlbench.errors import RefusedFile, UnknownName, UsageError
from rlbench.records.imported import ImportedCurve
from rlbench.report.exports import _frame_record

FIXTURES = Path(__file__).parent / "fixtures"
PLAIN = ImportOptions(suite="toy", algorithm="ppo", task=None, format=None, kind=None, unit=None, tag=None)

CASES: dict[str, tuple[str, dict[str, str], tuple[str, str, int, str], tuple[int, ...], tuple[float, ...]]] = {
    "sb3": ("sb3", {}, ("sb3", "CartPole-v1", 1, "evaluation"), (256, 512, 768, 1024), (9.0, 35.5, 72.0, 85.0)),
    "monitor": (
        "sb3/ppo/CartPole-v1_1/0.monitor.csv", {}, ("sb3", "CartPole-v1", 1, "training"), (15, 55), (15.0, 40.0),
    ),
    "cleanrl": ("cleanrl", {}, ("cleanrl", "Pendulum-v1", 1, "training"), (200,), ()),
    "tensorboard": (
        "tianshou", {"algorithm": "dqn"}, ("tensorboard", "CartPole-v1", 0, "evaluation"), (0, 100, 200, 300),
        (11.5, 9.0, 9.5),
    ),
    "d3rlpy": (
        "d3rlpy",
        {"algorithm": "td3", "task": "Pendulum-v1"},
        ("d3rlpy", "Pendulum-v1", 0, "evaluation"),
        (20, 40, 60),
        (-1601.1832163964084, -1201.064269151761, -1487.7470465705003),
    ),
    "dopamine": (
        "dopamine/pong.json",
        {"suite": "atari", "algorithm": "dqn"},
        ("dopamine", "PongNoFrameskip-v4", 0, "training"),
        (250_000, 500_000, 750_000),
        (),
    ),
    "jsonl": (
        "json_lines/ppo.jsonl", {"suite": "mujoco"}, ("jsonl", "Walker2d-v4", 0, "evaluation"), (30_720, 61_440),
        (321.12, 323.813),
    ),
    "wandb": (
        "wandb/chart.csv",
        {"suite": "mujoco", "algorithm": "sac"},
        ("wandb", "Hopper-v4", 1, "training"),
        (1000, 2000),
        (12.5, 30.25),
    ),
}  # fmt: skip


def read(path: Path, **changes: str) -> list[ImportedCurve]:
    return read_curves([path], ImportOptions(**(asdict(PLAIN) | changes)))


@pytest.mark.parametrize(
    ("names", "seeds"),
    [
        (["seed_0.csv", "seed_10.csv", "seed_2.csv"], [0, 10, 2]),
        (["0/progress.csv", "3/progress.csv"], [0, 3]),
        (["2024/run_a.csv", "2024/run_b.csv"], [0, 1]),
        (["run_seed_1/eval.csv", "ppo_seed_3/eval.csv"], [3, 1]),
        (["run_a.csv", "._run_a.csv", ".ipynb_checkpoints/run_a-checkpoint.csv"], [0]),
    ],
)
def test_seeds_are_those_in_the_names_of_files_that_are_not_hidden(
    names: list[str], seeds: list[int], tmp_path: Path
) -> None:
    logs = tmp_path / "seed_7" / "logs"
    for number, name in enumerate(names):
        path = logs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"step,return\n1,{number}\n2,0\n")
    curves = read(logs, suite="mujoco", algorithm="sac", task="Hopper-v4")
    assert [curve.seed for curve in curves] == seeds
    (path.parent / "HalfCheetah-v4_5.csv").write_text("step,return\n1,2\n")
    assert read(path.parent / "HalfCheetah-v4_5.csv", suite="mujoco", algorithm="sac")[0].task == "HalfCheetah-v4"


def curve_file(path: Path, value: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"step,return\n1,{value}\n2,0\n")
    return path


@pytest.mark.parametrize(("folder", "by_file"), [("seed_4", False), ("seed_4", True), ("4", False)])
def test_two_files_of_one_seeds_folder_are_no_two_seeds(folder: str, by_file: bool, tmp_path: Path) -> None:
    curve_file(tmp_path / "0/eval.csv", 7)  # so that 4 is no year
    files = [curve_file(tmp_path / f"{folder}/{name}.csv", value) for value, name in enumerate(("eval", "test"))]
    options = replace(PLAIN, suite="mujoco", algorithm="sac", task="Hopper-v4")
    with pytest.raises(UsageError, match=r"seed 4 is in two files, .*eval.csv and .*test.csv; keep one of them"):
        read_curves(files if by_file else [tmp_path], options)


@pytest.mark.parametrize("other", ["mean.csv", "final/final.csv", "mean/progress.csv"])
def test_a_file_without_a_seed_is_no_further_seed(other: str, tmp_path: Path) -> None:
    for value, name in enumerate(("seed_0/progress.csv", "seed_1/progress.csv", other)):
        curve_file(tmp_path / name, value)
    options = replace(PLAIN, suite="mujoco", algorithm="sac", task="Hopper-v4")
    with pytest.raises(RefusedFile, match=rf"{other}: the curve .* begins at step 1 has no seed, others of it have"):
        read_curves([tmp_path], options)
    assert [curve.seed for curve in read_curves([tmp_path / "seed_0", tmp_path / "seed_1"], options)] == [0, 1]


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["a/eval.csv", "a/train.csv", "b/eval.csv", "b/train.csv"], None),
        (["a/eval.csv", "a/train.csv", "b/eval.csv"], None),
        (["b/eval.csv", "b/eval/eval.csv", "c/eval.csv"], None),
        (["a/eval/p.csv", "a/train/p.csv", "b/eval/p.csv", "b/train/p.csv"], None),
        (["2024-05-01/10-00/p.csv", "2024-05-01/11-30/p.csv", "2024-05-02/09-15/p.csv"], 3),
        (["a/eval/p.csv", "b/eval/p.csv"], 2),
        (["a/eval.csv", "b/eval.csv", "c/eval.csv"], 3),
        (["a.csv", "b.csv", "c.csv"], 3),
        (["a/a.csv", "a/b.csv"], 2),
        (["Hopper-v4/a.csv", "Hopper-v4/b.csv", "Walker2d-v4/a.csv", "Walker2d-v4/b.csv"], 4),
    ],
)
def test_files_in_the_folder_of_a_run_are_no_seeds(names: list[str], count: int | None, tmp_path: Path) -> None:
    for value, name in enumerate(names):
        curve_file(tmp_path / name, value)
    task = None if "Hopper" in names[0] else "Hopper-v4"
    options = replace(PLAIN, suite="mujoco", algorithm="sac", task=task)
    if count is not None:
        assert len(read_curves([tmp_path], options)) == count
        return
    with pytest.raises(RefusedFile, match=r"/(a|b/eval|a/eval): other files in, beside or above it may be"):
        read_curves([tmp_path], options)


def test_the_current_folder_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curve_file(tmp_path / "ppo_seed_2/eval.csv")
    curve_file(tmp_path / "ppo_seed_2/x/y/eval.csv", 1).unlink()
    for folder, path in {"ppo_seed_2": ".", "ppo_seed_2/x": "..", "ppo_seed_2/x/y": "../.."}.items():
        monkeypatch.chdir(tmp_path / folder)
        assert [curve.seed for curve in read(Path(path), suite="mujoco", algorithm="sac", task="Hopper-v4")] == [2]


@pytest.mark.parametrize(
    "name",
    [
        "tuned-v2/Hopper-v4_1/eval.csv",
        "Hopper-v4/sac-v2/seed_1/eval.csv",
        "Hopper-v4/run-v2/sac-v2_1.csv",
        "Hopper-v4/seed_0.csv",
        "Hopper-v4/0/eval.csv",
        "Hopper-v4_1/logs/eval.csv",
    ],
)
def test_task_of_a_folder_is_compared(name: str, tmp_path: Path) -> None:
    curve_file(tmp_path / name)
    assert read(tmp_path, suite="mujoco", algorithm="sac")[0].task == "Hopper-v4"
    with pytest.raises(UsageError, match="the file or its folder names Hopper-v4; rename it, or omit --task"):
        read(tmp_path, suite="mujoco", algorithm="sac", task="Ant-v4")
    (other,) = read(tmp_path, suite="toy", algorithm="ppo", task="Catch")  # whose suite has no such task
    assert other.origin.env_id == ("sac-v2" if "sac-v2_1" in name else "Catch")


@pytest.mark.parametrize("name", CASES)
def test_a_file_of_a_library_is_recognised_and_read(name: str) -> None:
    path, changes, (format_, task, seed, kind), steps, returns = CASES[name]
    curves = read(FIXTURES / path, **changes)
    first = curves[0]
    assert (first.origin.format, first.task, first.seed, first.kind) == (format_, task, seed, kind)
    assert first.steps[: len(steps)] == steps
    assert first.returns[: len(returns)] == pytest.approx(returns)
    assert len({curve.seed for curve in curves}) == len(curves)
    assert first.origin.sha256 in {sha256(p.read_bytes()).hexdigest() for p in FIXTURES.rglob("*") if p.is_file()}


def test_monitor_and_evaluations_equal_direct_reads() -> None:
    folder = FIXTURES / "sb3/ppo/CartPole-v1_2"
    curve = next(c for c in read(FIXTURES / "sb3") if c.seed == 2)
    with np.load(folder / "evaluations.npz") as arrays:
        assert curve.steps == tuple(arrays["timesteps"].tolist())
        assert curve.returns == tuple(arrays["results"].mean(axis=1).tolist())
        assert curve.lengths == tuple(arrays["ep_lengths"].mean(axis=1).tolist())
    rows = [line.split(",") for line in (folder / "0.monitor.csv").read_text().splitlines()[2:]]
    (monitor,) = read(folder / "0.monitor.csv")
    assert (monitor.seed, monitor.steps[-1]) == (2, sum(int(row[1]) for row in rows))
    assert monitor.returns == tuple(float(row[0]) for row in rows)


def test_json_lines_have_the_library_and_the_stated_protocol(tmp_path: Path) -> None:
    text = (FIXTURES / "json_lines/reinforce.jsonl").read_text()
    (tmp_path / "a.jsonl").write_text(text.replace("a tail bootstraps", "a tail\u2028bootstraps"))  # ends no line
    (curve,) = read(tmp_path / "a.jsonl", suite="", algorithm="")
    assert (curve.suite, curve.algorithm, curve.lengths) == ("mujoco", "reinforce", (27.4,))
    assert curve.returns == pytest.approx([7.385])  # 73.85 / 10
    assert (curve.origin.library, curve.origin.unknown) == ("tianshou 2.0.1", ())
    assert curve.origin.settings == "f97ac690ddd9"
    assert curve.origin.packages == ("gymnasium 1.4.0", "mujoco 3.3.7")
    assert curve.origin.differences == ("gae_lambda: a tail bootstraps with the mean return",)
    older = read(FIXTURES / "json_lines", suite="mujoco", algorithm="")
    assert {c.origin.unknown for c in older if c.algorithm == "ppo"} == {("settings",)}


def test_event_file_equals_tensorboards_read() -> None:
    (path,) = (FIXTURES / "cleanrl").glob("*__1__*/*")
    accumulator = EventAccumulator(str(path))
    accumulator.Reload()
    events = accumulator.Scalars("charts/episodic_return")
    (curve,) = read(path)
    assert curve.steps == tuple(event.step for event in events)
    assert curve.returns == pytest.approx([event.value for event in events])


def test_long_and_wide_tables_give_the_same_curves(tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_text(
        "task,seed,step,return\nCartPole-v1,3,20,2.5\nCartPole-v1,3,10,1\nCartPole-v1,4,10,7\n"
    )
    (tmp_path / "wide.csv").write_text("step,seed_3,seed_4\n10,1,7\n20,2.5,\n")
    tables = [read(tmp_path / name, task="CartPole-v1") for name in ("long.csv", "wide.csv")]
    curves = [[(c.seed, c.steps, c.returns) for c in table] for table in tables]
    assert curves[0] == curves[1] == [(3, (10, 20), (1.0, 2.5)), (4, (10,), (7.0,))]


def test_episodes_that_end_at_one_step_are_averaged(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(
        "global_step,charts/episodic_return,losses/q\n10,1,\n10,3,\n15,,0.5\n20,5,\n", encoding="utf-8"
    )
    (curve,) = read(tmp_path / "c.csv", task="CartPole-v1")
    assert (curve.origin.format, curve.kind) == ("cleanrl", "training")
    assert (curve.steps, curve.returns) == ((10, 20), (2.0, 5.0))


HEADERS = {
    "plain": "step,return",
    "of CleanRL": "global_step,charts/episodic_return,charts/SPS,losses/q",
    "of a log in pandas": ",env_step,return,mask,name,speed,loss,fps,timestamp",
    "of W&B's table of runs": "Name,State,_step,_runtime,_timestamp,global_step,episodic_return",
    "of W&B with its series first": "a_0 - charts/episodic_return,global_step",
}


@pytest.mark.parametrize("name", HEADERS)
def test_columns_of_a_meaning_of_their_own_are_left_out(name: str, tmp_path: Path) -> None:
    columns = HEADERS[name].split(",")
    row = ("7" if column.endswith("return") else "40" if column.endswith("step") else "1" for column in columns)
    (tmp_path / "c.csv").write_text(f"{HEADERS[name]}\n{','.join(row)}\n")
    (curve,) = read(tmp_path / "c.csv", task="CartPole-v1")
    assert (curve.steps, curve.returns) == ((40,), (7.0,))


def test_score_matrices_give_one_point_at_the_budget(tmp_path: Path) -> None:
    scores = np.array([[1.0, np.nan], [3.0, 4.0]])
    matrix = {"ppo": scores, "tasks": np.array(["CartPole-v1", "Pendulum-v1"])}
    np.savez(tmp_path / "scores.npz", **matrix)
    with pytest.raises(
        RefusedFile, match="ppo has no score in row 1, column 2; write one, or name the seeds in an array 'ppo/seeds'"
    ):
        read(tmp_path / "scores.npz")
    np.savez(tmp_path / "scores.npz", **matrix, **{"ppo/seeds": np.arange(2)})
    curves = read(tmp_path / "scores.npz")
    assert [(c.task, c.seed, c.returns) for c in curves] == [
        ("CartPole-v1", 0, (1.0,)),
        ("CartPole-v1", 1, (3.0,)),
        ("Pendulum-v1", 1, (4.0,)),
    ]
    assert curves[0].steps == (200_000,)
    assert ["scores of 1 row" in curve.origin.unknown for curve in curves] == [False, False, True]


@pytest.mark.parametrize("form", ["npz", "json"])
@pytest.mark.parametrize(
    ("names", "tag", "index"),
    [
        (("DQN (RMSProp)", "DQN (Adam)", "dqn"), None, 2),
        (("C51", "DQN (Adam)"), None, 1),
        (("C51",), "C51", 0),
        (("C51",), None, None),
        (("DQN (RMSProp)", "DQN (Adam)"), None, None),
    ],
)
def test_one_algorithm_of_a_file_is_read_or_none(
    form: str, names: Sequence[str], tag: str | None, index: int | None, tmp_path: Path
) -> None:
    path = tmp_path / f"Pong.{form}"
    rows = [{"Agent": name, "Iteration": 0, "Value": float(value)} for value, name in enumerate(names)]
    path.write_text(json.dumps(rows))
    if form == "npz":
        np.savez(path, tasks=np.array(["Pong"]), **{str(row["Agent"]): np.array([[row["Value"]]]) for row in rows})
    more = {} if tag is None else {"tag": tag}
    if index is None:
        with pytest.raises(RefusedFile, match=re.escape(f"{', '.join(names)}; name one with --as or --tag")):
            read(path, suite="atari", algorithm="dqn", **more)
    else:
        assert [c.returns for c in read(path, suite="atari", algorithm="dqn", **more)] == [(index,)]


def test_a_tag_selects_a_matrix_of_a_suite(tmp_path: Path) -> None:
    scores = {"mujoco/sac": np.array([[1.0]]), "mujoco/td3": np.array([[2.0]])}
    np.savez(tmp_path / "s.npz", **{"mujoco/tasks": np.array(["Hopper-v4"])}, **scores)
    assert [c.returns for c in read(tmp_path / "s.npz", suite="", algorithm="", tag="td3")] == [(2.0,)]
    with pytest.raises(RefusedFile, match="sac, td3; name one with"):
        read(tmp_path / "s.npz", suite="", algorithm="", tag="ppo")


def test_frames_are_converted_to_agent_steps(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("step,return\n40000,1\n40000000,2\n")
    curve = read(tmp_path / "f.csv", suite="atari", algorithm="dqn", task="Pong", unit="frames")[0]
    assert curve.steps == (10_000, 10_000_000)


@pytest.mark.parametrize(
    ("suite", "name", "task"),
    [
        ("mujoco", "hopper-v5", "Hopper-v4"),
        ("atari", "ALE/Pong-v5", "PongNoFrameskip-v4"),
        ("atari", "spaceinvaders", "SpaceInvadersNoFrameskip-v4"),
        ("offline", "hopper-medium-v2", "hopper-medium-v2"),
    ],
)
def test_a_task_is_known_under_the_names_that_libraries_give_it(suite: str, name: str, task: str) -> None:
    assert resolved_task(suite, name) == task
    with pytest.raises(UnknownName, match="unknown task"):
        resolved_task(suite, f"{name}-of-nobody")


@pytest.mark.parametrize(
    "number",
    [
        {"float_val": [2.5]},
        {"double_val": [2.5]},
        {"dtype": 1, "tensor_content": struct.pack("<f", 2.5)},
        {"dtype": 2, "tensor_content": struct.pack("<d", 2.5)},
    ],
)
def test_scalars_of_tensorboard_may_be_tensors_of_either_precision(number: dict[str, Any], tmp_path: Path) -> None:
    events = [Event(step=step) for step in (1, 2, 3)]
    for event, tensor in zip(events, ({"float_val": [1.0]}, number, {"double_val": [1.0, 2.0]}), strict=True):
        event.summary.value.add(tag="eval/mean_reward", tensor=TensorProto(**tensor))
    path = tmp_path / "x.tfevents.1"
    path.write_bytes(b"".join(_frame_record(event.SerializeToString()) for event in events))
    (curve,) = read(path, task="Catch")
    assert (curve.steps, curve.returns) == ((1, 2), (1.0, 2.5))  # two numbers are no scalar


def test_steps_of_a_program_that_began_again_are_refused(tmp_path: Path) -> None:
    events = [Event(step=step) for step in (100, 200, 150, 250)]
    for event in events:
        event.summary.value.add(tag="charts/episodic_return", simple_value=1.0)
    path = tmp_path / "x.tfevents.1"
    path.write_bytes(b"".join(_frame_record(event.SerializeToString()) for event in events))
    with pytest.raises(RefusedFile, match="charts/episodic_return fall from 200 to 150"):
        read(path, task="Catch")
