"""Error rates of the verdicts at equal steps and of ``run --until-decided``: ``scripts/calibration`` writes the tables.

Simulated curves have the documented means and stds. Seeds are normal, and AR(1) from one evaluation to the next. The
mean of our seeds differs by a multiple of the margin. At -1 ON TRACK and BEHIND are false, at 1 AHEAD is.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.special import stdtr

from rlbench.records.looks import DESIGNS, MAX_STD_RATIO, SHARED_ERROR_DESIGNS
from rlbench.report.cells import every_cell
from rlbench.report.equal_steps import (
    SHARE_OF_RISE,
    STDS_ABOVE_START,
    TEST_SHARES,
    ReferenceCurve,
    at_equal_steps,
    cumulative_alpha,
    decide_at_equal_steps,
    interpolate,
    reference_curve,
    window,
)
from rlbench.report.reference_scores import SHARE, margin, reference_cells, reference_curves
from rlbench.report.reference_table import CellKey, on_scale, scale_of
from rlbench.report.run_index import Runs, gather
from rlbench.report.verdict import ALPHA, MIN_SEEDS

Array: TypeAlias = NDArray[np.float64]
Row: TypeAlias = dict[str, str]
Design: TypeAlias = Sequence[tuple[int, float]]  # its looks: seeds and level

REPEATS: Final = 4_000
SEEDS: Final = (3, 5, 10)
CORRELATION: Final = 0.9  # between neighbouring evaluations of a seed
SHIFTS: Final = (0.0, -0.5, -1.0, -2.0)  # true differences in margins, equally likely
WORDS: Final = ("ON TRACK", "AHEAD", "OPEN", "BEHIND", "TOO EARLY")
SUBSETS: Final = 20  # of three seeds of a cell that was run in full
STD_RATIOS: Final = (0.5, 1.0, 2.0, 3.0, 4.0, 20.0)  # of our seeds to the documented ones
TABLES: Final = ("equal_steps", "transitions", "records", "until_decided")
FIXED: Final = (*range(3, 21), 24, 28, 32)  # seeds of the designs with one look
ERROR_REPEATS: Final = 50 * REPEATS  # of the error rates of looks
ERRORS: Final = ("false_reproduced", "false_below", "false_above")
AT_STEPS: Final = ("false_on_track", "false_behind", "false_ahead")


class Chances(NamedTuple):
    """One-sided p-values of a difference, an array each."""

    worse: Array  # of the hypothesis that our mean is below the margin: small where it is not
    below: Array  # of the hypothesis that our mean is within the margin: small where it is below
    above: Array  # the same, small where our mean is above


def welch(scores: Array, mean: Array, std: Array, n: int, margins: Array | float) -> Chances:
    """Test seeds against documented ones as ``rlbench.report.verdict.welch_test`` does, in all repetitions at once.

    ``scores`` is ``[R, k]``, the others ``[R]``; ``std`` is divided by ``n``.
    """
    count = scores.shape[1]
    ours, theirs = scores.var(axis=1, ddof=1) / count, std**2 / (n - 1)
    squares = ours, np.maximum(ours, theirs * n / count)
    error, difference = np.sqrt(ours + theirs), scores.mean(axis=1) - mean
    with np.errstate(divide="ignore", invalid="ignore"):  # a documented std of 0 at the start, where nothing is tested
        degrees = np.minimum.reduce(
            [np.floor((s + theirs) ** 2 / (s**2 / (count - 1) + theirs**2 / (n - 1)) + 1e-9) for s in squares]
        )
        lower, upper = (difference + margins) / error, (difference - margins) / error
    return Chances(stdtr(degrees, -lower), stdtr(degrees, lower), stdtr(degrees, -upper))


class Simulation(NamedTuple):
    """Words ``[R, test steps]`` of a cell as indices of ``WORDS``."""

    words: NDArray[np.int64]

    @property
    def informative(self) -> NDArray[np.bool_]:
        """Checkpoints that are not too early, ``[R, test steps]``."""
        return np.not_equal(self.words, WORDS.index("TOO EARLY"))

    def rate_per_look(self, word: str) -> float:
        """Share of a word among the informative looks."""
        return float((self.words == WORDS.index(word)).sum() / max(1, self.informative.sum()))

    def rate_ever(self, word: str) -> float:
        """Share of repetitions with the word at any test step."""
        return float((self.words == WORDS.index(word)).any(axis=1).mean())


def simulate(key: CellKey, curve: ReferenceCurve, seeds: int, shift: float, repeats: int = REPEATS) -> Simulation:
    """Simulate documented and own seeds of a cell whose true difference is ``shift`` margins at every test step."""
    draw = np.random.default_rng([*"/".join(key).encode(), seeds, round(10 * abs(shift))])
    windows = [[step - curve.curve.uncounted_steps for step in window(at, curve.epoch)] for at in curve.test_steps]
    places = np.array([place for window in windows for place in window])
    ends = np.cumsum([len(window) for window in windows])
    mean, std = (
        np.array([interpolate(place, curve.curve.env_steps, values) for place in places.tolist()])
        for values in (curve.curve.mean, curve.curve.std)
    )
    std = np.maximum(std, 1e-6 * (max(curve.curve.mean) - curve.curve.mean[0]))  # equal seeds would tie at the margin
    n, columns = curve.curve.n, len(places)
    correlation = CORRELATION ** (np.abs(places[:, None] - places) / curve.epoch)
    root = np.linalg.cholesky(correlation + 1e-9 * np.eye(columns)).T * std * np.sqrt(n / (n - 1))

    def window_means(values: Array) -> Array:
        return np.stack([part.mean(axis=-1) for part in np.split(values, ends[:-1], axis=-1)], axis=-1)

    theirs = mean + draw.standard_normal((repeats, n, columns)) @ root
    level, spread = window_means(theirs.mean(axis=1)), window_means(theirs.std(axis=1))
    scale = scale_of(key)
    random = scale.random if scale is not None else curve.curve.mean[0]
    margins = np.maximum(SHARE * np.abs(level - random), spread)
    ours = window_means(mean + draw.standard_normal((repeats, seeds, columns)) @ root) + shift * margins[:, None]
    start = curve.curve.mean[0]
    best = max(np.array(curve.curve.mean)[np.array(curve.curve.env_steps) <= curve.budget].tolist())
    rise = level - start
    begun = np.array([at > curve.curve.uncounted_steps for at in curve.test_steps])
    informative = begun & (rise > 0) & (rise >= np.maximum(STDS_ABOVE_START * spread, SHARE_OF_RISE * (best - start)))
    words = np.full(level.shape, WORDS.index("TOO EARLY"))
    for look in range(len(TEST_SHARES)):
        chances = welch(ours[:, :, look], level[:, look], spread[:, look], n, margins[:, look])
        share = cumulative_alpha(look + 1) - cumulative_alpha(look)
        word = np.where(chances.worse < ALPHA, WORDS.index("ON TRACK"), WORDS.index("OPEN"))
        word = np.where((chances.above <= share) & (chances.worse < ALPHA), WORDS.index("AHEAD"), word)
        word = np.where(chances.below <= share, WORDS.index("BEHIND"), word)
        words[:, look] = np.where(informative[:, look], word, words[:, look])
    return Simulation(words)


def cell_rows(key: CellKey, curve: ReferenceCurve, repeats: int = REPEATS) -> Iterator[Row]:
    """Yield the error rates of a cell at the margin, a row for each number of seeds."""
    for seeds in SEEDS:
        lower, upper = (simulate(key, curve, seeds, shift, repeats) for shift in (-1.0, 1.0))
        yield {
            **dict(zip(("suite", "algorithm", "task"), key, strict=False)),
            "seeds": str(seeds),
            "informative_looks": f"{lower.informative.sum(axis=1).mean():.2f}",
            "false_on_track": f"{lower.rate_per_look('ON TRACK'):.4f}",
            "false_behind": f"{lower.rate_ever('BEHIND'):.4f}",
            "false_ahead": f"{upper.rate_ever('AHEAD'):.4f}",
        }


def curves() -> dict[CellKey, ReferenceCurve]:
    """Documented curves of the cells that have a row in rlbench's tables."""
    return {key: curve for key in sorted(reference_curves()) if (curve := reference_curve(key)) is not None}


def transition_rows(curves_by_cell: Mapping[CellKey, ReferenceCurve], repeats: int = REPEATS // 10) -> Iterator[Row]:
    """Yield how often each word at the full budget follows a word at a test step, over all cells and ``SHIFTS``."""
    counts: Counter[tuple[int, int, int]] = Counter()
    for key, curve in curves_by_cell.items():
        for shift in SHIFTS:
            words = simulate(key, curve, MIN_SEEDS, shift, repeats).words
            for look in range(len(TEST_SHARES) - 1):
                counts.update(zip([look] * repeats, words[:, look].tolist(), words[:, -1].tolist(), strict=True))
    for look, share in enumerate(TEST_SHARES[:-1]):
        for index, word in enumerate(WORDS):
            finals = [counts[look, index, last] for last in range(len(WORDS))]
            if sum(finals):
                shares = {f"then {name}": f"{hits / sum(finals):.3f}" for name, hits in zip(WORDS, finals, strict=True)}
                yield {"checkpoint": f"{share:.0%}", "word": word, "looks": str(sum(finals)), **shares}


def record_rows(results: Path) -> Iterator[Row]:
    """Yield the words of three seeds of each cell that was run in full, at each test step, beside its final verdict.

    The seeds are every three of the cell's, at most ``SUBSETS`` of them; the verdict is that of all seeds.
    """
    finals = {cell.key: cell.verdict.word for cell in every_cell(["atari", "mujoco"], results)}
    counts: Counter[tuple[str, str, str]] = Counter()
    for key, runs in sorted(gather(results).items()):
        curve = reference_curve(key)
        if curve is None or len(runs.complete) < MIN_SEEDS or runs.failed:
            continue
        for subset in islice(combinations(runs.complete, MIN_SEEDS), SUBSETS):
            for share, step in zip(TEST_SHARES, curve.test_steps, strict=True):
                short = [
                    replace(
                        run,
                        status="interrupted",
                        evaluations=tuple(e for e in run.evaluations if e.env_steps < step + curve.epoch),
                    )
                    for run in subset
                ]
                at = at_equal_steps(key, Runs(short=short))
                if at is not None and at.reference.step == step:
                    (worded,) = decide_at_equal_steps([at])
                    counts[f"{share:.0%}", worded.word if worded else "", finals[key]] += 1
    for (label, word, final), hits in sorted(counts.items(), key=lambda item: (int(item[0][0][:-1]), item[0])):
        yield {"checkpoint": label, "word": word, "final": final, "subsets": str(hits)}


def margins_in_stds() -> list[float]:
    """Margins of the documented MuJoCo cells in sample stds of the documented seeds."""
    margins = []
    for cell in reference_cells("mujoco"):
        score = cell.primary
        if score.std and score.n and score.n > 1 and on_scale(scale_of(cell.key), score.estimator) is not None:
            margins.append(margin(cell.key, score) / (score.std * (score.n / (score.n - 1)) ** 0.5))
    return margins


def sequential(
    cell_margin: float, shift: float, ratio: float, designs: Sequence[Design], repeats: int = REPEATS
) -> tuple[dict[str, float], float]:
    """Simulate ``--until-decided`` against ten documented seeds of std 1; rates of verdicts, and mean seeds.

    ``cell_margin`` is the margin, ``shift`` the true difference in margins and ``ratio`` the std of our seeds. A second
    design is that of seeds whose first three vary at most ``MAX_STD_RATIO`` times as much as the documented ones.
    """
    draw = np.random.default_rng([round(1000 * cell_margin), round(10 * shift + 100), round(10 * ratio)])
    mean, std = draw.standard_normal(repeats) / 10**0.5, np.sqrt(draw.chisquare(9, repeats) / 10)
    scores = shift * cell_margin + ratio * draw.standard_normal((repeats, designs[0][-1][0]))
    tests = [welch(scores[:, :seeds], mean, std, 10, cell_margin) for seeds, _ in designs[0]]
    word, seeds_used = _sequential_test(tests, designs[0])
    for design in designs[1:]:
        similar = scores[:, :MIN_SEEDS].std(axis=1, ddof=1) <= MAX_STD_RATIO * std * (10 / 9) ** 0.5
        other_word, other_seeds = _sequential_test(tests, design)
        word, seeds_used = np.where(similar, other_word, word), np.where(similar, other_seeds, seeds_used)
    return {name: float((word == name).mean()) for name in ("REPRODUCED", "BELOW", "ABOVE")}, float(seeds_used.mean())


def _sequential_test(tests: Sequence[Chances], design: Design) -> tuple[NDArray[np.str_], Array]:
    """The verdicts of a design and the seeds that it takes, ``[R]`` each; a test a look."""
    size = len(tests[0].worse)
    word, seeds_used = np.full(size, "INCONCLUSIVE"), np.full(size, float(design[-1][0]))
    inflation = sum(level for _, level in design)
    for chances, (seeds, level) in zip(tests, design, strict=True):
        look = np.where(chances.worse < level, "REPRODUCED", "INCONCLUSIVE")
        look = np.where((chances.worse < level) & (chances.above * inflation / level <= ALPHA), "ABOVE", look)
        look = np.where(chances.below * inflation / level <= ALPHA, "BELOW", look)
        now = (word == "INCONCLUSIVE") & (look != "INCONCLUSIVE")
        word[now], seeds_used[now] = look[now], seeds
    return word, seeds_used


def errors(cell_margin: float, ratio: float, designs: Sequence[Design], repeats: int) -> tuple[float, ...]:
    """The rates of ``ERRORS`` where our mean is one margin below the documented one, for ABOVE one margin above.

    Those below are the same for every margin: the test adds the margin that our mean lacks. ABOVE is the more frequent
    the smaller the margin, since REPRODUCED ends a design.
    """
    (lower, _), (upper, _) = (sequential(cell_margin, shift, ratio, designs, repeats) for shift in (-1.0, 1.0))
    return lower["REPRODUCED"] + lower["ABOVE"], lower["BELOW"], upper["ABOVE"]


def sequential_rows() -> Iterator[Row]:
    """Yield each design's error rates, then the power and seeds of these and of fixed designs.

    A design after a fixed test of three seeds shows why it is refused: its first look takes all of 5 %.
    """
    margins = margins_in_stds()
    designs: dict[str, Sequence[Design]] = {
        f"at most {most}": (design, SHARED_ERROR_DESIGNS[most]) for most, design in DESIGNS.items()
    }
    after = {"fixed 3, then at most 20": [((MIN_SEEDS, ALPHA), *design[1:]) for design in designs["at most 20"]]}
    for name, design in (designs | after).items():
        for ratio in STD_RATIOS:
            rates = errors(min(margins), ratio, design, ERROR_REPEATS)
            fields = zip(ERRORS if name in designs else ERRORS[:1], rates, strict=False)
            yield {"design": name, "std_ratio": f"{ratio:g}", **{column: f"{rate:.5f}" for column, rate in fields}}
    for name, design in (designs | {f"fixed {count}": [((count, ALPHA),)] for count in FIXED}).items():
        runs = [sequential(value, 0.0, 1.0, design) for value in margins]
        power = np.mean([rates["REPRODUCED"] + rates["ABOVE"] for rates, _ in runs])
        yield {"design": name, "power": f"{power:.4f}", "mean_seeds": f"{np.mean([seeds for _, seeds in runs]):.2f}"}


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as CSV; a missing field is empty."""
    all_rows = list(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, list(dict.fromkeys(name for row in all_rows for name in row)), lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(all_rows)


def read(path: Path) -> list[Row]:
    """Read the rows of a CSV."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def summary(cells: Sequence[Row], transitions: Sequence[Row], records: Sequence[Row], looks: Sequence[Row]) -> str:
    """Format the four tables as Markdown."""
    lines = [
        "# Calibration of the verdicts",
        "",
        f"`scripts/calibration` makes these tables: {REPEATS:,} repetitions a cell, seeds normal with the documented",
        f"means and stds, a correlation of {CORRELATION:g} between neighbouring evaluations. ± is the standard error.",
        "",
        "![False rates at the margin](calibration.png)",
        "",
        f"## Equal steps: {len(cells) // len(SEEDS)} documented curves, our mean one margin away at every step",
        "",
        "`ON TRACK` is a statement about its own step: the rate is that of an informative test step. `BEHIND` and",
        "`AHEAD` count at any of the seven test steps, all of which are looked at. A cell's rate is its mean over",
        "the repetitions.",
        "",
        *_table([_cell_summary(cells, seeds) for seeds in SEEDS]),
        "",
        "## The word at the full budget after a word of three seeds at a test step",
        "",
        f"Simulated, our mean {', '.join(f'{abs(shift):g}' for shift in SHIFTS)} margins below theirs, equally often.",
        "",
        *_table(transitions),
        "",
        "## The verdict of all seeds after a word of three of them at a test step",
        "",
        f"Cells of `results/` that were run in full; every three of a cell's seeds, at most {SUBSETS}.",
        "",
        *_table(_wide(records)),
        "",
        "## Seeds until decided",
        "",
        "False verdicts at the margin, against ten documented seeds: the highest where our std is",
        f"{', '.join(f'{ratio:g}' for ratio in STD_RATIOS)} times theirs, each of {ERROR_REPEATS:,} repetitions.",
        "`ABOVE` is simulated at MuJoCo's smallest margin, where it is most frequent; the others are the same at all.",
        "Power is the share of MuJoCo's cells that a design reproduces without a difference. Fixed seeds are",
        "interpolated.",
        "",
        *_table(sequential_summary(looks)),
        "",
        f"A fixed test of three seeds, and after it the looks up to 20, call up to {after_fixed(looks)} of the cells",
        "`REPRODUCED` falsely, so `--until-decided` refuses to begin there.",
    ]
    return "\n".join(lines) + "\n"


def _rate(rate: float, repeats: int) -> str:
    """``4.94 ± 0.34 %``."""
    return f"{100 * rate:.2f} ± {100 * (rate * (1 - rate) / repeats) ** 0.5:.2f} %"


def after_fixed(looks: Sequence[Row]) -> str:
    """The highest rate of false REPRODUCED with a fixed test before the looks."""
    return _rate(max(float(row[ERRORS[0]]) for row in looks if row["design"].startswith("fixed 3,")), ERROR_REPEATS)


def _cell_summary(cells: Sequence[Row], seeds: int) -> Row:
    texts = {"seeds": str(seeds)}
    for name in AT_STEPS:
        rates, title = [float(row[name]) for row in cells if row["seeds"] == str(seeds)], name.replace("_", " ")
        texts[f"mean {title}"] = _rate(float(np.mean(rates)), REPEATS * len(rates))
        texts[f"highest {title}"] = _rate(max(rates), REPEATS)
    return texts


def sequential_summary(looks: Sequence[Row]) -> list[Row]:
    """A row for each design: its highest error rates, its power and seeds, and the fixed design of equal power."""
    powers = {row["design"]: row for row in looks if row["power"]}
    fixed = np.maximum.accumulate([float(powers[f"fixed {count}"]["power"]) for count in FIXED])
    rows = []
    for most in DESIGNS:
        name = f"at most {most}"
        rates = [row for row in looks if row["design"] == name and row["std_ratio"]]
        power, seeds = (float(powers[name][column]) for column in ("power", "mean_seeds"))
        equal = np.interp(power, fixed, FIXED)
        rows.append(
            {"most seeds": str(most)}
            | {
                column.replace("_", " "): _rate(max(float(row[column]) for row in rates), ERROR_REPEATS)
                for column in ERRORS
            }
            | {"power": f"{power:.1%}", "mean seeds": f"{seeds:.1f}", "fixed seeds of equal power": f"{equal:.1f}"}
            | {"share": f"{seeds / equal:.0%}"}
        )
    return rows


def _wide(records: Sequence[Row]) -> list[Row]:
    """A row for each test step and word, with a column for each final verdict."""
    finals = sorted({row["final"] for row in records})
    rows: dict[tuple[str, str], Row] = {}
    for row in records:
        key = row["checkpoint"], row["word"]
        base = {"checkpoint": key[0], "word": key[1], **{f"then {final}": "0" for final in finals}}
        rows.setdefault(key, base)[f"then {row['final']}"] = row["subsets"]
    return list(rows.values())


def _table(rows: Sequence[Row]) -> list[str]:
    header = list(rows[0])
    body = [[row[name] for name in header] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *body)]


def draw(cells: Sequence[Row], path: Path) -> None:
    """Draw the false rates of each cell against the number of seeds, and the 5 % that they may have."""
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, 3, sharey=True), AT_STEPS, strict=True):
        values = [[100 * float(row[name]) for row in cells if row["seeds"] == str(seeds)] for seeds in SEEDS]
        axes.boxplot(values, tick_labels=[str(seeds) for seeds in SEEDS], whis=(0, 100))
        axes.axhline(5, color="#d55e00", linewidth=1)
        word = name.removeprefix("false_").replace("_", " ").upper()
        title = f"False {word}, {'each' if name == AT_STEPS[0] else 'any'} test step"
        axes.set(title=title, xlabel="Seeds", ylabel="% of cells' repetitions", ylim=(0, 6.5))
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main(folder: Path, results: Path) -> None:
    """Write all tables, their summary and the figure to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    curves_by_cell = curves()
    write(folder / "equal_steps.csv", (row for key, curve in curves_by_cell.items() for row in cell_rows(key, curve)))
    write(folder / "transitions.csv", transition_rows(curves_by_cell))
    write(folder / "records.csv", record_rows(results))
    write(folder / "until_decided.csv", sequential_rows())
    tables = [read(folder / f"{name}.csv") for name in TABLES]
    (folder / "README.md").write_text(summary(*tables), encoding="utf-8")
    draw(tables[0], folder / "calibration.png")


if __name__ == "__main__":
    main(Path("results/calibration"), Path("results"))
