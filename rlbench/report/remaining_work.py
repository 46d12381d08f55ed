"""The runs missing from a table, their cost, and those within a budget of hours that decide most verdicts.

A cell that was never run needs the fewest seeds of a verdict. An inconclusive one needs as many as its verdict says, a
decided one none. Verdicts have equal weight, so the cheapest comes first: no other choice gives more verdicts in the
time. Three seeds may turn out to be too few; the next plan then says how many more.
"""

from __future__ import annotations

import re
import statistics
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from typing import TYPE_CHECKING, NamedTuple

from rlbench.config.run import Spec
from rlbench.config.tasks import OfflineTask
from rlbench.errors import UnknownName, UsageError
from rlbench.records.machine import has_gpu, processor
from rlbench.report.equal_steps import EqualSteps, at_equal_steps, reference_curve
from rlbench.report.estimate import is_whole
from rlbench.report.reference_scores import reference_cells
from rlbench.report.reference_table import CellKey, documented_spec, row_of
from rlbench.report.run_index import Runs, gather
from rlbench.report.verdict import MAX_MORE_SEEDS, MIN_SEEDS, Verdict

if TYPE_CHECKING:
    from rlbench.config.footprint import Footprint
    from rlbench.report.evidence import Evidence

HOURS = {"m": 1 / 60, "h": 1.0, "d": 24.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class RemainingRuns:
    """Seeds of one cell that have no finished run."""

    key: CellKey
    seeds: tuple[int, ...]
    seed_steps: tuple[int, ...]  # one per seed, less what its interrupted run has done
    begun: tuple[int, ...] = ()  # seeds whose unfinished runs hold a verdict open
    speed: float | None  # expected steps a second; None where no run of the suite has one
    memory: int | None  # bytes of one run; None where this version has no settings for the cell
    runnable: bool
    nearest: str = ""  # as in ``Throughput``
    checkpoint: int = 0  # bytes on disk while a run runs, at most
    until: int | None = None  # steps of the first informative test step; None where there is none
    until_hours: float | None = None  # until the first three seeds have come there, one after another

    @property
    def steps(self) -> int:
        """The steps of all seeds."""
        return sum(self.seed_steps)

    @property
    def hours(self) -> float | None:
        """The hours of all seeds, one after another; None where the speed is unknown."""
        return None if self.speed is None else self.steps / self.speed / 3600


def remaining_runs(
    suite: str,
    evidence: Evidence,
    *,
    algorithms: Sequence[str] = (),
    seeds: Sequence[int] = tuple(range(10)),
    whole: bool = False,
    cpu: str | None = None,
    informative: bool = False,
) -> tuple[RemainingRuns, ...]:
    """The cells of a suite that lack seeds, in the references' order; with ``whole`` as if nothing had been run yet.

    A plug-in's suite also has cells without a reference: each algorithm on the tasks that the suite runs by default.

    With ``informative`` a run ends at the first informative test step of its cell, or at a later one at which three
    seeds are tested, and cells without one are left out.

    Hours are those of runs on this machine's kind of hardware where there are any, or on a ``cpu`` without a GPU.

    Raises:
        UnknownName: an algorithm is not in the suite's table.
    """
    own, runs_by_cell = gather(evidence.own), evidence.every_run()
    cells = [*dict.fromkeys([*(cell.key for cell in reference_cells(suite)), *_plugin_cells(suite)])]
    names = dict.fromkeys(key.algorithm for key in cells)
    for name in algorithms:
        if name not in names:
            raise UnknownName("algorithm", name, names, where=suite)
    keys = [key for key in cells if not algorithms or key.algorithm in algorithms]
    here, gpu = (processor(), has_gpu()) if cpu is None else (cpu, False)
    rows = []
    for key in keys:
        curve = reference_curve(key)
        until = curve.first_informative() if curve is not None else None
        if until is not None or not informative:
            runs = Runs() if whole else own.get(key, Runs())
            at = at_equal_steps(key, runs) if informative else None
            if until is not None and at is not None and len(at.scores) >= MIN_SEEDS:
                until = max(until, at.reference.step)  # more seeds count at the step of these
            rows.append(_remaining(key, runs, runs_by_cell, seeds, here, until, gpu=gpu, informative=informative))
    return tuple(row for row in rows if row.seeds)


def _plugin_cells(suite: str) -> list[CellKey]:
    """Cells of an installed plug-in's suite; none of rlbench's own suites, whose references list theirs."""
    from rlbench import suites

    if suite in suites.SUITES or suites.unavailable_reason(suite):
        return []
    return [
        CellKey(suite, algorithm, *row_of(suite, task, ""))
        for algorithm in suites.algorithms(suite)
        for task in suites.tasks(suite, with_reference=True)
        if suites.has_cell(suite, algorithm, task)
    ]


class Throughput(NamedTuple):
    """The expected speed of a run."""

    speed: float  # agent steps a second
    nearest: str  # cell, algorithm, family or suite of the runs, and their device where it is not this machine's
    here: bool  # measured on a ``cpu``, with or without a GPU as requested


def throughput(key: CellKey, runs_by_cell: Mapping[CellKey, Runs], cpu: str, *, gpu: bool) -> Throughput | None:
    """The speed of the cell's own runs, or else of the nearest ones in its suite.

    Runs with a GPU count for a machine without one only if there are no others, and the reverse: the two differ more
    than algorithms do. Next come the nearest algorithms, and among these runs on the same ``cpu``. One algorithm on
    frames and on vectors counts as two. Offline methods differ too much to predict each other, and so do algorithms
    with many more gradient steps per env step, such as REDQ: their speeds are unknown.
    """
    family = _family(key)
    near: tuple[tuple[str, Callable[[CellKey], bool]], ...] = (
        ("cell", lambda other: other == key),
        ("algorithm", lambda other: other[:2] == key[:2] and _family(other) == family),
        ("family", lambda other: other.suite == key.suite and _family(other) == family and _similar_ratio(other, key)),
        ("suite", lambda other: other.suite == key.suite != "offline" and _similar_ratio(other, key)),
    )
    for alike, (nearest, matches) in product((True, False), near):
        every = [run for other, runs in runs_by_cell.items() if matches(other) for run in (*runs.complete, *runs.short)]
        every = [run for run in every if (run.environment.get("device") in (None, "cpu")) != (gpu == alike)]
        for here in (True, False):
            same = [run for run in every if run.environment.get("cpu") == cpu or not here]
            speeds = [rate for run in same if (rate := run.speed)]
            if speeds:
                device = "" if alike else " on a CPU" if gpu else " on a GPU"
                return Throughput(statistics.median(speeds), nearest + device, here and alike)
    return None


def _remaining(
    key: CellKey,
    runs: Runs,
    runs_by_cell: Mapping[CellKey, Runs],
    seeds: Sequence[int],
    cpu: str,
    until: int | None,
    *,
    gpu: bool,
    informative: bool,
) -> RemainingRuns:
    spec = _spec(key)
    end = until if informative and until is not None else spec.budget.steps if spec else 0
    own_id = spec.id if spec else ""
    steps_of = {run.seed: min(run.env_steps, end) for run in runs.short if run.id == own_id}  # others are not resumed
    others = (
        run
        for run in (*runs.other_data, *runs.other_versions, *runs.same_numbers)
        if run.id == own_id and is_whole(run)
    )
    done = {run.seed for run in (*runs.scored, *others)}
    done |= {run.seed for run in runs.short if informative and run.env_steps >= end}
    missing = tuple(seed for seed in seeds if seed not in done)
    unfinished = set() if informative else {run.seed for run in runs.unfinished}
    to_test_step = sum(max(0, (until or 0) - steps_of.get(seed, 0)) for seed in missing[:MIN_SEEDS])
    expected = throughput(key, runs_by_cell, cpu, gpu=gpu)
    need = _footprint(spec) if spec else None
    return RemainingRuns(
        key=key,
        seeds=missing,
        seed_steps=tuple(end - steps_of.get(seed, 0) for seed in missing),
        begun=tuple(seed for seed in missing if seed in unfinished),
        speed=expected.speed if expected and spec else None,
        memory=need.total if need else None,
        runnable=spec is not None,
        nearest=expected.nearest if expected and spec else "",
        checkpoint=need.checkpoint if need else 0,
        until=until,
        until_hours=to_test_step / expected.speed / 3600 if expected and until is not None else None,
    )


def _family(key: CellKey) -> str:
    """The group of algorithms with similar speed: the family, and offline the method."""
    spec = _spec(key)
    if spec is None:
        return key.algorithm if key.suite == "offline" else ""
    return spec.algo.speed_group


def _similar_ratio(key: CellKey, other: CellKey) -> bool:
    """True if both make a similar number of gradient steps per agent step: within a factor of five."""
    specs = (_spec(key), _spec(other))
    low, high = sorted(max(0.2, spec.algo.updates_per_step if spec else 0.0) for spec in specs)
    return high <= 5 * low


def _spec(key: CellKey) -> Spec | None:
    needs_data = key.suite == "offline" and key.dataset  # without its data, a row cannot run on the environment alone
    tasks = (key.dataset,) if needs_data else (key.dataset, key.task)
    specs = (documented_spec(key.suite, key.algorithm, task) for task in tasks)
    return next((spec for spec in specs if spec is not None), None)


def _footprint(spec: Spec) -> Footprint:
    from rlbench.config.footprint import footprint

    if not isinstance(spec.task, OfflineTask):
        return footprint(spec)
    from rlbench.datasets.loader import rows_here  # importing h5py starts a process

    return footprint(spec, steps=rows_here(spec.task.data))


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The runs that fit into a budget."""

    rows: tuple[RemainingRuns, ...]  # the cheapest verdict first, with the seeds it takes
    after: RemainingRuns | None  # the next row, which can begin in the remaining time and resume later
    hours: float  # of all rows, one after another
    beyond: int  # cells whose verdict takes more than the remaining hours
    unknown: int  # cells of unknown length
    short: int  # cells whose verdict takes more seeds than are missing among those named


def parse_budget(text: str) -> float:
    """Hours, from ``90m``, ``2h``, ``1.5d``.

    Raises:
        UsageError: it is no length of time.
    """
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([mhd])", text)
    if match is None:
        raise UsageError(f"--budget {text}: not a length of time; write 90m, 2h or 1.5d")
    return float(match[1]) * HOURS[match[2]]


def seeds_needed(verdict: Verdict) -> int | None:
    """Seeds until a cell probably has a verdict; None where it has one, or none is in reach."""
    match verdict.word:
        case "NOT RUN" | "PARTIAL":
            return MIN_SEEDS
        case "INCONCLUSIVE":
            return verdict.more if verdict.more is not None and verdict.more <= MAX_MORE_SEEDS else None
        case _:
            return None


def full_budget_verdict(at: EqualSteps | None, until: int | None) -> Verdict:
    """A verdict at equal steps in the words of the full budget, for ``choose_cells`` with runs to ``until``."""
    if at is None or (at.word == "TOO EARLY" and until is not None and at.reference.step < until):
        return Verdict("NOT RUN")
    return Verdict("INCONCLUSIVE", at.more) if at.word == "OPEN" else Verdict("REPRODUCED")


def choose_cells(rows: Sequence[RemainingRuns], verdicts: Mapping[CellKey, Verdict], budget: float) -> Choice:
    """The cells that decide most verdicts in ``budget`` hours of one run after another; a cell may lack a row."""
    with_row = {row.key for row in rows}
    short = [key for key, verdict in verdicts.items() if verdict.more and seeds_needed(verdict) and key not in with_row]
    needs = [(row, seeds) for row in rows if row.runnable and (seeds := _needed_seeds(row, verdicts))]
    undecided = [_with_seeds(row, seeds) for row, seeds in needs if seeds <= len(row.seeds)]
    priced = sorted((row for row in undecided if row.hours is not None), key=lambda row: row.hours or 0.0)
    hours = [0.0, *accumulate(row.hours or 0.0 for row in priced)]
    count = bisect_right(hours, budget) - 1
    return Choice(
        rows=tuple(priced[:count]),
        after=priced[count] if count < len(priced) else None,
        hours=hours[count],
        beyond=len(priced) - count,
        unknown=len(undecided) - len(priced),
        short=len(needs) - len(undecided) + len(short),
    )


def _needed_seeds(row: RemainingRuns, verdicts: Mapping[CellKey, Verdict]) -> int:
    """The number of seeds that a row's verdict needs; 0 if it is decided."""
    verdict = verdicts.get(row.key, Verdict("NOT RUN"))
    seeds = seeds_needed(verdict) or 0
    if seeds or verdict == Verdict("INCONCLUSIVE"):  # by unfinished seeds alone
        return max(seeds, len(row.begun))
    return 0


def _with_seeds(row: RemainingRuns, seeds: int) -> RemainingRuns:
    """The row with this number of seeds: unfinished ones first, then those that lack the fewest steps."""
    order = sorted(range(len(row.seeds)), key=lambda i: (row.seeds[i] not in row.begun, row.seed_steps[i]))
    nearest = sorted(order[:seeds])
    return replace(
        row, seeds=tuple(row.seeds[i] for i in nearest), seed_steps=tuple(row.seed_steps[i] for i in nearest)
    )
