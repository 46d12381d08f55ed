"""``rlbench compare``: two results folders or two algorithms, with the probability that one beats the other."""

from __future__ import annotations

from typing import Annotated

import typer

from rlbench.cli import completion
from rlbench.cli.options import Json, OnlySuite, Records, Reference, References
from rlbench.cli.output import answer, terminal_width


def compare(
    first: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A results folder or an algorithm, or one of its settings as DIR@lr=0.01 or dqn@lr=0.01.",
            autocompletion=completion.sides,
        ),
    ],
    second: Annotated[
        str, typer.Argument(metavar="B", help="Another of the same sort.", autocompletion=completion.sides)
    ],
    *,
    suite: OnlySuite = None,
    at: Annotated[
        bool,
        typer.Option("--at", help="Compare at equal steps: the largest that both have reached, however far runs are."),
    ] = False,
    results: Records = None,
    references: References = None,
    reference: Reference = None,
    json: Json = False,
) -> None:
    """Compare two results folders, or two algorithms.

    Of each cell the documented runs are taken, or else those of its only other setting, or of A@SETTING; cells of two
    folders that differ in task, protocol, budget or data are named and left out. Task by task and together:
    interquartile means, with intervals from five seeds on, and the probability that a run of B beats one of A.
    """
    del references, reference  # their callbacks have selected them
    from rlbench.report.compare import compare as compared
    from rlbench.report.compare import comparison_document, comparison_text
    from rlbench.report.sources import sources

    comparison = compared(first, second, sources(results), suite, at=at)
    answer(comparison_document(comparison), comparison_text(comparison, terminal_width()), json=json)
