"""Comparisons, figures, the plan and the report page, from records without training."""

import io
import json
import re
from pathlib import Path
from typing import Any, get_args
from urllib.parse import unquote

import numpy as np
import pytest
from matplotlib import style
from matplotlib.image import imread

from rlbench import suites
from rlbench.cli.app import main
from rlbench.errors import UsageError
from rlbench.report import plot_data
from rlbench.report.aggregate import normalizer
from rlbench.report.evidence import Evidence
from rlbench.report.figure_style import STYLE, rc_settings
from rlbench.report.pages import html_page
from rlbench.report.plot_data import AlgorithmScores, Panel, find_cells
from rlbench.report.plots import ORDER, Kind, draw, encode_figure, line_styles
from rlbench.report.reference_table import CellKey
from rlbench.report.remaining_work import remaining_runs, throughput
from rlbench.report.run_index import gather
from tests.commands import stderr_of, stdout_of
from tests.conftest import Patch, RecordRun, RecordSeeds
from tests.report.conftest import RESULTS
from tests.report.test_tables import Page
from tests.slow import slow_but

pytestmark = pytest.mark.usefixtures("empty_folder")


def panels(suite: str, evidence: Evidence, *tasks: str, hours: bool = False) -> tuple[Panel, ...]:
    return plot_data.panels(suite, evidence, find_cells(suite, evidence, tasks), by_name=bool(tasks), hours=hours)


def algorithm_scores(suite: str, results: Path) -> tuple[str, tuple[AlgorithmScores, ...]]:
    return plot_data.algorithm_scores(suite, find_cells(suite, Evidence(results)))


@pytest.fixture
def two_algorithms(record_seeds: RecordSeeds) -> Path:
    """DQN reaches 0.75 and 0.875 on Catch, C51 1.0 twice; DQN alone plays the pole."""
    record_seeds([-0.6, 0.75], [-0.6, 0.875], suite="toy", task="Catch")
    record_seeds([-0.6, 1.0], [-0.6, 1.0], suite="toy", task="Catch", algo="c51")
    record_seeds([20.0, 500.0], suite="toy", task="CartPole-v1")
    return Path("results")


@pytest.mark.parametrize(("one", "right"), [("dqn", "nothing"), ("results", "dqn"), ("dqn", "rainbow")])
def test_invalid_comparisons_are_refused_in_one_line(two_algorithms: Path, one: str, right: str) -> None:
    assert len(stderr_of(["compare", one, right]).splitlines()) == 1


def test_compare_prints_means_and_probability_on_the_tasks_that_both_have(two_algorithms: Path) -> None:
    text = stdout_of(["compare", "dqn", "c51"])
    assert "toy/Catch" in text and "100 % [39, 100]" in text and "random policy 0, reference of dqn 1" in text
    assert "interquartile mean of c51: 1.000; " in text and "Fewer than 5 seeds" in text
    document = json.loads(stdout_of(["compare", "dqn", "c51", "--json"]))
    assert [(t["task"], t["left"], t["right"]) for t in document["tasks"]] == [("Catch", [0.75, 0.875], [1.0, 1.0])]
    assert document["improvement"]["value"] == 1.0 and document["iqm"][0]["low"] is None
    assert [mean["value"] for mean in document["iqm"]] == pytest.approx([(0.8125 + 0.6) / 1.6, 1.0])
    assert [gap["value"] for gap in document["optimality_gap"]] == pytest.approx([0.1875 / 1.6, 0.0])


def test_compare_shows_an_interval_of_five_seeds_unless_they_tie(record_seeds: RecordSeeds) -> None:
    record_seeds(*([-0.6, seed / 8] for seed in range(5)), suite="toy", task="Catch")
    record_seeds(*[[-0.6, 1.0]] * 5, suite="toy", task="Catch", algo="c51")
    text = stdout_of(["compare", "dqn", "c51", "--results", "results"])
    assert re.search(r"mean of dqn: 0\.531 \[0\.\d+, 0\.\d+\];", text) and "mean of c51: 1.000; " in text
    assert "Fewer than" not in text


@pytest.mark.parametrize(
    ("record", "options", "notes"),
    [
        ({"status": "failed"}, [], ["1 run that failed: left out"]),
        ({"status": "interrupted"}, [], ["1 run short of the budget: left out"]),
        ({"status": "interrupted"}, ["--kind", "interval"], ["1 run short of the budget: left out"]),
        ({"status": "failed"}, ["--kind", "interval"], []),  # at the random policy's score
        ({"sets": ["algo.lr=0.5"]}, ["--kind", "interval"], ["1 run of other settings: left out"]),
        ({"status": "interrupted"}, ["--algo", "c51"], []),
        ({"sets": ["algo.lr=0.5"]}, [], ["1 run of other settings: left out"]),
        ({"sets": ["algo.lr=0.5"]}, ["--task", "Catch"], []),
    ],
)
def test_plot_counts_the_runs_that_no_curve_shows(
    record: dict[str, Any], options: list[str], notes: list[str], two_algorithms: Path, record_run: RecordRun
) -> None:
    record_run((0.5,), suite="toy", task="Catch", seed=9, **record)
    line = ["plot", "toy", "--results", str(two_algorithms), "--output", "x.svg", *options]
    assert stderr_of(line, 0).splitlines()[:-1] == notes


def test_plot_counts_them_where_there_is_nothing_to_draw(record_run: RecordRun) -> None:
    record_run((0.5,), suite="toy", task="Catch", sets=["protocol.episodes=128"])
    note, error = stderr_of(
        ["plot", "toy", "--results", "results", "--output", "x.svg", "--kind", "interval"], 2
    ).splitlines()
    assert note == "1 run of another protocol: left out" and "no finished run of toy to draw" in error


def test_unfinished_seeds_of_another_protocol_are_not_drawn_in_the_place_of_all(record_run: RecordRun) -> None:
    for seed, status in enumerate(("done", "interrupted")):
        record_run((0.5,), suite="toy", task="Catch", seed=seed, sets=["protocol.episodes=128"], status=status)
    *notes, error = stderr_of("plot toy --results results --output x.svg", 2).splitlines()
    assert notes == ["1 run of another protocol: left out", "1 run of other settings: left out"]
    assert "no finished run of toy to draw" in error


def test_bootstrap_intervals_of_fewer_than_five_seeds_are_not_drawn(
    two_algorithms: Path, record_seeds: RecordSeeds
) -> None:
    def bars(kind: Kind) -> int:
        (axes,) = draw("toy", kind, Evidence(two_algorithms), tasks=["Catch"]).axes
        return len(axes.collections) if kind == "profile" else sum(line.get_linewidth() == 5 for line in axes.lines)

    assert (bars("interval"), bars("profile"), bars("improvement")) == (0, 0, 2)
    record_seeds([-0.6, 0.7], [-0.6, 0.8], [-0.6, 0.9], start=2, suite="toy", task="Catch", algo="c51")
    assert (bars("interval"), bars("profile"), bars("improvement")) == (1, 1, 2)


def test_title_appears_literally_above_a_figure(two_algorithms: Path) -> None:
    words = ["plot", "toy", "--output", "titled.svg", "--results", "results", "--title"]
    assert main([*words, "Toys,\x0b$5 each$ \udcfc"]) == 0
    assert ">Toys, $5 each$ ?</text>" in Path("titled.svg").read_text(encoding="utf-8")


def test_large_equal_returns_have_a_curve_in_the_report(record_seeds: RecordSeeds) -> None:
    record_seeds(*[[3e9, 3e9, 3e9]] * 2, suite="toy", algo="dqn", task="Catch")
    assert main(["report", "toy", "--results", "results", "--output", "page.html"]) == 0
    assert 'points="' in Path("page.html").read_text(encoding="utf-8")


def test_settings_of_matplotlib_change_the_figure_or_are_refused(two_algorithms: Path) -> None:
    words = ["plot", "toy", "--results", "results", "--output", "small.png", "--rc"]
    assert main([*words, "figure.figsize=4,3", "--rc", "savefig.dpi=50"]) == 0
    assert imread("small.png").shape[:2] == (150, 200)
    refusals = {
        "figure.size=4,3": "did you mean 'figure.figsize'",
        "font.size=big": "'big'",
        "text.usetex=True": "would run TeX",
        "figure.figsize=800,600": "has 120,000 × 90,000 pixels, 100,000,000 are allowed",
        "figure.figsize=-1,2": "--rc figure.figsize=-1,2: figure size must be positive",
        "savefig.dpi=1e9": "pixels, 100,000,000 are allowed",
        "savefig.dpi=nan": "--rc",
        "font.size=1e6": "--rc font.size=1e6: ",
        "path.effects=[1]": "--rc path.effects=[1]: ",
        "font.family=serf": "--rc font.family: unknown font 'serf'; did you mean 'serif'",
    }
    for setting, refusal in refusals.items():
        (line,) = stderr_of([*words, setting]).splitlines()
        assert refusal in line


@pytest.mark.parametrize("kind", [kind for kind in get_args(Kind) if kind != "forest"])  # a bound needs three seeds
def test_every_kind_of_figure_is_drawn_deterministically(kind: str, two_algorithms: Path) -> None:
    images = [encode_figure(draw("toy", kind, Evidence(two_algorithms)), ".svg") for _ in range(2)]
    assert images[0] == images[1]
    assert b"dqn" in images[0] and b"c51" in images[0]
    assert encode_figure(draw("toy", kind, Evidence(two_algorithms)), ".png").startswith(b"\x89PNG")


def test_curve_contains_every_seed_and_the_reference(two_algorithms: Path) -> None:
    scores = {panel.title: panel for panel in panels("toy", Evidence(two_algorithms))}
    line = next(line for line in scores["Catch"].lines if line.algorithm == "dqn")
    assert line.x.tolist() == [0, 4000]
    assert line.low == pytest.approx([-0.6, 0.8125 - 0.0625])  # one std, divided by n
    assert line.high == pytest.approx([-0.6, 0.8125 + 0.0625])
    assert scores["Catch"].scores["dqn"] == 1.0
    assert panels("toy", Evidence(two_algorithms), hours=True)[0].lines[0].x[-1] == pytest.approx(1 / 3600)


def test_a_documented_task_is_drawn_before_anything_is_run() -> None:
    (panel,) = panels("mujoco", Evidence(Path("nowhere")), "Hopper-v3")
    assert {"sac", "td3"} <= set(panel.curves) and panel.lines == ()


def test_the_verdict_at_equal_steps_is_marked_on_the_curves(record_seeds: RecordSeeds) -> None:
    words = {"suite": "mujoco", "algo": "sac", "task": "HalfCheetah-v4", "status": None}
    record_seeds(*([9000.0 + seed] * 21 for seed in range(3)), **words)  # far above a curve that has just begun to rise
    (panel,) = panels("mujoco", Evidence(Path("results")))
    assert (str(panel.verdicts["sac"]), list(panel.verdicts)) == ("AHEAD @100k", ["sac"])
    figure = draw("mujoco", "curves", Evidence(Path("results")))
    (marker,) = [line for line in figure.axes[0].lines if line.get_marker() == "^" and len(line.get_xdata()) == 1]
    assert (marker.get_xdata()[0], marker.get_ydata()[0]) == (100.0, 9001.0)  # thousand steps
    assert "AHEAD at equal steps" in [text.get_text() for text in figure.legends[0].get_texts()]
    hours_alone = draw("mujoco", "walltime", Evidence(Path("results")))
    assert not [text for text in hours_alone.legends[0].get_texts() if "equal steps" in text.get_text()]


def test_the_forest_of_the_committed_records_has_a_row_for_each_bound() -> None:
    evidence = Evidence(RESULTS)
    bounds = [cell for cell in evidence.cells(["mujoco"]) if cell.shortfall_percent is not None]
    (axes,) = draw("mujoco", "forest", evidence).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [f"{cell.key.algorithm} {cell.key.task}" for cell in bounds] and len(names) > 30
    ends = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "|"]
    assert [-end for end in ends] == pytest.approx([cell.shortfall_percent for cell in bounds])
    words = [text.get_text() for text in axes.texts]
    assert words == [f"{cell.verdict.word}, {len(cell.scores)} seeds" for cell in bounds]
    assert (RESULTS / "plots" / "mujoco-forest.png").is_file()


def test_scores_are_put_on_one_scale_with_their_documents(two_algorithms: Path) -> None:
    scale, (dqn, *_) = algorithm_scores("toy", two_algorithms)
    assert (scale, dqn.algorithm) == ("random policy 0, own published score 1", "dqn")
    assert (dqn.tasks, dqn.references) == (("Catch", "CartPole-v1"), (1.0, 1.0))
    assert dqn.scores[0] == pytest.approx((1.35 / 1.6, 1.475 / 1.6))


@pytest.mark.parametrize(
    "line",
    [
        ("plot", "toy", "--output", "a.png"),
        ("plot", "toy", "--output", "a.gif"),
        ("plot", "toy", "--output", "no/a.png"),
        ("plot", "mujoco", "--task", "Nothing*", "--output", "a.png"),
        ("report", "--output", "no/a.html"),
    ],
    ids=" ".join,
)
def test_invalid_plot_command_exits_2_and_writes_nothing(line: tuple[str, ...]) -> None:
    assert len(stderr_of(line).splitlines()) == 1
    assert list(Path().iterdir()) == []


def test_legend_names_only_drawn_algorithms(record_run: RecordRun) -> None:
    """Seven algorithms have documented curves of Hopper; beside measured ones only those of the same are drawn."""
    record_run([0.0, 1607.0, 2000.0], suite="mujoco", algo="ppo", task="Hopper-v4")
    (hopper,) = panels("mujoco", Evidence(Path("results")), "Hopper-v4")
    assert len(hopper.curves) > 1
    (legend,) = draw("mujoco", "curves", Evidence(Path("results")), tasks=("Hopper-v4",)).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "ppo", "published curve", "published score", "OPEN at equal steps", "± one std over seeds"
    ]  # fmt: skip


def test_published_curves_alone_are_dotted_and_called_published() -> None:
    figure = draw("mujoco", "curves", Evidence(Path("nowhere")), tasks=["Hopper-v3"], algorithms=["ppo"])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ppo, published", "± one std over seeds"]
    (line,) = figure.axes[0].lines
    assert (line.get_linestyle(), line.get_color()) == (":", line_styles(["ppo"])["ppo"].color)


def test_a_variant_is_a_line_of_its_own_by_what_differs(record_run: RecordRun) -> None:
    for lr in ("0.5", "0.25"):
        for steps in (10_000, 20_000):  # of one seed, which counts once
            record_run([0.0, 1.0], suite="toy", task="Catch", sets=[f"algo.lr={lr}", f"budget.steps={steps}"])
    (panel,) = panels("toy", Evidence(Path("results")))
    assert {line.algorithm: line.runs for line in panel.lines} == {"dqn lr=0.25": 1, "dqn lr=0.5": 1}
    styles = line_styles(["dqn", "dqn lr=0.25", "dqn lr=0.5"])
    assert len({style.color for style in styles.values()}) == 1
    assert len({style.dashes for style in styles.values()}) == 3
    assert main(["report", "toy", "--output", "page.html"]) == 0
    text = Path("page.html").read_text(encoding="utf-8")
    assert "No run has the published settings; 4 have others." in text and "dqn Catch (lr=0.5)" in text


def test_own_runs_are_drawn_beside_those_of_rlbench(two_algorithms: Path, record_run: RecordRun) -> None:
    two_algorithms.rename("brought")
    record_run([0.0, 0.5], suite="toy", task="Catch", seed=5)
    scores = panels("toy", Evidence(Path("results"), Path("brought"), own_only=False), "Catch")
    assert [line.algorithm for line in scores[0].lines if line.algorithm[:3] in {"dqn", "c51"}] == [
        "dqn", "dqn (rlbench)", "c51"
    ]  # fmt: skip


def test_algorithms_are_ranked_on_the_tasks_that_all_have(two_algorithms: Path) -> None:
    figure = draw("toy", "interval", Evidence(two_algorithms))  # DQN alone has CartPole-v1
    assert "on Catch;" in figure.axes[0].get_title()
    assert {text.get_text() for text in figure.axes[0].texts} == {"1 task × 2 seeds"}


def test_algorithms_without_a_common_task_are_not_ranked(record_run: RecordRun) -> None:
    record_run([1.0], suite="toy", task="Catch")
    record_run([1.0], suite="toy", task="CartPole-v1", algo="c51")
    assert "share no task" in stderr_of(["plot", "toy", "--kind", "interval", "--output", "a.svg"])


def test_an_algorithm_has_one_colour_in_every_figure() -> None:
    alone = {name: line_styles([name])[name] for name in ORDER}
    assert line_styles(ORDER) == alone and line_styles(ORDER[::-1]) == alone
    for suite in ("atari", "mujoco", "offline"):
        colors = [alone[name].color for name in suites.algorithms(suite) if name in alone and "+" not in name]
        assert len(colors) == len(set(colors)) > 5, suite


def test_a_pdf_has_the_same_bytes_every_time(two_algorithms: Path) -> None:
    files = [encode_figure(draw("toy", "curves", Evidence(two_algorithms)), ".pdf") for _ in range(2)]
    assert files[0] == files[1] and files[0].startswith(b"%PDF")


def test_algorithms_of_a_figure_differ_in_black_and_white() -> None:
    styles = list(line_styles([f"algorithm-{number}" for number in range(20)]).values())
    assert len({style.marker for style in styles}) == len({(style.color, style.dashes) for style in styles}) == 20


def test_a_document_on_d4rls_scale_is_drawn_in_raw_points(record_run: RecordRun) -> None:
    """CORL's 67.53 % of the way from -20 to 3,234 is a return of some 2,178, not of 68."""
    record_run([0.0, 1607.0], suite="offline", algo="iql", task="hopper-medium-v2")
    (panel,) = panels("offline", Evidence(Path("results")))
    _, (algo,) = algorithm_scores("offline", Path("results"))
    assert panel.scores["iql"] == pytest.approx(2177.54, abs=0.01)
    assert algo.references == pytest.approx((0.6753,))
    assert algo.scores[0] == pytest.approx((0.5,), abs=1e-3)


def test_common_scale_is_increasing_also_below_the_random_policy() -> None:
    keys = [CellKey("toy", "dqn", "Nowhere", ""), CellKey("toy", "dqn", "Pendulum-v1", "")]
    _, scales = normalizer(keys, [[-30.0, -20.0], [-1400.0, -1300.0]])
    assert all(scale.normalized(1.0) > scale.normalized(0.0) for scale in scales)


def test_the_best_run_of_a_task_is_1_for_every_algorithm() -> None:
    keys = [CellKey("goals", name, "FetchReach-v4", "") for name in ("ddpg", "ddpg+her")]  # one score is below random
    assert normalizer(keys, [[-40.0, -30.0], [-2.0]]) == ("random policy 0, best run 1", [(-49.4, -2.0)] * 2)


def addresses(text: str) -> list[str]:
    """Every address that a page would fetch."""
    parser = Page()
    parser.feed(text)
    return parser.fetched


def test_report_has_no_external_resources_and_all_sections(two_algorithms: Path, record_run: RecordRun) -> None:
    record_run([0.0], suite="toy", task="Catch", seed=9, status="failed")
    text = html_page(["toy", "mujoco"], Evidence(two_algorithms))
    assert all(address.startswith(("#", "data:image/svg+xml,")) for address in addresses(text))
    assert not re.search(r"url\(|@import|<script", text)
    assert "{{" not in text
    assert text.count("<polyline") == 6  # a curve per seed
    for words in ("1 of 3 runs failed", "a test says failed", "73 documented cells", "Missing for ten seeds"):
        assert words in text
    assert html_page(["toy", "mujoco"], Evidence(two_algorithms)) == text


def test_figures_of_the_report_equal_those_of_plot(two_algorithms: Path) -> None:
    """A data address decodes to the figure: well-formed, with its scales and every point."""
    fetched = addresses(html_page(["toy"], Evidence(two_algorithms)))
    figures = [unquote(address.partition(",")[2]) for address in fetched if address.startswith("data:")]
    assert len(figures) >= 4
    plotted = encode_figure(draw("toy", "curves", Evidence(two_algorithms)), ".svg").decode()
    assert figures[0] == " ".join(plotted.split())
    exact = io.BytesIO()
    with style.context(STYLE):
        draw("toy", "curves", Evidence(two_algorithms)).savefig(exact, format="svg", dpi=150)
    number = re.compile(r"\d+\.?\d*")

    def points(text: str) -> list[float]:
        return [float(scores) for path in re.findall(r' d="([^"]*)"', text) for scores in number.findall(path)]

    assert np.allclose(points(plotted), points(exact.getvalue().decode()), rtol=0, atol=0.005 + 1e-9)
    assert re.findall(r"scale\([^)]*\)", plotted) == re.findall(r"scale\([^)]*\)", exact.getvalue().decode())


def test_report_without_records_is_a_page() -> None:
    Path("results").mkdir()
    assert main(["report", "--output", "a.html"]) == 0
    assert "Nothing has been run yet" in Path("a.html").read_text(encoding="utf-8")


def test_a_task_whose_runs_have_all_failed_stays_in_the_scores(
    two_algorithms: Path, record_seeds: RecordSeeds, monkeypatch: Patch
) -> None:
    record_seeds([500.0], [500.0], suite="toy", algo="dqn", task="CartPole-v1", status="failed")
    record_seeds([500.0], [500.0], suite="toy", algo="c51", task="CartPole-v1")
    tasks = {row.algorithm: row.tasks for row in algorithm_scores("toy", two_algorithms)[1]}
    assert set(tasks["dqn"]) == set(tasks["c51"]) == {"Catch", "CartPole-v1"}
    monkeypatch.setattr("rlbench.report.plot_data.scale_of", lambda key: None)
    tasks = {row.algorithm: row.tasks for row in algorithm_scores("toy", two_algorithms)[1]}
    assert set(tasks["dqn"]) == {"Catch"}, "without a random score none is known"


def test_runs_that_run_would_not_do_are_not_planned(two_algorithms: Path, record_run: RecordRun) -> None:
    record_run([0.0] * 5, suite="toy", task="Catch", seed=2, sets=["budget.steps=8000"])  # done, and not resumed
    record_run([0.0] * 13, suite="toy", task="Catch", seed=3, environment={"env": {"env": "test/later"}})
    rows = {row.key[1:3]: row for row in remaining_runs("toy", Evidence(two_algorithms), seeds=range(5))}
    assert (rows["dqn", "Catch"].seeds, rows["dqn", "Catch"].steps) == ((2, 4), 2 * 24_000)


def test_missing_runs_have_a_cost(two_algorithms: Path, record_run: RecordRun) -> None:
    record_run([0.0, 0.0], suite="toy", task="Catch", seed=2, status="interrupted")  # 4,000 steps are done
    rows = {row.key[1:3]: row for row in remaining_runs("toy", Evidence(two_algorithms), seeds=range(5))}
    dqn = rows["dqn", "Catch"]
    assert (dqn.seeds, dqn.steps, dqn.runnable) == ((2, 3, 4), 3 * 24_000 - 4_000, True)
    assert dqn.hours is None  # these records have no speed
    assert throughput(dqn.key, gather(two_algorithms), "any", gpu=False) is None
    assert rows["iqn", "Catch"].seeds == (0, 1, 2, 3, 4)


def test_plan_takes_hours_from_the_committed_records() -> None:
    rows = remaining_runs("atari", Evidence(RESULTS), algorithms=["dqn"], seeds=[0, 1])
    assert all(row.hours and 10 < row.hours < 100 for row in rows)  # 10 M steps at 140 a second are 20 hours
    assert rows[0].seeds == (1,)


def test_plan_as_json_is_a_ci_matrix() -> None:
    include = json.loads(stdout_of(["plan", "all", "--runnable", "--seeds", "0-2", "--json"]))["include"]
    assert {"suite", "algorithm", "task", "dataset", "seeds", "steps", "hours", "memory", "disk"} <= set(include[0])
    assert {row["seeds"] for row in include} == {"0,1,2"}
    assert stdout_of(["plan", "toy", "dqn", "--lines", "--seeds", "0"]).splitlines()[0].startswith("toy dqn ")


@pytest.mark.parametrize("suite", slow_but(["atari", "mujoco", "toy", "goals"], 3))
@pytest.mark.parametrize("kind", ["curves", "walltime", "interval"])
def test_committed_figure_is_current(suite: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "new.png").write_bytes(encode_figure(draw(suite, kind, Evidence(RESULTS)), ".png"))
    new, old = imread(tmp_path / "new.png"), imread(RESULTS / "plots" / f"{suite}-{kind}.png")
    assert new.shape == old.shape, "run scripts/tables and commit what it writes"
    assert float(np.abs(new - old).mean()) < 0.002, "run scripts/tables and commit what it writes"


@pytest.mark.filterwarnings("always")
def test_a_setting_that_matplotlib_ignores_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--rc figure\.raise_window: .* not related to style.*; leave it out"):
        rc_settings(["font.size=8", "figure.raise_window=True"])
