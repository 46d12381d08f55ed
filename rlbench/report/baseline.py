"""The regression gate: a baseline of a results folder, and the tests of later runs against it.

A baseline has one score per cell and seed, and speeds by machine and threads. A run's score here is the mean of its
learning curve (its area per step), which falls when learning slows down as well as when it ends lower. Only finished
runs of the documented settings count.

Scores of a cell are tested in two stages: the first seed at ``alpha``, and only if its drop is significant five seeds
at a fifth of that. Three seeds decide where the drop is significant at a fiftieth, corrected for the number of cells.
Five seeds with a drop at that fifth, of which the first alone shows none, are suspect. All cells together are tested by
their pooled interquartile mean, speeds by their median and MAD. No drop smaller than a margin counts.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from rlbench.config.names import check_name, clean_texts, count_text
from rlbench.errors import RefusedFile, UsageError, suggest_path
from rlbench.records import files
from rlbench.report.estimate import curve_mean, mean, sample_std
from rlbench.report.reference_files import Name
from rlbench.report.reference_table import CellKey, cell_name
from rlbench.report.remarks import conflicting_remark
from rlbench.report.runs import Run
from rlbench.report.verdict import ALPHA, holm, lower_tail

if TYPE_CHECKING:
    from rlbench.report.run_index import Runs

SCHEMA_VERSION = 1
KIND = "rlbench baseline"
MAX_VALUE = 1e100  # score or speed; the square of a larger one overflows

MARGIN = 0.05  # the smallest drop that counts, as a share of the distance from the random policy to the baseline
MIN_SEEDS_CELL = 5  # seeds for a decision by the tests of one cell
CELL_DIVISOR = 5  # of ``alpha``, in the test of all seeds of one cell, which follows that of the first seed
MIN_SEEDS_OVERALL = 3  # seeds for a decision by the test over all cells
OVERALL_DIVISOR = 50
"""Divisor of ``alpha``, before Holm's correction, in the test over all cells. Scores have longer tails than a normal
distribution: at a fifth, one of twenty unchanged re-runs of A2C on Catch was rejected."""

MIN_SLOWDOWN = 0.03  # the smallest loss of speed that counts, as a share
SLOWER_MADS, SUSPECT_MADS = 4.0, 2.5
"""Median absolute deviations below the baseline's median at which a speed is a regression, or suspect."""

MIN_SPEEDS = 5  # the fewest runs of a baseline whose spread of speeds is used
Word = Literal["PASSED", "REGRESSED", "SUSPECT", "SLOWER", "TOO FEW"]


def _seed(name: object) -> object:
    """Parse a seed of a file; ``00`` is refused, since it would be a second seed 0."""
    if isinstance(name, str) and str(int(name)) != name:
        raise ValueError(name)
    return name


Number = Annotated[float, Field(strict=True, ge=-MAX_VALUE, le=MAX_VALUE)]
Speed = Annotated[float, Field(strict=True, gt=0, le=MAX_VALUE)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One cell of a baseline."""

    suite: Name
    algorithm: Name
    task: Name
    dataset: Name
    id: Annotated[str, AfterValidator(check_name)]  # of the settings
    scores: Annotated[Mapping[Annotated[int, BeforeValidator(_seed)], Number], Field(min_length=1)]  # by seed
    speeds: Mapping[str, Annotated[tuple[Speed, ...], Field(min_length=1)]]  # steps/s of each run, by speed class
    versions: str = ""  # of the environment; empty if unknown
    data: str = ""  # SHA-256 of the data file; empty if there is none, or it is unknown

    @property
    def key(self) -> CellKey:
        """The cell."""
        return CellKey(self.suite, self.algorithm, self.task, self.dataset)


def _refuse_twins(cells: tuple[Entry, ...]) -> tuple[Entry, ...]:
    if len({entry.key for entry in cells}) < len(cells):
        raise ValueError("a cell twice is ambiguous")
    return cells


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """The cells of a baseline; a file holds its fields under their names."""

    commits: tuple[str, ...]  # of the code that trained the runs
    machines: tuple[str, ...]  # classes of machine that trained the runs
    cells: Annotated[tuple[Entry, ...], AfterValidator(_refuse_twins)]

    @property
    def suites(self) -> list[str]:
        """The suites of its cells, a plug-in's too that is missing here."""
        return list(dict.fromkeys(entry.suite for entry in self.cells))


_BASELINE: Final = TypeAdapter(Baseline)


def curve_score(run: Run) -> float:
    """The score of an evaluated run: the mean of its learning curve."""
    return curve_mean(run.evaluations, run.budget)


def baseline_of(runs_by_cell: Mapping[CellKey, Runs]) -> Baseline:
    """The baseline of a results folder.

    Raises:
        UsageError: a seed has a second whole record with other numbers.
    """
    for key, runs in sorted(runs_by_cell.items()):
        if conflicting := runs.conflicting(runs.complete):
            raise UsageError(f"{cell_name(key)}: {conflicting_remark(conflicting)}")
    every = [run for runs in runs_by_cell.values() for run in runs.complete]
    return Baseline(
        commits=tuple(sorted({str(run.environment.get("commit")) for run in every})),
        machines=tuple(sorted({machine for run in every for machine in run.machines})),
        cells=tuple(_entry(key, runs.complete) for key, runs in sorted(runs_by_cell.items()) if runs.complete),
    )


def baseline_text(baseline: Baseline) -> str:
    """The text of a baseline file: indented JSON with a checksum."""
    content = {"kind": KIND, "schema_version": SCHEMA_VERSION, **_BASELINE.dump_python(baseline, mode="json")}
    return json.dumps(json.loads(files.seal(content)), indent=1, ensure_ascii=False) + "\n"


def read_baseline(path: Path, *, links: bool = False) -> Baseline:
    """Read a baseline file; with ``links`` also one that the path is a link to.

    Raises:
        RefusedFile: it is damaged, newer than this version, or no baseline.
        UsageError: there is no such file.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such baseline{suggest_path(path)}; make one with: rlbench baseline save {path}")
    text, remedy = files.read_text(path.resolve() if links else path), "make one with: rlbench baseline save NEW.json"
    if not text.lstrip().startswith("{"):
        raise RefusedFile(f"{path}: not a baseline; {remedy}")
    try:
        content = clean_texts(files.unseal(text, str(path)))
    except RefusedFile as error:
        raise RefusedFile(str(error).replace("start over with --force", remedy)) from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise RefusedFile(f"{path}: not a baseline; {remedy}")
    try:
        return _BASELINE.validate_python(content)
    except (TypeError, ValueError):  # a ValidationError is a ValueError
        raise RefusedFile(f"{path}: not a baseline of this schema; make it again") from None


def _entry(key: CellKey, runs: Sequence[Run]) -> Entry:
    speeds: dict[str, list[float]] = {}
    for run in runs:
        if run.speed is not None:
            speeds.setdefault(run.speed_class, []).append(run.speed)
    return Entry(
        **key._asdict(),
        id=runs[0].id,
        scores={run.seed: curve_score(run) for run in runs if run.evaluations},
        speeds={name: tuple(values) for name, values in sorted(speeds.items())},
        versions=next(filter(None, (run.env_versions for run in runs)), ""),
        data=next(filter(None, (run.data_file for run in runs)), ""),
    )


class Drop(NamedTuple):
    """The comparison of later seeds with a baseline's."""

    fall: float  # mean of the baseline less the later mean
    least: float  # the smallest fall that counts: the margin
    first: float  # p-value of the first later seed alone
    every: float  # p-value of the mean of all later seeds
    seeds: int


@dataclass(frozen=True, slots=True)
class Ruling:
    """The decision of the gate, and its reason in a few words."""

    word: Word
    reason: str


def drop_of(baseline: Sequence[float], later: Sequence[float], random: float | None, margin: float = MARGIN) -> Drop:
    """Compare two lists of scores, one per seed; at least two in the baseline and one later."""
    middle = mean(baseline)
    return Drop(
        fall=middle - mean(later),
        least=margin * abs(middle - (random or 0.0)),
        first=_p_value(baseline, later[:1]),
        every=_p_value(baseline, later),
        seeds=len(later),
    )


def rule_scores(drops: Sequence[Drop], alpha: float = ALPHA) -> list[Ruling]:
    """Test the seeds of each cell in two stages, or in one if the drop is significant over all cells."""
    p_values = [d.every if d.seeds >= MIN_SEEDS_OVERALL and d.fall > d.least else None for d in drops]
    overall = holm([1.0 if p is None else p for p in p_values], alpha / OVERALL_DIVISOR)
    return [_rule_cell(d, alpha, significant_overall=certain) for d, certain in zip(drops, overall, strict=True)]


def rule_speed(baseline: Sequence[float], later: Sequence[float]) -> Ruling:
    """Test the speeds on one class of machine, one number per run: agent steps per second, offline gradient steps."""
    if len(baseline) < MIN_SPEEDS or not later:
        return Ruling("TOO FEW", f"{len(baseline)} baseline and {len(later)} later speeds")
    middle = statistics.median(baseline)
    mad = statistics.median(abs(value - middle) for value in baseline)
    now = statistics.median(later)
    text = f"{now:,.6g} steps/s, was {middle:,.6g} ({100 * (now / middle - 1):+.1f} %)"
    if now >= (1 - MIN_SLOWDOWN) * middle or now >= middle - SUSPECT_MADS * mad:
        return Ruling("PASSED", text)
    return Ruling("SLOWER" if now < middle - SLOWER_MADS * mad else "SUSPECT", text)


def rule_pooled(
    cells: Sequence[tuple[Sequence[float], Sequence[float], float]], *, alpha: float = ALPHA, margin: float = MARGIN
) -> Ruling:
    """Test all cells at once, each ``(baseline, later, random)``, by the interquartile mean of normalized scores.

    The null distribution is sampled from each baseline's predictive distribution. A baseline that does not exceed the
    random policy has no scale and is left out.
    """
    import numpy as np

    from rlbench.report.aggregate import RESAMPLES, SEED, pooled_interquartile_mean

    usable = [cell for cell in cells if len(cell[0]) > 1 and cell[1] and mean(cell[0]) - cell[2] > sample_std(cell[0])]
    runs = sum(len(later) for _, later, _ in usable)
    if len(usable) < 3 or runs < 2 * MIN_SEEDS_CELL:
        return Ruling("TOO FEW", f"{runs} runs of {len(usable)} cells")
    generator, expected, later_scores, baseline_scores = np.random.default_rng(SEED), [], [], []
    for baseline, later, random in usable:
        scale, n = mean(baseline) - random, len(baseline)
        truth = mean(baseline) + sample_std(baseline) / math.sqrt(n) * generator.standard_t(n - 1, (RESAMPLES, 1))
        noise = sample_std(baseline) * generator.standard_normal((RESAMPLES, len(later)))
        expected.append((truth + noise - random) / scale)
        later_scores.append((np.asarray(later) - random) / scale)
        baseline_scores.append((np.asarray(baseline) - random) / scale)
    now, was = float(pooled_interquartile_mean(later_scores)), float(pooled_interquartile_mean(baseline_scores))
    bound = float(np.quantile(pooled_interquartile_mean(expected), alpha / CELL_DIVISOR))
    text = f"interquartile mean {now:.3f}, was {was:.3f}; {bound:.3f} is the least to expect of {runs} runs"
    return Ruling("REGRESSED" if now < bound and was - now > margin / 2 else "PASSED", text)


def _rule_cell(change: Drop, alpha: float, *, significant_overall: bool) -> Ruling:
    text = f"{-change.fall + 0.0:+.4g} over {count_text(change.seeds, 'seed')} (p = {change.every:.2g})"
    if change.fall <= change.least:
        return Ruling("PASSED", text)
    first, every = change.first < alpha, change.every < alpha / CELL_DIVISOR
    if (significant_overall and change.seeds >= MIN_SEEDS_OVERALL) or (
        change.seeds >= MIN_SEEDS_CELL and first and every
    ):
        return Ruling("REGRESSED", text)
    if change.seeds < MIN_SEEDS_CELL and (first or change.every < alpha):
        return Ruling("SUSPECT", f"{text}; run {MIN_SEEDS_CELL - change.seeds} more seeds to decide")
    if every:  # a rerun of the same code gets here in one of a hundred cells, whatever its first seed
        return Ruling("SUSPECT", f"{text}, but the first seed alone shows no drop; more seeds decide")
    return Ruling("PASSED", text)


def _p_value(baseline: Sequence[float], later: Sequence[float]) -> float:
    """The p-value of the later mean, if nothing has changed (one-sided two-sample t-test).

    The std is pooled over both sides: a baseline whose few seeds agree by chance raises no false alarm.
    """
    n, k = len(baseline), len(later)
    squares = (n - 1) * sample_std(baseline) ** 2 + ((k - 1) * sample_std(later) ** 2 if k > 1 else 0.0)
    standard_error = math.sqrt(squares / (n + k - 2) * (1 / k + 1 / n))
    return lower_tail(mean(later) - mean(baseline), standard_error, n + k - 2)
