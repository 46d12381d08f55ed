"""``rlbench baseline``: save the scores and speeds of a results folder, or show them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rlbench.cli import completion
from rlbench.cli.options import RESULTS, Json, Results, argument, option, suites_named
from rlbench.cli.output import print_left_out, print_result, refuse_same_file, terminal_width, write_file
from rlbench.config.names import count_text
from rlbench.errors import UsageError
from rlbench.report.columns import aligned, sentences

if TYPE_CHECKING:
    from rlbench.report.baseline import Baseline


def baseline(
    action: Annotated[Literal["save", "show"], argument("save|show", "Write the baseline, or print it.")],
    file: Annotated[Path, argument("FILE", "The baseline, a JSON file.")],
    *,
    suite: Annotated[
        list[str] | None,
        option("--suite SUITE", "Save only this suite; may be repeated. Default: all of them.", completion.suites),
    ] = None,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Save measured scores for `rlbench check` to compare with.

    A baseline has the finished runs of the documented settings, without failed, short and smoke runs. `show` prints it.
    """
    from rlbench.report import baseline as saved
    from rlbench.report.run_index import gather

    if action == "save":
        names = suites_named(suite or (), results)
        cells = {key: runs for key, runs in gather(results).items() if key.suite in names}
        content = saved.baseline_of(cells)
        if not content.cells:
            raise UsageError(f"{results}: no finished run of documented settings, so nothing to save; run some first")
        refuse_same_file(file, "FILE")
        write_file(file, saved.baseline_text(content), "FILE")
        print_left_out(cells, failed="that failed", short="short of the budget")
    else:
        content = saved.read_baseline(file, links=True)
    print_result({"file": str(file), "cells": len(content.cells)}, _text(content), json=json)


def _text(content: Baseline) -> str:
    from rlbench.report.estimate import mean
    from rlbench.report.reference_table import cell_name
    from rlbench.report.tables import score_text

    if not content.cells:
        return "0 cells"
    rows = [
        (
            cell_name(entry.key),
            f"{score_text(mean(list(entry.scores.values())))} over {len(entry.scores)}" if entry.scores else "no score",
            "; ".join(f"{mean(speeds):,.0f} steps/s on {machine}" for machine, speeds in entry.speeds.items()),
        )
        for entry in content.cells
    ]
    width = terminal_width()
    notes = sentences(
        [
            f"{len(rows)} cells, made at {count_text(len(content.commits), 'commit')}",
            "Scores: mean over seeds of a run's whole learning curve; tables use the reference's estimator.",
        ],
        width,
    )
    return "\n".join([*aligned(rows, width), "", *notes])
