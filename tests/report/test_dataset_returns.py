"""The columns of dataset return and behavior policy."""

import json
from pathlib import Path

import pytest

from rlbench.report.cells import Cell, every_cell
from rlbench.report.runs import DatasetReturns
from rlbench.report.tables import columns, to_json, to_markdown
from tests.conftest import RecordRun


def cells(results: Path, task: str, dataset: str) -> dict[str, Cell]:
    rows = [c for c in every_cell(["offline"], results) if (c.key.task, c.key.dataset) == (task, dataset)]
    return {cell.key.algorithm: cell for cell in rows}


@pytest.mark.parametrize(
    ("task", "dataset", "behaviour", "expert"),
    [
        ("PongNoFrameskip-v4", "qrdqn-1M", 6.8, 20.5),
        ("BreakoutNoFrameskip-v4", "qrdqn-1M", 46.9, 394.3),
        ("PongNoFrameskip-v4", "qrdqn-100k", 5.8, 20.5),
        ("PongNoFrameskip-v4", "qrdqn-10k", None, 20.5),  # not printed
        ("BreakoutNoFrameskip-v4", "qrdqn-10k", 31.7, 394.3),
        ("HalfCheetah-v2", "halfcheetah-medium-v2", None, None),
    ],
)
def test_documented_data_sets_have_the_documented_return(
    tmp_path: Path, task: str, dataset: str, behaviour: float | None, expert: float | None
) -> None:
    assert cells(tmp_path, task, dataset)["cql"].dataset_returns == DatasetReturns(behaviour, expert)


def test_dataset_return_of_a_record_applies_to_all_runs_on_the_same_file(record_run: RecordRun, results: Path) -> None:
    own = {"name": "rlb-halfcheetah-medium", "sha256": "a" * 64}
    record_run([1.0], suite="offline", algo="il", task="rlb-halfcheetah-medium", data=own)
    record_run(
        [1.0], suite="offline", algo="iql", task="rlb-halfcheetah-medium", data={**own, "behaviour": 5.25, "expert": 7}
    )
    record_run([1.0], suite="offline", algo="td3bc", task="rlb-halfcheetah-medium", data={**own, "sha256": "b" * 64})
    rows = cells(results, "HalfCheetah-v4", "rlb-halfcheetah-medium")
    assert {name: cell.dataset_returns for name, cell in rows.items()} == {
        "il": DatasetReturns(5.25, 7.0),
        "iql": DatasetReturns(5.25, 7.0),
        "td3bc": DatasetReturns(None, None),  # another file under the same name
    }


def test_tables_have_dataset_return_columns_only_if_a_return_is_known(tmp_path: Path) -> None:
    offline, atari = every_cell(["offline"], tmp_path), every_cell(["atari"], tmp_path)
    assert {"Dataset return", "Behavior policy"} <= set(columns(offline)) and not {
        "Dataset return",
        "Behavior policy",
    } & set(columns(atari))
    row = next(line for line in to_markdown(offline).splitlines() if "| il | PongNoFrameskip-v4 on qrdqn-1M" in line)
    assert "| 6.8 | 20.5 | 20 |" in row
    first = next(c for c in json.loads(to_json(offline))["cells"] if c["task"] == "PongNoFrameskip-v4")
    assert (first["behaviour"], first["expert"]) == (6.8, 20.5)
