"""Ways to embellish a results folder: forced runs, cut runs, copied seeds, other versions, forgery."""

import json
import math
import shutil
from pathlib import Path

import pytest

from rlbench import suites
from rlbench.errors import RefusedFile
from rlbench.records import files, store
from rlbench.records.looks import DESIGN, Looks, record_looks
from rlbench.report.cells import Cell, every_cell
from rlbench.report.integrity import verify_records
from rlbench.report.runs import read_run
from rlbench.report.table_data import cell_document
from rlbench.seeds import Seeds
from tests.commands import json_of, refusal_of, run_command, stderr_of, stdout_of
from tests.conftest import Patch, RecordRun
from tests.forging import reseal
from tests.reliability.odd import sealed
from tests.reliability.test_survivorship import cell_of, run_of, spec_of

FULL = {"suite": "toy", "algo": "ppo", "task": "Catch"}
WORLD = {"env": "rlbench/Catch", "numpy": "2.4.6"}
OLD = {"env": {"env": "rlbench/Catch", "numpy": "1.0"}}
pytestmark = pytest.mark.usefixtures("empty_folder")


def with_losses(folder: Path) -> Path:
    """The record with a loss in every epoch but the first, which only this run has."""
    salt = float(int(folder.name.removeprefix("seed=")) + 1)

    def add(line: dict[str, object]) -> None:
        if line["number"]:
            loss = salt / 7 * float(str(line["number"]))
            line["updated"] = {"count": 1, "policy_loss": loss, "value_loss": loss, "entropy": 1.0, "divergence": 0.0}

    reseal(folder / "epochs.jsonl", add)
    return folder


def full_run(record_run: RecordRun, mean: float, seed: int, **more: object) -> Path:
    """A run of Catch that reached its budget, by default done."""
    budget = suites.spec("toy", "ppo", "Catch").budget
    return with_losses(record_run([mean] * (-(-budget.steps // budget.epoch) + 1), seed=seed, **FULL, **more))


def full_runs(record_run: RecordRun, means: list[float], **more: object) -> list[Path]:
    return [full_run(record_run, mean, seed, **more) for seed, mean in enumerate(means)]


def copy_as(folder: Path, seed: int) -> Path:
    """A copy of a record under another seed."""
    copy = folder.with_name(f"seed={seed}")
    shutil.copytree(folder, copy)
    reseal(copy / "spec.json", lambda head: head["spec"].update(seed=seed))
    return copy


def cell(results: Path) -> Cell:
    return next(c for c in every_cell(["toy"], results) if (c.key.algorithm, c.key.task) == ("ppo", "Catch"))


class TestCutRuns:
    def test_a_run_that_reached_its_budget_needs_no_outcome(self, record_run: RecordRun, results: Path) -> None:
        full_runs(record_run, [1.0, 1.0, 1.0, -1.0, -1.0])
        whole = cell(results)
        for seed in (3, 4):
            next(results.glob(f"toy/ppo/Catch/*/seed={seed}/outcome.json")).unlink()
        assert cell(results) == whole
        assert whole.measured is not None and whole.measured.n == 5

    def test_a_cell_that_is_below_stays_below_while_a_seed_is_short(self) -> None:
        name = ("mujoco", "ppo", "Hopper-v4")
        low = [run_of(spec_of(name, s), [10.0 + s, 10.0 + s], "done", f"x/{s}") for s in range(5)]
        short = run_of(spec_of(name, 9), [10.0], "interrupted", "x/9")
        with pytest.MonkeyPatch.context() as patch:
            assert cell_of(name, low, patch).verdict.word == "BELOW"
            assert cell_of(name, [*low, short], patch).verdict.word == "BELOW"


class TestForcedRuns:
    def test_a_failed_attempt_counts_until_something_is_mended(self, record_run: RecordRun, results: Path) -> None:
        full_runs(record_run, [1.0] * 3)
        full_run(record_run, 1.0, 3, status="failed")
        before = cell(results)
        full_run(record_run, 1.0, 3, force=True)
        after = cell(results)
        assert before.measured is not None and after.measured is not None
        assert (after.verdict, after.measured) == (before.verdict, before.measured)
        assert "1 of 4 runs failed" in after.note
        assert "1 attempt put aside (1 failed)" in after.note
        assert "1 attempt put aside (1 failed)" in str(cell_document(after)["note"])

    @pytest.mark.parametrize("key", ["commit", "rlbench", "packages", "env"])
    def test_a_failed_attempt_of_other_code_is_noted_and_does_not_count(
        self, record_run: RecordRun, results: Path, key: str
    ) -> None:
        before, after = ({"numpy": n} if key in {"packages", "env"} else n for n in "89")
        full_run(record_run, 1.0, 0, status="failed", environment={"env": WORLD, key: before})
        full_run(record_run, 1.0, 0, force=True, environment={"env": WORLD, key: after})
        row = cell(results)
        assert row.measured is not None and row.measured.score == 1.0
        assert "1 attempt put aside (1 failed)" in row.note

    @pytest.mark.parametrize(
        "key", ["torch_threads", "updates", "OMP_NUM_THREADS", "MKL_CBWR", "cpu", "command", "data"]
    )
    def test_changes_of_rounding_or_of_a_files_name_do_not_clear_a_failure(
        self, record_run: RecordRun, results: Path, key: str
    ) -> None:
        values = ({"file": f"{n}.hdf5", "sha256": "ab"} for n in "12") if key == "data" else "12"
        for status, value in zip(("failed", "done"), values, strict=True):
            full_run(record_run, 1.0, 0, status=status, environment={key: value}, force=status == "done")
        assert "1 of 1 run failed" in cell(results).note

    @pytest.mark.parametrize("commits", [("8", None), (None, "9")])
    def test_an_unknown_commit_clears_no_failure(
        self, record_run: RecordRun, results: Path, commits: tuple[str | None, str | None]
    ) -> None:
        """As of a process that finds no git."""
        full_run(record_run, 1.0, 0, status="failed", environment={"commit": commits[0]})
        full_run(record_run, 1.0, 0, force=True, environment={"commit": commits[1]})
        assert "1 of 1 run failed" in cell(results).note

    def test_successful_attempts_are_noted(self, record_run: RecordRun, results: Path) -> None:
        full_run(record_run, -1.0, 0)
        full_run(record_run, 0.0, 0, force=True)
        folder = full_run(record_run, 1.0, 0, force=True)
        (folder / "attempt-3").mkdir()  # of a ``--force`` that was killed before it moved a part
        row = cell(results)
        assert "2 attempts put aside (0 failed)" in row.note
        assert row.measured is not None and row.measured.score == 1.0

    @pytest.mark.parametrize("name", ["spec.json", "outcome.json"])
    def test_a_damaged_attempt_is_refused_since_it_may_have_failed(
        self, record_run: RecordRun, results: Path, name: str
    ) -> None:
        full_run(record_run, 0.0, 0, status="failed")
        path = full_run(record_run, 1.0, 0, force=True) / "attempt-1" / name
        path.write_bytes(path.read_bytes()[:100])
        for words in ("table toy", "check toy"):
            error = stderr_of(words, 2)
            assert f"attempt-1/{name}: damaged" in error and "move the attempt away" in error
        assert f"attempt-1/{name}: damaged" in stdout_of("verify results", 2)
        shutil.move(path.parent, "aside")
        assert "attempt" not in cell(results).note

    def test_an_unreadable_attempt_is_named_in_full(self, record_run: RecordRun, results: Path) -> None:
        (full_run(record_run, 1.0, 0) / "attempt-1").touch()
        results.rename("a; b")
        assert "/attempt-1'); restore it, or move the attempt away" in stderr_of(["table", "toy", "--results", "a; b"])

    def test_gate_counts_a_failed_attempt(self, record_run: RecordRun, results: Path) -> None:
        full_run(record_run, 1.0, 0, status="failed")
        full_run(record_run, 1.0, 0, force=True)
        assert "toy/ppo/Catch run: FAILED: seed 0: attempt-1" in stderr_of("check toy", 5)


class TestVersions:
    def test_runs_of_another_version_of_the_environment_are_kept_apart(
        self, record_run: RecordRun, results: Path
    ) -> None:
        for seed in range(5):
            full_run(record_run, 1.0, seed, environment=OLD if seed > 2 else {"env": WORLD})
        row = cell(results)
        assert row.measured is not None and row.measured.n == 3
        assert "2 runs in other versions of the environment (rlbench/Catch, numpy 1.0)" in row.note

    def test_mixed_versions_and_uncommitted_code_are_noted(self, record_run: RecordRun, results: Path) -> None:
        for seed, torch in enumerate(("1.13.0", "2.13.0", "2.13.0")):
            environment = {"rlbench": "0.1.0", "packages": {"torch": torch}, "commit": "deadbeef0000+dirty"}
            full_run(record_run, 1.0, seed, environment=environment if seed else {**environment, "rlbench": "0.0.3"})
        note = cell(results).note
        assert "rlbench 0.0.3 and 0.1.0" in note
        assert "torch 1.13.0 and 2.13.0" in note
        assert "3 runs of uncommitted code" in note and "resumed" not in note

    def test_a_version_that_stands_beside_the_environment_alone_is_noted(
        self, record_run: RecordRun, results: Path
    ) -> None:
        for number, version in enumerate(("1.3.1", "1.4.2")):
            env = {"env": {**WORLD, "gymnasium-robotics": version}}
            record_run([1.0] * (number + 1), status=None, **FULL, environment=env)
        assert "made with gymnasium-robotics 1.3.1 and 1.4.2" in cell(results).note

    def test_a_run_resumed_by_other_code_says_so_in_its_record(self, record_run: RecordRun, results: Path) -> None:
        for number, version in enumerate(("0.1.0", "0.1.0", "9.9.9")):
            folder = record_run([1.0] * (number + 1), status=None, **FULL, environment={"rlbench": version})
        head = files.read_sealed(folder / "spec.json")
        assert head["resumed"] == [{"epoch": 2, "updates": 0, "environment": {"rlbench": "9.9.9"}}]
        assert store.read_record(folder).environment["rlbench"] == "0.1.0"
        record_run([1.0] * 4, status=None, **FULL, environment={"rlbench": "9.9.9", "commit": "abc+dirty"})
        assert [dict(later)["rlbench"] for later in read_run(folder).environments] == ["0.1.0", "9.9.9", "9.9.9"]
        assert "rlbench 0.1.0 and 9.9.9" in cell(results).note
        for number, commit in enumerate(("abc", "abc+dirty")):  # the same commit
            record_run([1.0] * (number + 1), status=None, **FULL, seed=1, environment={"commit": commit})
        assert "1 run resumed at another commit; 2 runs of uncommitted code" in cell(results).note

    def test_a_run_that_was_resumed_inexactly_is_noted(self, record_run: RecordRun, results: Path) -> None:
        folders = full_runs(record_run, [1.0, 1.0])
        assert "inexactly" not in cell(results).note
        reseal(folders[1] / "outcome.json", lambda outcome: outcome.update(inexact=[2000]))
        assert "1 run resumed inexactly" in cell(results).note

    @pytest.mark.parametrize("resumed", [7, [7], [{}], [{"environment": 7}]])
    def test_invalid_resumption_is_refused(self, record_run: RecordRun, results: Path, resumed: object) -> None:
        folder = record_run([1.0], status=None, **FULL)
        reseal(folder / "spec.json", lambda head: head.update(resumed=resumed))
        for reader in (lambda: read_run(folder), lambda: record_run([1.0, 1.0], status=None, **FULL)):
            with pytest.raises(RefusedFile, match=r"spec\.json: not a "):
                reader()


class TestSeeds:
    def test_note_lists_the_seeds_if_some_are_missing(self, record_run: RecordRun, results: Path) -> None:
        for seed in (1, 3, 4):
            full_run(record_run, 1.0, seed)
        full_run(record_run, 1.0, 6, status="failed")
        row = cell(results)
        assert "seeds 1, 3, 4, 6 instead of 0 to 3" in row.note
        document = cell_document(row)["measured"]
        assert isinstance(document, dict) and document["seeds"] == [1, 3, 4, 6]

    def test_equal_versions_and_seeds_from_0_need_no_note(self, record_run: RecordRun, results: Path) -> None:
        full_runs(record_run, [1.0] * 3, environment={"env": WORLD})
        note = cell(results).note.replace("3 seeds tie", "")
        assert "version" not in note and "seeds" not in note

    @pytest.mark.parametrize("sets", [[], ["protocol.episodes=192"]])
    def test_a_seed_under_other_numbers_counts_once_and_is_a_fault(
        self, sets: list[str], record_run: RecordRun, results: Path
    ) -> None:
        folder, *_ = full_runs(record_run, [1.0] * 3, sets=sets)
        for seed in (5, 6):
            copy = copy_as(folder, seed)
            reseal(copy / "epochs.jsonl", lambda e: (e["collected"] or {}).update(steps_per_second=0.0))
        row = cell(results)
        assert row.measured is not None and row.measured.n == 3
        assert "2 runs have the numbers of another seed" in row.note
        faults = [fault.line for fault in verify_records(results).faults]
        assert len([line for line in faults if "the same numbers as seed 0" in line]) == 2
        assert len([line for line in faults if "episodes of another seed than 5" in line]) == 1

    def test_copies_are_no_seeds_of_a_look(self, record_run: RecordRun, results: Path) -> None:
        folder, *_ = full_runs(record_run, [1.0] * 8)
        record_looks(folder.parent, Looks(DESIGN, 3))
        assert cell(results).verdict.word == "REPRODUCED"
        for seed in (6, 7):
            shutil.rmtree(folder.with_name(f"seed={seed}"))
            copy_as(folder, seed)
        assert cell(results).verdict.word == "INCONCLUSIVE"

    def test_a_copy_that_failed_stays_failed_in_another_protocol(self, record_run: RecordRun, results: Path) -> None:
        folder, *_ = full_runs(record_run, [1.0] * 2, sets=["protocol.episodes=192"])
        copy = copy_as(folder, 2)
        reseal(copy / "outcome.json", lambda outcome: outcome.update(status="failed"))
        row = cell(results)
        assert row.measured is not None and row.measured.n == 3 and "1 of 3 runs failed" in row.note

    def test_worse_of_two_records_of_a_seed_counts(self, record_run: RecordRun, results: Path) -> None:
        *_, folder = full_runs(record_run, [0.0] * 3)
        second = results / "aaa" / folder.relative_to(results)
        shutil.copytree(folder, second)
        assert not verify_records(results).faults, "a copy is no contradiction"
        assert "record" not in cell(results).note

        def lift(line: dict[str, object]) -> None:
            if isinstance(line.get("evaluated"), dict):
                line["evaluated"]["returns"] = [1.0, 1.0]

        reseal(second / "epochs.jsonl", lift)
        reseal(second / "outcome.json", lambda o: o.update(best=1.0, final=1.0))
        row = cell(results)
        assert row.measured is not None and row.measured.score == 0.0
        assert "seed 2 has a second record with other numbers" in row.note
        faults = [fault.line for fault in verify_records(results).faults]
        assert any("other numbers than" in line and str(second) in line for line in faults)

    def test_games_of_another_seed_are_a_fault(self, record_run: RecordRun, results: Path) -> None:
        folder = full_run(record_run, 1.0, 0)
        assert not verify_records(results).faults
        reseal(folder / "epochs.jsonl", lambda e: e["evaluated"].update(seeds=[1, 2]))
        lines = [fault.line for fault in verify_records(results).faults]
        assert lines == [
            f"{folder / 'epochs.jsonl'}: evaluations from epoch 0 on have episodes of another seed than 0; restore it"
        ]

    def test_verify_derives_no_more_env_seeds_than_the_file_has_episodes(
        self, record_run: RecordRun, results: Path, monkeypatch: Patch
    ) -> None:
        numbers, counts = Seeds.numbers, list[int]()

        def count_numbers(seeds: Seeds, count: int) -> tuple[int, ...]:
            counts.append(count)
            return numbers(seeds, count)

        folder = full_run(record_run, 1.0, 0)
        monkeypatch.setattr(Seeds, "numbers", count_numbers)
        assert not verify_records(results).faults
        episodes = sum(
            len(line.evaluated.seeds) for line in store.read_record(folder).epochs if line.evaluated is not None
        )
        assert counts and sum(counts) <= episodes < len(counts) * suites.spec("toy", "ppo", "Catch").protocol.envs


def test_settings_under_the_identity_of_others_are_refused_by_readers(record_run: RecordRun, results: Path) -> None:
    folder = full_run(record_run, 1.0, 0)
    reseal(folder / "spec.json", lambda head: head["spec"]["algo"].update(gamma=0.5))
    with pytest.raises(RefusedFile, match=r"spec\.json: says it is"):
        read_run(folder)
    assert "spec.json: says it is" in stderr_of("table toy")


class TestGate:
    @pytest.fixture
    def baseline(self, record_run: RecordRun) -> None:
        full_runs(record_run, [0.9, 0.91, 0.92, 0.93, 0.94])
        stdout_of("baseline save baseline.json")

    def check(self, options: str) -> int:
        return run_command(f"check toy {options}")[0]

    def test_check_of_a_missing_folder_is_a_usage_error(self, baseline: None) -> None:
        for options in ("--baseline baseline.json", ""):
            assert "nosuch: no such folder" in stderr_of(f"check toy --results nosuch {options}")

    def test_check_of_an_empty_folder_is_undecided(self, baseline: None) -> None:
        Path("empty").mkdir()
        options = "--baseline baseline.json --results empty"
        assert (self.check(options), self.check(f"{options} --strict")) == (0, 4)

    def test_check_of_a_cell_without_runs_is_undecided(self, record_run: RecordRun) -> None:
        full_runs(record_run, [1.0] * 3)
        assert (self.check(""), self.check("--strict")) == (0, 4)

    def test_check_with_fewer_seeds_than_the_baseline_is_undecided(self, baseline: None, results: Path) -> None:
        check = "check toy --baseline baseline.json --json"
        stdout_of(f"{check} --strict")
        for folder in results.glob("toy/ppo/Catch/*/seed=[0-3]"):
            shutil.rmtree(folder)
        (score,) = (f for f in json_of(f"{check} --strict", 4)["findings"] if f["aspect"] == "score")
        assert score["word"] == "TOO FEW" and "1 of the baseline's 5 seeds" in score["reason"]
        stdout_of(check)

    def test_check_of_a_short_run_is_undecided(self, baseline: None, results: Path) -> None:
        for folder in results.glob("toy/ppo/Catch/*/seed=*"):
            lines = (folder / "epochs.jsonl").read_text().splitlines(keepends=True)
            (folder / "epochs.jsonl").write_text("".join(lines[:2]))
            (folder / "outcome.json").unlink()
        assert self.check("--baseline baseline.json --strict") == 4


@pytest.mark.parametrize(
    ("file", "field", "value"),
    [
        ("epochs.jsonl", "env_steps", 10**400),
        ("epochs.jsonl", "env_steps", -1),
        ("epochs.jsonl", "updates", 2**63),
        ("epochs.jsonl", "updates", 0),
        ("epochs.jsonl", "seconds", math.nan),
        ("epochs.jsonl", "updated.policy_loss", 10**400),
        ("epochs.jsonl", "updated.policy_loss", math.inf),
        ("epochs.jsonl", "collected.returns", [math.nan]),
        ("epochs.jsonl", "collected.steps_per_second", math.inf),
        *(("epochs.jsonl", "evaluated.returns", odd) for odd in ([1e300, -1e300], [math.inf, 0.0], ["1"], [], None)),
        ("epochs.jsonl", "evaluated.lengths", [-1, 1]),
        ("epochs.jsonl", "evaluated.lengths", [1]),
        ("epochs.jsonl", "evaluated.seconds", -1.0),
        ("outcome.json", "env_steps", 10**400),
        ("outcome.json", "seconds", math.inf),
        ("outcome.json", "inexact", [-1]),
    ],
)
def test_numbers_that_no_run_has_are_refused(file: str, field: str, value: object, record_run: RecordRun) -> None:
    folder = full_run(record_run, 1.0, 0)
    *lines, last = (folder / file).read_text().splitlines(keepends=True)
    content = json.loads(last)
    *parents, name = field.split(".")
    branch = content[parents[0]] if parents else content
    assert name in branch
    branch[name] = value
    (folder / file).write_text("".join(lines) + sealed(content) + "\n")
    for line in ("verify results", "table toy", "plot toy --output x.png"):
        assert file in refusal_of(line)


def test_a_check_names_seeds_in_other_versions_and_fails_with_them(record_run: RecordRun) -> None:
    full_runs(record_run, [1.0] * 3, environment={"env": WORLD})
    stdout_of("check toy")
    full_run(record_run, 0.0, 4, environment={"env": OLD["env"]})
    stdout_of("check toy")
    assert "1 run in other versions of the environment left out" in stdout_of("check toy --strict", 4)
    full_run(record_run, 1.0, 3, status="failed", environment={"env": OLD["env"]})
    assert "toy/ppo/Catch run: FAILED: seed 3" in stderr_of("check toy", 5)


def test_a_check_names_other_versions_than_the_baselines(record_run: RecordRun, results: Path) -> None:
    full_runs(record_run, [1.0] * 3, environment=OLD)
    stdout_of("baseline save later.json")
    assert "environment" not in stdout_of("check toy --baseline later.json --json")
    shutil.rmtree(results / "toy")
    full_runs(record_run, [1.0] * 3, environment={"env": WORLD})
    assert "numpy 1.0, is rlbench/Catch, numpy 2.4.6" in stdout_of("check toy --baseline later.json --json")


def test_no_unfinished_seed_hides_behind_a_pooled_verdict(record_run: RecordRun) -> None:
    table = "table mujoco --algo sac --json"
    for task, score in (("Hopper-v4", 3542.2), ("Walker2d-v4", 5007.0), ("HalfCheetah-v4", 12138.8)):  # documented
        for seed in range(1, 4):
            record_run([0.0, (1.1 + seed / 50) * score], seed=seed, suite="mujoco", algo="sac", task=task)
    (row,) = [row for row in json_of(table)["pooled"] if row["kind"] == "full"]
    assert (row["word"], row["cells"]) == ("REPRODUCED", 3)
    assert "Walker2d-v4: seeds 1, 2, 3 instead of 0 to 2" in stdout_of("check mujoco --pooled --json")
    record_run([0.0, -9.0], seed=0, suite="mujoco", algo="sac", task="Hopper-v4", status="interrupted")
    (row,) = [row for row in json_of(table)["pooled"] if row["kind"] == "full"]
    assert (row["cells"], row["left_out"]) == (2, [])
    assert "INCONCLUSIVE mujoco/sac/Hopper-v4 score" in " ".join(stdout_of("check mujoco --pooled --strict", 4).split())


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"status": None},
        {"environment": OLD},
        {"sets": ["budget.steps=100"]},
        {"looks": 1},
        {"means": [], "status": "done"},
    ],
)
def test_no_seed_short_of_its_budget_passes_a_strict_check_against_a_baseline(
    more: dict[str, object], record_run: RecordRun, results: Path
) -> None:
    *_, folder = full_runs(record_run, [1.0] * 3)
    stdout_of("baseline save b.json")
    check = "check toy --baseline b.json --strict"
    assert stdout_of(check) and cell(results).verdict.word == "REPRODUCED"
    if more.pop("looks", 0):
        record_looks(folder.parent, Looks(DESIGN, 1))
    record_run(more.pop("means", [-1.0, -1.0]), seed=3, **{"status": "interrupted", **FULL, **more})
    out = stdout_of(check, 4)
    assert "TOO FEW" in out and "1 run incomplete" in out
    assert cell(results).verdict.word == "INCONCLUSIVE"
