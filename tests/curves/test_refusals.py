"""Invalid curves: refused by name in one line with exit code 2, and no file written."""

import errno
import io
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rlbench.cli.app import main
from rlbench.curves import points
from rlbench.curves.curve_files import files_left_out
from rlbench.datasets.crc32c import masked_crc
from tests.commands import json_of, stderr_of, stdout_of
from tests.conftest import Patch
from tests.zips import zip_of

HEAD = "task,seed,step,return\n"
GOOD = HEAD + "Hopper-v4,0,1,2\n"
LINE = '{"peer": "x", "algorithm": "sac", "task": "Hopper-v4", "seed": 0, "steps": 1, "returns": [1]}\n'

TASK = ("--task", "Hopper-v4")

BAD: dict[str, tuple[str, Sequence[str], str]] = {
    **{
        f"a row without a seed and with {row}": (
            f"task,seed,step,return\nHopper-v4,1,1000,1\nHopper-v4,1,2000,2\n{row},,3000,3\n",
            TASK,
            "the curve of mujoco/sac/Hopper-v4 that begins at step 3,000 has no seed, others of it have one",
        )
        for row in ("Hopper-v4", "hopper-v4", "")
    },
    "duplicate": (HEAD + "Hopper-v4,0,5,2\nHopper-v4,0,5,3\n", (), "seed 0 has step 5 twice"),
    "NaN at the end of a seed": ("step,seed_0,seed_1\n0,1,2\n10,NaN,3\n", (), "row 2 has 'NaN' as seed_0"),
    "NaN as an episode": ("global_step,episodic_return\n1,2\n2,nan\n", (), "row 2 has 'nan' as episodic_return"),
    "NaN": (HEAD + "Hopper-v4,0,5,nan\n", (), "row 1 has 'nan' as return"),
    "infinite": (HEAD + "Hopper-v4,0,5,inf\n", (), "return of seed 0 at step 5 is not finite"),
    "empty return": (HEAD + "Hopper-v4,0,5,\n", (), "row 1 has '' as return"),
    "half a step": (HEAD + "Hopper-v4,0,1.5,2\n", (), "step 1.5 of seed 0"),
    "negative step": (HEAD + "Hopper-v4,0,-1,2\n", (), "step -1 of seed 0"),
    "seed": (HEAD + "Hopper-v4,a,1,2\n", (), "seed 'a' is no number"),
    "no return": ("task,seed,step,rew\nHopper-v4,0,1,2\n", (), "no column 'return'"),
    "a slip of algo": ("task,alg,step,return\nHopper-v4,td3,1,2\n", (), "unknown column 'alg'; did you mean 'algo'?"),
    "a slip of task": ("tsk,step,return\nAnt-v4,1,2\n", TASK, "unknown column 'tsk'; did you mean 'task'?"),
    "a slip of seed": ("task,Seeed,step,return\nHopper-v4,3,1,2\n", (), "unknown column 'Seeed'; did you mean 'seed'?"),
    "a slip of kind": ("step,return,kinds\n1,2,training\n", TASK, "unknown column 'kinds'; did you mean 'kind'?"),
    "a slip of return": ("task,seed,step,retrun\nHopper-v4,0,1,2\n", (), "unknown column 'retrun'; did you mean"),
    "no step": ("task,seed,epoch,return\nHopper-v4,0,1,2\n", (), "no column 'step'"),
    "formula in a cell": (HEAD + "Hopper-v4,0,1,=1+1\n", (), "'=1+1' as return"),
    "formula in a name": (HEAD + "=cmd|' /C calc'!A0,0,1,2\n", (), "is no name"),
    "HTML": (HEAD + "<script>alert(1)</script>,0,1,2\n", (), "is no name"),
    "ANSI": (HEAD + "\x1b[31mHopper,0,1,2\n", (), "is no name"),
    "path": (HEAD + "../../Hopper-v4,0,1,2\n", (), "is no name"),
    "unknown task": (HEAD + "Hoper-v4,0,1,2\n", (), "did you mean 'Hopper-v4'"),
    "short row": (HEAD + "Hopper-v4,0,1\n", (), "row 1 has 3 cells, the header 4"),
    "a million columns": (",".join(["x"] * 400_000) + "\n1\n", (), "columns, 1,000 are allowed"),
    "a long line": (HEAD + "," * 2**21 + "\n", (), "letters, 1,048,576 are allowed"),
    "empty": ("", (), "no row"),
    "header alone": (HEAD, (), "no row below the header"),
    "twice a column": ("step,step\n1,2\n", (), "a column twice"),
    "two counts of steps": ("step,global_step,return\n1,4,2\n", TASK, "several columns for step: step, global_step"),
    "kind": ("step,return,kind\n1,2,best\n", ("--task", "Hopper-v4"), "kind 'best' is unknown"),
    "no task": ("step,return\n1,2\n", (), "--task: the file names no task"),
    "frames of MuJoCo": (GOOD, ("--steps-are", "frames"), "only Atari counts frames"),
    "format": (GOOD, ("--format", "dopamine"), "the file is of the format csv"),
    "unknown format": (GOOD, ("--format", "xls"), "unknown format 'xls'"),
    "means of groups of W&B": (
        "global_step,algo: ppo - eval/return\n1,2\n",
        (),
        "'algo: ppo - eval/return' is the mean of a ",
    ),
    "bounds of W&B alone": ("step,run - return__MIN\n1,2\n", (), "no seeds but 'run - return__MIN'"),
    "log calls of W&B": ("Step,run - return\n1,2\n", (), "counts W&B's log calls"),
    "seconds of W&B": ("Relative Time (Wall),run - return\n1,2\n", TASK, "has no column of steps; export"),
    "epochs of W&B": ("epoch,run - return\n1,2\n", TASK, "rename 'epoch' to step if it counts env steps"),
    "other algorithm": ("algo,task,step,return\ntd3,Hopper-v4,1,2\n", (), "the file holds mujoco/td3"),
    "no JSON": ("[{", (), "no rows of Agent, Iteration and Value"),
    "deep JSON": ("[" * 100_000, (), "no rows of Agent, Iteration and Value"),
    "no evaluation": ('{"peer": "x"}\n', (), "line 1 is no evaluation"),
    "no episode": (LINE.replace("[1]", "[]"), (), "line 1 is no evaluation (returns"),
    "a torn line": (LINE + LINE[:20], (), "line 2 is no evaluation"),
    "infinite return": (LINE.replace("[1]", "[1e999]"), (), "line 1 is no evaluation (returns"),
    "too many points": (HEAD + "".join(f"Hopper-v4,0,{n},2\n" for n in range(400_001)), (), "400,001 points"),
    "a seed twice": ("step,0,1\n" + "".join(f"{n},{n},{n}\n" for n in range(3)), TASK, "has the curve of seed 0"),
    "monitor": ("#{}\nr,l,t\n1,2,3\n", (), "no header of Monitor"),
}


def refusal(path: Path, results: Path, *more: str) -> str:
    message = stderr_of(["import", str(path), "--as", "mujoco/sac", "--results", str(results), *more])
    assert message.count("\n") == 1 and "\x1b" not in message
    assert not results.exists()
    return message


@pytest.mark.parametrize("first", ["with", "without"])
def test_curves_without_seeds_are_not_added_to_curves_with_seeds(first: str, tmp_path: Path) -> None:
    texts = {
        "with": "task,seed,step,return\nHopper-v4,1,1000,1\nHopper-v4,2,1000,2\n",
        "without": "task,step,return\nHopper-v4,1000,1.5\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    second = next(name for name in texts if name != first)
    lines = {
        name: ["import", str(tmp_path / f"{name}.csv"), "--as", "mujoco/sac", "--results", str(tmp_path / "out")]
        for name in texts
    }
    for _ in range(2):
        assert main(lines[first]) == 0
        reason = f"holds curves {first} seeds, the files curves {second} them"
        assert reason in stderr_of(lines[second])


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_refused_by_name(name: str, tmp_path: Path) -> None:
    text, more, reason = BAD[name]
    (tmp_path / "curves.csv").write_text(text)
    assert reason in refusal(tmp_path / "curves.csv", tmp_path / "results", *more)


def test_steps_counted_in_frames_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("task,step,return\nPongNoFrameskip-v4,40000000,20\n")
    line = ["import", str(tmp_path / "f.csv"), "--as", "atari/dqn", "--results", str(tmp_path / "r")]
    assert "say --steps-are frames" in stderr_of(line)
    assert main([*line, "--steps-are", "frames"]) == 0
    (tmp_path / "f.csv").write_text("task,step,return\nPong,1000001,20\nPong,1000002,21\n")
    assert "frames 1000001 and 1000002 of seed 0 are one decision" in stderr_of([*line, "--steps-are", "frames"])


def test_a_seed_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(GOOD)
    assert f"seed 0 is in two files, {tmp_path}/a.csv and {tmp_path}/b.csv" in refusal(tmp_path, tmp_path / "results")


def test_a_matrix_without_seeds_is_refused_beside_curves_with_seeds(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("task,seed,step,return\nHopper-v4,5,1000,1\nHopper-v4,6,1000,2\n")
    matrix = {"sac": np.array([[1.0], [2.0]]), "tasks": np.array(["Hopper-v4"])}
    np.savez(tmp_path / "b.npz", **matrix)
    line = ["import", *(str(tmp_path / name) for name in ("a.csv", "b.npz")), "--as", "mujoco/sac"]
    assert "has no seed, others of it have one" in stderr_of([*line, "--results", str(tmp_path / "out")])
    np.savez(tmp_path / "b.npz", **matrix, **{"sac/seeds": np.array([7, 8])})
    assert "4 seeds" in stdout_of([*line, "--results", str(tmp_path / "out")])


def test_files_of_two_formats_without_seeds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,return\n1000,1\n2000,2\n")
    np.savez(tmp_path / "b.npz", sac=np.array([[3.0]]), tasks=np.array(["Hopper-v4"]))
    line = ["import", *(str(tmp_path / name) for name in ("a.csv", "b.npz")), "--as", "mujoco/sac", *TASK]
    assert "one of several formats without seeds" in stderr_of([*line, "--results", str(tmp_path / "out")])


def test_a_file_of_two_tasks_is_not_imported_as_one(tmp_path: Path) -> None:
    file, line = tmp_path / "a.csv", ["import", str(tmp_path / "a.csv"), "--as", "mujoco/sac", *TASK]
    rows = [f"{task},{seed},1000,1" for seed, task in enumerate(("Mine-v0", "Other-v0", "Hopper-v4"))]
    for own in (rows[:2], rows[1:]):
        file.write_text("\n".join(["task,seed,step,return", *own]))
        assert "the files name " in stderr_of([*line, "--results", str(tmp_path / "out")])
    file.write_text("\n".join(["task,seed,step,return", rows[0]]))
    assert "1 seed" in stdout_of([*line, "--results", str(tmp_path / "out")])


def test_runs_of_two_tasks_are_not_imported_as_one(tmp_path: Path) -> None:
    for seed, task in enumerate(("Hopper-v4", "HopperBulletEnv-v0")):
        (tmp_path / f"trpo/{task}_{seed}").mkdir(parents=True)
        (tmp_path / f"trpo/{task}_{seed}/progress.csv").write_text(f"step,return\n1000,{seed}\n")
    line = ["import", str(tmp_path / "trpo"), "--as", "mujoco/trpo", *TASK, "--results", str(tmp_path / "out")]
    assert "the files name 'Hopper-v4', 'HopperBulletEnv-v0'; import those of one task" in stderr_of(line)


def test_folders_named_by_tasks_are_no_seeds_of_one(tmp_path: Path) -> None:
    for score, task in enumerate(("Hopper", "trpo-Walker2d-v4")):
        (tmp_path / f"runs/{task}").mkdir(parents=True)
        np.savez(tmp_path / f"runs/{task}/evaluations.npz", timesteps=[1], results=[[float(score)]])
    line = ["import", str(tmp_path / "runs"), "--as", "mujoco/trpo", "--results", str(tmp_path / "out")]
    assert "the file or its folder names Walker2d-v4" in stderr_of([*line, *TASK])
    assert [row["task"] for row in json_of([*line, "--json"])["curves"]] == ["Hopper-v4", "Walker2d-v4"]


def test_runs_of_two_programs_of_cleanrl_are_not_imported_as_one(tmp_path: Path) -> None:
    for seed, program in enumerate(("ppo_continuous_action", "sac_continuous_action")):
        (tmp_path / f"runs/Hopper-v4__{program}__{seed}__1700000000").mkdir(parents=True)
        (tmp_path / f"runs/Hopper-v4__{program}__{seed}__1700000000/eval.csv").write_text(f"step,return\n1,{seed}\n")
    line = ["import", str(tmp_path / "runs"), "--as", "mujoco/ppo", "--results", str(tmp_path / "out")]
    assert "'ppo_continuous_action', 'sac_continuous_action'; import those of one program" in stderr_of(line)


def test_kind_selects_rows(tmp_path: Path) -> None:
    rows = ["Hopper-v4,training,0,1000,1", "Hopper-v4,evaluation,0,1000,2"]
    (tmp_path / "a.csv").write_text("\n".join(["task,kind,seed,step,return", *rows]))
    line = ["import", str(tmp_path / "a.csv"), "--as", "mujoco/sac", "--json"]
    for kind in ("training", "evaluation"):
        (curve,) = json_of([*line, "--kind", kind, "--results", str(tmp_path / kind)])["curves"]
        assert curve["kind"] == kind
    (tmp_path / "a.csv").write_text("\n".join(["task,kind,seed,step,return", rows[0]]))
    assert "holds no score" in stderr_of([*line, "--kind", "evaluation", "--results", str(tmp_path / "out")])


@pytest.mark.parametrize("name", ["events.out.tfevents.{}", "{}.monitor.csv"])
def test_parts_of_one_run_are_no_seeds(name: str, tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / name.format(number)).touch()
    assert "holds parts of one run" in refusal(tmp_path, tmp_path / "results")


def test_a_file_with_a_seed_twice_or_without_a_score_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scores.npz"
    matrix = {"DQN": np.ones((2, 1)), "DQN/seeds": np.zeros(2, int), "tasks": np.array(["Hopper-v4"])}
    np.savez(path, **matrix)
    assert f"seed 0 is twice in {path}" in refusal(path, tmp_path / "results")
    np.savez(path, **(matrix | {"DQN": np.full((2, 1), np.nan)}))
    assert f"{path}: holds no score; give another file" in refusal(path, tmp_path / "results")


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.mkdir, ("code-was-run",))


def npz(content: bytes) -> bytes:
    return zip_of({"results.npy": content}, zipfile.ZIP_DEFLATED)


def objects() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Bomb()], object), allow_pickle=True)
    return npz(file.getvalue())


def twice() -> bytes:
    file = io.BytesIO()
    np.savez(file, timesteps=np.array([0, 1]), results=np.ones((2, 2)))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("timesteps", archive.read("timesteps.npy"))  # numpy calls both "timesteps"
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("twice.npz", twice()),
        ("objects.npz", objects()),
        ("pickle.npz", npz(pickle.dumps(Bomb()))),
        ("cut.npz", npz(b"x" * 99)[:60]),
        ("huge.npz", npz(b"\0" * (2**28 + 1))),
        ("pickle.csv", pickle.dumps(Bomb())),
        ("events.out.tfevents.1", b"\0" * 64),
        ("noise.csv", bytes(range(256))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # bytes of an archive hold the time
)
def test_a_hostile_file_is_refused_and_runs_nothing(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    refusal(tmp_path / name, tmp_path / "results", "--task", "Hopper-v4")
    assert not Path("code-was-run").exists()


@pytest.mark.parametrize(("suffix", "text"), [("csv", "1,1\n" * 999), ("json", "[" + "{}," * 999 + "{}]")])
def test_a_file_whose_values_would_not_fit_into_memory_is_refused(
    suffix: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "available_memory", lambda: 200_000)
    (tmp_path / f"f.{suffix}").write_text(text)
    assert "0.2 MB are free; split the file" in refusal(tmp_path / f"f.{suffix}", tmp_path / "results", *TASK)


def test_a_file_that_takes_more_memory_than_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "available_memory", lambda: 60_000_000)
    np.savez_compressed(tmp_path / "s.npz", timesteps=np.ones(1), results=np.zeros((1, 2**25), np.int8))
    event = b"\x10\x05\x2a\xfe\xff\x7f" + b"\x0a\x00" * (2**20 - 1)  # empty values
    parts = (struct.pack("<Q", len(event)), event)
    (tmp_path / "tfevents").write_bytes(b"".join(part + struct.pack("<I", masked_crc(part)) for part in parts))
    for name, size in (("s.npz", "67.1 MB"), ("tfevents", "0.20 GB")):
        message = refusal(tmp_path / name, tmp_path / "results", *TASK)
        assert f"needs up to {size} of memory, 60.0 MB are free" in message


def test_more_scores_than_curves_that_fit_are_refused(tmp_path: Path) -> None:
    scores = {"mujoco/sac": np.zeros((60_000, 1), np.int8), "mujoco/td3": np.zeros((40_001, 1), np.int8)}
    np.savez(tmp_path / "s.npz", **scores, **{"mujoco/tasks": np.array(["Hopper-v4"])})
    assert "100,001 scores up to mujoco/td3, 100,000 are allowed" in refusal(tmp_path / "s.npz", tmp_path / "results")


def test_no_link_and_no_pipe_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text(GOOD)
    inside = tmp_path / "logs"
    inside.mkdir()
    (inside / "runs.csv").symlink_to(tmp_path / "secret.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    assert "is a link" in refusal(inside, tmp_path / "results")
    assert "is no regular file" in refusal(tmp_path / "pipe.csv", tmp_path / "results")
    words = ["import", str(inside / "runs.csv"), "--as", "mujoco/sac", "--results", str(tmp_path / "results")]
    assert "1 new" in stdout_of(words), "a link that the user names is read"


def test_a_linked_or_unreadable_folder_of_curves_is_named(tmp_path: Path, monkeypatch: Patch) -> None:
    logs = tmp_path / "logs"
    for folder in (logs / "seed_0", tmp_path / "disk"):
        folder.mkdir(parents=True)
        (folder / "runs.csv").write_text(GOOD)
    (logs / "latest").symlink_to("seed_0")  # as W&B's latest-run
    (tmp_path / "weights").mkdir()
    (logs / "checkpoints").symlink_to(tmp_path / "weights")
    assert "1 new" in stdout_of(["import", str(logs), "--as", "mujoco/sac", "--results", str(tmp_path / "first")])
    (tmp_path / "weights" / "scores.json").touch()
    message = refusal(logs, tmp_path / "results", "--format", "dopamine")
    assert f"{logs / 'checkpoints'}: is a link to another folder" in message, "of any name are Dopamine's files"
    (logs / "seed_1").symlink_to(tmp_path / "disk")
    assert f"{logs / 'seed_1'}: is a link to another folder; name that" in refusal(logs, tmp_path / "results")
    shutil.rmtree(tmp_path / "disk")
    (logs / "latest-run").symlink_to("gone")
    (logs / "debug.log").symlink_to(tmp_path / "gone.log")
    assert f"{logs / 'seed_1'}: is a link to nothing; restore" in refusal(logs, tmp_path / "results")
    (logs / "seed_1").unlink()
    for name, target in (("ppo.seed_3", tmp_path / "gone"), ("seed_3", Path("store", "seed_3"))):
        (logs / name).symlink_to(target)
        assert f"{logs / name}: is a link to nothing; restore" in refusal(logs, tmp_path / "results")
        (logs / name).unlink()
    (logs / "seed_1").mkdir()
    scan = os.scandir

    def closed(path: str) -> object:
        if Path(path).name == "seed_1":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", closed)
    assert f"{logs / 'seed_1'}: cannot be read (Permission denied)" in refusal(logs, tmp_path / "results")


@pytest.mark.parametrize(
    ("files", "left_out"),
    [
        (("seed_0.csv", "seed_1.csv.gz"), "left out 1 file of another kind, such as logs/seed_1.csv.gz"),
        (("seed_0.csv", "seed_0.csv.gz"), None),
        (("seed_0.csv", "seed_1.tsv"), "left out 1 file of another kind, such as logs/seed_1.tsv"),
        (("s0/runs.csv", "s0/runs.jsonl", "config.csv"), None),
        (("s0.csv", "s1.csv", "s2.jsonl"), "1 file of another kind, such as logs/s2.jsonl"),
        (("s0.csv", "s0.jsonl", "s1.CSV"), None),
    ],
)
def test_files_of_another_format_that_are_left_out_are_named(
    files: tuple[str, ...], left_out: str | None, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(files):
        path = Path("logs", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(GOOD.replace(",0,", f",{number},") if path.suffix.lower() == ".csv" else "{}")
    note = stderr_of(["import", "logs", "--as", "mujoco/sac", "--results", "results"], 0)
    assert (left_out or "") in note and bool(note) == bool(left_out)


def test_runs_with_a_monitor_but_no_evaluations_are_named(tmp_path: Path) -> None:
    for seed in range(3):
        (tmp_path / f"seed_{seed}").mkdir()
        (tmp_path / f"seed_{seed}" / "monitor.csv").write_text('#{"env_id": "Hopper-v4"}\nr,l,t\n1.0,10,0.5\n')
        if seed < 2:
            np.savez(tmp_path / f"seed_{seed}" / "evaluations.npz", timesteps=[1], results=[[float(seed)]])
    (tmp_path / "seed_3.csv").write_text(GOOD)
    left_out = [tmp_path / "seed_3.csv", tmp_path / "seed_2" / "monitor.csv"]
    assert files_left_out(tmp_path, None) == files_left_out(tmp_path, "sb3") == left_out
    assert files_left_out(tmp_path, "rliable") == []
    (tmp_path / "ppo").mkdir()
    for name in ("seed_0", "seed_1", "seed_2", "seed_3.csv"):
        (tmp_path / name).rename(tmp_path / "ppo" / name)
    assert [p.name for p in files_left_out(tmp_path, None)] == ["seed_3.csv", "monitor.csv"], "in a folder between"
    shutil.copy(tmp_path / "ppo" / "seed_0" / "evaluations.npz", tmp_path / "ppo")
    assert [p.name for p in files_left_out(tmp_path / "ppo", None)] == ["monitor.csv"], (
        "beside a run in the folder itself"
    )
    (tmp_path / "ppo" / "evaluations.npz").unlink()
    seed_2 = tmp_path / "ppo" / "seed_2"
    (seed_2 / "progress.csv").write_text(GOOD)
    (seed_2 / "events.out.tfevents.1.h").write_bytes(b"")
    assert seed_2 / "events.out.tfevents.1.h" not in files_left_out(tmp_path, "csv")


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(GOOD)
    (tmp_path / "outside").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "mujoco").symlink_to(tmp_path / "outside")
    assert "is a link" in stderr_of(
        ["import", str(tmp_path / "runs.csv"), "--as", "mujoco/sac", "--results", str(tmp_path / "results")]
    )
    assert not any((tmp_path / "outside").iterdir())


def test_tag_selects_one_of_several_metrics(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("global_step,a - eval/return,a - rollout/return\n1,2,3\n")
    assert "name one with --tag" in refusal(tmp_path / "w.csv", tmp_path / "results", "--task", "Hopper-v4")
    line = ["import", str(tmp_path / "w.csv"), "--as", "mujoco/sac", "--task", "Hopper-v4", "--tag", "eval/return"]
    assert '"kind": "evaluation"' in stdout_of([*line, "--results", str(tmp_path / "results"), "--json"])
