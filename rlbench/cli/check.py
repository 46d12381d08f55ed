"""``rlbench check``: the regression gate; its exit code is the verdict."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rlbench.cli.options import (
    Json,
    Records,
    Reference,
    References,
    SuiteOrAll,
    check_results_folder,
    option,
    suites_named,
)
from rlbench.cli.output import print_error, print_result, refuse_same_file, terminal_width, write_file
from rlbench.config.names import printable
from rlbench.errors import UsageError


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
            "The smallest relevant drop, as a share of the distance from a random policy to the score it is "
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
        bool, option("--at", "Test at the largest test step that the runs have reached, not at the full budget.")
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
    """Exit with 3 if a score is below its reference or a baseline.

    Exit code 0: no score is; 3: one is below the published one or the baseline, or a speed below the baseline's;
    5: a run failed; 4, under --strict: undecided, not run in full, or of fewer seeds than the baseline's. Rows that are
    bad or undecided are listed, the others counted.
    """
    del references, reference  # their callbacks have selected them
    refuse_same_file(junit, "--junit", baseline)
    refuse_same_file(summary, "--summary", baseline, junit)
    from rlbench.report import check as checks
    from rlbench.report.baseline import MARGIN, read_baseline
    from rlbench.report.evidence import evidence_of

    if baseline is not None and (at or pool or of_imported):
        raise UsageError("--at, --pooled and --imported compare with published scores; leave them or --baseline out")
    suites, evidence = suites_named([suite], results), evidence_of(results)
    compare = partial(
        checks.against_references, evidence=evidence, margin=margin, at=at, pool=pool, of_imported=of_imported
    )
    if baseline is not None:
        share, saved = MARGIN if margin is None else margin, read_baseline(baseline, links=True)
        suites = [*dict.fromkeys([*suites, *saved.suites])] if suite == "all" else suites
        compare = partial(
            checks.against_baseline, results=evidence.own, baseline=saved, margin=share, other_machine=other_machine
        )
    check_results_folder(results)
    findings = [finding for name in suites for finding in compare(name, alpha=alpha)]
    if not findings or (of_imported and {finding.word for finding in findings} == {"NOT COMPARABLE"}):
        reasons = "".join(f"; {finding.name}: {finding.reason}" for finding in findings)
        raise UsageError(f"{baseline or results or suite}: {_nothing(suite, reasons, of_imported=of_imported)}")
    title = f"rlbench check {suite}" + (f" against {printable(str(baseline), 200)}" if baseline else "")
    if junit is not None:
        write_file(junit, checks.to_junit(findings, title), "--junit")
    if summary is not None:
        write_file(summary, checks.findings_markdown(findings, title), "--summary", append=True)
    options = {"strict": strict, "of_imported": of_imported}
    code = checks.exit_code(findings, **options)
    document = {"exit_code": code, "findings": [asdict(finding) for finding in findings]}
    print_result(document, checks.findings_text(findings, terminal_width(), **options), json=json)
    for finding in findings:
        if finding.word in checks.WORSE | {"FAILED"}:
            print_error(f"{finding.name}: {finding.word}: {finding.reason}")
    raise typer.Exit(code)


def _nothing(suite: str, reasons: str, *, of_imported: bool) -> str:
    """Say that nothing can be compared, with the remedy."""
    if not of_imported:
        return f"holds no cell of {suite} to compare; name another suite, or leave --at out"
    remedy = "import evaluations into a new folder: rlbench import FILE --as SUITE/ALGO --results DIR"
    return f"holds no imported curve that can be compared with a published score{reasons}; {remedy}"
