"""``verify --replay``: a trained run repeats to the bit, a forged one differs, and missing requirements are named."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rlbench import run as training
from rlbench.cli.app import main
from rlbench.config.run import Runtime, Spec
from rlbench.records import files, store
from rlbench.report.integrity import verify_records
from rlbench.report.reference_table import DATA
from tests.commands import json_of, stderr_of, stdout_of
from tests.conftest import Patch
from tests.forging import Change, reseal
from tests.schemas import complaints


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that this machine trained a moment ago."""
    place = tmp_path_factory.mktemp("trained")
    words = ["run", "toy", "dqn", "--task", "Catch", "--smoke", "--quiet", "--results", str(place)]
    assert main(words) == 0
    return next(place.glob("toy/dqn/Catch/*/seed=0"))


@pytest.fixture
def folder(run_folder: Path, tmp_path: Path) -> Path:
    """The run's record, to be forged."""
    place = tmp_path / run_folder.relative_to(run_folder.parents[4])
    shutil.copytree(run_folder, place)
    return place


def environment(**values: object) -> Change:
    return lambda head: head["environment"].update(values)


def test_replay_equals_the_record_to_the_bit_and_writes_nothing(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert stdout_of(f"verify --replay {folder}").endswith("steps: equal to the bit\n")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_replay_covers_an_epoch_with_updates_by_default(folder: Path) -> None:
    document = json_of(f"verify --replay {folder} --json")
    schema = json.loads((DATA / "schema" / "replay.json").read_text(encoding="utf-8"))
    assert list(complaints(schema, document, schema)) == []
    epoch = store.read_record(folder).epochs[document["epochs"]]
    assert epoch.updated is not None and document["env_steps"] == epoch.steps
    assert (document["equal"], document["differs"], document["environment"]) == (True, None, [])


@pytest.mark.parametrize(
    ("line", "change", "field"),
    [
        (0, lambda e: e["evaluated"]["returns"].__setitem__(0, 7.0), "evaluated.returns"),
        (1, lambda e: e["evaluated"]["lengths"].__setitem__(0, 7), "evaluated.lengths"),
        (1, lambda e: e["collected"].update(episodes=1), "collected.episodes"),
        (1, lambda e: e["updated"].update(loss=e["updated"]["loss"] * (1 + 2**-52)), "updated.loss"),
    ],
)
def test_replay_detects_a_forged_epoch(folder: Path, line: int, change: Change, field: str) -> None:
    (folder / "outcome.json").unlink()
    reseal(folder / "epochs.jsonl", change, line)
    assert not verify_records(folder).faults
    assert f": epoch {line} differs in {field}: " in stdout_of(f"verify --replay {folder} --epochs 1", 3)


def test_replay_ignores_times(folder: Path) -> None:
    for line in (0, 1):
        reseal(folder / "epochs.jsonl", lambda e: (e.update(seconds=9e9), e["evaluated"].update(seconds=9e9)), line)
    assert main(["verify", "--replay", str(folder), "--epochs", "1"]) == 0


def test_replay_prints_changes_of_code_and_machine(folder: Path) -> None:
    packages = {**files.read_sealed(folder / "spec.json")["environment"]["packages"], "torch": "1.13.0"}
    reseal(folder / "spec.json", environment(cpu="another", rlbench="0.0.3", packages=packages))
    out = stdout_of(f"verify --replay {folder} --epochs 0")
    assert "  cpu: another recorded, " in out and "  rlbench: 0.0.3 recorded, " in out
    assert f"  torch: 1.13.0 recorded, {torch.__version__} here" in out


@pytest.mark.parametrize("restarted", [False, True])
def test_replay_uses_the_recorded_threads_and_engine(folder: Path, monkeypatch: Patch, restarted: bool) -> None:
    values: dict[str, object] = {"torch_threads": 2, "updates": "compiled"}
    first, last = {"torch_threads": 3, "MKL_NUM_THREADS": "9"}, {**values, "MKL_NUM_THREADS": None}
    later = {"resumed": [{"epoch": n, "environment": e} for n, e in ((0, first), (0, last), (5, {"torch_threads": 4}))]}
    reseal(folder / "spec.json", (lambda head: head.update(later)) if restarted else environment(**values))
    runtimes, run = [], training.run

    def listening(spec: Spec, runtime: Runtime, *more: object) -> Iterator[object]:
        runtimes.append(runtime)
        return run(spec, runtime, *more)

    monkeypatch.setattr(training, "run", listening)
    main(["verify", "--replay", str(folder), "--epochs", "0"])
    torch.set_num_threads(1)
    assert [(one.threads, one.update_engine, one.device) for one in runtimes] == [(2, "compiled", "cpu")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (environment(env={"env": "rlbench/Catch", "numpy": "1.0"}), "numpy: 1.0 recorded"),
        (environment(device="cuda:63"), "was made on cuda:63, which is not here"),
    ],
)
def test_replay_without_the_recorded_requirements_is_refused(folder: Path, change: Change, message: str) -> None:
    reseal(folder / "spec.json", change)
    assert message in stderr_of(f"verify --replay {folder}")


def test_replay_of_no_run_or_too_many_epochs_is_a_usage_error(folder: Path) -> None:
    for words, message in (
        (["--replay", str(folder.parent)], "no run's folder"),
        (["--replay", str(folder), "--epochs", "999"], "give --epochs "),
        ([str(folder), "--epochs", "1"], "give both"),
    ):
        assert message in stderr_of(["verify", *words])
