"""``rlbench compare``: two results folders or two algorithms, with the probability that one beats the other."""

from __future__ import annotations

from typing import Annotated

from rlbench.cli import completion
from rlbench.cli.options import Json, OnlySuite, Records, Reference, References, argument, option
from rlbench.cli.output import print_result, terminal_width


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
    folders that differ in task, protocol, budget or data are named and left out. Task by task and together:
    interquartile means, with intervals from five seeds on, and the probability that a run of B beats one of A.
    """
    del references, reference  # their callbacks have selected them
    from rlbench.report.compare import compare as compared
    from rlbench.report.compare import comparison_document, comparison_text
    from rlbench.report.sources import sources

    comparison = compared(first, second, sources(results), suite, at=at)
    print_result(comparison_document(comparison), comparison_text(comparison, terminal_width()), json=json)
