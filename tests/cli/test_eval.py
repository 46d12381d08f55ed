"""``rlbench eval``: it plays the saved policy by the same protocol and leaves the record unchanged."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlbench import checkpoint
from rlbench.cli import eval as evaluation_command
from rlbench.cli.app import main
from rlbench.envs.mujoco import MujocoVector
from rlbench.envs.render import MujocoCamera
from rlbench.errors import BelowReference, UsageError
from rlbench.records import manifest, store
from rlbench.records.attempts import Resumption
from rlbench.records.store import Record, read_record
from tests.cli.test_video_writer import decode
from tests.commands import json_of, line_of_refusal, stdout_of
from tests.conftest import Patch, RecordRun
from tests.slow import slow_but

FAMILIES = [
    *slow_but(
        [
            ("toy", "iqn", "CartPole-v1"),
            ("mujoco", "ppo", "InvertedPendulum-v4"),  # whose observations are scaled as it goes
            ("mujoco", "sac", "InvertedPendulum-v4"),
            ("goals", "ddpg+her", "FetchReach-v4"),
            ("offline", "td3bc", "hopper-medium-v2"),  # whose observations are scaled as the data were
            ("offline", "bcq", "hopper-medium-v2"),  # whose policy draws
            ("atari", "dqn", "BreakoutNoFrameskip-v4"),
        ],
        0,
        1,
    ),
    *slow_but(
        [
            ("toy", "reinforce", "CartPole-v1"),
            ("toy", "ddpg", "Pendulum-v1"),
            ("offline", "crr", "PongNoFrameskip-v4"),
            ("atari", "ppo", "PongNoFrameskip-v4"),
        ],
        mark=pytest.mark.soak,
    ),
]


@pytest.fixture(autouse=True)
def nothing_is_rendered(monkeypatch: Patch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "disable")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of Catch, of the whole path though not of the whole budget."""
    results = tmp_path_factory.mktemp("catch") / "results"
    words = ["--steps", "900", "--set", "budget.epoch=300", "--set", "algo.learning_starts=100", "--quiet"]
    words += ["--set", "protocol.episodes=10", "--set", "protocol.envs=10"]
    assert main(["run", "toy", "dqn", "--task", "Catch", *words, "--results", str(results)]) == 0
    yield next(results.glob("*/*/*/*/seed=0"))
    shutil.rmtree(results)


def document(*words: str) -> dict[str, object]:
    return json_of(["eval", *words, "--json"])


def refusal(*words: str) -> str:
    return line_of_refusal(["eval", *words])


def whole(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("suite", "algo", "task"), FAMILIES)
def test_replayed_episodes_equal_the_record_and_new_ones_are_deterministic(
    suite: str, algo: str, task: str, tmp_path: Path
) -> None:
    shorter = [] if suite == "toy" else ["--steps", "100" if suite in {"atari", "offline"} else "500"]
    shorter += ["--set", "task.max_frames=400", "--set", "task.envs=2"] if suite == "atari" else []
    assert main(["run", suite, algo, "--task", task, "--smoke", *shorter, "--quiet"]) == 0
    folder = next((tmp_path / "results").glob("*/*/*/*/seed=0"))
    before = whole(tmp_path / "results")
    for which in ("best", "last"):
        again = document(str(folder), "--replay-recorded", "--checkpoint", which)
        assert again["same"] is True and again["games"] is None
        assert again["recorded"] == {"episodes": len(again["episodes"]), "mean": again["mean"], "std": again["std"]}
    fresh = [document(str(folder), "--episodes", "3", "--seed", "7") for _ in range(2)]
    assert fresh[0] == fresh[1] and len(fresh[0]["episodes"]) == 3
    assert fresh[0]["same"] is None and fresh[0]["documented"] is None
    assert whole(tmp_path / "results") == before


def test_eval_prints_episodes_and_means_beside_record_and_reference(run: Path) -> None:
    lines = stdout_of(f"eval {run} --episodes 5").splitlines()
    assert lines[0].startswith("toy/dqn/Catch seed 0, best policy, of epoch ")
    assert lines[0].endswith("episodes of seed 0")
    rows = [line.split() for line in lines[3:8]]
    assert [row[0] for row in rows] == ["1", "2", "3", "4", "5"] and {row[2] for row in rows} == {"9"}
    mean = np.mean([float(row[1]) for row in rows])
    assert lines[9].startswith(f"measured    {mean:.2f} ± ") and lines[9].endswith("(5 episodes)")
    assert lines[10].startswith("recorded ") and lines[11].startswith("documented  1.00 (best-of-run; ")


def test_replayed_episodes_that_differ_from_the_record_exit_with_three(
    run: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(folder: Path) -> Record:
        record = read_record(folder)
        longer = [replace(it.evaluated, lengths=tuple(n + 1 for n in it.evaluated.lengths)) for it in record.epochs]
        epochs = [replace(it, evaluated=new) for it, new in zip(record.epochs, longer, strict=True)]
        machine = {**record.environment, "cpu": "another processor"}
        return replace(record, epochs=tuple(epochs), environment=machine)

    command = ["eval", str(run), "--replay-recorded"]
    assert main(command) == 0 and "the same episodes" in capsys.readouterr().out
    monkeypatch.setattr(store, "read_record", other)
    assert main(command) == BelowReference.exit_code
    out = capsys.readouterr().out
    assert "OTHER EPISODES THAN THESE" in out and "cpu: another processor recorded, " in out


def test_replay_takes_the_threads_and_instructions_of_the_record(run: Path, monkeypatch: Patch) -> None:
    def other(folder: Path) -> Record:
        record = read_record(folder)
        machine = {**record.environment, "torch_threads": 3, "MKL_CBWR": "AVX2"}
        lines = [
            Resumption(epoch=epoch, environment=environment)
            for epoch, environment in ((1, {"torch_threads": 2, "MKL_CBWR": "COMPATIBLE"}), (999, {"MKL_CBWR": None}))
        ]
        return replace(record, environment=machine, resumed=tuple(lines))

    def play(*arguments: Any) -> Any:
        during.append((torch.get_num_threads(), os.environ.get("MKL_CBWR")))
        return real(*arguments)

    during, real, before = list[tuple[int, str | None]](), evaluation_command._play, torch.get_num_threads()
    monkeypatch.setattr(store, "read_record", other)
    monkeypatch.setattr(evaluation_command, "_play", play)
    try:
        assert main(["eval", str(run), "--replay-recorded", "--checkpoint", "last"]) == main(["eval", str(run)]) == 0
    finally:
        torch.set_num_threads(before)
    assert during[0] == (2, "COMPATIBLE") and during[1][1] is None and "MKL_CBWR" not in os.environ


def test_eval_plays_the_requested_number_of_episodes_of_a_seed(run: Path) -> None:
    seeds = {}
    for count in (1, 4, 10, 23):
        episodes = document(str(run), "--episodes", str(count), "--seed", "3")["episodes"]
        assert isinstance(episodes, list) and len(episodes) == count
        seeds[count] = [row["seed"] for row in episodes]
    assert len(set(seeds[10])) == 10 and len(set(seeds[23])) == 8  # three rounds of eight envs, one game left out
    other = document(str(run), "--seed", "4")["episodes"]
    assert isinstance(other, list) and other[0]["seed"] != seeds[10][0]


def test_run_is_found_by_folder_list_line_id_or_id_prefix(run: Path) -> None:
    results = run.parents[4]
    names = [run.parent.name, run.parent.name[:5], f"{run.parent.name[:5]}/seed=0", str(run.relative_to(results))]
    contents = [document(name, "--results", str(results)) for name in (*names, str(run))]
    assert len({json.dumps(content) for content in contents}) == 1


def test_ambiguous_or_unknown_run_is_refused_with_examples(record_run: RecordRun) -> None:
    folder = record_run([1.0])
    record_run([1.0], seed=1)
    start = folder.parent.name[:6]
    assert f"{start}: 2 runs have this name: {folder.parent.name}/seed=0, " in refusal(start)
    assert f"did you mean '{folder.parent.name}'" in refusal(folder.parent.name[:-1] + "x")
    assert "unknown run 'nothing'" in refusal("nothing", "--results", "none")


def test_run_without_a_saved_policy_is_refused(record_run: RecordRun) -> None:
    folder = record_run([1.0], status=None)
    assert "has no weights, as records in git have none; train them with: rlbench run " in refusal(str(folder))


def test_missing_checkpoint_message_names_the_existing_one(run: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    shutil.rmtree(folder / "checkpoint" / "last")
    assert "there is --checkpoint best" in refusal(str(folder), "--checkpoint", "last")
    assert "unknown checkpoint 'lst'; did you mean 'last'" in refusal(str(folder), "--checkpoint", "lst")


def test_a_damaged_policy_is_refused_by_name(run: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    file = next((folder / "checkpoint" / "best").glob("*.safetensors"))
    raw = bytearray(file.read_bytes())
    raw[-5] ^= 1
    file.write_bytes(raw)
    assert str(file) in refusal(str(folder), "--video", "a.gif")
    assert not list(tmp_path.glob("*.gif*"))


def test_a_policy_replaced_while_it_is_read_is_read_again(run: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    place = Path(shutil.copytree(run, tmp_path / "run")) / "checkpoint" / "best"
    later, opened = checkpoint.load(place), manifest.opened
    later |= {"epoch": 0, "policy": {name: tensor + 1 for name, tensor in later["policy"].items()}}

    def replace(folder: Path, name: str, digest: str) -> AbstractContextManager[str]:
        monkeypatch.setattr(manifest, "opened", opened)
        checkpoint.save(place, later)
        return opened(folder, name, digest)

    monkeypatch.setattr(manifest, "opened", replace)
    assert document(str(place.parents[1]), "--episodes", "1")["epoch"] == 0


def test_a_policy_of_another_network_is_refused(run: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    state = checkpoint.load(folder / "checkpoint" / "best")
    policy = state["policy"]
    policy.popitem()
    checkpoint.save(folder / "checkpoint" / "best", state)
    assert "holds another network" in refusal(str(folder))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--video", "a.avi"), "--video a.avi: a video ends in .gif or .mp4"),
        (("--video", "none/a.gif"), "none is not a folder; make it first"),
        (("--replay-recorded", "--seed", "1"), "--replay-recorded plays the recorded episodes"),
        (("--device", "tpu"), "--device tpu: not a device"),
    ],
)
def test_invalid_eval_options_are_refused_in_one_line(run: Path, words: tuple[str, ...], message: str) -> None:
    assert message in refusal(str(run), *words)


def test_video_of_catch_shows_the_ball_and_changes_no_episode(run: Path) -> None:
    plain = document(str(run), "--episodes", "4")
    with_video = document(str(run), "--episodes", "4", "--video", "catch.gif")
    assert with_video.pop("video") == {"file": "catch.gif", "frames": 10, "seconds": 2.5, "look": "board"}
    assert plain.pop("video") is None and plain == with_video
    images, _ = decode(Path("catch.gif"))
    assert len({image.tobytes() for image in images}) == len(images) == 10
    assert images[0].shape == (480, 240, 3)
    boards = [image[24::48, 24::48, 0] > 128 for image in images]
    assert [int(np.nonzero(board)[0].min()) for board in boards] == list(range(10))


def test_video_without_opengl_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    assert main(["run", "mujoco", "td3", "--task", "InvertedPendulum-v4", "--smoke", "--steps", "400", "--quiet"]) == 0
    folder = next((tmp_path / "results").glob("*/*/*/*/seed=0"))
    message = refusal(str(folder), "--video", "pole.gif")
    assert "--video: OpenGL renders no simulation here (MUJOCO_GL=disable" in message and "set MUJOCO_GL=egl" in message
    assert not list(tmp_path.glob("*.gif*"))


def test_video_of_an_environment_without_frames_is_refused(tmp_path: Path) -> None:
    assert main(["run", "toy", "ppo", "--task", "CartPole-v1", "--smoke", "--quiet"]) == 0
    folder = next((tmp_path / "results").glob("*/*/*/*/seed=0"))
    assert "CartPole-v1 renders no frames; leave --video out" in refusal(str(folder), "--video", "a.gif")
    assert not list(tmp_path.glob("*.gif*"))


@pytest.mark.slow
def test_mujoco_video_is_rendered_with_opengl(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "egl")
    try:
        MujocoCamera(MujocoVector(task="InvertedPendulum-v4", seeds=(0,)).unwrapped()[0]).close()
    except UsageError:
        pytest.skip("no EGL here")
    words = ["--smoke", "--steps", "400", "--quiet"]
    assert main(["run", "mujoco", "td3", "--task", "InvertedPendulum-v4", *words]) == 0
    folder = next((tmp_path / "results").glob("*/*/*/*/seed=0"))
    video = document(str(folder), "--episodes", "1", "--video", "pole.gif")["video"]
    assert isinstance(video, dict) and video["look"] == "rendered"
    images = [image.tobytes() for image in decode(Path("pole.gif"))[0]]
    assert len(images) == video["frames"] and len(set(images)) > len(images) / 2
