"""Imported curves in reports: compared with the reference, marked, and never counted as runs of rlbench."""

import errno
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from shutil import rmtree
from unittest import mock

import numpy as np
import pytest

from rlbench import disk
from rlbench.cli.app import main
from rlbench.records import imported
from rlbench.report.cells import Cell, every_cell
from rlbench.report.pooled import pooled_rows
from rlbench.report.reference_files import select_references
from rlbench.report.run_index import gather
from tests.commands import json_of, killed_at, line_of_refusal, refusal_of, run_command, stderr_of, stdout_of
from tests.conftest import Patch, RecordRun
from tests.forging import reseal

TASK = "Hopper-v4"


def curves(path: Path, scores: Sequence[float], *, steps: int = 1_000_000, more: Sequence[str] = ()) -> int:
    """Import a CSV of one seed a score, each at its score from half the steps on."""
    rows = [f"{TASK},{seed},{at},{score}" for seed, score in enumerate(scores) for at in (steps // 2, steps)]
    file = path / "runs.csv"
    file.write_text("\n".join(["task,seed,step,return", *rows]))
    return main(["import", str(file), "--as", "mujoco/sac", "--results", str(path / "results"), *more])


def cell_of(path: Path) -> Cell:
    return next(c for c in every_cell(["mujoco"], path / "results") if c.key[1:3] == ("sac", TASK))


def test_ten_seeds_of_a_table_get_a_verdict_and_are_marked(tmp_path: Path) -> None:
    assert curves(tmp_path, [3_500.0 + seed for seed in range(10)]) == 0
    cell = cell_of(tmp_path)
    assert cell.verdict.word == "REPRODUCED"
    assert cell.note.startswith("imported (csv, 1 file); not stated: settings")
    runs, page = tmp_path / "moved", tmp_path / "page.html"
    shutil.move(tmp_path / "results", runs)
    words = ["table", "mujoco", "--algo", "sac", "--task", TASK, "--results", str(runs)]
    assert "sac (imported)" in stdout_of(words)
    cells = json_of([*words, "--json"])["cells"]
    assert [c["measured"]["origin"] for c in cells if c["measured"]] == ["imported"]
    assert main(["report", "mujoco", "--output", str(page), "--results", str(runs)]) == 0
    assert "sac (imported)" in page.read_text()


@pytest.mark.parametrize(("algorithm", "task"), [("sac", "HalfCheetah-v4"), ("redq", "Ant-v4")])
def test_final_scores_without_steps_count_at_the_end_alone(algorithm: str, task: str, tmp_path: Path) -> None:
    scores = np.array([[12_100.0], [12_138.0], [12_200.0]])
    np.savez(tmp_path / "s.npz", **{algorithm: scores, "tasks": np.array([task])})
    words = ["--as", f"mujoco/{algorithm}", "--results", str(tmp_path / "results")]
    assert main(["import", str(tmp_path / "s.npz"), *words]) == 0
    (cell,) = (cell for cell in every_cell(["mujoco"], tmp_path / "results") if cell.measured)
    assert (cell.key.algorithm, cell.key.task, cell.measured and cell.measured.n) == (algorithm, task, 3)
    assert (cell.verdict.word != "PARTIAL", cell.at) == (True, None)


def test_final_scores_end_no_longer_reference_and_hide_no_seed_at_equal_steps(tmp_path: Path) -> None:
    matrix = {"sac": np.array([[100.0], [110.0]]), "sac/seeds": np.array([0, 1]), "tasks": np.array([TASK])}
    np.savez(tmp_path / "s.npz", **matrix)
    words = ["--as", "mujoco/sac", "--results", str(tmp_path / "results")]
    assert main(["import", str(tmp_path / "s.npz"), *words]) == 0
    (tmp_path / "long.toml").write_text(
        f"""[[reference]]
        name = "Long"\ntitle = ""\nurl = ""\nversion = ""\nsuite = "mujoco"\nalgorithm = "sac"\nestimator = "final"
        steps = 3_000_000\nscores = [{{ task = "{TASK}", score = 105.0, std = 9, n = 5 }}]"""
    )
    with select_references(files=[tmp_path / "long.toml"], name="Long"):
        assert cell_of(tmp_path).verdict.word == "PARTIAL"
    rows = [f"{TASK},{seed},{step},3500" for seed in (5, 6, 7) for step in (0, 500_000, 1_000_000)]
    (tmp_path / "c.csv").write_text("\n".join(["task,seed,step,return", *rows]))
    assert main(["import", str(tmp_path / "c.csv"), *words]) == 0
    cell = cell_of(tmp_path)
    assert cell.measured is not None and (cell.measured.n, cell.at) == (5, None)
    check = ["check", "mujoco", "--imported", "--at", "--strict", "--results", str(tmp_path / "results")]
    assert "no imported curve that can be compared" in refusal_of(check)


@pytest.mark.parametrize("name", ["SAC", "sac ", "mysac"])
def test_an_algorithm_in_another_spelling_is_the_known_one(name: str, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(f"task,seed,step,return\n{TASK},0,1000,1\n")
    line = ["import", str(tmp_path / "runs.csv"), "--as", f"mujoco/{name}", "--results", str(tmp_path / "results")]
    assert main(line) == 0
    assert (cell_of(tmp_path).measured is not None) == (name != "mysac")


def test_curves_that_state_their_whole_protocol_lack_nothing(tmp_path: Path) -> None:
    file = Path(__file__).parent / "fixtures/json_lines/reinforce.jsonl"
    assert main(["import", str(file), "--results", str(tmp_path / "results")]) == 0
    notes = [cell.note for cell in every_cell(["mujoco"], tmp_path / "results")]
    (note,) = (note for note in notes if "imported (jsonl, 1 file)" in note)
    assert "not stated" not in note


def test_more_evaluations_than_documented_raise_no_maximum(tmp_path: Path) -> None:
    """Of a curve evaluated each 1,000 steps, those nearest to each 5,000 count."""
    cells = {}
    for every in (5_000, 1_000):
        folder = tmp_path / str(every)
        folder.mkdir()
        points = [(at, at / 1_000 if at % 5_000 == 0 else 9_000) for at in range(0, 1_000_000, every)]
        points.append((999_900, 999.9))
        rows = [f"{TASK},{seed},{at},{score + seed}" for seed in (0, 1) for at, score in points]
        (folder / "runs.csv").write_text("\n".join(["task,seed,step,return", *rows]))
        line = ["import", str(folder / "runs.csv"), "--as", "mujoco/sac", "--results", str(folder / "results")]
        assert main(line) == 0
        cells[every] = cell_of(folder)
    scores = {every: cell.measured and cell.measured.scores for every, cell in cells.items()}
    assert scores[1_000] == scores[5_000] == (999.9, 1_000.9)
    note = "only the returns nearest to each 5,000 steps count"
    assert {every: note in cell.note for every, cell in cells.items()} == {5_000: False, 1_000: True}


def test_bad_curves_fail_the_check(tmp_path: Path) -> None:
    curves(tmp_path, [100.0 + seed for seed in range(10)])
    assert cell_of(tmp_path).verdict.word == "BELOW"
    assert main(["check", "mujoco", "--results", str(tmp_path / "results")]) == 3


def test_a_curve_short_of_the_budget_is_partial(tmp_path: Path) -> None:
    curves(tmp_path, [3_500.0, 3_600.0], steps=500_000)
    assert cell_of(tmp_path).verdict.word == "PARTIAL"


def test_a_curve_that_begins_after_the_shortest_one_ends_has_a_score(tmp_path: Path) -> None:
    points = ((0, 10_000), (1, 25_000), (1, 50_000), (2, 25_000), (2, 75_000))
    file = tmp_path / "runs.csv"
    file.write_text("\n".join(["task,seed,step,return", *(f"{TASK},{seed},{at},{at}" for seed, at in points)]))
    assert main(["import", str(file), "--as", "mujoco/sac", "--results", str(tmp_path / "results")]) == 0
    score = cell_of(tmp_path).measured
    assert score is not None and score.scores == (10_000, 25_000, 25_000)


def test_training_returns_are_not_compared_with_evaluations(tmp_path: Path) -> None:
    curves(tmp_path, [3_500.0, 3_600.0], more=("--kind", "training"))
    cell = cell_of(tmp_path)
    assert cell.verdict.word == "NOT COMPARABLE" and "training returns" in cell.note


def test_training_returns_have_one_mean_where_only_some_files_state_their_data(tmp_path: Path) -> None:
    line = {"peer": "d3rlpy 2.8.1", "suite": "offline", "algorithm": "td3bc", "task": TASK, "steps": 1_000_000}
    line |= {"dataset": "hopper-medium-v2"}
    for name, seeds, data in (("a", (0, 1), {"data": "a" * 64}), ("b", (2, 3, 4), {})):
        lines = [json.dumps({**line, **data, "seed": seed, "returns": [float(seed)]}) for seed in seeds]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
        words = ["import", str(tmp_path / f"{name}.jsonl"), "--kind", "training"]
        assert main([*words, "--results", str(tmp_path / "results")]) == 0
    (row,) = (row for row in every_cell(["offline"], tmp_path / "results") if row.measured is not None)
    assert row.measured.seeds == (0, 1, 2, 3, 4)


def test_imported_curves_never_count_as_runs_of_rlbench(record_run: RecordRun, tmp_path: Path) -> None:
    for seed in range(3):
        record_run([0.0, 100.0], suite="mujoco", algo="sac", task=TASK, seed=seed, sets=["budget.epoch=1000000"])
    record_run([0.0, 100.0, 100.0] * 67, suite="mujoco", algo="sac", task=TASK, seed=5)
    before = cell_of(tmp_path)
    curves(tmp_path, [3_500.0 + seed for seed in range(10)])
    after = cell_of(tmp_path)
    assert (after.measured, after.verdict) == (before.measured, before.verdict)
    assert "10 imported curves are not counted" in after.note
    assert all(not run.id.startswith("imported") for runs in gather(tmp_path / "results").values() for run in runs.all)


def test_baseline_and_plan_ignore_imported_curves(tmp_path: Path) -> None:
    curves(tmp_path, [3_500.0, 3_600.0])
    assert gather(tmp_path / "results") == {}
    assert main(["baseline", "save", str(tmp_path / "b.json"), "--results", str(tmp_path / "results")]) == 2
    assert "imported" not in stdout_of(["list", "runs", "--results", str(tmp_path / "results")])


def test_compare_accepts_imported_curves_of_one_kind(tmp_path: Path) -> None:
    sides = (("evaluation", 1_000_000), ("evaluation", 995_000), ("training", 1_000_000), ("evaluation", 500_000))
    for name, (kind, steps) in zip("abcd", sides, strict=True):
        (tmp_path / name).mkdir()
        curves(tmp_path / name, [3_500.0, 3_600.0], steps=steps, more=("--kind", kind))
    a, b, c, d = (str(tmp_path / name / "results") for name in "abcd")
    text = stdout_of(["compare", a, b])
    assert "mujoco/sac/Hopper-v4" in text and text.count("(2) (imported)") == 2
    assert [task["imported"] for task in json_of(["compare", a, b, "--at", "--json"])["tasks"]] == [[True, True]]
    assert "kind of return" in stderr_of(["compare", a, c])
    assert "differ in budget: 1,000,000 and 500,000 steps; compare them with --at" in stderr_of(["compare", a, d])
    assert "(imported)" in stdout_of(["compare", a, d, "--at"])


def test_spellings_and_unstated_versions_split_no_cell(tmp_path: Path) -> None:
    """One file names the environment in two ways, another states its versions."""
    rows = [f"{name},{seed},1000000,{seed}" for seed, name in enumerate((TASK, TASK.lower(), "Hopper"))]
    line = {"peer": "sb3 2.7", "suite": "mujoco", "algorithm": "sac", "task": TASK, "seed": 3, "mujoco": "3.3.7"}
    (tmp_path / "one.csv").write_text("\n".join(["task,seed,step,return", *rows]))
    (tmp_path / "two.jsonl").write_text(json.dumps({**line, "steps": 1_000_000, "returns": [3.0]}))
    for name, more in (("one.csv", ["--as", "mujoco/sac"]), ("two.jsonl", [])):
        assert main(["import", str(tmp_path / name), *more, "--results", str(tmp_path / "results")]) == 0
    cell = cell_of(tmp_path)
    assert cell.measured and cell.measured.n == 4 and "other versions" not in cell.note


def test_compare_takes_the_shortest_curve_of_a_side(tmp_path: Path) -> None:
    for name, ends in (("a", (500_000, 400_000)), ("b", (400_000, 500_000)), ("c", (300_000, 500_000))):
        rows = [f"{TASK},{seed},{end},{end + seed}" for seed, end in enumerate(ends)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["task,seed,step,return", *rows]))
        words = ["import", str(tmp_path / f"{name}.csv"), "--as", "mujoco/sac", "--results", str(tmp_path / name)]
        assert main(words) == 0
    a, b, c = (str(tmp_path / name) for name in "abc")
    assert "(imported)" in stdout_of(["compare", a, b])
    assert "budget: 400,000 and 300,000 steps; compare them with --at" in stderr_of(["compare", a, c])


@pytest.mark.parametrize(
    ("other", "difference", "note"),
    [
        ({"data": "b" * 64}, "they differ in data", "1 run on another file of that name"),
        ({"mujoco": "2.3.3"}, "mujoco 3.3.7 against Hopper-v4, mujoco 2.3.3", "1 run in other versions"),
    ],
)
def test_curves_on_other_data_or_in_other_versions_are_not_pooled(
    other: Mapping[str, str], difference: str, note: str, tmp_path: Path
) -> None:
    line = {"peer": "d3rlpy 2.8.1", "suite": "offline", "algorithm": "td3bc", "task": TASK, "steps": 1_000_000}
    line |= {"dataset": "hopper-medium-v2", "data": "a" * 64, "mujoco": "3.3.7"}
    sides = {
        "one": [line | {"seed": seed} for seed in (0, 1)],
        "other": [line | other | {"seed": seed} for seed in (0, 1)],
        "mixed": [line | {"seed": 0}, line | {"seed": 1}, line | other | {"seed": 2}],
    }
    for name, lines in sides.items():
        file = tmp_path / f"{name}.jsonl"
        file.write_text("\n".join(json.dumps(content | {"returns": [content["seed"] + 1.0]}) for content in lines))
        assert main(["import", str(file), "--results", str(tmp_path / name)]) == 0
    _, out, error = run_command(["compare", str(tmp_path / "one"), str(tmp_path / "other")])
    assert difference in out + error
    if "data" in other:
        two = [{**content, "algorithm": "iql"} for content in sides["other"]]
        (tmp_path / "two.jsonl").write_text("\n".join(json.dumps(content | {"returns": [1.0]}) for content in two))
        assert main(["import", str(tmp_path / "two.jsonl"), "--results", str(tmp_path / "one")]) == 0
        assert difference in stderr_of(["compare", "td3bc", "iql", "--results", str(tmp_path / "one")])
    cell = next(c for c in every_cell(["offline"], tmp_path / "mixed") if c.measured)
    assert cell.measured.n == 2 and note in cell.note


def test_curves_that_another_import_writes_meanwhile_are_kept(tmp_path: Path, monkeypatch: Patch) -> None:
    """The check before the lock found no curve."""
    locked = disk.locked

    @contextmanager
    def locked_after_the_other(folder: Path, *, patience: float, required: bool) -> Iterator[None]:
        monkeypatch.setattr(disk, "locked", locked)
        assert curves(tmp_path, [1.0]) == 0
        with locked(folder, patience=patience, required=required):
            yield

    monkeypatch.setattr(disk, "locked", locked_after_the_other)
    assert curves(tmp_path, [2.0]) == 2
    score = cell_of(tmp_path).measured
    assert score is not None and score.scores == (1.0,)


def test_an_import_that_is_killed_gives_no_score_until_it_is_repeated(tmp_path: Path, monkeypatch: Patch) -> None:
    """Two of its three seeds would reproduce the cell, and pass a strict check."""
    scores, words = [3_500.0, 3_501.0, -100.0], ("check", "mujoco", "--imported", "--strict", "--results")
    for number in count():
        results = tmp_path / f"{number}"
        results.mkdir()
        if not killed_at(monkeypatch, number, lambda: curves(results, scores)):  # noqa: B023 - called at once
            break
        begun = list(results.rglob(imported.UNFINISHED))
        if begun:
            for line in (words, ["verify"], ["table", "mujoco", "--results"]):
                error = refusal_of([*line, str(results / "results")])
                assert "an import was broken off or is under way" in error
        else:
            assert not list(results.rglob(imported.FILE))
        assert curves(results, scores) == 0
        score = cell_of(results).measured
        assert score is not None and score.scores == (*scores,) and not list(results.rglob(imported.UNFINISHED))
    assert number > 9


def test_another_import_does_not_end_one_that_was_broken_off(tmp_path: Path, monkeypatch: Patch) -> None:
    assert curves(tmp_path, [1.0]) == 0
    (cell,) = (tmp_path / "results").rglob("imported")
    (cell / imported.UNFINISHED).write_text("0 1 7")
    (tmp_path / "more.csv").write_text(f"task,seed,step,return\n{TASK},1,1000000,1.0\n")
    line = ["import", str(tmp_path / "more.csv"), "--as", "mujoco/sac", "--results", str(tmp_path / "results")]
    lack = "an import was broken off or is under way, and lacks seeds 7; type it again, or remove the folder"
    assert f"{cell}: {lack}" in refusal_of(line)
    assert (cell / imported.UNFINISHED).read_text() == "0 1 7"
    assert lack in refusal_of(["table", "mujoco", "--results", str(tmp_path / "results")])
    monkeypatch.chdir(cell)
    assert lack in refusal_of("table mujoco --results .")
    for damage in (lambda path: path.symlink_to("nowhere"), lambda path: path.write_bytes(b"\xff")):
        (cell / imported.UNFINISHED).unlink()
        damage(cell / imported.UNFINISHED)
        assert "type it again" in refusal_of("table mujoco --results .")
        assert main(line) == 0 and not (cell / imported.UNFINISHED).exists()
        (cell / imported.UNFINISHED).touch()


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOSYS])
def test_curves_are_imported_on_a_disk_without_locks(error: int, tmp_path: Path) -> None:
    with mock.patch("fcntl.flock", side_effect=OSError(error, "no locks")):
        assert curves(tmp_path, [1.0]) == 0


def test_import_waits_for_another_one_for_a_while(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(imported, "PATIENCE", 0.1)
    with disk.locked(tmp_path / "results", patience=0):
        assert curves(tmp_path, [1.0]) == 2
        assert "results: another process is writing it; wait" in capsys.readouterr().err
        assert curves(tmp_path, [1.0]) == 2
    assert curves(tmp_path, [1.0]) == 0
    with disk.locked(tmp_path / "results", patience=0):
        assert curves(tmp_path, [1.0]) == 0, "nothing is written"


def test_importing_a_curve_twice_changes_nothing_and_another_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [curves(tmp_path, [1.0, 2.0]), curves(tmp_path, [1.0, 2.0])] == [0, 0]
    assert "2 curves, 0 new" in capsys.readouterr().out
    first, _ = sorted(tmp_path.rglob("seed=*"))
    rmtree(first)
    assert curves(tmp_path, [3.0, 4.0]) == 2
    assert "holds another curve of seed 1" in capsys.readouterr().err
    assert not first.exists(), "nothing is written where a later seed is refused"


def test_pooled_rows_never_mix_imported_curves_with_runs(tmp_path: Path) -> None:
    curves(tmp_path, [3_500.0 + seed for seed in range(5)])
    theirs = cell_of(tmp_path)
    walker = replace(theirs, key=theirs.key._replace(task="Walker2d-v4"))
    assert {"sac (imported)" in str(row) for row in pooled_rows([theirs, walker])} == {True}
    assert theirs.measured
    assert pooled_rows([theirs, replace(walker, measured=replace(theirs.measured, imported=False))]) == []


DISGUISES = ("beside a run", "as an epoch of a run", "below a run's folder", "in another cell", "without its origin")


@pytest.mark.parametrize("disguise", DISGUISES)
def test_curves_of_others_never_pass_for_runs(disguise: str, record_run: RecordRun, tmp_path: Path) -> None:
    curves(tmp_path, [3_500.0 + seed for seed in range(3)])
    results, theirs = tmp_path / "results", tmp_path / "theirs"
    shutil.move(results, theirs)
    run = record_run([0.0] * 3, suite="mujoco", algo="sac", task=TASK, seed=9, status="interrupted")
    places = {
        "below a run's folder": run / "imported",
        "in another cell": results / "mujoco/td3" / TASK / "imported",
        "without its origin": results / "mujoco/sac" / TASK / "imported",
    }
    for folder in list(imported.curve_folders(theirs)):
        copy = places.get(disguise, run.parent) / folder.name
        shutil.copytree(folder, copy)
        if disguise == "as an epoch of a run":
            shutil.copy(run / "spec.json", copy)
            shutil.copy(copy / imported.FILE, copy / "epochs.jsonl")
        if disguise == "without its origin":
            reseal(copy / imported.FILE, lambda content: content.pop("origin"))
    for verb in (["table", "mujoco", "--json"], ["check", "mujoco"]):
        assert "REPRODUCED" not in line_of_refusal([*verb, "--results", str(results)])


def test_a_curve_under_two_seeds_counts_once(tmp_path: Path) -> None:
    line = ["--as", "mujoco/sac", "--results", str(tmp_path / "results")]
    for seed in (0, 1):
        rows = [f"{TASK},{seed},{step},{step / 300}" for step in (250_000, 500_000, 1_000_000)]
        (tmp_path / f"{seed}.csv").write_text("\n".join(["task,seed,step,return", *rows]))
        assert main(["import", str(tmp_path / f"{seed}.csv"), *line]) == 0
    cell = cell_of(tmp_path)
    assert cell.measured and cell.measured.n == 1 and "1 run has the numbers of another seed" in cell.note
    assert "has the same numbers as seed=0" in refusal_of(["verify", str(tmp_path / "results")])


def test_a_curve_that_begins_another_one_is_its_copy(tmp_path: Path) -> None:
    points = {seed: [(at, 100.0 * seed + at / 1000) for at in range(5000, 1_000_001, 5000)] for seed in (0, 1)}
    points[2] = points[1][:-1]
    rows = [f"{TASK},{seed},{at},{score}" for seed, curve in points.items() for at, score in curve]
    (tmp_path / "runs.csv").write_text("\n".join(["task,seed,step,return", *rows]))
    words = ["import", str(tmp_path / "runs.csv"), "--as", "mujoco/sac", "--results", str(tmp_path / "results")]
    assert main(words) == 0
    cell = cell_of(tmp_path)
    assert cell.measured and cell.measured.seeds == (0, 1) and "1 run has the numbers of another seed" in cell.note


def test_verify_names_two_curves_of_one_seed_and_no_part_of_one(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for name, returns in (("a", (1.0, 2.0, 3.0)), ("b", (1.0, 2.0)), ("c", (1.0, 2.5, 3.0))):
        rows = [f"{TASK},0,{step},{value}" for step, value in zip((250_000, 500_000, 1_000_000), returns, strict=False)]
        (tmp_path / "curve.csv").write_text("\n".join(["task,seed,step,return", *rows]))
        words = ["import", str(tmp_path / "curve.csv"), "--as", "mujoco/sac", "--results", str(results / name)]
        assert run_command(words)[0] == 0
        code, out, _ = run_command(["verify", str(results)])
        assert (code != 0) == (name == "c")
    assert f"{results / 'c' / 'mujoco'}" in out and f"has other numbers than {results / 'a' / 'mujoco'}" in out


def test_a_curve_in_another_curves_folder_is_refused(tmp_path: Path) -> None:
    results = tmp_path / "results"
    (tmp_path / "curve.csv").write_text(f"task,seed,step,return\n{TASK},0,1000000,1.0\n")
    assert run_command(["import", str(tmp_path / "curve.csv"), "--as", "mujoco/sac", "--results", str(results)])[0] == 0
    (folder,) = imported.curve_folders(results)
    shutil.copytree(folder, results / "copy" / "seed=0")
    assert f"{results / 'copy' / 'seed=0' / 'curve.json'}: is the curve of" in refusal_of(["verify", str(results)])
    shutil.rmtree(results / "copy")
    shutil.copytree(folder, folder / "seed=3")
    for verb in (["table", "mujoco", "--results"], ["check", "mujoco", "--imported", "--results"], ["verify"]):
        assert f"{folder / 'seed=3'}: is in the folder of another run" in refusal_of([*verb, str(results)])
