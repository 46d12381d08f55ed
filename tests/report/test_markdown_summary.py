"""The Markdown report: its counts are those of the cells, its costs those of the plan."""

import re
from collections import Counter
from pathlib import Path

import pytest

from rlbench.cli.app import main
from rlbench.report import remaining_work as missing_module
from rlbench.report.cells import every_cell
from rlbench.report.evidence import Evidence
from rlbench.report.pages import markdown_page
from rlbench.report.reference_table import SUITES, CellKey
from rlbench.report.remaining_work import remaining_runs, throughput
from rlbench.report.run_index import gather
from tests.report.conftest import RESULTS


@pytest.fixture(scope="module")
def text() -> str:
    return markdown_page(SUITES, Evidence(RESULTS))


def rows(text: str, head: str) -> dict[str, list[str]]:
    """The table whose header begins so: per suite its cells."""
    table = text[text.index(head) :].split("\n\n", maxsplit=1)[0].splitlines()
    return {name: rest for name, *rest in ([part.strip() for part in line.strip("|").split("|")] for line in table)}


def test_every_cell_is_counted_once_under_its_verdict(text: str) -> None:
    counts = rows(text, "| suite | cells |")
    words = counts["suite"][1:]
    for suite in SUITES:
        cells = every_cell([suite], RESULTS)
        expected = Counter(cell.verdict.word for cell in cells)
        total, *numbers = (int(number or 0) for number in counts[suite])
        assert total == len(cells) == sum(numbers)
        assert dict(zip(words, numbers, strict=True)) == {word: expected.get(word, 0) for word in words}


def test_the_sentence_counts_documented_cells_without_toys(text: str) -> None:
    match = re.search(r"Of (\d+) documented cells (\d+) were run in full and (\d+) in part: (\d+) are reproduced", text)
    cells = [cell for suite in SUITES if suite != "toy" for cell in every_cell([suite], RESULTS) if cell.documented]
    words = [cell.verdict.word for cell in cells]
    assert match
    assert [int(number) for number in match.groups()] == [
        len(cells),
        sum(word not in {"NOT RUN", "PARTIAL"} for word in words),
        words.count("PARTIAL"),
        words.count("REPRODUCED"),
    ]


def test_costs_are_those_of_the_plan_at_the_speed_of_the_records_processor(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = rows(text, "| for ten seeds a cell |")
    lacking = remaining_runs("mujoco", Evidence(RESULTS), cpu="AMD EPYC")
    assert costs["mujoco"][0] == f"{sum(len(row.seeds) for row in lacking):,}"
    assert costs["mujoco"][2] == f"{sum(row.hours or 0 for row in lacking) / 24:,.1f}"
    assert float(costs["offline"][2]) > 0, "offline runs have a speed: gradient steps a second"
    monkeypatch.setattr(missing_module, "processor", lambda: "another")
    assert markdown_page(SUITES, Evidence(RESULTS)) == text, "the page is the same wherever it is made"


def test_a_folder_without_records_says_so(tmp_path: Path) -> None:
    text = markdown_page(["mujoco"], Evidence(tmp_path / "none"))
    assert "0 were run in full" in text and "made with no machine yet" in text and "![" not in text


def test_report_writes_markdown_for_a_file_named_md(tmp_path: Path) -> None:
    assert main(["report", "toy", "--results", str(RESULTS), "--output", str(tmp_path / "toy.md")]) == 0
    text = (tmp_path / "toy.md").read_text(encoding="utf-8")
    assert text.startswith("# Results\n") and "## Toy" in text and "## Atari" not in text
    assert "![toy: interval](plots/toy-interval.png)" in text


def test_runs_without_available_data_are_counted_separately(tmp_path: Path) -> None:
    barred = sum(len(row.seeds) for row in remaining_runs("offline", Evidence(tmp_path)) if not row.runnable)
    assert barred == 120
    assert f"{barred} of these runs cannot be made" in markdown_page(["offline", "toy"], Evidence(tmp_path))
    assert "cannot be made" not in markdown_page(["toy"], Evidence(tmp_path))


def test_speed_on_frames_is_not_used_for_vectors() -> None:
    """Of BCQ on a body neither BCQ on Pong nor another method on a body says anything; TD3+BC speaks for TD3+BC."""
    every, unknown = gather(RESULTS), {"bcq", "td3bc-raw"}  # as if nobody had run these yet
    vector_runs = {key: runs for key, runs in every.items() if key.suite == "offline" and key.algorithm not in unknown}
    games = {key: runs for key, runs in every.items() if "pong" in key.dataset}
    assert any(key.algorithm == "bcq" for key in games) and any(key.algorithm == "il" for key in vector_runs)
    bcq, raw = (CellKey("offline", name, "HalfCheetah-v4", "halfcheetah-medium-v2") for name in ("bcq", "td3bc-raw"))
    assert throughput(bcq, vector_runs | games, "AMD EPYC", gpu=False) is None
    near = throughput(raw, vector_runs | games, "AMD EPYC", gpu=False)
    assert near is not None and near.nearest == "family"
    lacking = {row.key: row.hours for row in remaining_runs("offline", Evidence(Path("nowhere")))}
    assert set(lacking.values()) == {None}, "nothing was measured, so nothing is foretold"
