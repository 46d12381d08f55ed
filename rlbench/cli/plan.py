"""``rlbench plan``: the missing runs of a table and their cost."""

from __future__ import annotations

from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

from rlbench.cli import completion
from rlbench.cli.options import Json, Records, SuiteOrAll, argument, option, parse_seeds, suites_named
from rlbench.cli.output import print_result, print_text, terminal_width
from rlbench.cli.status import duration
from rlbench.config.names import count_text, steps_text
from rlbench.errors import UsageError
from rlbench.report.columns import aligned, sentences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rlbench.report.cells import Cell
    from rlbench.report.evidence import Evidence
    from rlbench.report.reference_table import CellKey
    from rlbench.report.remaining_work import RemainingRuns

SEEDS = 10  # of a cell, by default
DISK = 300_000  # bytes of the record of one run


def plan(
    suite: SuiteOrAll,
    algo: Annotated[
        list[str] | None, argument("[ALGO]...", "Only these algorithms; default: all.", completion.algorithms)
    ] = None,
    *,
    seeds: Annotated[
        str | None,
        option(
            "--seeds 0-9",
            "The seeds that every cell should have. Default: 0-9, with --budget as many as verdicts need.",
        ),
    ] = None,
    runnable: Annotated[bool, option("--runnable", "Only cells that this version has settings for.")] = False,
    lines: Annotated[
        bool, option("--lines", "For scripts: SUITE ALGO TASK SEEDS on a line, the shortest run first.")
    ] = False,
    budget: Annotated[
        str | None,
        option(
            "--budget 2h|90m|3d", "Select the runs that decide most verdicts within this time; default: everything."
        ),
    ] = None,
    at: Annotated[
        Literal["informative"] | None,
        option(
            "--at",
            "Estimate each cell's cost up to the first test step where its published curve has risen clearly, or up to "
            "the one where three seeds are tested; the cheapest verdict first. Default: the whole budget.",
        ),
    ] = None,
    results: Records = None,
    json: Json = False,
) -> None:
    """Show which runs a table lacks, and what they would cost.

    A cell is one algorithm on one task. Hours are those of one run after another at the speed of the most similar
    records, of this machine if there are any. --budget puts the cheapest verdict first: a cell that was never run takes
    three seeds, an inconclusive one as many as its verdict asks for. With --json the `include` list is a matrix for CI.
    """
    from rlbench.report.evidence import evidence_of
    from rlbench.report.remaining_work import remaining_runs
    from rlbench.report.verdict import MAX_MORE_SEEDS

    if lines and json:
        raise UsageError("--lines and --json contradict each other; give one of them")
    suites = suites_named([suite], results)
    most = SEEDS if budget is None else SEEDS + MAX_MORE_SEEDS
    numbers, evidence = parse_seeds(seeds or f"0-{most - 1}"), evidence_of(results)
    early = at is not None

    def rows_of(*, whole: bool) -> list[RemainingRuns]:
        rows = partial(remaining_runs, evidence=evidence, algorithms=algo or (), seeds=numbers, informative=early)
        return [row for name in suites for row in rows(name, whole=whole)]

    remaining = rows_of(whole=False)
    if early:
        remaining.sort(key=_length)
    if budget is not None:
        _affordable(remaining, suites, algo or (), evidence, budget, at=early, lines=lines, json=json)
        return
    remaining = [row for row in remaining if row.runnable or not (runnable or lines)]
    if lines:
        if remaining:
            print_text("\n".join(map(_line, sorted(remaining, key=_length))))
        return
    rlbench_cells, text = _measured_cells(evidence, suites), ""
    if not json:
        text = _text(remaining, rlbench_cells) if remaining else f"nothing is missing from {evidence.own}"
        text = "\n".join([text, *sentences([_whole_table_cost(rows_of(whole=True))], terminal_width())])
    print_result({"include": [_row(row, rlbench_cells) for row in remaining]}, text, json=json)


def _affordable(
    remaining: Sequence[RemainingRuns],
    suites: Sequence[str],
    algorithms: Sequence[str],
    evidence: Evidence,
    budget: str,
    *,
    at: bool,
    lines: bool,
    json: bool,
) -> None:
    """Format the runs that decide most verdicts within the time, the next ones, and the number left out."""
    from rlbench.report.cells import every_cell
    from rlbench.report.evidence import RUNS
    from rlbench.report.remaining_work import choose_cells, full_budget_verdict, parse_budget

    hours = parse_budget(budget)
    untils = {row.key: row.until for row in remaining}
    cells = [c for c in every_cell(suites, evidence.own) if not (c.measured and c.measured.imported)]
    cells = [cell for cell in cells if not algorithms or cell.key.algorithm in algorithms]
    verdicts = {cell.key: full_budget_verdict(cell.at, untils.get(cell.key)) if at else cell.verdict for cell in cells}
    choice = choose_cells(remaining, verdicts, hours)
    after = () if choice.after is None else (choice.after,)
    if lines:
        if choice.rows or after:
            print_text("\n".join(map(_line, (*choice.rows, *after))))
        return
    rlbench_cells = _measured_cells(evidence, suites)
    others = f", {choice.unknown} of unknown length" if choice.unknown else ""
    others += f", {count_text(choice.short, 'cell')} in need of more seeds than are planned" if choice.short else ""
    summary = (
        f"{count_text(len(choice.rows), 'verdict')} in {duration(choice.hours * 3600)} of {duration(hours * 3600)}, "
        f"the cheapest first; {choice.beyond} more cells do not fit{others}"
    )
    where = "" if evidence.own == RUNS else f" --results {quote(str(evidence.own))}"
    following = [
        f"next: `rlbench run {' --seeds '.join(_line(row).rsplit(' ', 1))}{where}` takes "
        f"{duration((row.hours or 0) * 3600)}; "
        "stop it when the time is over, the same command resumes"
        for row in after
    ]
    words = sentences([summary, *following], terminal_width())
    include, then = ([_row(row, rlbench_cells) for row in rows] for rows in (choice.rows, after))
    text = "\n".join([*([_text(choice.rows, rlbench_cells)] if choice.rows else []), *words])
    print_result({"budget_hours": hours, "include": include, "after": then}, text, json=json)


def _measured_cells(evidence: Evidence, suites: Sequence[str]) -> Mapping[CellKey, Cell]:
    return {cell.key: cell for cell in evidence.rlbench_cells(suites) if cell.verdict.word != "NOT RUN"}


def _whole_table_cost(rows: Sequence[RemainingRuns]) -> str:
    """Format the cost of the whole table without any record."""
    from rlbench.config.footprint import size_text

    runs, steps = sum(len(row.seeds) for row in rows), sum(row.steps for row in rows)
    hours, memory = sum(row.hours or 0.0 for row in rows), max((row.memory or 0 for row in rows), default=0)
    state = max((row.checkpoint for row in rows), default=0)
    return (
        f"the whole table: {len(rows)} cells, {runs} runs, {steps:,} steps, {duration(hours * 3600)}; "
        f"memory of a run up to {size_text(memory)}, its checkpoint up to {size_text(state)}, "
        f"records {size_text(DISK * runs)}"
    )


def _line(row: RemainingRuns) -> str:
    return f"{row.key.suite} {row.key.algorithm} {row.key.dataset or row.key.task} {','.join(map(str, row.seeds))}"


def _length(row: RemainingRuns) -> tuple[float, int]:
    """Hours if known, and steps, for sorting."""
    return (float("inf") if row.hours is None else row.hours, row.steps)


def _row(row: RemainingRuns, rlbench_cells: Mapping[CellKey, Cell]) -> dict[str, object]:
    cell = rlbench_cells.get(row.key)
    return {
        **row.key.document(),
        "seeds": ",".join(map(str, row.seeds)),
        "steps": row.steps,
        "hours": None if row.hours is None else round(row.hours, 4),
        "memory": row.memory,
        "disk": DISK * len(row.seeds),
        "checkpoint": row.checkpoint,
        "speed_of": row.nearest or None,
        "runnable": row.runnable,
        "rlbench": {"seeds": cell.measured.n if cell.measured else 0, "verdict": cell.verdict.word} if cell else None,
        "until": row.until,
        "until_hours": None if row.until_hours is None else round(row.until_hours, 4),
    }


def _informative(row: RemainingRuns) -> str:
    """The test step to which runs are planned, and the time until three seeds have reached it."""
    if row.until is None:
        return ""
    return steps_text(row.until) + ("" if row.until_hours is None else f": {duration(row.until_hours * 3600)}")


def _text(remaining: Sequence[RemainingRuns], rlbench_cells: Mapping[CellKey, Cell]) -> str:
    """Format one row per cell; the column of rlbench's own records is left out where empty."""
    from rlbench.config.footprint import size_text
    from rlbench.report.reference_table import cell_name

    rows: list[tuple[str, ...]] = [("CELL", "SEEDS", "STEPS", "TIME", "SPEED OF", "MEMORY", "INFORMATIVE", "RLBENCH")]
    for row in remaining:
        name = cell_name(row.key)
        time = "not runnable yet" if not row.runnable else duration(row.hours * 3600) if row.hours is not None else "?"
        steps = f"{row.steps:,}" if row.runnable else ""
        nearest = row.nearest and ("this " if row.nearest.startswith("cell") else "its ") + row.nearest
        memory = size_text(row.memory) if row.memory else ""
        cell = rlbench_cells.get(row.key)
        rlbench_runs = f"{cell.measured.n} seeds: {cell.verdict.word}" if cell and cell.measured else ""
        rows.append((name, str(len(row.seeds)), steps, time, nearest, memory, _informative(row), rlbench_runs))
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    lines = aligned(rows, terminal_width())
    seeds = sum(len(row.seeds) for row in remaining)
    hours = sum(row.hours or 0.0 for row in remaining)
    unknown = sum(row.hours is None for row in remaining)
    rest = f", and {unknown} cells of unknown length" if unknown else ""
    counts = f"{count_text(len(remaining), 'cell')}, {count_text(seeds, 'run')}"
    return "\n".join([*lines, "", f"{counts}: {duration(hours * 3600)} one after another{rest}"])
