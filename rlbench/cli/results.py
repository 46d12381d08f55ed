"""The verbs that show scores: ``rlbench table``, ``compare``, ``report`` (one self-contained page) and ``plot``."""

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
    Suite,
    SuiteOrAll,
    Tasks,
    argument,
    option,
    suites_named,
)
from rlbench.cli.output import check_output_path, print_note, print_result, print_text, terminal_width, write_file
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
        option("--format", "How the table is written; default: what FILE ends in, else rich."),
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

    REPRODUCED and CONSISTENT are good news, BELOW is bad, INCONCLUSIVE asks for more seeds. The line below the table
    says what the two columns of scores are.
    """
    del references, reference  # their callbacks have selected them
    from rlbench.report.pooled import pooled_rows
    from rlbench.report.reference_scores import matching
    from rlbench.report.sources import sources
    from rlbench.report.tables import TEXTS, to_rich

    form = style or ("json" if json else SUFFIXES.get(output.suffix.lower(), "rich") if output else "rich")
    if json and form != "json":
        raise UsageError(f"--json and --format {form} contradict each other; give one of them")
    if parity:
        text = _parity(suite, algo or (), task or (), results, form)
    else:
        cells = sources(results).cells(suites_named([suite], results))
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
    from rlbench.report.parity import TEXTS
    from rlbench.report.reference_scores import matching, primary_references
    from rlbench.report.sources import sources

    if style not in TEXTS:
        raise UsageError(f"--parity: cannot be written as {style}; choose --format {', '.join(TEXTS)}")
    suites = suites_named([suite], results)
    parity = sources(results).parity(suites)
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
    second: Annotated[str, argument("B", "Another of the same sort.", completion.sides)],
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

    Of each cell the documented runs are taken, or else those of its only other setting, or of A@SETTING; cells of two
    folders that differ in task, protocol or budget are named and left out, and any that differ in data or kind of
    return. Task by task and together: interquartile means, with intervals from five seeds on, and the probability that
    a run of B beats one of A.
    """
    del references, reference  # their callbacks have selected them
    from rlbench.report.compare import compare as compared
    from rlbench.report.compare import comparison_document, comparison_text
    from rlbench.report.sources import sources

    comparison = compared(first, second, sources(results), suite, at=at)
    print_result(comparison_document(comparison), comparison_text(comparison, terminal_width()), json=json)


def report(
    suite: Annotated[
        list[str] | None, argument("[SUITE|all]...", "Only these; default: all.", completion.suites)
    ] = None,
    *,
    output: Annotated[Path, option("--output FILE.html|.md", "The HTML or Markdown file to write.")],
    results: Records = None,
    references: References = None,
    reference: Reference = None,
) -> None:
    """Write one page of everything that was measured.

    It has tables, verdicts, figures, every seed, the machines, the missing runs and their cost. The page needs no
    network and no other file. A FILE.md is for reading beside the records: verdicts counted, what the rest would
    cost, and the tables, with the figures in `plots`.
    """
    del references, reference  # their callbacks have selected them
    names = suites_named(suite or (), results)
    if output.suffix not in {".html", ".htm", ".md"}:
        raise UsageError(f"--output {output}: a report is written as .html or .md")
    if not output.parent.is_dir() or output.is_dir():
        raise UsageError(f"--output {output}: name a file in a folder that exists")
    from rlbench.report.pages import html_page, markdown_page
    from rlbench.report.sources import sources

    text = (markdown_page if output.suffix == ".md" else html_page)(names, sources(results))
    write_file(output, text)
    print_note(f"{output}: {len(text.encode()):,} bytes")


def plot(
    suite: Suite,
    *,
    output: Annotated[Path, option("--output FILE.png|.svg|.pdf", "The figure to write.")],
    kind: Annotated[
        Literal["curves", "walltime", "profile", "interval", "improvement", "forest"],
        option(
            "--kind",
            "What it shows: curves over steps, curves over wall-clock time, performance profiles, intervals of "
            "interquartile means, the probability that a run beats its published score, or every shortfall.",
        ),
    ] = "curves",
    title: Annotated[str | None, option("--title TEXT", "A title above the figure; default: none.")] = None,
    rc: Annotated[
        list[str] | None,
        option(
            "--rc NAME=VALUE",
            "A setting of matplotlib, such as figure.figsize=6,4 or font.size=8; may be repeated. Default: none.",
        ),
    ] = None,
    task: Tasks = None,
    algo: Algos = None,
    results: Records = None,
    references: References = None,
    reference: Reference = None,
) -> None:
    """Draw learning curves and other figures of the records.

    Published curves are dotted, in the colour of their algorithm; bands are ± one std over seeds. Runs with other
    settings are lines of their own. A task that was never run is drawn if --task names it.
    """
    del references, reference  # their callbacks have selected them
    suites_named([suite], results)
    if output.suffix not in {".png", ".svg", ".pdf"}:
        raise UsageError(f"--output {output}: figures are written as .png, .svg or .pdf")
    check_output_path(output, "--output")
    from rlbench.report.figure_style import rc_settings
    from rlbench.report.plots import draw, encode_figure
    from rlbench.report.sources import sources

    settings = rc_settings(rc or [])
    figure = draw(suite, kind, sources(results), tasks=task or [], algorithms=algo or [], rc=settings)
    content = encode_figure(figure, output.suffix, title=title or "", rc=settings)
    write_file(output, content)
    print_note(f"{output}: {len(content):,} bytes")
