"""``rlbench table``: documented and measured scores; ``rlbench compare``: two folders or algorithms side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rlbench.cli import completion
from rlbench.cli.options import (
    Algos,
    Json,
    OnlySuite,
    Records,
    Reference,
    References,
    SuiteOrAll,
    Tasks,
    argument,
    option,
    suites_named,
)
from rlbench.cli.output import print_note, print_result, print_text, refuse_same_file, terminal_width, write_file
from rlbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


SUFFIXES = {".md": "md", ".csv": "csv", ".json": "json", ".html": "html", ".htm": "html", ".tex": "latex"}


def table(
    suite: SuiteOrAll,
    *,
    algo: Algos = None,
    task: Tasks = None,
    style: Annotated[
        Literal["rich", "md", "csv", "json", "html", "latex"] | None,
        option("--format", "Format of the table; default: that of FILE's suffix, else rich."),
    ] = None,
    output: Annotated[Path | None, option("--output FILE", "Write to this file; default: stdout.")] = None,
    results: Records = None,
    json: Json = False,
    parity: Annotated[
        bool, option("--parity", "Compare with imported curves of another library, at equal steps, cell by cell.")
    ] = False,
    references: References = None,
    reference: Reference = None,
) -> None:
    """Show published scores beside measured ones, with verdicts.

    REPRODUCED and CONSISTENT are good news, BELOW is bad. INCONCLUSIVE is undecided; the verdict says how many more
    seeds would probably decide it, if any number would. The line below the table explains the columns of scores.
    """
    del references, reference  # their callbacks have selected them
    refuse_same_file(output, "--output")
    from rlbench.report.evidence import evidence_of
    from rlbench.report.pooled import pooled_rows
    from rlbench.report.reference_scores import matching
    from rlbench.report.tables import TEXTS, to_rich

    form = style or ("json" if json else SUFFIXES.get(output.suffix.lower(), "rich") if output else "rich")
    if json and form != "json":
        raise UsageError(f"--json and --format {form} contradict each other; give one of them")
    if parity:
        text = _parity(suite, algo or (), task or (), results, form)
    else:
        cells = evidence_of(results).cells(suites_named([suite], results))
        keys = matching([cell.key for cell in cells], suite, algorithms=algo or (), tasks=task or ())
        rows = [cell for cell in cells if cell.key in keys]
        algorithms = {cell.key[:2] for cell in rows}
        pooled_cells = [row for row in pooled_rows(cells) if (row.suite, row.algorithm) in algorithms]
        if results is not None and not results.exists():
            print_note(f"{results}: no such folder, so nothing has been measured")
        width = terminal_width() if output is None and form == "rich" else None
        text = TEXTS[form](rows, pooled_cells) if width is None else to_rich(rows, pooled_cells, width=width)
    print_text(text) if output is None else write_file(output, text)


def _parity(suite: str, algos: Sequence[str], tasks: Sequence[str], results: Path | None, style: str) -> str:
    from rlbench.report.evidence import evidence_of
    from rlbench.report.parity import TEXTS
    from rlbench.report.reference_scores import matching, primary_references

    if style not in TEXTS:
        raise UsageError(f"--parity: cannot be written as {style}; choose --format {', '.join(TEXTS)}")
    suites = suites_named([suite], results)
    parity = evidence_of(results).parity(suites)
    cells = dict.fromkeys([*(key for name in suites for key in primary_references(name)), *(row.key for row in parity)])
    keys = matching(list(cells), suite, algorithms=algos, tasks=tasks)
    rows = [row for row in parity if row.key in keys]
    if not rows:
        raise UsageError(
            f"--parity: no such cell of {suite} has two runs of rlbench and two curves; see: rlbench import --help"
        )
    return TEXTS[style](rows)


def compare(
    first: Annotated[
        str,
        argument(
            "A",
            "A results folder or an algorithm, or one of its settings as DIR@lr=0.01 or dqn@lr=0.01.",
            completion.sides,
        ),
    ],
    second: Annotated[str, argument("B", "A second folder or algorithm.", completion.sides)],
    *,
    suite: OnlySuite = None,
    at: Annotated[
        bool, option("--at", "Compare at equal steps: the largest that both have reached, however far runs are.")
    ] = False,
    results: Records = None,
    references: References = None,
    reference: Reference = None,
    json: Json = False,
) -> None:
    """Compare two results folders, or two algorithms.

    Each cell is compared by its runs with the published settings; if there are none, by those of its only variant.
    A@SETTING selects a variant. Cells that differ in data or kind of return are listed and left out, and of two folders
    also those that differ in task, protocol or budget. The output has interquartile means, per task and over all tasks,
    with intervals from five seeds on, and the probability that a run of B beats one of A.
    """
    del references, reference  # their callbacks have selected them
    from rlbench.report.compare import compare as compared
    from rlbench.report.comparison_text import comparison_document, comparison_text
    from rlbench.report.evidence import evidence_of

    comparison = compared(first, second, evidence_of(results), suite, at=at)
    print_result(comparison_document(comparison), comparison_text(comparison, terminal_width()), json=json)
