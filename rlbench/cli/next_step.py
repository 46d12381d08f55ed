"""The lines after training: the verdict of each trained cell, and the next command."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

from rlbench.cli.announcement import cell_key
from rlbench.errors import RefusedFile, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlbench.config.run import Spec
    from rlbench.report.cells import Cell


def verdict_lines(specs: Sequence[Spec], results: Path) -> list[str]:
    """One line per cell of ``specs`` with the verdict of its runs in ``results``; smoke runs have none."""
    from rlbench.report.cells import every_cell

    keys = list(dict.fromkeys(cell_key(spec) for spec in specs if not spec.smoke))
    with suppress(RefusedFile, UsageError):  # `rlbench table` names the file
        cells = {cell.key: cell for cell in every_cell(list(dict.fromkeys(key.suite for key in keys)), results)}
        return [_line(cells[key], results) for key in keys if key in cells]
    return []


def _line(cell: Cell, results: Path) -> str:
    """``toy/dqn/Catch: documented 1, measured 0.94 over 1 seed: INCONCLUSIVE (≈ 2 more seeds); next: rlbench …``."""
    from rlbench.report.reference_table import task_name
    from rlbench.report.tables import rounded

    scores = []
    if cell.documented is not None:
        scores.append(f"documented {cell.documented.score:,.6g}")
    if cell.measured is not None:
        count = cell.measured.n
        scores.append(f"measured {rounded(cell.measured.score)} over {count} seed{'s' if count != 1 else ''}")
    verdict = str(cell.verdict)
    if cell.verdict.word == "PARTIAL" and cell.at is not None:
        verdict += f", {cell.at}"
    elif cell.verdict.word in {"NOT RUN", "NOT COMPARABLE", "PARTIAL"} and cell.note:
        verdict += f" ({cell.note})"
    name = f"{cell.key.suite}/{cell.key.algorithm}/{task_name(cell.key)}"
    return f"{name}: {', '.join(scores) or 'nothing measured'}: {verdict}; next: `{_next(cell, results)}`"


def _next(cell: Cell, results: Path) -> str:
    """The command that adds the seeds needed for a verdict, or else shows the cell."""
    from rlbench.records.looks import DESIGN
    from rlbench.report.sources import RUNS
    from rlbench.report.verdict import MOST

    suite, algorithm, task, dataset = cell.key
    seeds, more = cell.measured.roots if cell.measured else (), cell.verdict.more
    where = [] if results == RUNS else ["--results", str(results)]
    if more is None or more > MOST:
        return join(["rlbench", "table", suite, "--algo", algorithm, "--task", dataset or task, *where])
    if cell.looks is not None:
        most = ["--most-seeds", str(cell.looks.last_seeds)]
        until = ["--until-decided", *(most if cell.looks.last_seeds != DESIGN[-1].seeds else ())]
        return join(["rlbench", "run", suite, algorithm, dataset or task, *until, *where])
    first = max(seeds, default=-1) + 1
    numbers = str(first) if more == 1 else f"{first}-{first + more - 1}"
    return join(["rlbench", "run", suite, algorithm, dataset or task, "--seeds", numbers, *where])
