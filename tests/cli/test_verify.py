"""``rlbench verify``: no fault in the committed records, a line per fault elsewhere; ``--replay`` repeats a run."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rlbench import checkpoint
from rlbench import run as training
from rlbench.cli.app import main
from rlbench.config.run import Runtime, Spec
from rlbench.records import aside, files, store
from rlbench.report.integrity import verify_records
from rlbench.report.reference_table import DATA
from tests.commands import json_of, run_process, stderr_of, stdout_of
from tests.conftest import Patch, RecordRun
from tests.forging import Change, reseal
from tests.laws.source import ROOT
from tests.reliability.test_disk import no_file_beyond
from tests.schemas import complaints


def printed(*line: str, code: int) -> list[str]:
    return stdout_of(["verify", *line], code).splitlines()


def flip(path: Path, at: float = 0.5) -> None:
    raw = bytearray(path.read_bytes())
    raw[int(at * len(raw))] ^= 1
    path.write_bytes(bytes(raw))


def test_the_committed_records_have_no_fault() -> None:
    (line,) = printed(str(ROOT / "results"), code=0)
    assert line.endswith("1 baseline: no fault")
    assert int(line.split(" runs")[0]) > 100


def test_every_fault_is_a_line_that_says_where_what_and_what_to_do(record_run: RecordRun) -> None:
    folders = [record_run([1.0, 2.0, 3.0], seed=seed) for seed in range(4)]
    results = folders[0].parents[4]
    assert printed(str(results), code=0) == ["4 runs, 12 epochs, 0 checkpoints, 0 baselines: no fault"]
    flip(folders[0] / "spec.json")
    flip(folders[1] / "epochs.jsonl")
    (folders[2] / "outcome.json").write_text("{")
    *faults, last = printed(str(results), code=2)
    assert last == "4 runs, 3 epochs, 0 checkpoints, 0 baselines: 3 faults"
    for fault, path in zip(faults, ("seed=0/spec.json", "seed=1/epochs.jsonl:2", "seed=2/outcome.json"), strict=True):
        where, what = fault.split(": ", 1)
        assert where.endswith(path)
        assert what.startswith("damaged (") and what.endswith("; restore it, or start over with --force")
    document = json_of(f"verify {results} --json", 2)
    assert (document["schema_version"], document["runs"], document["epochs"]) == (1, 4, 3)
    assert [set(fault) for fault in document["faults"]] == [{"where", "what", "remedy"}] * 3


def test_verify_accepts_one_run_and_the_current_folder(record_run: RecordRun, monkeypatch: Patch) -> None:
    good, bad = record_run([1.0], seed=0), record_run([1.0], seed=1)
    flip(bad / "epochs.jsonl")
    assert len(printed(str(good), code=0)) == 1
    assert len(printed(str(bad), code=2)) == 2
    monkeypatch.chdir(good)
    assert printed(".", code=0)[0].startswith("1 run,")


def test_contradictions_between_intact_files_are_faults(record_run: RecordRun) -> None:
    folder = record_run([1.0, 5.0])
    path = folder / "outcome.json"
    document = files.read_sealed(path)
    for change in ({"best": 9.0}, {"final": 1.0}, {"best_epoch": 0}, {"epochs": 1}, {"env_steps": 5}, {"updates": 5}):
        path.write_text(files.seal({**document, **change}) + "\n", encoding="utf-8")
        (fault, _) = printed(str(folder), code=2)
        assert "outcome.json" in fault, change
    path.write_text(files.seal(document) + "\n", encoding="utf-8")
    folder.rename(folder.with_name("seed=7"))
    (fault, _) = printed(str(folder.with_name("seed=7")), code=2)
    assert "is the record of atari/dqn/BreakoutNoFrameskip-v4/" in fault and "seed=0; move it there" in fault


def test_checkpoints_are_checked_without_torch(record_run: RecordRun) -> None:
    folder = record_run([1.0])
    best = folder / "checkpoint" / "best"
    checkpoint.save(best, {"policy": {}, "epoch": 0, "name": "x" * 100})
    checkpoint.save(folder / "checkpoint" / "last", {"epoch": 0})
    assert "2 checkpoints" in printed(str(folder), code=0)[0]
    flip(best / "tensors-000.safetensors")
    code = "import sys; sys.modules['torch'] = None; from rlbench.cli.app import main; sys.exit(main())"
    done = run_process([sys.executable, "-c", code, "verify", str(folder)], cwd=ROOT)
    assert done.returncode == 2
    assert "best/tensors-000.safetensors: missing or damaged; restore it" in done.stdout
    checkpoint.save(best, {"policy": {}, "epoch": 3})
    assert "is of epoch 3, the best is 0; restore it" in printed(str(folder), code=2)[0]


def test_traces_of_a_crash_are_no_faults(record_run: RecordRun) -> None:
    folder = record_run([1.0, 2.0], status=None)
    with (folder / "epochs.jsonl").open("a") as file:
        file.write('{"checksum":"12')
    (folder / "outcome.json.17.tmp").write_text("{")
    checkpoint.save(folder / "checkpoint" / "resume", {"step": 1})
    (folder / "checkpoint" / "resume").rename(folder / "checkpoint" / ".resume.old")
    (folder / "checkpoint" / ".resume.17.tmp").mkdir()
    assert printed(str(folder), code=0) == ["1 run, 2 epochs, 1 checkpoint, 0 baselines: no fault"]
    flip(folder / "checkpoint" / ".resume.old" / "manifest.json")
    assert len(printed(str(folder), code=2)) == 2


def test_baseline_that_is_a_link_is_a_fault(record_run: RecordRun) -> None:
    results = record_run([1.0]).parents[4]
    stdout_of(["baseline", "save", "elsewhere.json", "--results", str(results)])
    (results / "baseline.json").symlink_to(Path("elsewhere.json").absolute())
    assert "baseline.json: is a link" in printed(str(results), code=2)[0]


def test_folder_without_records_is_refused(tmp_path: Path) -> None:
    assert "holds no records" in stderr_of(f"verify {tmp_path}")


def test_an_attempt_is_verified_with_its_run(record_run: RecordRun) -> None:
    folder = record_run([1.0])
    aside.set_aside(folder)
    assert f"type: rlbench verify {folder}" in stderr_of(f"verify {folder / 'attempt-1'}")
    assert printed(str(folder), code=0)


def test_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    assert "no such folder; name a folder of records" in stderr_of(f"verify {tmp_path / 'nowhere'}")


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


@pytest.mark.parametrize(
    "cell", [("ppo", "--set", "algo.torso.widths=512,512"), ("reinforce",)], ids=lambda cell: cell[0]
)
def test_replay_takes_the_default_engine_again_where_networks_are_large(cell: tuple[str, ...], tmp_path: Path) -> None:
    algo, *sets = cell
    words = ["run", "toy", algo, "--task", "CartPole-v1", "--steps", "4000", "--set", "budget.epoch=2000", *sets]
    stdout_of([*words, "--results", str(tmp_path), "--device", "cpu", "--quiet"])
    (place,) = tmp_path.rglob("seed=0")
    assert "equal to the bit" in stdout_of(["verify", "--replay", str(place), "--epochs", "1"])


def test_replay_on_a_full_disk_names_tmpdir(folder: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with no_file_beyond(3_000):
        printed = stderr_of(f"verify --replay {folder}", 5)
    assert "run the same command again, or set TMPDIR" in printed and "resumes" not in printed
    assert not list(tmp_path.glob("rlbench-replay-*"))


def test_replay_without_a_temporary_folder_names_tmpdir(folder: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    assert "free some space, or set TMPDIR" in stderr_of(f"verify --replay {folder}", 5)


def test_replay_of_an_online_run_takes_no_data_set(folder: Path) -> None:
    assert "--dataset: toy learns from what it plays" in stderr_of(f"verify --replay {folder} --dataset /dev/zero", 2)


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
    shutil.rmtree(folder / "checkpoint")  # which names the first epoch
    reseal(folder / "epochs.jsonl", change, line)
    assert not verify_records(folder).faults
    assert f": epoch {line} differs in {field}: " in stdout_of(f"verify --replay {folder} --epochs 1", 3)


def test_replay_without_the_recorded_engine_is_no_difference(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("rlbench.assembly.engine.shutil.which", lambda name: name)  # a compiler
    monkeypatch.setattr(torch, "compile", lambda plain, **_: plain)
    words = ["run", "toy", "dqn", "Catch", "--smoke", "--quiet", "--update-engine", "compiled", "--device", "cpu"]
    assert main([*words, "--results", str(tmp_path)]) == 0
    (folder,) = (path.parent for path in tmp_path.rglob("spec.json"))
    reseal(folder / "epochs.jsonl", lambda line: line["updated"] and line["updated"].update(loss=0.5))
    assert "differs in updated.loss" in stdout_of(f"verify --replay {folder} --epochs 1", 3)
    monkeypatch.setattr("rlbench.accel.graph_capture._cache_refusal", lambda: "no cache")
    error = stderr_of(f"verify --replay {folder} --epochs 1", 2)
    assert "its updates cannot be computed as recorded, here eager: no cache" in error


def test_run_whose_updates_fell_back_to_eager_is_replayed_eagerly(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("rlbench.assembly.engine.shutil.which", lambda name: name)
    words = ["run", "toy", "dqn", "Catch", "--smoke", "--quiet", "--update-engine", "compiled", "--device", "cpu"]
    with monkeypatch.context() as patched:
        patched.setattr("rlbench.accel.graph_capture._cache_refusal", lambda: "no cache (/home/somebody/x)")
        assert main([*words, "--results", str(tmp_path)]) == 0
    (path,) = tmp_path.rglob("spec.json")
    assert files.read_sealed(path)["environment"]["updates"] == "compiled" and "somebody" not in path.read_text()
    monkeypatch.setattr(torch, "compile", lambda plain, **_: lambda *args: 2 * plain(*args))
    assert "equal to the bit" in stdout_of(f"verify --replay {path.parent} --epochs 1")


def test_replay_takes_the_engine_of_the_first_updates_and_names_later_changes(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """A process that resumed before any update chose the engine of them all."""
    monkeypatch.setattr("rlbench.assembly.engine.shutil.which", lambda name: name)

    def doubled(result: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return 2 * result[0], *result[1:]

    monkeypatch.setattr(torch, "compile", lambda plain, **_: lambda *args: doubled(plain(*args)))
    texts = ("budget.epoch=500", "protocol.episodes=1", "protocol.envs=1")
    words = ["run", "toy", "dqn", "Catch", "--steps", "2000", "--quiet", "--device", "cpu", "--results", str(tmp_path)]
    words += [word for text in texts for word in ("--set", text)]
    stdout_of([*words, "--until", "500"])
    stdout_of([*words, "--update-engine", "compiled"])
    (path,) = tmp_path.rglob("spec.json")
    (line,) = files.read_sealed(path)["resumed"]
    assert line == {"epoch": 2, "updates": 0, "environment": {"updates": "compiled"}}
    versions = {"rlbench": "0.0.3", "packages": {"torch": "1.13.0"}, "env": {"gymnasium-robotics": "1.0"}}
    eager = {"updates": "eager"}
    changes = [{**line, "environment": eager}, line, {"epoch": 2, "environment": versions}]
    later = [{"epoch": 2, "updates": 1, "environment": eager}, {"epoch": 2, "environment": eager}]  # or of older code
    reseal(path, lambda head: head.update(resumed=changes + later))
    out = stdout_of(f"verify --replay {path.parent}")
    assert "equal to the bit" in out and "updates" not in out
    for name, version in (("rlbench", "0.0.3"), ("torch", "1.13.0"), ("gymnasium-robotics", "1.0")):
        assert f"  {name} from epoch 2: {version} recorded, " in out
    assert "from epoch" not in stdout_of(f"verify --replay {path.parent} --epochs 1")


def test_replay_ignores_times(folder: Path) -> None:
    for line in (0, 1):
        reseal(folder / "epochs.jsonl", lambda e: (e.update(seconds=9e9), e["evaluated"].update(seconds=9e9)), line)
    assert main(["verify", "--replay", str(folder), "--epochs", "1"]) == 0


def test_replay_prints_changes_of_code_and_machine(folder: Path) -> None:
    packages = {**files.read_sealed(folder / "spec.json")["environment"]["packages"], "torch": "1.13.0"}
    values = {"cpu": "another", "rlbench": "0.0.3", "packages": packages, "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA"}
    reseal(folder / "spec.json", environment(**values))
    out = stdout_of(f"verify --replay {folder} --epochs 0")
    assert "  cpu: another recorded, " in out and "  rlbench: 0.0.3 recorded, " in out
    assert "  GLIBC_TUNABLES: glibc.cpu.hwcaps=-FMA recorded, " in out
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
        ([str(folder), "--epochs", "1"], "--epochs: belongs to --replay; give both"),
        ([str(folder), "--env-timeout", "5"], "--env-timeout: belongs to --replay; give both"),
    ):
        assert message in stderr_of(["verify", *words])
