"""The sorting of a results folder's runs by whether they count."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rlbench.errors import RefusedFile, UsageError
from rlbench.records import store
from rlbench.records.files import folders
from rlbench.report import remarks, runs
from rlbench.report.reference_table import CellKey
from rlbench.report.run_index import Runs, differences, gather
from tests.conftest import RecordRun
from tests.forging import reseal

CELL = CellKey("atari", "dqn", "BreakoutNoFrameskip-v4", "")


def only(results: Path) -> Runs:
    runs = gather(results)
    assert list(runs) == [CELL]
    return runs[CELL]


GROUPS = (
    "complete",
    "failed",
    "short",
    "other_protocol",
    "variants",
    "other_data",
    "other_versions",
    "same_numbers",
    "duplicates",
)


@pytest.mark.parametrize(
    ("changes", "group"),
    [
        ({"seed": 3}, "complete"),
        ({"status": "failed"}, "failed"),
        ({"status": "interrupted"}, "short"),
        ({"status": None}, "short"),
        ({"sets": ["budget.steps=300000"]}, "short"),
        ({"sets": ["budget.steps=300000", "algo.lr=0.1"]}, "variants"),
        ({"sets": ["algo.lr=0.1"]}, "variants"),
        ({"sets": ["budget.steps=20000000"]}, "variants"),
        ({"sets": ["budget.epoch=50000"]}, "variants"),
        ({"sets": ["task.sticky=0.25"]}, "other_protocol"),
        ({"sets": ["protocol.epsilon=0.05"]}, "other_protocol"),
    ],
)
def test_a_run_is_sorted_by_its_settings_and_its_end(
    record_run: RecordRun, results: Path, changes: dict[str, object], group: str
) -> None:
    record_run([1.0, 2.0], **changes)
    runs = only(results)
    assert {name: len(getattr(runs, name)) for name in GROUPS if getattr(runs, name)} == {group: 1}
    assert (runs.all[0].seed, runs.budget) == (changes.get("seed", 0), 10_000_000)


def with_lag(folder: Path, lag: int) -> Path:
    """The record in ``folder``, whose ``spec.json`` holds a setting that older code had."""
    reseal(folder / "spec.json", lambda head: head["spec"]["algo"].update(lag=lag))
    return folder


def test_a_record_whose_lag_is_0_is_one_of_the_documented_settings(record_run: RecordRun, results: Path) -> None:
    lagging = with_lag(record_run([1.0, 2.0], seed=3), 0)
    assert store.read_record(lagging).spec == store.read_record(record_run([1.0, 2.0])).spec.model_copy(
        update={"seed": 3}
    )
    runs = only(results)
    assert ([r.seed for r in runs.complete], runs.variants) == ([0, 3], [])
    assert differences(runs.complete[1]) == []


def test_a_record_whose_lag_is_0_may_be_of_another_protocol(record_run: RecordRun, results: Path) -> None:
    with_lag(record_run([1.0, 2.0], sets=["protocol.epsilon=0.05"]), 0)
    runs = only(results)
    assert (len(runs.other_protocol), runs.variants) == (1, [])


def test_a_record_whose_lag_is_1_is_refused(record_run: RecordRun) -> None:
    lagging = with_lag(record_run([1.0, 2.0]), 1)
    with pytest.raises(RefusedFile, match=r"spec\.json: not a spec of this schema"):
        runs.read_run(lagging)


def test_differing_settings_of_a_run_are_named(record_run: RecordRun, results: Path) -> None:
    record_run([1.0], sets=["algo.lr=0.1", "task.sticky=0.25"], seed=4)
    assert differences(only(results).variants[0]) == ["algo.lr=0.1", "task.sticky=0.25"]


def test_complete_run_replaces_a_short_one_of_its_seed_which_is_noted(record_run: RecordRun, results: Path) -> None:
    record_run([1.0], seed=0)
    record_run([1.0], seed=0, sets=["budget.steps=300000"])
    record_run([1.0], seed=1, sets=["budget.steps=300000"])
    runs = only(results)
    assert [r.seed for r in runs.complete] == [0]
    assert [r.seed for r in runs.short] == [1]
    assert "not counted: 1 more record of the same seeds" in "; ".join(remarks.remarks(runs))


@pytest.mark.parametrize("sets", [["algo.lr=0.1"], ["task.sticky=0.25"], ["budget.steps=300000"]])
def test_the_worst_record_of_a_seed_counts_whatever_its_folder(
    record_run: RecordRun, results: Path, sets: list[str]
) -> None:
    for place, best in (("zzz", 1.5), ("aaa", 3.0)):
        folder = record_run([1.0, best], sets=sets)
        shutil.move(folder, results / place / folder.relative_to(results))
    record_run([1.0, 2.0], sets=sets)
    group = only(results)
    assert [runs.maximum(run) for run in group.all] == [1.5]
    assert sorted(runs.maximum(run) for run in group.duplicates) == [2.0, 3.0]


@pytest.mark.parametrize("sets", [["algo.lr=0.1"], ["budget.steps=300000"]])
@pytest.mark.parametrize("place", ["aaa", "zzz"])
def test_an_earlier_copy_of_a_run_hides_no_later_evaluation(
    record_run: RecordRun, results: Path, sets: list[str], place: str
) -> None:
    folder = record_run([1.0, 2.0], sets=sets, status="interrupted")
    shutil.move(folder, results / place / folder.relative_to(results))
    record_run([1.0, 2.0, 3.0, 0.5], sets=sets)
    (run,) = only(results).all
    assert [evaluation.mean for evaluation in run.evaluations] == [1.0, 2.0, 3.0, 0.5]


@pytest.mark.parametrize("sets", [[], ["algo.lr=0.1"], ["task.sticky=0.25"]])
def test_of_two_records_of_a_seed_one_counts_whole(record_run: RecordRun, results: Path, sets: list[str]) -> None:
    """The minimum of both at each step would lie below either."""
    folder = record_run([1.0, 5.0, 2.0, 6.0], sets=sets)
    shutil.move(folder, results / "aaa" / folder.relative_to(results))
    record_run([1.0, 2.0, 7.0, 3.0], sets=sets)
    group = only(results)
    (run,) = group.all
    assert [evaluation.mean for evaluation in run.evaluations] == [1.0, 5.0, 2.0, 6.0]
    assert len(group.duplicates) == 1


def test_a_copy_from_before_its_end_does_not_hide_a_finished_variant(record_run: RecordRun, results: Path) -> None:
    folder = record_run([1.0, 2.0], sets=["algo.lr=0.1"])
    shutil.copytree(folder, results / "aaa" / folder.relative_to(results))
    (results / "aaa" / folder.relative_to(results) / "outcome.json").unlink()
    assert [run.status for run in only(results).variants] == ["done"]


def test_a_few_steps_beyond_the_budget_choose_no_record(record_run: RecordRun) -> None:
    """An on-policy run ends with its episodes, of two machines at other steps."""
    low, high = (runs.read_run(record_run([1.0, best], seed=seed)) for seed, best in enumerate((2.0, 9.0)))
    part = [replace(low, env_steps=low.budget + 1), replace(high, seed=0, env_steps=high.budget + 9)]
    assert [run.env_steps - run.budget for run in runs.keep_one(part, lambda run: run.seed)] == [9]


def test_a_failed_record_of_a_variant_counts_before_a_finished_one(record_run: RecordRun, results: Path) -> None:
    folder = record_run([1.0, 2.0], sets=["algo.lr=0.1"], status="failed")
    shutil.move(folder, results / "zzz" / folder.relative_to(results))
    record_run([1.0, 2.0], sets=["algo.lr=0.1"])
    assert [(run.status, run.seed) for run in only(results).variants] == [("failed", 0)]


def test_attempt_put_aside_by_force_is_not_a_run(record_run: RecordRun, results: Path) -> None:
    record_run([1.0])
    folder = record_run([2.0], force=True)
    assert (folder / "attempt-1" / "spec.json").exists()
    assert list(folders(results)) == [folder]


def test_claimed_folder_without_a_record_is_not_a_run(record_run: RecordRun, results: Path) -> None:
    folder = record_run([1.0])
    for name in ("spec.json", "epochs.jsonl", "outcome.json"):
        (folder / name).unlink()
    assert gather(results) == {}


def test_runs_come_in_order_of_seed_whatever_the_order_of_writing(record_run: RecordRun, results: Path) -> None:
    for seed in (10, 2, 0):
        record_run([1.0], seed=seed)
    assert [r.seed for r in only(results).complete] == [0, 2, 10]


def test_missing_folder_has_no_runs(tmp_path: Path) -> None:
    assert gather(tmp_path / "nowhere") == {}


def test_file_as_results_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="not a folder"):
        gather(tmp_path / "file")


def test_a_record_without_its_spec_is_refused(record_run: RecordRun, results: Path) -> None:
    (record_run([1.0]) / "spec.json").unlink()
    with pytest.raises(RefusedFile, match=r"spec\.json"):
        gather(results)


def test_copied_record_does_not_count_as_a_second_seed(record_run: RecordRun, tmp_path: Path) -> None:
    record_run([1.0], seed=0)
    record_run([1.0], seed=1)
    shutil.copytree(tmp_path / "results", tmp_path / "results" / "of last night")
    assert [run.seed for run in only(tmp_path / "results").complete] == [0, 1]


def test_a_record_that_changes_is_read_again(record_run: RecordRun, results: Path) -> None:
    folder = record_run([1.0], status=None)
    assert len(only(results).short[0].evaluations) == 1
    (folder / "epochs.jsonl").write_text("", encoding="utf-8")
    assert only(results).short[0].evaluations == ()


def test_texts_of_a_record_are_one_printable_line(record_run: RecordRun, results: Path) -> None:
    folder = record_run([1.0], status="failed")
    reseal(folder / "outcome.json", lambda outcome: outcome.update(reason="two\nlines \x1b[31mred"))
    assert only(results).failed[0].reason == "two lines ?[31mred"


def offline_run(record_run: RecordRun, file: str, **changes: object) -> Path:
    """A run on data of one's own, which lie in a file of that SHA-256."""
    metadata = {"name": "mine", "sha256": file * 64}
    changes = {"sets": ["task.dataset=mine"], "task": "Hopper-v4", **changes}
    return record_run([1.0], suite="offline", algo="il", data=metadata, **changes)


def test_runs_on_generated_data_count_in_their_own_cell(record_run: RecordRun, results: Path) -> None:
    for seed, status in enumerate(("done", "done", "failed", "interrupted")):
        offline_run(record_run, "a", seed=seed, status=status)
    offline_run(record_run, "a", seed=4, sets=["task.dataset=mine", "budget.steps=25"])
    offline_run(record_run, "a", seed=5, sets=["task.dataset=mine", "algo.batch=7"])
    ((key, runs),) = gather(results).items()
    assert (key.task, key.dataset) == ("Hopper-v4", "mine")
    parts = (runs.complete, runs.failed, runs.short, runs.variants)
    assert [[run.seed for run in part] for part in parts] == [[0, 1], [2], [3, 4], [5]]
    assert (runs.other_protocol, runs.other_data) == ([], [])
    assert differences(runs.variants[0]) == ["algo.batch=7"]


def test_runs_on_another_file_of_the_same_name_do_not_count(record_run: RecordRun, tmp_path: Path) -> None:
    for seed, file, status in ((0, "b", "failed"), (1, "a", "done"), (2, "a", "interrupted"), (3, "b", "interrupted")):
        offline_run(record_run, file, seed=seed, status=status)
    shutil.copytree(tmp_path / "results", tmp_path / "other")
    offline_run(record_run, "b", seed=1, force=True)
    shutil.move(tmp_path / "other", tmp_path / "results" / "other")
    (runs,) = gather(tmp_path / "results").values()
    parts = (runs.complete, runs.failed, runs.short, runs.other_data)
    assert [[(run.seed, run.data_file[0]) for run in part] for part in parts] == [
        [(1, "b")], [(0, "b")], [(3, "b")], [(1, "a"), (2, "a")],
    ]  # fmt: skip


def test_run_on_a_rows_data_by_path_is_no_run_of_the_row(record_run: RecordRun, results: Path) -> None:
    offline_run(record_run, "a", task="HalfCheetah-v4", sets=["task.dataset=halfcheetah-medium-v2"])
    offline_run(
        record_run, "a", task="HalfCheetah-v4", sets=["task.dataset=halfcheetah-medium-v2"], seed=1, status="failed"
    )
    ((key, runs),) = gather(results).items()
    assert key.dataset == "halfcheetah-medium-v2"
    assert (len(runs.other_protocol), len(runs.variants), runs.scored) == (2, 0, ())
    offline_run(record_run, "b", task="HalfCheetah-v4", sets=["task.dataset=halfcheetah-medium-v2"], seed=2)
    (runs,) = gather(results).values()
    assert ([run.seed for run in runs.other_protocol], [run.seed for run in runs.other_data]) == ([0, 1], [2])


def test_row_counts_runs_on_the_file_with_most_complete_runs(record_run: RecordRun, results: Path) -> None:
    for seed, file in enumerate("abb"):
        offline_run(record_run, file, seed=seed)
    (runs,) = gather(results).values()
    assert ([run.seed for run in runs.complete], [run.seed for run in runs.other_data]) == ([1, 2], [0])


def test_lost_and_found_of_a_disk_is_no_folder_of_records(record_run: RecordRun, results: Path) -> None:
    folder = record_run([0.5], suite="toy", task="Catch")
    (results / "lost+found").symlink_to(results.parent)  # as unreadable as a folder of root
    assert [*folders(results)] == [folder]
