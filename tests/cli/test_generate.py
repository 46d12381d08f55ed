"""``rlbench data generate`` on the command line: one line per data set, exit codes, equal bytes."""

import json
from collections.abc import Sequence
from pathlib import Path

import h5py
import pytest

from rlbench.cli.app import main
from rlbench.datasets import recipes
from tests.commands import RLBENCH, json_of, line_of_refusal, run_command, run_process, stderr_of, stdout_of

HOPPER = "hopper-openai_imitation-trpo_iter200"
REAL = Path(__file__).parent.parent / "datasets" / "sb3-2.9.2-sac-pendulum.zip"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path / "sets"))
    return tmp_path / "sets"


def line(*more: str, policy: Sequence[str] = (HOPPER,), steps: str = "60", name: str = "rlb-own") -> list[str]:
    options = [word for one in policy for word in ("--policy", one)]
    return ["data", "generate", "Hopper-v4", *options, "--steps", steps, "--name", name, "--num-envs", "2", *more]


def test_data_set_is_generated_and_described_in_one_line(folder: Path) -> None:
    _, out, error = run_command(line("--noise", "2"))
    path = folder / "rlb-own.hdf5"
    sums = json.loads((folder / "rlb-own.hdf5.sha256.json").read_text())
    assert out.startswith(f"{path}: 60 steps, ") and out.endswith(f"SHA-256 {sums['sha256']}\n")
    assert "rlb-own: 60 of 60 steps" in error
    with h5py.File(path) as file:
        assert len(file["rewards"]) == 60 and file.attrs["task"] == "Hopper-v4"


def test_json_prints_one_document_and_quiet_prints_no_progress(folder: Path) -> None:
    _, out, error = run_command(line("--json", "--quiet", "--noise", "0.5", "--deterministic", "--seed", "4"))
    document = json.loads(out)
    assert error == "" and document["path"] == str(folder / "rlb-own.hdf5")
    recipe = recipes.Recipe.model_validate_json(document["recipe"])
    assert (recipe.steps, recipe.seed, recipe.lanes) == (60, 4, 2)
    assert (recipe.parts[0].noise, recipe.parts[0].sampled) == (0.5, False)


def test_generated_data_set_is_used_only_for_its_own_task() -> None:
    assert main(line("--quiet")) == 0
    assert stdout_of("run offline td3bc --dry-run --dataset rlb-own").startswith("offline/td3bc/Hopper-v4")
    assert "rlb-nobodys: not in" in stderr_of("run offline td3bc --dry-run --dataset rlb-nobodys")


def test_policies_are_mixed_by_the_given_shares() -> None:
    both = (HOPPER, "hopper-openai_imitation-trpo_iter500")
    recipe = recipes.Recipe.model_validate_json(
        json_of(line("--json", "--quiet", "--mixture", "0.25,0.75", policy=both))["recipe"]
    )
    assert [(part.policy, part.share) for part in recipe.parts] == [(both[0], 0.25), (both[1], 0.75)]


def test_packaged_recipe_needs_no_options(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = recipes.RECIPES["rlb-hopper-medium-expert"].model_copy(update={"steps": 40})
    monkeypatch.setitem(recipes.RECIPES, "rlb-hopper-medium-expert", short)
    assert "40 steps" in stdout_of("data generate rlb-hopper-medium-expert --quiet")
    assert (folder / "rlb-hopper-medium-expert.hdf5").is_file()


def test_existing_data_set_is_kept_without_force(folder: Path) -> None:
    assert main(line("--quiet")) == 0
    before = (folder / "rlb-own.hdf5").read_bytes()
    assert "is there already; make it again with --force" in stderr_of(line("--quiet", "--seed", "1"))
    assert (folder / "rlb-own.hdf5").read_bytes() == before
    assert main(line("--quiet", "--seed", "1", "--force")) == 0
    assert (folder / "rlb-own.hdf5").read_bytes() != before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["data", "generate", "Hopper-v4"], "--policy, --steps and --name are needed"),
        (["data", "generate", "rlb-hoper-medium"], "did you mean 'rlb-hopper-medium'"),
        (["data", "generate", "rlb-hopper-medium", "--steps", "5"], "is a recipe, which says all of this itself"),
        (["data", "generate", "rlb-hopper-medium", "--checkpoint", "last"], "leave the other options out"),
        (line(name="hopper-medium-v2"), "never as those of D4RL or Minari; call it rlb-hopper-medium-own"),
        (line(name="rlb-hopper-medium"), "made by a recipe that comes with rlbench"),
        (line(policy=["nowhere"]), "--policy nowhere: no such file, run or packaged policy; known: halfcheetah"),
        (line(policy=["walker2d-openai_imitation-trpo_iter500"]), "plays Walker2d-v4, not Hopper-v4"),
        (line("--mixture", "1,2"), "2 shares for 1 policies"),
        (line("--mixture", "x"), "not numbers"),
        (line("--mixture", "0.5"), "shares must sum to 1"),
        (line("--noise", "-1"), "noise"),
        (line(steps="1"), "fewer steps than the 2 environments"),
        (line(policy=[HOPPER, HOPPER]), "two parts have the same policy"),
        (line(policy=["."]), "spec.json"),
        (["data", "generate", "Pendulum-v1", *line(policy=[str(REAL)])[3:], "--num-envs", "0"], "--num-envs"),
    ],
)
def test_invalid_request_is_refused_in_one_line_and_writes_nothing(words: list[str], why: str, folder: Path) -> None:
    assert why in line_of_refusal(words)
    assert not folder.exists() or not list(folder.iterdir())


def test_import_is_for_a_run_of_games() -> None:
    words = "data generate rlb-hopper-medium --import cc"
    assert "--import cc: goes with --epsilon; leave it out" in stderr_of(words)


def test_unwritable_folder_is_refused_before_generating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path / "file" / "sets"))
    output = stderr_of(line())
    assert "choose another folder with RLBENCH_DATASETS" in output and "of 60 steps" not in output


def test_sb3_zip_is_accepted_as_a_policy(folder: Path) -> None:
    stdout_of(f"data generate Pendulum-v1 --policy {REAL} --steps 40 --name rlb-own --quiet")
    with h5py.File(folder / "rlb-own.hdf5") as file:
        assert file["observations"].shape == (40, 3) and file.attrs["policies"] == REAL.stem


def test_sb3_zip_is_no_data_set_to_import(folder: Path) -> None:
    error = line_of_refusal(["data", "import", str(REAL)])
    commands = f"type: rlbench data generate … --policy {REAL} or rlbench eval SUITE TASK --policy {REAL}"
    assert error == f"rlbench: {REAL}: is a policy, no data set; {commands}\n"
    assert not folder.exists()


@pytest.mark.slow
def test_best_policy_of_a_run_generates_data() -> None:
    stdout_of("run mujoco ppo --task InvertedPendulum-v4 --smoke --quiet")
    run = next(Path("results").rglob("spec.json")).parent
    generate = f"data generate InvertedPendulum-v4 --policy {run} --steps 40 --name rlb-own --quiet"
    document = json_of(f"{generate} --json")
    assert document["policies"].startswith("mujoco/ppo/InvertedPendulum-v4") and document["policies"].endswith(" best")
    stdout_of(f"{generate} --checkpoint last --force")


@pytest.mark.slow
def test_generated_file_is_equal_across_processes(tmp_path: Path) -> None:
    contents = []
    for seed in ("1", "2"):
        command = [*RLBENCH, *line("--noise", "1", "--quiet", steps="2000")]
        environ = {"PYTHONHASHSEED": seed, "RLBENCH_DATASETS": str(tmp_path / seed), "OMP_NUM_THREADS": seed}
        assert run_process(command, **environ).returncode == 0
        contents.append((tmp_path / seed / "rlb-own.hdf5").read_bytes())
    assert contents[0] == contents[1]
