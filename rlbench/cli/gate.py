"""``rlbench check``: the regression gate, whose exit code is the verdict; ``rlbench baseline``: what it compares to."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlbench.cli import completion
from rlbench.cli.options import (
    RESULTS,
    Json,
    Records,
    Reference,
    References,
    Results,
    SuiteOrAll,
    argument,
    option,
    suites_named,
)
from rlbench.cli.output import print_error, print_result, terminal_width, write_file
from rlbench.config.names import count_text, printable
from rlbench.errors import UsageError, suggest_path
from rlbench.report.columns import aligned, sentences

if TYPE_CHECKING:
    from rlbench.report.baseline import Baseline


def check(
    suite: SuiteOrAll,
    *,
    baseline: Annotated[
        Path | None,
        option(
            "--baseline FILE",
            "Compare with what `rlbench baseline save` wrote there; default: with the published scores.",
        ),
    ] = None,
    margin: Annotated[
        float | None,
        option(
            "--margin SHARE",
            "The smallest drop that matters, as a share of the distance from a random policy to the score it is "
            "compared with. Default: 0.1 of a published score or its std, whichever is larger; 0.05 of an optimum or "
            "of a baseline.",
            least=0.0,
            most=1.0,
        ),
    ] = None,
    alpha: Annotated[
        float, option("--alpha P", "The accepted probability of a false alarm.", least=1e-6, most=0.5)
    ] = 0.05,
    at: Annotated[
        bool, option("--at", "Test at equal steps, as far as the runs have come, not at the full budget.")
    ] = False,
    pool: Annotated[
        bool, option("--pooled", "Test each algorithm over its tasks together, and alone only what is not pooled.")
    ] = False,
    of_imported: Annotated[bool, option("--imported", "Test only cells of imported curves.")] = False,
    strict: Annotated[
        bool, option("--strict", "Exit with code 4 where the evidence is missing, or too thin to decide.")
    ] = False,
    other_machine: Annotated[
        bool,
        option(
            "--other-machine", "Accept runs of machines that the baseline does not know; their speeds are not compared."
        ),
    ] = False,
    junit: Annotated[Path | None, option("--junit FILE", "Write JUnit XML there, for CI; default: none.")] = None,
    summary: Annotated[
        Path | None, option("--summary FILE", "Append a Markdown summary to it, for CI; default: none.")
    ] = None,
    results: Records = None,
    json: Json = False,
    references: References = None,
    reference: Reference = None,
) -> None:
    """Say by the exit code whether anything has become worse.

    Exit code 0: no; 3: yes, a score is below the published one or the baseline, or a speed below the baseline's;
    5: a run failed; 4, under --strict: undecided, not run in full, or of fewer seeds than the baseline's. Rows that are
    bad or undecided are listed, the others counted.
    """
    del references, reference  # their callbacks have selected them
    from rlbench.report import check as checks
    from rlbench.report.baseline import MARGIN, read_baseline
    from rlbench.report.sources import sources

    if baseline is not None and (at or pool or of_imported):
        raise UsageError("--at, --pooled and --imported compare with published scores; leave them or --baseline out")
    suites, evidence = suites_named([suite], results), sources(results)
    compare = partial(
        checks.against_references, sources=evidence, margin=margin, at=at, pool=pool, of_imported=of_imported
    )
    if baseline is not None:
        share, saved = MARGIN if margin is None else margin, read_baseline(baseline, links=True)
        suites = [*dict.fromkeys([*suites, *saved.suites])] if suite == "all" else suites
        compare = partial(
            checks.against_baseline, results=evidence.own, baseline=saved, margin=share, other_machine=other_machine
        )
    if results is not None and not results.exists():
        raise UsageError(f"{results}: no such folder{suggest_path(results)}; name a folder of records with --results")
    findings = [finding for name in suites for finding in compare(name, alpha=alpha)]
    if not findings:
        what, remedy = f"cell of {suite} to compare", "name another suite, or leave --at out"
        if of_imported:
            what, remedy = (
                "cell of imported curves to the reference's steps and without runs",
                "add some: rlbench import FILE --as SUITE/ALGO --results DIR",
            )
        raise UsageError(f"{baseline or results or suite}: holds no {what}; {remedy}")
    title = f"rlbench check {suite}" + (f" against {printable(str(baseline), 200)}" if baseline else "")
    if junit is not None:
        write_file(junit, checks.to_junit(findings, title), "--junit")
    if summary is not None:
        write_file(summary, checks.findings_markdown(findings, title), "--summary", append=True)
    code = checks.exit_code(findings, strict=strict)
    document = {"exit_code": code, "findings": [asdict(finding) for finding in findings]}
    print_result(document, checks.findings_text(findings, terminal_width(), strict=strict), json=json)
    for finding in findings:
        if finding.word in checks.WORSE | {"FAILED"}:
            print_error(f"{finding.name}: {finding.word}: {finding.reason}")
    raise typer.Exit(code)


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

    suites_named(suite or (), results)
    if action == "save":
        cells = {key: runs for key, runs in gather(results).items() if not suite or key.suite in suite}
        content = saved.baseline_of(cells)
        if not content.cells:
            raise UsageError(f"{results}: no finished run of documented settings, so nothing to save; run some first")
        write_file(file, saved.baseline_text(content), "FILE")
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
