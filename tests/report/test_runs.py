"""A report's runs have the numbers of their records, and damaged records are refused by name."""

import json
from itertools import pairwise

import pytest

from rlbench.errors import RefusedFile
from rlbench.records import store
from rlbench.records.files import folders
from rlbench.report.runs import read_run
from tests.conftest import RecordRun
from tests.forging import Change, reseal
from tests.report.conftest import RESULTS


def test_report_reader_agrees_with_the_record_reader() -> None:
    run_folders = list(folders(RESULTS))
    assert len(run_folders) >= 37
    for folder in run_folders:
        run, record = read_run(folder), store.read_record(folder)
        evaluated = [e for e in record.epochs if e.evaluated is not None]
        assert [(e.env_steps, e.seconds, e.mean) for e in run.evaluations] == [
            (e.steps, e.seconds, e.evaluated.mean) for e in evaluated if e.evaluated is not None
        ]
        paces = [
            e.collected.steps_per_second for e in record.epochs if e.updated is not None and e.collected is not None
        ]
        if record.spec.suite == "offline":  # nothing is collected: gradient steps over the seconds between two lines
            ends = [(e.updates, e.seconds) for e in record.epochs]
            paces = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(ends)]
            assert paces
        assert run.speeds == tuple(pace for pace in paces if pace > 0)
        assert (run.id, run.seed, run.budget) == (record.spec.id, record.spec.seed, record.spec.budget.steps)
        assert run.env_steps == record.epochs[-1].steps
        if record.outcome is not None:  # a run that was killed has none
            assert run.status == record.outcome.status


def test_a_line_with_its_fields_in_another_order_is_read(record_run: RecordRun) -> None:
    folder = record_run([1.0, 5.0])
    path = folder / "epochs.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("".join(json.dumps(dict(reversed(line.items()))) + "\n" for line in lines), encoding="utf-8")
    assert [e.mean for e in read_run(folder).evaluations] == [1.0, 5.0]


def test_a_torn_last_line_of_an_open_run_is_dropped_and_of_an_ended_one_refused(record_run: RecordRun) -> None:
    for status, seed in ((None, 0), ("done", 1)):
        folder = record_run([1.0, 5.0], status=status, seed=seed)
        with (folder / "epochs.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"checks')
        if status is None:
            assert len(read_run(folder).evaluations) == 2
        else:
            with pytest.raises(RefusedFile, match="torn"):
                read_run(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(schema_version=2),
        lambda c: c.update(number=7),
        lambda c: c.pop("env_steps"),
        lambda c: c.update(env_steps="many"),
        lambda c: c.update(evaluated=[]),
        lambda c: c.update(evaluated={"returns": []}),
        lambda c: c.update(evaluated={"returns": ["1"]}),
        lambda c: c.update(evaluated={}),
    ],
    ids=["newer", "misnumbered", "no steps", "steps in words", "a list", "no games", "games in words", "no returns"],
)
def test_a_line_of_another_schema_is_refused_in_one_line_that_names_it(record_run: RecordRun, change: Change) -> None:
    folder = record_run([1.0, 5.0])
    reseal(folder / "epochs.jsonl", change, -1)
    with pytest.raises(RefusedFile, match=r"epochs\.jsonl:2"):
        read_run(folder)


@pytest.mark.parametrize("part", ["spec.json", "outcome.json"])
def test_a_head_or_an_outcome_of_another_schema_is_refused(record_run: RecordRun, part: str) -> None:
    folder = record_run([1.0])
    reseal(folder / part, lambda c: (c.pop("spec", None), c.pop("status", None)))
    with pytest.raises(RefusedFile, match=part):
        read_run(folder)


def test_an_ended_run_whose_epochs_do_not_count_up_is_refused(record_run: RecordRun) -> None:
    folder = record_run([1.0, 5.0])
    path = folder / "epochs.jsonl"
    path.write_text(path.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")
    with pytest.raises(RefusedFile, match="holds 1 epochs"):
        read_run(folder)
