"""``rlbench verify``: no fault in the committed records, and one line per fault elsewhere."""

import sys
from pathlib import Path

from rlbench import checkpoint
from rlbench.records import files
from tests.commands import json_of, run_process, stderr_of, stdout_of
from tests.conftest import Patch, RecordRun
from tests.laws.source import ROOT


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


def test_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    assert "no such folder; name a folder of records" in stderr_of(f"verify {tmp_path / 'nowhere'}")
