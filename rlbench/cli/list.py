"""``rlbench list``: the names that other verbs take, one per line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from rlbench.cli.options import Json, RecordedSuite, Records, argument, check_recorded_suite, check_suite
from rlbench.cli.output import one_line, print_note, print_result


def listing(
    kind: Annotated[Literal["suites", "algos", "tasks", "runs"], argument("suites|algos|tasks|runs", "Kind of names.")],
    *,
    suite: RecordedSuite = None,
    results: Records = None,
    json: Json = False,
) -> None:
    """List suites, algorithms, tasks or runs, one per line.

    Algorithms and tasks have their suite in front, unless --suite names it. Runs are the folders of your
    runs; `--results results` lists those that a checkout of rlbench brings. Those without weights cannot be played.
    """
    rows = _runs(suite, results) if kind == "runs" else _names(kind, check_suite(suite))
    if rows or json:
        alone = suite is not None or kind in {"suites", "runs"}
        lines = [one_line(name) if alone else f"{of}\t{one_line(name)}" for of, name in rows]
        if kind == "runs":
            lines = [
                line if Path(folder, "checkpoint", "best").is_dir() else f"{line}\tno weights"
                for line, (_, folder) in zip(lines, rows, strict=True)
            ]
        print_result({kind: [{"suite": of, "name": name} for of, name in rows]}, "\n".join(lines), json=json)
    elif kind == "runs":
        print_note("no runs of yours; `rlbench list runs --results results` lists those that a checkout brings")


def _names(kind: str, suite: str | None) -> list[tuple[str, str]]:
    from rlbench import suites

    suite_names = [suite] if suite else []
    for name in () if suite else suites.names():
        if problem := suites.unavailable_reason(name):
            print_note(problem)  # of a broken plug-in
        else:
            suite_names.append(name)
    if kind == "suites":
        return [(name, name) for name in suite_names]
    names = suites.algorithms if kind == "algos" else suites.tasks
    return [(of, name) for of in suite_names for name in names(of)]


def _runs(suite: str | None, results: Path | None) -> list[tuple[str, str]]:
    from rlbench.records.files import folders, suite_of
    from rlbench.report.evidence import evidence_of

    check_recorded_suite(suite, results)
    runs = [(suite_of(folder), str(folder)) for folder in folders(evidence_of(results).own)]
    return [(of, folder) for of, folder in runs if suite in {None, of}]
