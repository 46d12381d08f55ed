"""``rlbench report``: all results in one self-contained page; ``rlbench plot``: records as figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from rlbench.cli import completion
from rlbench.cli.options import (
    Algos,
    Records,
    Reference,
    References,
    Suite,
    Tasks,
    argument,
    check_results_folder,
    option,
    suites_named,
)
from rlbench.cli.output import check_output_path, print_left_out, print_note, refuse_same_file, write_file
from rlbench.errors import UsageError


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
    refuse_same_file(output, "--output")
    names = suites_named(suite or (), results)
    if output.suffix not in {".html", ".htm", ".md"}:
        raise UsageError(f"--output {output}: a report is written as .html or .md")
    if not output.parent.is_dir() or output.is_dir():
        raise UsageError(f"--output {output}: name a file in a folder that exists")
    check_results_folder(results)
    from rlbench.report.evidence import evidence_of
    from rlbench.report.pages import html_page, markdown_page

    text = (markdown_page if output.suffix == ".md" else html_page)(names, evidence_of(results))
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
            "Kind of plot: curves over steps, curves over wall-clock time, performance profiles, intervals of "
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
    refuse_same_file(output, "--output")
    suites_named([suite], results)
    if output.suffix not in {".png", ".svg", ".pdf"}:
        raise UsageError(f"--output {output}: figures are written as .png, .svg or .pdf")
    check_output_path(output, "--output")
    from rlbench.report.evidence import evidence_of
    from rlbench.report.figure_style import rc_settings
    from rlbench.report.plot_data import find_cells, runs_not_drawn, runs_without_score
    from rlbench.report.plots import draw, encode_figure

    settings, evidence = rc_settings(rc or []), evidence_of(results)
    cells, curves = find_cells(suite, evidence, task or [], algo or []), kind in {"curves", "walltime"}
    left_out = runs_not_drawn(cells, evidence, by_name=bool(task)) if curves else runs_without_score(cells)
    sources = {*evidence.names((runs, runs) for runs in cells.values() if runs.all)} - {""}
    if sources and kind in {"profile", "interval", "improvement"}:
        print_note(f"scores of {' and '.join(sorted(sources))} together; with --results DIR those of one folder alone")
    print_left_out(left_out, failed="that failed", short="short of the budget")
    figure = draw(suite, kind, evidence, tasks=task or [], algorithms=algo or [], rc=settings)
    content = encode_figure(figure, output.suffix, title=title or "", rc=settings)
    write_file(output, content)
    print_note(f"{output}: {len(content):,} bytes")
