"""Own runs and rlbench's records: two columns, and a verdict from one of them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlbench import suites
from rlbench.records import imported
from rlbench.report import evidence
from rlbench.report.evidence import RUNS, SCORES, Evidence, checkout_records, package
from rlbench.report.pooled import pooled_rows
from rlbench.report.reference_files import select_references
from rlbench.report.reference_table import SUITES
from tests.commands import json_of, line_of_refusal, run_command, stderr_of, stdout_of
from tests.conftest import RecordRun, RecordSeeds
from tests.forging import locked
from tests.reliability.test_hostile_curves import CURVE

ROOT = Path(__file__).parents[2]
CATCH = {"suite": "toy", "task": "Catch"}


@pytest.fixture(autouse=True)
def in_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``results/`` of the current folder are the records that rlbench brings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLBENCH_RESULTS")
    monkeypatch.setattr(evidence, "checkout_records", lambda: Path("results"))


def own(record_run: RecordRun, *means: float, **which: object) -> None:
    """A run in ``runs/``, nothing of which is in ``results/``."""
    folder = record_run(means, **(CATCH | which))
    place = RUNS / folder.relative_to(Path("results").absolute())
    place.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(place)


def test_the_own_one_of_two_runs_of_one_identity_and_seed_is_exported(record_run: RecordRun) -> None:
    own(record_run, 0.5)
    record_run([1.0], **CATCH), record_run([1.0], seed=1, **CATCH)
    for has_new in (True, False):
        code, out, error = run_command("export tensorboard --output board --json")
        rows = [(row["folder"].partition("/")[0], row["changed"]) for row in json.loads(out)["runs"]]
        assert rows == [("runs", has_new), ("results", has_new)]
        assert (code, error) == (0, "1 run with the identity and seed of another: left out\n")


def test_the_longest_of_copies_of_a_record_is_exported(record_run: RecordRun) -> None:
    for place, returns in (("b", [0.5, 1.0]), ("a", [0.5]), ("c", [])):
        record_run(returns, **CATCH)
        Path("results/toy").rename(Path("results", place))
    (row,) = json_of("export tensorboard --output board --json")["runs"]
    assert row["folder"].startswith(str(Path("results", "b"))) and row["epochs"] == 2


def test_an_own_run_without_epochs_replaces_no_exported_curve(record_run: RecordRun) -> None:
    own(record_run, status="interrupted")
    record_run([1.0], **CATCH)
    for _ in range(2):
        (row,) = json_of("export tensorboard --output board --json")["runs"]
        assert row["folder"].startswith("results") and row["epochs"] == 1


TABLE = ("table", "toy", "--algo", "dqn", "--task", "Catch")


def cell_of(*words: str) -> dict[str, Any]:
    (cell,) = json_of([*TABLE, "--json", *words])["cells"]
    return cell


def test_without_own_runs_the_verdict_uses_rlbenchs_records(record_seeds: RecordSeeds) -> None:
    record_seeds(*[[0.0, 1.0]] * 3, **CATCH)
    cell = cell_of()
    assert (cell["verdict"], cell["measured"]["origin"], cell["rlbench"]["n"]) == ("REPRODUCED", "rlbench", 3)
    assert stdout_of(TABLE).split("\n")[0].split()[2:4] == ["Documented", "rlbench"]


def test_with_own_runs_the_verdict_uses_them(record_run: RecordRun, record_seeds: RecordSeeds) -> None:
    own(record_run, 0.0, 0.5)
    record_seeds(*[[0.0, 1.0]] * 3, **CATCH)
    cell = cell_of()
    assert cell["verdict"] == "INCONCLUSIVE (≈ 2 more seeds)", "never four seeds of two sources"
    assert (cell["measured"]["origin"], cell["measured"]["score"], cell["measured"]["n"]) == ("own", 0.5, 1)
    assert (cell["rlbench"]["score"], cell["rlbench"]["n"]) == (1.0, 3)
    head, row, *_ = stdout_of(TABLE).split("\n")
    assert head.split()[2:5] == ["Documented", "rlbench", "Yours"] and "1.00]   0.50" in row
    alone = cell_of("--results", "runs")
    assert alone["rlbench"] is None and alone["measured"]["score"] == 0.5


def test_an_own_variant_hides_no_record_of_rlbench(record_run: RecordRun, record_seeds: RecordSeeds) -> None:
    own(record_run, 0.0, 0.5, sets=["algo.lr=0.01"])
    record_seeds(*[[0.0, 1.0]] * 3, **CATCH)
    record_run([0.0, 0.5], seed=3, status="failed", **CATCH)
    code, out, error = run_command("check toy")
    assert (code, "toy/dqn/Catch run: FAILED" in error) == (5, True), out


def test_a_comparison_of_own_runs_with_records_of_rlbench_names_both(
    record_run: RecordRun, record_seeds: RecordSeeds
) -> None:
    words = ["compare", "dqn", "c51", "--suite", "toy"]
    own(record_run, 0.0, 0.5)
    record_seeds(*[[0.0, 1.0]] * 3, **CATCH)
    record_seeds(*[[0.0, 1.0]] * 3, **CATCH | {"algo": "c51"})
    assert "toy/Catch: own runs against records of rlbench." in stdout_of(words)
    assert json_of([*words, "--json"])["tasks"][0]["sources"] == "own runs against records of rlbench"
    shutil.rmtree(RUNS)
    assert "sources" not in json_of([*words, "--json"])["tasks"][0]


@pytest.mark.parametrize("kind", ["interval", "curves"])
def test_a_figure_of_scores_names_its_sources(kind: str, record_run: RecordRun, record_seeds: RecordSeeds) -> None:
    own(record_run, 0.0, 0.5)
    record_seeds(*[[0.0, 1.0]] * 3, **CATCH | {"task": "CartPole-v1"})
    line = f"plot toy --kind {kind} --output a.svg"
    note = "scores of own runs and records of rlbench together; with --results DIR those of one folder alone"
    assert (note in stderr_of(line, 0)) == (kind == "interval")
    assert note not in stderr_of(f"{line} --results {RUNS}", 0)


def test_an_own_variant_is_compared_beside_the_records_of_rlbench(
    record_run: RecordRun, record_seeds: RecordSeeds
) -> None:
    own(record_run, 0.0, 0.5, sets=["algo.lr=0.01"])
    record_seeds(*[[0.0, 1.0]] * 3, **CATCH)
    assert "toy/Catch" in stdout_of("compare dqn@lr=0.01 dqn --suite toy")
    record_seeds(*[[0.0, 1.0]] * 3, **CATCH | {"sets": ["algo.lr=0.01"]})  # those of rlbench are no seeds of the own
    (task,) = json_of("compare dqn@lr=0.01 dqn --suite toy --json")["tasks"]
    assert (task["left"], task["right"]) == ([0.5], [1.0] * 3)
    assert "1 run of other settings: left out" in stderr_of("export csv toy --output curves.csv", 0)


@pytest.mark.parametrize(
    ("means", "text"),
    [
        ((0.0, 0.5, 1.0), "seed 0 equal to the record in results/"),
        ((0.0, 0.5), "seed 0 equal to the record in results/ in all of 2 epochs so far"),
        ((0.0, 0.25, 1.0), "seed 0 parts from the record in results/ at epoch 1"),
    ],
)
def test_a_run_is_compared_with_the_record_of_its_seed(
    means: tuple[float, ...], text: str, record_run: RecordRun
) -> None:
    own(record_run, *means)
    record_run([0.0, 0.5, 1.0], **CATCH)
    record_run([0.0, 0.5, 1.0], seed=1, **CATCH)
    cell = cell_of()
    assert text in str(cell["note"]).split("; ")


def test_own_variants_leave_rlbenchs_verdict_unchanged(record_run: RecordRun, record_seeds: RecordSeeds) -> None:
    own(record_run, 0.0, 1.0, sets=["algo.lr=0.5"])
    record_seeds(*[[0.0, 1.0]] * 3, **CATCH)
    cell = cell_of()
    assert (cell["verdict"], cell["measured"]["origin"]) == ("REPRODUCED", "rlbench")
    assert "yours: 1 run with lr=0.5" in str(cell["note"])


def test_plan_shows_rlbenchs_seeds_without_counting_them(record_run: RecordRun, record_seeds: RecordSeeds) -> None:
    own(record_run, 0.0, 1.0)
    record_seeds(*[[0.0, 1.0]] * 3, **CATCH)
    rows = {row["task"]: row for row in json_of("plan toy dqn --seeds 0-2 --json")["include"]}
    assert (rows["Catch"]["seeds"], rows["Catch"]["rlbench"]) == ("1,2", {"seeds": 3, "verdict": "REPRODUCED"})
    assert rows["CartPole-v1"]["rlbench"] is None
    head, *lines = stdout_of("plan toy dqn --seeds 0-2").split("\n")
    assert head.endswith("RLBENCH") and next(line for line in lines if "/Catch " in line).endswith(
        "3 seeds: REPRODUCED"
    )
    one_folder = stdout_of("plan toy dqn --seeds 0-2 --results runs")
    assert "RLBENCH" not in one_folder.split("\n")[0], "one folder counts"


def test_no_other_file_or_folder_is_a_suite(record_run: RecordRun) -> None:
    record_run((1.0, 1.0), **CATCH)
    Path("results").rename("job")
    Path("results").mkdir()
    name = "<img src=x onerror=alert(1)>"
    Path("job").rename(f"results/{name}")
    Path("results", "README.md").write_text("text", encoding="utf-8")
    Path("results/.venv").mkdir()
    Path("results/.venv/lib64").symlink_to("lib")
    assert evidence.known_suites(Path("results")) == list(SUITES)
    stdout_of("report --output page.html --results results")
    assert name not in Path("page.html").read_text(encoding="utf-8")


def test_imported_curves_of_a_missing_plug_in_have_a_suite(tmp_path: Path) -> None:
    imported.write_curves([replace(CURVE, suite="corridor")], tmp_path)
    assert evidence.known_suites(tmp_path) == [*SUITES, "corridor"]
    assert "2.00" in stdout_of(f"table corridor --results {tmp_path}")


def test_records_of_a_missing_plug_in_are_chosen_by_its_name(tmp_path: Path) -> None:
    locked(suites.spec("toy", "dqn", "Catch").model_copy(update={"suite": "corridor"}), tmp_path / "own").release()
    imported.write_curves([replace(CURVE, suite="corridor")], tmp_path / "own")
    where = f"corridor --results {tmp_path / 'own'}"
    assert "corridor/dqn/Catch" in stdout_of(f"status --suite {where}")
    assert "corridor/dqn/Catch" in stdout_of(f"list runs --suite {where}")
    for form, what in (("csv", "1 curve"), ("npz", "1 matrix"), ("tensorboard", "1 run")):
        assert f": {what}" in stdout_of(f"export {form} {where} --output {tmp_path / form}.{form}")
    for words in ("list runs --suite", "status --suite", "export npz --output a.npz"):
        error = line_of_refusal(f"{words} corrridor --results {tmp_path / 'own'}")
        assert "unknown suite 'corrridor'; did you mean 'corridor'?" in error
    assert "unknown suite 'corridor'" in line_of_refusal(f"list algos --suite {where}")


def test_a_wheel_brings_the_cells_of_the_checkout() -> None:
    assert package(ROOT / "results") == SCORES.read_bytes(), "run scripts/tables"
    checkout = Evidence(RUNS, ROOT / "results", own_only=False).cells(SUITES)
    assert Evidence(RUNS, None, own_only=False).cells(SUITES) == checkout
    assert {cell.origin for cell in checkout} == {"rlbench"}


def test_a_wheel_gives_no_verdict_of_another_reference_or_option() -> None:
    wheel = Evidence(RUNS, None, own_only=False)
    by_default = [cell for cell in wheel.cells(["mujoco"]) if cell.measured]
    for options in ({"alpha": 0.01}, {"margin_share": 0.2}):
        cells = [cell for cell in wheel.cells(["mujoco"], **options) if cell.measured]
        assert len(cells) == len(by_default)
        assert {(cell.verdict.word, cell.at, cell.test) for cell in cells} == {("NOT COMPARABLE", None, None)}
        assert pooled_rows(cells) == []
    with select_references(name="OpenAI Baselines"):
        cells = [cell for cell in wheel.cells(["mujoco"]) if cell.measured]
    words = {cell.verdict.word for cell in cells if cell.documented and cell.documented.system == "OpenAI Baselines"}
    assert words == {"NOT COMPARABLE"}
    others = [cell for cell in cells if cell.documented and cell.documented.system != "OpenAI Baselines"]
    assert others and all(cell in by_default for cell in others)


@pytest.mark.parametrize(
    "damage",
    [lambda raw: b"", lambda raw: raw[:5_000], lambda raw: b"[1]", lambda raw: raw.replace(b"1.0", b"NaN")],
    ids=["empty", "cut", "no cell", "not finite"],
)
def test_damaged_cells_of_a_wheel_are_refused(
    damage: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("measured.json").write_bytes(damage(SCORES.read_bytes()))
    monkeypatch.setattr(evidence, "SCORES", Path("measured.json"))
    monkeypatch.setattr(evidence, "checkout_records", lambda: None)
    monkeypatch.setattr(evidence, "packaged", evidence.packaged.__wrapped__)
    assert "measured.json: missing or damaged; install rlbench again" in stderr_of(["table", "toy"])


def test_the_checkout_is_found_by_its_package() -> None:
    assert checkout_records() == ROOT / "results"
