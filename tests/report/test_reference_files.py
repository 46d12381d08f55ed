"""References from outside the package: read, chosen, or refused by row and field; no code of a wheel is run."""

from collections.abc import Sequence
from importlib.metadata import EntryPoint, PathDistribution
from pathlib import Path

import pytest

from rlbench.cli.app import main
from rlbench.report import reference_files
from rlbench.report.cells import every_cell
from rlbench.report.equal_steps import reference_curve
from rlbench.report.estimate import mean
from rlbench.report.reference_files import select_references
from rlbench.report.reference_scores import ReferenceCell, curve_of, reference_cells
from rlbench.report.reference_table import CellKey
from tests.commands import json_of, run_command, stderr_of, stdout_of
from tests.conftest import RecordRun, RecordSeeds

TEXT = """
[[reference]]
name = "Ours2026"
title = "A paper"
url = "https://example.org/paper"
version = "0123456789ab"
suite = "mujoco"
algorithm = "sac"
estimator = "final"
n = 5
steps = 1_000_000
scores = [{ task = "Hopper-v4", score = 3000.5, std = 100 }, { task = "Walker2d-v4", score = 4000.0, n = 7 }]
"""
HOPPER = CellKey("mujoco", "sac", "Hopper-v4", "")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "ours.toml").write_text(TEXT)
    return tmp_path / "ours.toml"


def cell_of(key: CellKey) -> ReferenceCell:
    return next(cell for cell in reference_cells(key.suite) if cell.key == key)


def test_outside_reference_is_secondary_until_it_is_chosen(file: Path) -> None:
    before = cell_of(HOPPER)
    with select_references(files=[file]):
        beside = cell_of(HOPPER)
        assert beside.primary == before.primary and [o.system for o in beside.others][-1] == "Ours2026"
        with select_references(name="Ours2026"):
            primary_score = cell_of(HOPPER).primary
            walker = cell_of(HOPPER._replace(task="Walker2d-v4")).primary
    assert (primary_score.score, primary_score.std, primary_score.n, primary_score.limit, primary_score.estimator) == (
        3000.5, 100.0, 5, 1_000_000, "final",
    )  # fmt: skip
    assert primary_score.source == "https://example.org/paper@0123456789ab"
    assert (walker.score, walker.n) == (4000.0, 7)
    assert cell_of(HOPPER) == before


@pytest.mark.parametrize(
    ("text", "resolution"), [("20.0", 0.1), ("20", 1.0), ("20.01", 0.01), ("1000.0", 0.1), ("3e3", 1.0)]
)
def test_a_printed_zero_is_a_digit_of_a_score(text: str, resolution: float, file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT.replace("3000.5", text))
    with select_references(files=[file], name="Ours2026"):
        score = cell_of(HOPPER).primary
    assert (score.score, score.std, score.resolution) == (float(text), 100.0, resolution)
    head, _ = TEXT.split("scores =")
    (tmp_path / "scores.csv").write_text(f"task,score\nHopper-v4,{text}\n")
    (tmp_path / "csv.toml").write_text(f'{head}file = "scores.csv"\n')
    with select_references(files=[tmp_path / "csv.toml"], name="Ours2026"):
        assert cell_of(HOPPER).primary.resolution == resolution


def test_an_interquartile_mean_is_tested_as_one(file: Path, tmp_path: Path) -> None:
    text = TEXT.replace('"final"', '"final-iqm"').replace("n = 5", "n = 10")
    file.write_text(text.replace("3000.5, std = 100", "100.0, std = 3.0"))
    scores = [88.0] * 15 + [130.0] * 5  # mean 98.5, interquartile mean 88
    rows = [f"Hopper-v4,{seed},{step},{score}" for seed, score in enumerate(scores) for step in (500_000, 1_000_000)]
    (tmp_path / "runs.csv").write_text("\n".join(["task,seed,step,return", *rows]))
    results = tmp_path / "results"
    assert main(["import", str(tmp_path / "runs.csv"), "--as", "mujoco/sac", "--results", str(results)]) == 0
    with select_references(files=[file], name="Ours2026"):
        cell = next(cell for cell in every_cell(["mujoco"], results) if cell.key == HOPPER)
    assert cell.measured is not None and cell.measured.low is not None and cell.measured.high is not None
    assert (cell.measured.score, cell.verdict.word, mean(cell.scores)) == (88.0, "INCONCLUSIVE", pytest.approx(88.0))
    assert (cell.measured.low + cell.measured.high) / 2 == pytest.approx(88.0)


def test_a_failed_seed_has_its_weight_in_an_interquartile_mean(
    file: Path, record_run: RecordRun, tmp_path: Path
) -> None:
    file.write_text(TEXT.replace('"final"', '"final-iqm"').replace("3000.5", "3000.0"))
    for seed, score in enumerate((2_990.0, 2_995.0, 3_005.0, 3_010.0)):
        record_run([0.0, *[score] * 200], suite="mujoco", algo="sac", task="Hopper-v4", seed=seed)
    record_run([0.0], suite="mujoco", algo="sac", task="Hopper-v4", seed=4, status="failed")
    with select_references(files=[file], name="Ours2026"):
        cell = next(cell for cell in every_cell(["mujoco"], tmp_path / "results") if cell.key == HOPPER)
    assert cell.measured is not None and len(cell.scores) == 5
    assert mean(cell.scores) == pytest.approx(cell.measured.score) == pytest.approx((2_990 + 2_995 + 3_005) / 3)
    assert cell.test is not None and cell.test.shortfall is not None
    assert cell.test.shortfall > 3_000 - cell.measured.score


def test_outside_reference_is_used_for_cells_without_a_packaged_one(file: Path) -> None:
    file.write_text(TEXT.replace('"sac"', '"crossq"'))
    with select_references(files=[file]):
        assert [c.primary.score for c in reference_cells("mujoco") if c.key.algorithm == "crossq"] == [3000.5, 4000.0]


def test_scores_can_be_in_a_separate_csv_file(file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT.partition("scores =")[0] + 'file = "scores.csv"\n')
    (tmp_path / "scores.csv").write_text("task,score,std,n\nHopper-v4,12.5,,3\n")
    with select_references(files=[file], name="Ours2026"):
        primary = cell_of(HOPPER).primary
    assert (primary.score, primary.std, primary.n) == (12.5, None, 3)


CURVE = "env_step,mean_return,std,seeds\n"


@pytest.fixture
def with_curve(file: Path, tmp_path: Path) -> Path:
    row = 'score = 3000.5, curve = "hopper.csv"'
    file.write_text(TEXT.replace("score = 3000.5", row).replace("n = 5", "n = 5\nuncounted_steps = 10_000"))
    (tmp_path / "hopper.csv").write_text(CURVE + "0,10,5,4\n90000,1010,50,3\n490000,3010,60,4\n")
    return file


def test_curve_of_a_chosen_reference_is_used_at_equal_steps(
    with_curve: Path, record_seeds: RecordSeeds, results: Path
) -> None:
    before = curve_of(HOPPER)
    with select_references(files=[with_curve]):
        assert curve_of(HOPPER) == before
        with select_references(name="Ours2026"):
            curve = reference_curve(HOPPER)
            assert curve_of(HOPPER._replace(task="Walker2d-v4")) is None  # the row has no curve
            assert curve_of(HOPPER._replace(task="Ant-v4")) is not None  # without a row, the package's
    level = curve.point(100_000)  # the window is 90, 95 and 100 thousand steps, 10 thousand of them not counted
    assert (level.mean, level.n) == (pytest.approx(10 + (80 + 85 + 90) / 3 / 90 * 1000), 3)
    words = {"suite": "mujoco", "algo": "sac", "task": "Hopper-v4"}
    record_seeds(*([-400.0 - seed] * 21 for seed in range(3)), **words, status="interrupted")
    line = ["check", "mujoco", "--at", "--results", str(results), "--references", str(with_curve)]
    assert "(the reference's 90,000, without 10,000 random ones)" in stdout_of([*line, "--reference", "Ours2026"], 3)
    record_seeds(*[[-400.0] * 201] * 3, start=3, **words)
    table = stdout_of(["table", "mujoco", "--algo", "sac", *line[3:], "--reference", "Ours2026"])
    assert "BEHIND @500k" in table  # not @1M, of which the curve says nothing
    page = stdout_of(["show", "mujoco", "sac", "Hopper-v4", "--documented", *line[5:], "--reference", "Ours2026"])
    assert "3 points to 490,000 steps, 3 seeds, https://example.org/paper" in page


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CURVE + "0,1,1,5\n5,nan,1,5\n", "row 2, mean_return: "),
        (CURVE + "0,1,1,5\n5,1e300,1,5\n", "row 2, mean_return: "),
        (CURVE + "0,1,1,5\n5,1,-1,5\n", "row 2, std: "),
        (CURVE + "0,1,1,5\n5,1,,5\n", "row 2, std: "),
        (CURVE + "0,1,1,5\n5,1,1,1\n", "row 2, seeds: "),
        (CURVE + f"0,1,1,5\n{'9' * 5000},1,1,5\n", "row 2, env_step: "),
        (CURVE + "0,1,1,5\n5,1,1,5,=cmd()\n", "row 2"),
        (CURVE + "0,1,1,5\n9,1,1,5\n9,1,1,5\n", "row 3, env_step: 9 does not rise; sort the rows"),
        (CURVE + "0,1,1,5\n", "1 points are no curve"),
        ("", "has no row below the header"),
        (CURVE + "0,1,1,5\n5,1,1,5,7\n", "row 2 has more cells than the header"),
        ("env_step,mean_return,std,seeds,std\n0,1,1,5,1\n", "has a column twice"),
        (CURVE + "0,1,1,5\n" * 10_001, "more than 10,000 rows"),
        (CURVE + "0,1,1,5\n" * 1_000_000, "bytes, 4,194,304 are allowed"),
        ("env_step,\x1b[31mreturn\n0,1\n", "column '?[31mreturn' is not among env_step, mean_return, std, seeds"),
        (",".join(map(str, range(500_000))) + "\n", "column '0' is not among"),
        (CURVE + "x" * 200_000, "not CSV (field larger than field limit"),
    ],
)
def test_a_bad_curve_is_refused_by_row_and_field(text: str, reason: str, with_curve: Path, tmp_path: Path) -> None:
    (tmp_path / "hopper.csv").write_text(text)
    message = stderr_of(["show", "mujoco", "sac", "Hopper-v4", "--documented", "--references", str(with_curve)])
    assert reason in message and message.count("\n") == 1 and len(message) < 500 and "\x1b" not in message


def test_table_show_and_check_accept_references(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options = ["--references", str(file), "--reference", "Ours2026"]
    page_of_cell = stdout_of(["show", "mujoco", "sac", "Hopper-v4", "--documented", *options])
    assert "  chosen\n    score      3,000.5 ± 100" in page_of_cell
    table = json_of(["table", "mujoco", "--algo", "sac", "--results", str(tmp_path / "none"), "--json", *options])
    assert [row["documented"]["score"] for row in table["cells"] if row["task"] == "Hopper-v4"] == [3000.5]
    monkeypatch.setenv("RLBENCH_REFERENCES", str(file))
    monkeypatch.setenv("RLBENCH_REFERENCE", "Ours2026")
    (tmp_path / "empty").mkdir()
    assert "documented 3,000.5" in stdout_of(["check", "mujoco", "--strict", "--results", str(tmp_path / "empty")], 4)
    monkeypatch.delenv("RLBENCH_REFERENCES")
    monkeypatch.delenv("RLBENCH_REFERENCE")
    page = tmp_path / "page.html"
    assert main(["report", "mujoco", "--output", str(page), "--results", str(tmp_path / "empty"), *options]) == 0
    assert "Ours2026" in page.read_text()
    sides = [str(tmp_path / "empty"), str(tmp_path / "empty")]
    assert main(["compare", *sides, "--references", str(file), "--reference", "Nobody"]) == 2
    figure = str(tmp_path / "hopper.png")
    assert main(["plot", "mujoco", "--task", "Hopper-v4", "--algo", "sac", "--output", figure, *options]) == 0


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("3000.5", '"much"', "reference 1, scores 1, score"),
        ("4000.0", "nan", "not TOML (nan is no finite number"),
        ("4000.0", "1e999999999999999999999", "is no finite number, or has too many digits"),
        ("std = 100", "std = 1e-999999999999999999999", "is no finite number, or has too many digits"),
        ('"Walker2d-v4"', '"Hopper-v3"', "Ours2026: mujoco/sac/Hopper-v4 has two scores; remove one"),
        ('"final"', '"finest"', "reference 1, estimator"),
        ("n = 5", "n = 0", "reference 1, n"),
        ("n = 5", "seeds = 5", "reference 1, seeds"),
        ('"Ours2026"', '"=cmd()"', "is no name"),
        ('"Hopper-v4"', '"<b>"', "is no name"),
        ('"mujoco"', '"toy"', "suite 'toy' is not among"),
        ("[[reference]]", "[[references]]", "holds no table"),
        ("[[reference]]", "[[", "not TOML"),
        ("scores =", 'file = "../secret.csv"\nscores =', "a name without / is needed"),
        ("scores =", 'file = "missing.csv"\n#', "cannot be read"),
        ("scores =", 'file = "s.csv"\nscores =', "Ours2026: has both scores and file s.csv; remove one of them"),
        ('"Ours2026"', '"Tianshou"', "Tianshou: is the name of a source of the package; choose another"),
        ("score = 3000.5", 'score = 3000.5, curve = "../secret.csv"', "reference 1, scores 1, curve"),
        ("n = 5", "n = 5\nuncounted_steps = -1", "reference 1, uncounted_steps"),
        (
            "n = 5\nsteps = 1_000_000\nscores = [{",
            'kind = "training"\nscores = [{ curve = "c.csv",',
            "Ours2026, curve: of training returns",
        ),
        ("scores =", 'file = "link.csv"\n#', "is a link"),
    ],
)
def test_a_bad_file_is_refused_by_row_and_field(old: str, new: str, reason: str, file: Path, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(file)
    file.write_text(TEXT.replace(old, new, 1))
    line: Sequence[str] = ["show", "mujoco", "sac", "Hopper-v4", "--documented", "--references", str(file)]
    message = stderr_of(line)
    assert reason in message and message.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        (
            '"Hopper-v4"',
            '"Hoper-v3"',
            "Hoper-v3: is compared with no run, since mujoco has no task 'Hoper-v3'; did you",
        ),
        (
            '"sac"',
            '"sacc"',
            "Hopper-v4: is compared with no run, since mujoco has no algorithm 'sacc'; did you mean 'sac'",
        ),
        ('"Hopper-v4"', '"Hopper-v3"', ""),
        ('"sac"', '"crossq"', ""),
    ],
)
def test_a_row_that_fits_no_cell_is_noted(old: str, new: str, note: str, file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT.replace(old, new))
    (tmp_path / "none" / "mujoco" / "crossq").mkdir(parents=True)
    code, out, err = run_command(["table", "mujoco", "--references", str(file), "--results", str(tmp_path / "none")])
    assert code == 0 and "Hopper-v4" in out
    assert (f"{file}: Ours2026, {note}" in err and err.count("\n") == 1) if note else not err


@pytest.mark.parametrize("suite", ["toy", "atari"])
def test_a_faulty_row_of_another_suite_is_refused(suite: str, file: Path) -> None:
    file.write_text(TEXT.replace('"final"', '"normalized-final"', 1).replace('"Hopper-v4"', '"Nowhere-v4"', 1))
    assert "has no scale to normalise by" in stderr_of(["table", suite, "--references", str(file)])


@pytest.mark.parametrize("suite", ["toy", "atari"])
def test_unknown_reference_lists_the_known_ones(suite: str) -> None:
    assert "did you mean 'Dopamine'" in stderr_of(["table", suite, "--reference", "Dopamin"])


def test_references_of_a_wheel_are_read_without_running_its_code(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "theirs"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit(9)")
    file.rename(package / "ours.toml")
    point = EntryPoint("ours", "theirs:ours.toml", reference_files.GROUP)
    (tmp_path / "theirs-1.dist-info").mkdir()
    (tmp_path / "theirs-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    theirs = PathDistribution(tmp_path / "theirs-1.dist-info")
    monkeypatch.setattr(reference_files, "entry_points", lambda group: [(theirs, point)])
    reference_files._installed.cache_clear()
    try:
        assert any(o.system == "Ours2026" for c in reference_cells("mujoco") if c.key == HOPPER for o in c.others)
        for value in ("theirs", "theirs:no.toml", "theirs:my scores.toml"):
            reference_files._installed.cache_clear()
            point = EntryPoint("ours", value, reference_files.GROUP)
            error = stderr_of(["table", "mujoco"])
            assert error.startswith("rlbench: theirs 1: its entry point ") and f"{value!r} of rlbench" in error
    finally:
        reference_files._installed.cache_clear()


def test_evaluations_are_not_compared_with_training_returns(
    file: Path, record_seeds: RecordSeeds, results: Path
) -> None:
    file.write_text(TEXT.replace("n = 5\n", 'n = 5\nkind = "training"\n'))
    record_seeds(*[[9000.0] * 201] * 3, suite="mujoco", algo="sac", task="Hopper-v4")
    words = ["table", "mujoco", "--algo", "sac", "--task", "Hopper-v4", "--results", str(results), "--json"]
    (cell,) = json_of([*words, "--references", str(file), "--reference", "Ours2026"])["cells"]
    assert cell["verdict"] == "NOT COMPARABLE"
