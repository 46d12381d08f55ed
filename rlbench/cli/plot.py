"""``rlbench plot``: records as figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from rlbench.cli.options import Algos, Records, Reference, References, Suite, Tasks, option, suites_named
from rlbench.cli.output import print_note, write_file
from rlbench.errors import UsageError


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
    if not output.parent.is_dir():
        raise UsageError(f"--output {output}: {output.parent} is not a folder; make it first")
    from rlbench.report.figure_style import rc_settings
    from rlbench.report.plots import draw, encode_figure
    from rlbench.report.sources import sources

    settings = rc_settings(rc or [])
    figure = draw(suite, kind, sources(results), tasks=task or [], algorithms=algo or [], rc=settings)
    content = encode_figure(figure, output.suffix, title=title or "", rc=settings)
    write_file(output, content)
    print_note(f"{output}: {len(content):,} bytes")
