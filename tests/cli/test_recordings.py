"""Recorded play on the command line: recording, showing, verifying, subsets, imports, and kills."""

import errno
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import sleep
from unittest import mock

import pytest

from rlbench import checkpoint, suites
from rlbench.cli.app import main
from rlbench.collectors.evaluate import Evaluation
from rlbench.datasets import catalogue, recording_reader, recording_writer
from rlbench.records.store import read_record
from tests.commands import json_of, run_command, stderr_of, stdout_of
from tests.datasets.rl_unplugged_writer import episode, shard
from tests.forging import locked, with_policy


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path / "sets"))
    return tmp_path / "sets"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return with_policy(suites.spec("toy", "dqn", "Catch"), tmp_path / "results")


def line(run: Path, *more: str, steps: str = "300", num_envs: str = "3", name: str = "rlb-catch") -> list[str]:
    numbers = ["--epsilon", "0.2", "--steps", steps, "--num-envs", num_envs]
    return ["data", "generate", "Catch", "--policy", str(run), *numbers, "--name", name, *more]


def test_a_run_without_weights_is_named_as_eval_names_it_and_refused_with_its_training(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parents[5])
    Path("results").rename("runs")
    name = str(run.relative_to(run.parents[4]))
    assert main(line(Path(name), "--quiet")) == 0
    for games in (line(Path(name), "--checkpoint", "last", name="rlb-last"), line(Path(name))[:5]):
        more = ["--steps", "9", "--name", "rlb-flat", "--checkpoint", "last"] if "--epsilon" not in games else []
        assert "has no weights, as records in git have none; train them with: rlbench run toy dqn --task" in (
            stderr_of([*games, *more])
        )


def test_games_are_recorded_shown_verified_and_listed(run: Path, home: Path) -> None:
    _, out, error = run_command(line(run))
    folder, digest = home / "rlb-catch.frames", out.split()[-1]
    assert out.startswith(f"{folder}: 300 steps, ") and "rlb-catch: 300 of 300 steps" in error
    summary = dict(row.split(None, 1) for row in stdout_of("data show rlb-catch").splitlines())
    assert (summary["steps"], summary["sha256"], summary["task"]) == ("300", digest, "Catch")
    document = json_of(f"data show {folder} --json")
    assert document["steps"] == 300 and sum(document["actions"]) == pytest.approx(1) and document["sha256"] == digest
    assert stdout_of("data verify rlb-catch") == f"rlb-catch\tok {digest}\n"
    assert f"rlb-catch\t{folder}\n" in stdout_of("data list")
    (folder / "link").symlink_to("nowhere")
    assert json_of(f"data show {folder} --json")["steps"] == 300


def test_recording_prints_one_json_document_and_needs_force_to_overwrite(run: Path) -> None:
    _, out, error = run_command(line(run, "--quiet", "--json"))
    document = json.loads(out)
    assert error == "" and document["schema_version"] == 1
    assert "is there already; make it again with --force" in stderr_of(line(run, "--seed", "1"))
    _, out, error = run_command(line(run, "--json"))  # a kill at the end of the first may have hidden its answer
    assert json.loads(out) == document and error == "rlb-catch: done already; --force makes it again\n"
    assert json_of(line(run, "--quiet", "--json", "--force"))["sha256"] == document["sha256"]


def test_a_subset_has_its_own_name(run: Path, home: Path) -> None:
    assert main(line(run, "--quiet")) == 0
    assert main(["data", "subset", "rlb-catch", "--steps", "1e2", "--name", "rlb-catch-1e2"]) == 0
    recording = recording_reader.read_recording(home / "rlb-catch-1e2.frames")
    assert (~recording.final).sum() == 100
    for steps, reason in (("301", "holds 300 transitions"), ("1.5", "no whole number"), ("x", "no whole number")):
        assert reason in stderr_of(f"data subset rlb-catch --steps {steps} --name rlb-y")
    assert "call it rlb-catch" in stderr_of("data subset rlb-catch --steps 5 --name catch")


def test_options_of_other_recordings_are_refused(run: Path, tmp_path: Path) -> None:
    assert "--epsilon goes with one --policy RUN, --steps and --name" in stderr_of(line(run, "--noise", "0.1"))
    assert "wants a finished Q-learning run" in stderr_of(line(tmp_path / "away"))


@pytest.mark.slow
def test_killed_recording_is_readable_up_to_its_last_file(run: Path, home: Path) -> None:
    command = [sys.executable, "-m", "rlbench", *line(run, steps="90000000", num_envs="200")]
    folder = home / "rlb-catch.frames"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not (folder / "play.00001.segment").exists():
            sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert not catalogue.is_complete(folder)
    assert "unfinished: what was written before it was broken off" in stdout_of("data show rlb-catch")
    assert "is unfinished" in stdout_of("data verify", 2)
    assert main(["data", "subset", "rlb-catch", "--steps", "15000", "--name", "rlb-half"]) == 0
    assert main(["data", "verify", "rlb-half"]) == 0
    assert "is there, unfinished; make it again with --force" in stderr_of(line(run))


def test_damaged_shard_is_named_and_the_others_are_imported(tmp_path: Path, home: Path) -> None:
    good, bad = shard(tmp_path / "run_1-00000-of-00100", episode(1, 3)), tmp_path / "run_1-00001-of-00100"
    shard(bad, episode(2, 3), a_t=None)
    command = ["data", "import", "rlu", str(good), str(bad), "--name", "rlb-pong-rlu", "--workers", "1"]
    code, out, error = run_command(command)
    folder = home / "rlb-pong-rlu.frames"
    assert (code, out) == (2, f"{folder}\n") and "1 of 2: run_1-00000-of-00100: 3 transitions" in error
    assert f"{bad}: record at byte 0: a_t" in error and "1 of 2 files were refused" in error
    shard(bad, episode(2, 5))
    assert "done before" in stderr_of(command, 0)
    assert recording_reader.read_recording(folder).terminated.sum() == 2
    assert "RL Unplugged" in stdout_of("data show rlb-pong-rlu")


@pytest.mark.parametrize("name", ["play", "_play.gz"])
def test_import_of_a_shard_called_as_recorded_play_resumes(name: str, tmp_path: Path) -> None:
    command = ["data", "import", "rlu", str(shard(tmp_path / name, episode(1, 3))), "--name", "rlb-pong-rlu"]
    assert f"{name}: 3 transitions" in stderr_of(command, 0)
    assert "done before" in stderr_of(command, 0)


def test_invalid_imports_are_refused(tmp_path: Path) -> None:
    for command, reason in (
        (["rlu", "x"], "what the set is called: --name rlb-"),
        (["rlu", "--name", "rlb-x"], "say which files"),
        (["rlu", "away", "--name", "rlb-x"], "away: no such file"),
        (["dqn-replay", str(tmp_path), "--name", "rlb-x"], "give the folder replay_logs"),
        (["one", "two"], "one file or folder is imported at a time"),
    ):
        assert reason in stderr_of(["data", "import", *command])


def test_existing_set_is_kept_if_the_new_one_cannot_be_made(run: Path, home: Path) -> None:
    assert main(line(run, "--quiet")) == 0
    folder = home / "rlb-catch.frames"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = [word if word != "Catch" else "Doors" for word in line(run, "--force")]
    assert "was trained on Catch, not Doors" in stderr_of(other)
    assert "cannot be a subset of itself" in stderr_of("data subset rlb-catch --steps 100 --name rlb-catch --force")
    assert main(line(run, "--quiet", name="rlb-more", steps="400")) == 0
    assert "request fewer" in stderr_of("data subset rlb-more --steps 401 --name rlb-catch --force")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_refused_recording_leaves_no_folder(run: Path, tmp_path: Path) -> None:
    store = locked(suites.spec("toy", "ppo", "Catch"), tmp_path / "results")
    checkpoint.save(store.folder / "checkpoint" / "best", {"policy": {}, "epoch": 0})
    store.release()
    assert "is not Q-learning" in stderr_of(line(store.folder))
    assert main(line(run, "--quiet")) == 0


def test_interrupted_subset_is_remade_with_force(run: Path, home: Path) -> None:
    assert main(line(run, "--quiet")) == 0
    command = ["data", "subset", "rlb-catch", "--steps", "100", "--name", "rlb-part"]
    assert main(command) == 0
    (home / "rlb-part.frames" / "dataset.json").unlink()
    assert "is there, unfinished; make it again with --force" in stderr_of(command)
    assert main([*command, "--force"]) == 0 and catalogue.is_complete(home / "rlb-part.frames")


def test_two_processes_do_not_write_one_set(run: Path, tmp_path: Path, home: Path) -> None:
    good = shard(tmp_path / "run_1-00000-of-00100", episode(1, 3))
    assert main(line(run, "--quiet")) == 0
    commands = (
        (line(run, "--force"), "rlb-catch"),
        (["data", "subset", "rlb-catch", "--steps", "5", "--name", "rlb-part"], "rlb-part"),
        (["data", "import", "rlu", str(good), "--name", "rlb-u", "--workers", "1"], "rlb-u"),
    )
    for command, name in commands:
        with recording_writer.locked_folder(home / f"{name}.frames"):
            assert "another process is writing it; wait" in stderr_of(command)
        with mock.patch("fcntl.flock", side_effect=OSError(errno.ENOLCK, "No locks available")):
            error = stderr_of(command)
        assert f"{name}.frames: cannot be locked (No locks available); choose" in error and "RLBENCH_DATASETS" in error
        assert main(command) == 0
    assert catalogue.is_complete(home / "rlb-catch.frames")


def test_shards_can_be_added_to_a_used_set(tmp_path: Path, home: Path) -> None:
    one, other = (shard(tmp_path / f"run_1-0000{n}-of-00100", episode(n + 1, 3 + n)) for n in range(2))
    for path, steps in ((one, "3"), (other, "7")):
        assert main(["data", "import", "rlu", str(path), "--name", "rlb-u", "--workers", "1"]) == 0
        assert dict(row.split(None, 1) for row in stdout_of("data show rlb-u").splitlines())["steps"] == steps
    assert main(["data", "verify", "rlb-u"]) == 0
    assert "rlb-u.frames: holds recorded games already; copy" in stderr_of(
        ["data", "import", str(home / "rlb-u.frames")]
    )


def test_shards_are_used_only_for_their_own_game(tmp_path: Path, home: Path) -> None:
    one, other = (shard(tmp_path / f"run_1-0000{n}-of-00100", episode(n + 1, 3)) for n in range(2))
    command = ["data", "import", "rlu", "--name", "rlb-u", "--workers", "1"]
    breakout, pong = (["--task", f"{game}NoFrameskip-v4"] for game in ("Breakout", "Pong"))
    assert "Brakeout" in stderr_of([*command, str(one), "--task", "Brakeout"])
    assert main([*command, str(one), *breakout]) == 0
    assert "has the task BreakoutNoFrameskip-v4, not PongNoFrameskip-v4" in stderr_of([*command, str(other), *pong])
    assert main([*command, str(other)]) == 0
    assert recording_reader.metadata(home / "rlb-u.frames")["task"] == "BreakoutNoFrameskip-v4"
    for part in ("observation", "action", "reward", "terminal"):
        (tmp_path / f"$store$_{part}_ckpt.0.gz").write_bytes(b"")
    logs = ["data", "import", "dqn-replay", str(tmp_path), "--name", "rlb-u", *breakout]
    assert "has the origin RL Unplugged; rewards clipped to [−1, 1], sticky actions, not DQN-replay" in stderr_of(logs)
    learn = ["run", "offline", "il", *pong, "--dataset", "rlb-u", "--results", str(tmp_path / "r"), "--smoke"]
    assert "was recorded on BreakoutNoFrameskip-v4" in stderr_of(learn)


def test_smoke_run_uses_the_given_data_set(run: Path, tmp_path: Path) -> None:
    assert main(line(run, "--quiet", steps="2500")) == 0
    learn = ["run", "offline", "il", "--task", "Catch", "--results", str(tmp_path / "r"), "--smoke", "--dataset"]
    assert "rlb-nope: not in" in stderr_of([*learn, "rlb-nope"])
    assert main([*learn, "rlb-catch"]) == 0
    (folder,) = (tmp_path / "r").glob("offline/il/Catch@rlb-catch/*/seed=0")
    metadata = read_record(folder).environment["data"]
    assert isinstance(metadata, dict) and metadata["name"] == "rlb-catch"


def test_a_folder_that_is_no_data_set_is_refused(tmp_path: Path, home: Path) -> None:
    (home / "rlb-empty.frames").mkdir(parents=True)
    for folder in (tmp_path, home / "rlb-empty.frames"):
        assert "neither Minari's folder nor one of recorded games" in stderr_of(
            f"run offline il --task Catch --dataset {folder} --smoke"
        )


def test_missing_epsilon_message_explains_recording(run: Path) -> None:
    assert "games of Q-learning are recorded with --epsilon" in stderr_of(
        f"data generate Catch --policy {run} --steps 300 --name rlb-x"
    )


def test_ctrl_c_keeps_the_recorded_steps(run: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play = Evaluation.__iter__

    def stopped(games: Evaluation) -> Iterator[int]:
        for count in play(games):
            if count >= 150:
                raise KeyboardInterrupt
            yield count

    monkeypatch.setattr(Evaluation, "__iter__", stopped)
    with suppress(KeyboardInterrupt):
        assert "broken off; use what is there with rlbench data subset" in stderr_of(line(run), 130)
    assert int((~recording_reader.read_steps(home / "rlb-catch.frames").final).sum()) >= 147
