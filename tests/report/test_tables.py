"""Tables in every format: complete, and equal bytes for equal records."""

import csv
import io
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rlbench.report import tables
from rlbench.report.cells import Cell, Measured, every_cell
from rlbench.report.evidence import packaged
from rlbench.report.reference_table import DATA, SUITES, CellKey, ReferenceScore
from rlbench.report.verdict import Verdict
from tests.conftest import RecordRun

SCHEMA = json.loads((DATA / "schema" / "table.json").read_text(encoding="utf-8"))
DOCUMENT = ReferenceScore(
    score=7307.0, std=None, low=None, high=None, n=1, estimator="best-of-run", steps="10M", metric="", variant="",
    system="Tianshou", source="a/README.md@0", note="",
)  # fmt: skip
SCORE = Measured(
    score=1234.5678, low=1000.04, high=1469.0, n=3, estimator="best-of-run", env_steps=10_000_000, env_id="x",
    seeds=(0, 1, 4),
)  # fmt: skip
FULL = Cell(
    key=CellKey("atari", "dqn", "Qbert|<b>", ""), documented=DOCUMENT, measured=SCORE, verdict=Verdict("BELOW"),
    note="a & b",
)  # fmt: skip
EMPTY = Cell(
    key=CellKey("atari", "sac", "Pong", ""), documented=DOCUMENT, measured=None, verdict=Verdict("NOT RUN"), note=""
)


def test_markdown_table_equals_the_expected_text() -> None:
    assert tables.to_markdown([FULL, EMPTY]).splitlines() == [
        "| Algorithm | Task | Documented | Measured | Seeds | Steps | Verdict | Note |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- | --- |",
        "| dqn | Qbert\\|&lt;b> | 7,307 | 1,234.6 [1,000.0, 1,469.0] | 3 | 10,000,000 | BELOW | a & b |",
        "| sac | Pong | 7,307 |  |  |  | NOT RUN |  |",
        "",
        "- Documented: Tianshou, a/README.md@0 (best-of-run, one run).",
        "- Measured: mean over seeds by the reference's estimator, with the 95 % t-interval of that mean.",
    ]


def test_latex_table_equals_the_expected_text() -> None:
    odd = replace(FULL, key=CellKey("toy", "a_b", "50% {x}~$y$^#&\\", ""), verdict=Verdict("NOT RUN"), measured=None)
    assert tables.to_latex([odd, EMPTY]).splitlines() == [
        r"% \usepackage{booktabs}",
        "% Documented: Tianshou, a/README.md@0 (best-of-run, one run).",
        r"\begin{tabular}{lllrrl}",
        r"\toprule",
        r"Suite & Algorithm & Task & Documented & Measured & Verdict \\",
        r"\midrule",
        r"toy & a\_b & 50\% \{x\}\textasciitilde{}\$y\$\textasciicircum{}\#\&\textbackslash{} & 7,307 &  & NOT RUN \\",
        r"atari & sac & Pong & 7,307 &  & NOT RUN \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert (
        tables.to_latex([FULL])
        .splitlines()[-3]
        .endswith(r"& Qbert|$<$b$>$ & 7,307 & 1,234.6 [1,000.0, 1,469.0] & 3 & 10,000,000 & BELOW \\")
    )


def test_csv_holds_every_number_in_full() -> None:
    full, empty = csv.DictReader(io.StringIO(tables.to_csv([FULL, EMPTY])))
    assert (full["measured_score"], full["documented_score"]) == ("1234.5678", "7307.0")
    assert full["measured_seeds"] == "0 1 4"
    assert (empty["measured_score"], empty["verdict"], empty["measured_seeds"]) == ("", "NOT RUN", "")


def test_json_has_exactly_the_fields_of_the_contract() -> None:
    cell = json.loads(tables.to_json([FULL]))["cells"][0]
    fields_of_cell = ["documented", "measured", "rlbench", "behaviour", "expert"]
    assert list(cell) == [
        "suite", "algorithm", "task", "dataset", *fields_of_cell, "verdict", "shortfall_percent", "looks", "at", "note",
    ]  # fmt: skip
    assert list(cell["documented"]) == ["score", "std", "n", "estimator", "source"]
    fields = ["score", "low", "high", "n", "estimator", "env_steps", "env_id", "seeds"]
    assert list(cell["measured"]) == [*fields, "origin"]


def test_the_schema_knows_every_verdict() -> None:
    words = [*tables.STYLES, "INCONCLUSIVE (≈ 1 more seed)", "INCONCLUSIVE (> 100 more seeds)"]
    pattern = SCHEMA["$defs"]["cell"]["properties"]["verdict"]["pattern"]
    assert [word for word in words if not re.search(pattern, word)] == []
    assert not re.search(pattern, "FINE")


class Page(HTMLParser):
    """The texts of a page's table cells, and every address it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.fetched: list[str] = []
        self.open = False

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.open = self.open or tag == "td"
        if tag == "td":
            self.cells.append("")
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href"}]

    def handle_endtag(self, tag: str) -> None:
        self.open = self.open and tag != "td"

    def handle_data(self, data: str) -> None:
        if self.open:
            self.cells[-1] += data


def test_html_is_self_contained_and_shows_names_as_they_are() -> None:
    page = Page()
    page.feed(tables.to_html([FULL]))
    assert page.fetched == []
    assert page.cells == [
        "dqn", "Qbert|<b>", "BELOW", "7,307", "1,234.6 [1,000.0, 1,469.0]", "3", "10,000,000", "a & b",
    ]  # fmt: skip
    assert "{{" not in tables.to_html([FULL])


def test_html_table_fits_a_screen_of_400_pixels() -> None:
    """Static: the verdict stands behind the task, spare columns are hidden, and nothing is wider than the screen."""
    header = re.findall(r"<th(?: class=\"([a-z ]+)\")?>([^<]+)</th>", tables.html_table(packaged()))
    columns = [name for classes, name in header if "spare" not in classes.split()]
    assert columns[:4] == ["Suite", "Algorithm", "Task", "Verdict"] and set(columns[4:]) <= set(tables.SCORES)
    assert ("spare", "At equal steps") in header
    for page in ("table.html", "report.html"):
        style = (tables.DATA / page).read_text(encoding="utf-8").partition("</style>")[0]
        (narrow,) = re.findall(r"@media \(max-width: 45rem\) \{(.*?)\} \}", style)
        assert ".spare { display: none; }" in narrow and "overflow-wrap: anywhere" in narrow
        assert narrow.endswith("td span.word { overflow-wrap: normal; "), "a verdict is folded between words only"
        widths = re.findall(r"(?:min-width: |minmax\()([\d.]+)rem", style)
        assert all(float(width) * 16 <= 400 - 2 * 20 for width in widths), widths


def test_a_note_of_an_html_table_stands_below_its_row_and_is_as_wide_as_the_table() -> None:
    text = tables.html_table([FULL, EMPTY])
    assert text.count("<th") == 7 + 1  # <thead>
    assert '<tr class="note"><td colspan="7">a &amp; b</td></tr>' in text
    assert text.count("colspan") == 1


def test_a_plain_table_is_never_cut_or_coloured() -> None:
    text = tables.to_plain([replace(FULL, note="word " * 200)])
    assert "\x1b" not in text and "…" not in text and ("word " * 200).strip() in text


@pytest.mark.parametrize("width", [1, 20, 80])
def test_narrow_terminal_shows_every_word(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    text = tables.to_rich([FULL, EMPTY], width=width)
    for word in ("Qbert|<b>", "7,307", "1,234.6", "[1,000.0,", "1,469.0]", "BELOW", "Algorithm", "a & b"):
        assert word in text


@pytest.mark.parametrize("suite", [*SUITES, "all"])
def test_no_line_of_any_suite_is_wider_than_80_columns(
    suite: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    cells = every_cell(SUITES if suite == "all" else [suite], tmp_path)
    lines = tables.to_rich(cells, width=80).splitlines()
    assert max(map(len, lines)) <= 80
    words = {word for line in lines for word in line.split()}
    assert {cell.key.task for cell in cells if not cell.key.dataset} <= words


def test_tables_of_several_suites_have_a_suite_column(tmp_path: Path) -> None:
    assert "Suite" not in tables.columns(every_cell(["atari"], tmp_path))
    assert tables.columns(every_cell(["atari", "toy"], tmp_path))[0] == "Suite"


@pytest.mark.parametrize("style", list(tables.TEXTS))
def test_equal_records_give_equal_bytes_whatever_the_order_of_writing(
    record_run: RecordRun, results: Path, style: str
) -> None:
    texts = []
    for order in ((0, 1, 2), (2, 0, 1)):
        for seed in order:
            record_run([0.1 * seed, 5.0 + seed / 3], seed=seed)
        texts.append(tables.TEXTS[style](every_cell(["atari", "toy"], results)))
        shutil.rmtree(results)
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (-0.001, "0.00"), (20.25, "20.25"), (-20.5, "-20.50"), (316.04, "316.0"), (12345.67, "12,345.7")],
)
def test_numbers_are_rounded_for_people(value: float, text: str) -> None:
    one = Measured(score=value, low=None, high=None, n=1, estimator="best-of-run", env_steps=1, env_id="x")
    cell = Cell(key=EMPTY.key, documented=None, measured=one, verdict=Verdict("PARTIAL"), note="")
    assert f"|  | {text} | 1 |" in tables.to_markdown([cell])
