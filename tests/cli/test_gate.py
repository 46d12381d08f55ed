"""``check`` and ``baseline`` on the command line: exit codes, files and refusals, and the gate at equal steps."""

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from rlbench.cli.app import main
from rlbench.records import files
from rlbench.records.types import Status
from rlbench.report import check, run_index
from rlbench.report.run_index import gather
from rlbench.suites.plugins import Package
from tests.commands import json_of, run_command, stderr_of, stdout_of
from tests.conftest import Capture, Patch, RecordRun, RecordSeeds
from tests.reliability.test_hostile_curves import REFERENCE
from tests.slow import slow_but


def toy(
    record_run: RecordRun, level: float, *seeds: int, noise: float = 0.0, step: float = 0.0, **more: object
) -> None:
    """Runs of Catch that end at a level; the evaluation before lies ``noise`` above it, and ``step`` more a seed."""
    for seed in seeds:
        means = [-0.6, level + noise + step * seed, level]
        record_run(means, suite="toy", task="Catch", seed=seed, **more)


@pytest.fixture
def saved(record_run: RecordRun) -> Path:
    """A baseline of five seeds, and no records beside it."""
    for seed, noise in enumerate([0.0, 0.02, -0.02, 0.01, -0.01]):
        toy(record_run, 0.9, seed, noise=noise)
    stdout_of("baseline save base.json --suite all")
    Path("results").rename("before")
    return Path("base.json")


def test_a_regression_exits_3_and_names_the_cell(record_run: RecordRun, saved: Path) -> None:
    toy(record_run, 0.2, *range(3), step=0.01, sets=["algo.lr=0.01"])
    code, out, error = run_command(f"check toy --baseline {saved}")
    assert code == 3 and "toy/dqn/Catch score: REGRESSED" in error and "with algo.lr=0.01" in out


@pytest.mark.parametrize("repetition", slow_but(range(20), 0, 1, 2, 3))
def test_unchanged_rerun_exits_0(repetition: int, record_run: RecordRun, saved: Path) -> None:
    draw = np.random.default_rng(repetition)
    for seed in range(10, 13):
        toy(record_run, 0.9, seed, noise=float(draw.normal(0, 0.015)))
    assert main(["check", "toy", "--baseline", str(saved)]) == 0


def test_one_bad_seed_is_suspect_and_fails_only_under_strict(record_run: RecordRun, saved: Path) -> None:
    toy(record_run, 0.3, 0)
    assert "run 4 more seeds" in stdout_of(f"check toy --baseline {saved}")
    assert main(["check", "toy", "--baseline", str(saved), "--strict"]) == 4


def test_a_failed_run_exits_5_and_is_never_scored(record_run: RecordRun, saved: Path) -> None:
    toy(record_run, 0.9, 0)
    toy(record_run, 0.0, 1, status="failed")
    findings = {f["aspect"]: f for f in json_of(f"check toy --baseline {saved} --json", 5)["findings"]}
    assert findings["run"]["word"] == "FAILED"
    assert "1 seed" in findings["score"]["reason"]


def test_smoke_and_short_runs_enter_neither_baseline_nor_check(record_run: RecordRun, saved: Path) -> None:
    toy(record_run, 0.0, 0, sets=["smoke=true"])
    toy(record_run, 0.0, 1, status="interrupted")
    assert "PARTIAL" in stdout_of(f"check toy --baseline {saved}")
    assert "no finished run" in stderr_of("baseline save other.json")


def test_check_without_records_prints_not_run_and_exits_0() -> None:
    Path("results").mkdir()
    counts, comparison = stdout_of("check atari").splitlines()
    assert counts == "56 NOT RUN; --json lists every row" and comparison.startswith("Nothing was compared, ")
    lines = stdout_of("check toy --strict", 4).splitlines()
    assert lines[-2] == f"{len(lines) - 3} NOT RUN" and lines[0].startswith("NOT RUN  toy/dqn/Catch score")


def test_good_rows_are_counted_and_undecided_ones_listed(record_run: RecordRun) -> None:
    toy(record_run, 1.0, *range(3))
    record_run([0.0, 1.0], suite="toy", task="Catch", algo="c51")
    row, empty, counts = stdout_of("check toy").splitlines()
    assert row.startswith("INCONCLUSIVE  toy/c51/Catch score") and empty == ""
    assert "1 REPRODUCED, " in counts and ", 1 INCONCLUSIVE; --json" in counts


def test_variants_are_tested_separately(record_run: RecordRun, saved: Path) -> None:
    toy(record_run, 0.9, *range(5), step=0.01, sets=["algo.lr=0.002"])  # as many as the baseline's
    toy(record_run, 0.2, *range(5), step=0.01, sets=["algo.lr=0.01"])
    findings = json_of(f"check toy --baseline {saved} --json", 3)["findings"]
    words = {f["word"]: f["reason"] for f in findings if f["aspect"] == "score"}
    assert set(words) == {"PASSED", "REGRESSED"}
    assert words["REGRESSED"].endswith("with algo.lr=0.01") and words["PASSED"].endswith("with algo.lr=0.002")


def test_runs_in_another_version_of_the_environment_do_not_pass_strictly(record_run: RecordRun) -> None:
    for place, version in (("before", "1"), ("results", "2")):
        toy(record_run, 0.9, *range(5), step=0.01, environment={"env": {"env": f"test/{version}"}})
        if place == "before":
            stdout_of("baseline save base.json")
            Path("results").rename(place)
    out = stdout_of("check toy --baseline base.json --strict", 4)
    assert out.startswith("SUSPECT  toy/dqn/Catch score") and "the environment was test/1, is test/2" in out
    assert run_command("check toy --baseline base.json")[0] == 0


@pytest.mark.parametrize("status", ["done", None], ids=["done", "killed after its last epoch"])
def test_a_whole_run_in_another_version_is_not_left_out_silently(
    status: Status | None, record_run: RecordRun, saved: Path
) -> None:
    other = {"env": {"env": "test/later"}}
    for seed in range(8):
        whole = [-0.6, *[0.9 + 0.01 * seed] * 12]
        late = {"environment": other, "status": status} if seed > 5 else {}
        record_run(whole, suite="toy", task="Catch", seed=seed, **late)
    out = stdout_of(f"check toy --baseline {saved} --strict", 4)
    assert "2 runs in other versions of the environment left out" in out


def test_a_longer_run_is_compared_within_the_baseline_s_budget(record_run: RecordRun) -> None:
    def learn(epochs: int, total: int, *sets: str) -> None:
        for seed in range(5):
            means = [-0.6] * epochs + [0.9 + 0.01 * seed] * (total - epochs)
            record_run(means, suite="toy", task="Catch", seed=seed, sets=sets)

    learn(2, 7)
    stdout_of("baseline save base.json")
    Path("results").rename("before")
    learn(5, 31, "budget.steps=120000")
    assert "REGRESSED" in stdout_of("check toy --baseline base.json", 3)
    shutil.rmtree("results")
    learn(1, 4, "budget.steps=120000", "budget.epoch=40000")  # the first evaluation of training is beyond the budget
    assert "1 PARTIAL" in stdout_of("check toy --baseline base.json", 0)


def test_a_cell_without_documented_settings_is_compared_by_those_of_the_baseline(
    record_run: RecordRun, saved: Path, monkeypatch: Patch
) -> None:
    """As where the package of a task is not installed; the other folders sort before and behind the baseline's."""
    shutil.copytree("before", "results")
    for sets in ("budget.steps=10", "budget.steps=20", "budget.steps=70", "algo.lr=0.5"):
        record_run([-0.6] * 3, suite="toy", task="Catch", sets=[sets])
    monkeypatch.setattr("rlbench.report.run_index.documented_spec_of_run", lambda run: None)
    findings = json_of(["check", "toy", "--baseline", str(saved), "--json"])["findings"]
    assert [finding["word"] for finding in findings if finding["aspect"] == "score"] == ["PASSED"]


def test_variants_that_were_killed_after_their_last_step_are_compared(record_run: RecordRun) -> None:
    sets = ["protocol.episodes=192"]
    for seed, status in enumerate(["done"] * 4 + ["interrupted"]):
        record_run([-0.6] + [0.9] * 12, suite="toy", task="Catch", seed=seed, sets=sets, status=status)
    ((_, group),) = gather(Path("results")).items()
    (runs,) = check._runs_to_compare(group, group.other_protocol[0].id)
    assert [run.seed for run in runs.complete] == [0, 1, 2, 3, 4]


def test_runs_of_the_baseline_s_own_settings_are_compared_whole(record_run: RecordRun) -> None:
    """Its steps were once the documented ones."""
    record_run([-0.6] * 3 + [0.9] * 28, suite="toy", task="Catch", sets=["budget.steps=120000"])
    ((_, group),) = gather(Path("results")).items()
    ((run,),) = (runs.complete for runs in check._runs_to_compare(group, group.variants[0].id))
    assert (len(run.evaluations), run.budget) == (31, 120_000)


def test_unfinished_documented_runs_beside_a_variant_pass_no_strict_gate(record_run: RecordRun, saved: Path) -> None:
    toy(record_run, 0.9, *range(5), sets=["algo.lr=0.002"])
    toy(record_run, 0.9, *range(5), status="interrupted", sets=["budget.steps=10000"])
    gate = ["check", "toy", "--baseline", str(saved)]
    assert "5 runs incomplete" in stdout_of([*gate, "--strict"], 4)
    assert "toy/dqn/Catch: 5 of results short of the budget" in json_of("compare before results --json")["left_out"]


def test_a_second_record_of_a_seed_passes_no_strict_gate(record_seeds: RecordSeeds, saved: Path) -> None:
    shutil.copytree("before", "results/first")
    record_seeds(*[[0.95, -0.5, -0.5]] * 5, suite="toy", task="Catch")
    gate = ["check", "toy", "--baseline", str(saved), "--strict"]
    assert "seeds 0, 1, 2, 3, 4 have second records with other numbers, not counted" in stdout_of(gate, 4)


@pytest.mark.parametrize("status", ["done", "interrupted"])  # after its last evaluation
def test_a_baseline_of_two_records_of_a_seed_is_refused(status: Status, record_run: RecordRun) -> None:
    folder = record_run([0.9] * 13, suite="toy", task="Catch", status=status)
    other = Path("results", "other", folder.relative_to(Path("results").resolve()))
    other.parent.mkdir(parents=True)
    folder.rename(other)
    record_run([0.8] * 13, suite="toy", task="Catch")
    error = stderr_of("baseline save base.json")
    assert "toy/dqn/Catch: seed 0 has a second record with other numbers, not counted" in error


def test_a_failed_run_of_a_missing_plug_in_is_named_and_counted(
    record_run: RecordRun, monkeypatch: Patch, saved: Path
) -> None:
    for seed in range(3):
        record_run([1.0] * 13, suite="toy", task="Catch", seed=seed, status="done" if seed else "failed")
    monkeypatch.setattr(run_index, "documented_spec_of_run", lambda run: None)
    monkeypatch.setattr(run_index, "_package", lambda run: Package("corridor", "1"))
    (row,) = (row for row in json_of("table toy --results results --json")["cells"] if row["measured"])
    assert (row["measured"]["n"], row["measured"]["seeds"], row["measured"]["score"] < 0.5) == (3, [0, 1, 2], True)
    assert "1 of 3 runs failed, counted at -0.6" in row["note"]
    for words in ("check toy --results results", f"check toy --baseline {saved}"):
        assert "1 FAILED" in stdout_of(words, 5)
    shutil.rmtree("results")
    toy(record_run, 0.1, *range(5), step=0.01)
    assert "1 REGRESSED" in stdout_of(f"check toy --baseline {saved}", 3)


def test_a_failed_run_of_another_protocol_beside_whole_seeds_fails_no_check(record_seeds: RecordSeeds) -> None:
    record_seeds(*[[1.0] * 13] * 3, suite="toy", task="Catch")
    record_seeds([], suite="toy", task="Catch", sets=["protocol.episodes=192"], status="failed")
    stdout_of("check toy --results results")


@pytest.mark.parametrize(
    ("status", "versions", "code"), [("interrupted", {"env": "test/later"}, 0), ("done", None, 4)], ids=str
)
def test_a_further_record_of_a_variant_s_seed_leaves_the_gate_open_if_it_may_be_worse(
    status: Status, versions: dict[str, str] | None, code: int, record_run: RecordRun, saved: Path
) -> None:
    toy(record_run, 0.1, 0, sets=["algo.lr=0.002"], status=status, environment={"env": versions})
    Path("results").rename("other")
    toy(record_run, 0.9, *range(5), step=0.01, sets=["algo.lr=0.002"])
    Path("other").rename("results/other")
    stdout_of(f"check toy --baseline {saved} --strict", code)


def test_a_baseline_names_the_runs_that_it_leaves_out(record_run: RecordRun) -> None:
    for seed in range(4):
        versions = {"env": {"env": "test/later"}} if seed == 3 else {}
        record_run([1.0] * 13, suite="toy", task="Catch", seed=seed, environment=versions)
    assert "1 run in other versions of the environment: left out" in stderr_of("baseline save base.json", 0)
    assert "left out" in stderr_of("plot toy --kind forest --output f.svg --results results", 0)


@pytest.mark.parametrize("name", ["seed=5", "attempt-2"])
def test_a_folder_that_is_named_as_a_run_hides_no_run(name: str, record_run: RecordRun, saved: Path) -> None:
    toy(record_run, 0.9, *range(5))
    failed = record_run([0.9], suite="toy", task="Catch", seed=5, status="failed").relative_to(
        Path("results").resolve()
    )
    Path("results", name, failed).parent.mkdir(parents=True)
    Path("results", failed).rename(Path("results", name, failed))
    assert "1 FAILED" in stdout_of(f"check toy --baseline {saved} --strict", 5)


def test_unfinished_seeds_in_other_versions_leave_a_gate_at_equal_steps_open(record_run: RecordRun) -> None:
    for seed in range(6):
        versions = {"env": {"env": "test/later"}} if seed > 2 else {}
        means = [0.0, *[12_150.0 + seed if seed < 3 else 0.0] * 150]
        run = {"suite": "mujoco", "algo": "sac", "task": "HalfCheetah-v4", "status": "interrupted"}
        record_run(means, **run, seed=seed, environment=versions)
    out = stdout_of("check mujoco --at --strict", 4)
    assert "3 runs in other versions of the environment left out" in out and "1 ON TRACK" in out


def test_a_variant_has_runs_of_one_version_of_the_environment(record_run: RecordRun, saved: Path) -> None:
    for seeds, versions in ((range(6), {}), (range(6, 9), {"env": {"env": "test/later"}})):
        toy(record_run, 0.9, *seeds, step=0.01, sets=["algo.lr=0.002"], environment=versions)
    out = stdout_of(f"check toy --baseline {saved} --strict", 4)
    assert "3 runs in other versions of the environment left out" in out and "1 PASSED" in out


@pytest.mark.parametrize(
    ("sets", "word"), [(["algo.lr=0.01", "budget.steps=8000"], "PARTIAL"), (["protocol.episodes=128"], "NOT RUN")]
)
def test_runs_of_another_kind_are_not_compared_with_a_baseline(
    sets: list[str], word: str, record_run: RecordRun, saved: Path
) -> None:
    toy(record_run, 0.2, *range(3), sets=sets)
    assert main(["check", "toy", "--baseline", str(saved)]) == 0
    assert f"{word} " in stdout_of(f"check toy --baseline {saved} --strict", 4)
    record_run([0.0, 1.0])  # of a suite that the baseline does not have
    assert "1 NEW" in stdout_of(f"check atari --baseline {saved} --strict", 4)
    record_run([0.0, -1.0], seed=1, status="interrupted")  # another seed of it, which may be bad
    assert "not in the baseline; 1 run incomplete" in stdout_of(f"check atari --baseline {saved} --strict", 4)


def test_margin_is_the_smallest_drop_that_alarms(record_run: RecordRun, saved: Path) -> None:
    toy(record_run, 0.6, *range(5))
    assert main(["check", "toy", "--baseline", str(saved)]) == 3
    assert main(["check", "toy", "--baseline", str(saved), "--margin", "0.5"]) == 0


def test_another_machine_is_refused_without_other_machine(record_run: RecordRun, saved: Path) -> None:
    toy(record_run, 0.9, 0)
    saved.write_text(files.seal({**files.read_sealed(saved), "machines": ["another processor"]}), encoding="utf-8")
    output = stderr_of(f"check toy --baseline {saved}")
    assert "another processor" in output and "--other-machine" in output and len(output.splitlines()) == 1
    assert main(["check", "toy", "--baseline", str(saved), "--other-machine"]) == 0


def test_baseline_is_printed_and_deterministic(saved: Path) -> None:
    assert "toy/dqn/Catch  0.90 over 5" in stdout_of(f"baseline show {saved}")
    assert main(["baseline", "save", "again.json", "--results", "before"]) == 0
    assert Path("again.json").read_bytes() == saved.read_bytes()


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"suite": "elsewhere"}, 4, "NOT RUN elsewhere/dqn/Catch score in the baseline only"),  # of a missing plug-in
        ({"id": "000000000000"}, 4, "its published settings have changed since"),
        ({"speeds": {"cpu": [0.0] * 5}}, 2, "not a baseline of this schema"),
    ],
)
def test_changed_cell_of_a_baseline_is_never_passed_over(
    change: dict[str, object], code: int, words: str, saved: Path
) -> None:
    content = files.read_sealed(saved)
    content["cells"][0].update(change)
    saved.write_text(files.seal(content), encoding="utf-8")
    Path("before").rename("results")
    ended, out, error = run_command(f"check all --baseline {saved} --strict --other-machine --json")
    findings = (
        [
            f"{f['word']} {f['suite']}/{f['algorithm']}/{f['task']} {f['aspect']} {f['reason']}"
            for f in json.loads(out)["findings"]
        ]
        if out
        else []
    )
    assert ended == code and words in "\n".join([*findings, error])


def test_runs_on_another_data_file_than_the_baselines_are_suspect(record_run: RecordRun) -> None:
    for seed in range(3):
        data = {"file": "x.hdf5", "sha256": "a"}
        record_run([40.0 + seed], suite="offline", algo="td3bc", task="hopper-medium-v2", seed=seed, data=data)
    stdout_of("baseline save base.json")
    content = files.read_sealed(Path("base.json"))
    assert content["cells"][0]["data"] == "a"
    content["cells"][0]["data"] = "b"
    Path("base.json").write_text(files.seal(content), encoding="utf-8")
    assert "SUSPECT" in (text := stdout_of("check offline --baseline base.json")) and "another data file" in text


def test_check_without_a_baseline_compares_with_references(record_run: RecordRun) -> None:
    toy(record_run, 0.2, *range(3), step=0.01)
    assert "toy/dqn/Catch score: BELOW" in stderr_of("check toy", 3)


def test_ci_systems_get_junit_and_markdown(record_run: RecordRun, saved: Path) -> None:
    toy(record_run, 0.2, *range(3), step=0.01)
    toy(record_run, 0.0, 7, status="failed")
    (link := Path("base\udce9.json")).symlink_to(saved)  # a name that is no UTF-8
    line = ["check", "toy", "--baseline", str(link), "--junit", "junit.xml", "--summary", "summary.md"]
    assert main(line) == 3
    suite = ET.parse("junit.xml").getroot()  # noqa: S314 - we wrote it
    assert (suite.get("failures"), suite.get("errors")) == ("1", "1")
    assert [c.get("classname") for c in suite if c.find("failure") is not None] == ["toy.dqn"]
    lines = Path("summary.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "### rlbench check toy against base?.json"
    assert next(line for line in lines if line.startswith("| ❌")).startswith("| ❌ REGRESSED | toy/dqn/Catch score")


@pytest.mark.parametrize(
    "line",
    [
        "check toy --baseline base.json --junit base.json",
        "check toy --baseline base.json --summary ./base.json",
        "check toy --junit new.xml --summary new.xml",
        "table toy --references ours.toml --output ours.toml",
        "table toy --output env.toml",
        "table toy --output scores.csv",
        "table toy --output curve.csv",
        "table toy --output hard.toml",
        "export csv --output scores.csv",
        "baseline save curve.csv",
    ],
)
def test_no_output_replaces_another_file_of_the_command(
    line: str, record_run: RecordRun, saved: Path, monkeypatch: Patch
) -> None:
    assert saved.exists()
    toy(record_run, 0.9, 0)
    Path("curve.csv").write_text("env_step,mean_return,std,seeds\n0,0,1,5\n1000,9,1,5\n", encoding="utf-8")
    Path("scores.csv").write_text("task,score,curve\nHopper-v4,9,curve.csv\n", encoding="utf-8")
    Path("ours.toml").write_text(REFERENCE + 'file = "scores.csv"', encoding="utf-8")
    Path("env.toml").write_text(REFERENCE + 'scores = [{task = "Hopper-v4", score = 1.0}]', encoding="utf-8")
    Path("hard.toml").hardlink_to("env.toml")
    before = {path: path.read_bytes() for path in Path().glob("*.*")}
    monkeypatch.setenv("RLBENCH_REFERENCES", "env.toml:ours.toml")
    assert "the command reads or writes this file already" in stderr_of(line)
    assert {path: path.read_bytes() for path in Path().glob("*.*")} == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("check toy --alpha 2", "--alpha"),
        ("baseline save no/x.json", "no/x.json"),
        ("check toy --junit loop --summary new", "loop: is a link"),
    ],
)
def test_invalid_gate_or_baseline_exits_2(line: str, words: str, record_run: RecordRun) -> None:
    toy(record_run, 0.9, 0)
    Path("loop").symlink_to("loop")
    assert words in stderr_of(line)


@pytest.mark.parametrize(("level", "word"), [(0.0, "TOO EARLY"), (1.0, "TOO EARLY"), (-2000.0, "BEHIND")])
def test_check_gates_at_equal_steps(
    level: float, word: str, record_run: RecordRun, tmp_path: Path, capsys: Capture
) -> None:
    lengths = {0.0: [1] * 3, 1.0: [2] * 3 + [3] * 3}.get(level, [21] * 3)  # epochs: 0, 5,000, 10,000, 100,000 steps
    for seed, epochs in enumerate(lengths):
        cell = {"suite": "mujoco", "algo": "sac", "task": "HalfCheetah-v4", "environment": {"commit": "+dirty"}}
        record_run([level + seed % 3] * epochs, seed=seed, status="interrupted", **cell)
    where = ["--results", str(tmp_path / "results"), "--json"]
    assert main(["check", "mujoco", "--at", *where]) == (3 if word == "BEHIND" else 0)
    findings = json.loads(capsys.readouterr().out)["findings"]
    (finding,) = (f for f in findings if f["algorithm"] == "sac" and f["word"] == word)
    assert f"; {len(lengths)} runs of uncommitted code" in finding["reason"]
    assert main(["check", "mujoco", "--pooled", *where]) == 0


def test_plan_prices_the_first_informative_checkpoint(tmp_path: Path) -> None:
    rows = {
        row["task"]: row for row in json_of(f"plan mujoco sac --at informative --json --results {tmp_path}")["include"]
    }
    assert (rows["HalfCheetah-v4"]["until"], rows["HalfCheetah-v4"]["steps"]) == (50_000, 500_000)
