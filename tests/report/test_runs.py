"""A report's runs have the numbers of their records, and damaged records are refused by name."""

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


@pytest.mark.parametrize(
    "change",
    [lambda c: c.update(env_steps="many"), lambda c: c.update(evaluated=[]), lambda c: c.update(evaluated={})],
    ids=["steps in words", "a list", "no returns"],
)
def test_a_line_of_another_schema_is_refused_in_one_line_that_names_it(record_run: RecordRun, change: Change) -> None:
    folder = record_run([1.0, 5.0])
    reseal(folder / "epochs.jsonl", change, -1)
    with pytest.raises(RefusedFile, match=r"epochs\.jsonl:2"):
        read_run(folder)
