"""The gate over a results folder: every cell's findings, against a baseline or against the documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape as escaped
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rlbench.config.names import printable
from rlbench.errors import BelowReference, Inconclusive, RunFailed, UsageError
from rlbench.report import gate
from rlbench.report.baseline import Baseline, Entry, level, machine_of, speed
from rlbench.report.columns import aligned, sentences
from rlbench.report.estimate import mean
from rlbench.report.pooled import pooled_rows
from rlbench.report.reference_table import CellKey, reference, task_name
from rlbench.report.repeats import remarks
from rlbench.report.run_index import Runs, differences, gather
from rlbench.report.runs import Run
from rlbench.report.tables import rounded

if TYPE_CHECKING:
    from rlbench.report.cells import Cell
    from rlbench.report.sources import Sources

Aspect = Literal["score", "at", "speed", "run", "pooled"]
WORSE = {"REGRESSED", "SLOWER", "BELOW", "BEHIND"}
UNDECIDED = {"SUSPECT", "TOO FEW", "INCONCLUSIVE", "OPEN"}
OPEN = UNDECIDED | {"NOT RUN", "PARTIAL", "TOO EARLY"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of a check."""

    suite: str
    algorithm: str  # empty where all cells are meant
    task: str
    aspect: Aspect
    word: str
    reason: str

    @property
    def name(self) -> str:
        """``toy/dqn/Catch score``."""
        return f"{'/'.join(filter(None, (self.suite, self.algorithm, self.task)))} {self.aspect}"


def against_documents(
    suite: str, sources: Sources, *, alpha: float, margin: float | None, at: bool = False, pooled: bool = False
) -> list[Finding]:
    """Every cell's verdict, or with ``pooled`` every algorithm's, and every run that failed.

    With ``at`` the verdicts at equal steps instead of those at the full budget.
    """
    cells = sources.cells([suite], alpha=alpha, share=margin)
    found = []
    if pooled:
        kind = "at" if at else "full"
        rows = [row for row in pooled_rows(cells) if row.kind == kind]
        found += [_finding(CellKey(suite, row.algorithm, "", ""), "pooled", row.word, str(row)) for row in rows]
    for cell in () if pooled else cells:
        if at:
            if cell.documented is not None:
                found.append(_at_finding(cell))
            continue
        ours = f"measured {rounded(cell.measured.score)} over {cell.measured.n}" if cell.measured else ""
        theirs = f"documented {cell.documented.score:,.6g}" if cell.documented else ""
        reason = "; ".join(filter(None, (ours, theirs, cell.note)))
        found.append(_finding(cell.key, "score", gate_word(str(cell.verdict)), reason))
    for key, runs in sorted(sources.runs().items()):
        if key.suite == suite:
            found += _failures(key, runs.failed)
    return found


def _at_finding(cell: Cell) -> Finding:
    """A cell's verdict at equal steps."""
    if cell.at is None:
        word = "NOT RUN" if cell.measured is None else "NOT COMPARABLE"
        return _finding(cell.key, "at", word, "no run" if cell.measured is None else "no documented curve")
    level, scores = cell.at.level, cell.at.scores
    numbers = f"measured {rounded(mean(scores))} over {len(scores)}; documented {rounded(level.mean)}"
    return _finding(cell.key, "at", cell.at.word, f"{cell.at}; {numbers}; {cell.at.note}")


def against_baseline(
    suite: str, results: Path, baseline: Baseline, *, alpha: float, margin: float, other_machine: bool
) -> list[Finding]:
    """Scores, speeds and the pooled score of a suite against what was saved; speeds only of machines that saved some.

    Raises:
        UsageError: the runs were made on another class of machine, and nobody said that this is meant.
    """
    everything = {key: runs for key, runs in gather(results).items() if key.suite == suite}
    entries = {entry.key: entry for entry in baseline.entries if entry.key.suite == suite}
    later = {key: _later(everything.get(key, Runs())) for key in entries}
    if not other_machine:
        _same_machines(later, baseline)
    held = [(entry, runs) for key, entry in entries.items() for runs in later[key] or [[]]]
    found: list[Finding] = []
    for key, runs in sorted(everything.items()):
        others = (run for run in (*runs.variants, *runs.other_files, *runs.versions) if run.status == "failed")
        found += _failures(key, [*runs.failed, *others])
        if key not in entries and runs.complete:
            found.append(_finding(key, "score", "NEW", "not in the baseline"))
    found += _score_findings(held, everything, alpha=alpha, margin=margin)
    found += [finding for entry, runs in held for finding in _speed_findings(entry, runs)]
    pooled = [
        (list(entry.scores.values()), scores, _random(entry.key)) for entry, runs in held if (scores := _levels(runs))
    ]
    ruling = gate.rule_pooled(pooled, alpha=alpha, margin=margin)
    if ruling.word != "TOO FEW":
        found.append(_finding(CellKey(suite, "", "", ""), "pooled", ruling.word, ruling.reason))
    return found


def exit_code(findings: Sequence[Finding], *, strict: bool) -> int:
    """3 worse, 5 a run failed, 4 undecided under ``strict``, else 0; the first that holds."""
    words = {finding.word for finding in findings} or {"NOT RUN"}
    if words & WORSE:
        return BelowReference.exit_code
    if "FAILED" in words:
        return RunFailed.exit_code
    undecided = words & OPEN or words == {"NEW"}  # a baseline that has none of the cells
    return Inconclusive.exit_code if strict and undecided else 0


def gate_word(verdict: str) -> str:
    """A verdict without its count of seeds."""
    return verdict.partition(" (")[0]


def to_text(findings: Sequence[Finding], width: int | None = None, *, strict: bool = False) -> str:
    """One line a finding that is bad or undecided, folded to ``width`` columns, and a line that counts all of them.

    Under ``strict`` also what is missing has a line.
    """
    if not findings:
        return "nothing to check"
    listed = [f for f in findings if f.word in WORSE | {"FAILED"} | (OPEN if strict else UNDECIDED)]
    lines = aligned([(f.word, f.name, f.reason) for f in listed], width)
    rest = "; --json lists every row" if len(listed) < len(findings) else ""
    return "\n".join([*lines, *([""] if lines else []), *sentences([counted(findings) + rest], width)])


def counted(findings: Sequence[Finding]) -> str:
    """``2 REGRESSED, 10 PASSED``."""
    return ", ".join(f"{count} {word}" for word, count in Counter(f.word for f in findings).items())


def to_markdown(findings: Sequence[Finding], title: str) -> str:
    """The summary for a CI system: the failures first."""
    order = sorted(findings, key=lambda f: (f.word not in WORSE, f.word != "FAILED", f.word not in OPEN))
    rows = [f"| {_mark(f.word)} {f.word} | {f.name} | {f.reason.replace('|', '/')} |" for f in order]
    return "\n".join([f"### {title}", "", counted(findings), "", "| | cell | |", "| --- | --- | --- |", *rows]) + "\n"


def escape(text: str) -> str:
    """A text as an attribute of XML, without the characters that no XML may hold."""
    return escaped(printable(text))


def to_junit(findings: Sequence[Finding], title: str) -> str:
    """JUnit XML: worse is a failure, a failed run an error, what is undecided is skipped."""
    cases = []
    for f in findings:
        inside, message = "", f'message="{escape(f"{f.word}: {f.reason}")}"'
        if f.word in WORSE:
            inside = f"<failure {message}/>"
        elif f.word == "FAILED":
            inside = f"<error {message}/>"
        elif f.word in OPEN | {"NEW", "NOT COMPARABLE"}:
            inside = f"<skipped {message}/>"
        where = escape(".".join(filter(None, (f.suite, f.algorithm))))
        cases.append(
            f'<testcase classname="{where}" name="{escape(f"{f.task} {f.aspect}".strip())}">{inside}</testcase>'
        )
    counts = {kind: sum(f"<{kind} " in case for case in cases) for kind in ("failure", "error", "skipped")}
    head = (
        f'<testsuite name="{escape(title)}" tests="{len(cases)}" failures="{counts["failure"]}" '
        f'errors="{counts["error"]}" skipped="{counts["skipped"]}">'
    )
    return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', head, *cases, "</testsuite>"]) + "\n"


def _later(runs: Runs) -> list[list[Run]]:
    """The runs that are held against a baseline: of the documented settings, or else of each other setting.

    What took fewer steps than documented, or ran elsewhere, is no later run of the same kind.
    """
    if runs.complete:
        return [runs.complete]
    found: dict[str, list[Run]] = {}
    for run in runs.variants:
        if run.status == "done" and run.budget >= runs.budget:
            found.setdefault(run.id, []).append(run)
    return [found[settings] for settings in sorted(found)]


def _levels(runs: Sequence[Run]) -> list[float]:
    return [level(run) for run in runs if run.evaluations]


def _same_machines(later: Mapping[CellKey, Sequence[Sequence[Run]]], baseline: Baseline) -> None:
    for groups in later.values():
        for run in chain.from_iterable(groups):
            if machine_of(run) not in baseline.machines:
                known = "; ".join(baseline.machines)
                raise UsageError(
                    f"{run.folder}: made on {machine_of(run)}, the baseline on {known}; "
                    "make a baseline there, or compare scores alone with --other-machine"
                )


def _score_findings(
    held: Sequence[tuple[Entry, Sequence[Run]]], everything: Mapping[CellKey, Runs], *, alpha: float, margin: float
) -> list[Finding]:
    found, drops = {}, {}
    for place, (entry, runs) in enumerate(held):
        scores = _levels(runs)
        if not scores:
            found[place] = _absent(entry.key, everything.get(entry.key, Runs()))
        elif len(entry.scores) < 2:
            found[place] = _finding(entry.key, "score", "TOO FEW", f"{len(entry.scores)} seed in the baseline")
        else:
            drops[place] = gate.drop(list(entry.scores.values()), scores, _random(entry.key), margin)
    for place, ruling in zip(drops, gate.rule_scores(list(drops.values()), alpha), strict=True):
        entry, runs = held[place]
        changed = [change for run in runs[:1] for change in differences(run)]
        few = f"{len(runs)} of the baseline's {len(entry.scores)} seeds" if len(runs) < len(entry.scores) else ""
        word = "TOO FEW" if few and ruling.word == "PASSED" else ruling.word  # the others may be the bad ones
        provenance = () if changed else remarks(everything[entry.key])
        parts = (ruling.reason, few, *provenance, f"with {', '.join(changed)}" if changed else "")
        found[place] = _finding(entry.key, "score", word, "; ".join(filter(None, parts)))
    return [found[place] for place in range(len(held))]


def _absent(key: CellKey, runs: Runs) -> Finding:
    """Why a cell of the baseline has nothing to be held against it."""
    if runs.elsewhere:
        return _finding(key, "score", "NOT RUN", "another protocol or environment")
    if runs.short or runs.variants:
        return _finding(key, "score", "PARTIAL", "no run of the baseline's steps")
    return _finding(key, "score", "NOT RUN", "in the baseline only")


def _speed_findings(entry: Entry, runs: Sequence[Run]) -> list[Finding]:
    found = []
    for machine, before in entry.speeds.items():
        now = [made for run in runs if machine_of(run) == machine and (made := speed(run)) is not None]
        ruling = gate.rule_speed(before, now)
        if ruling.word != "TOO FEW":
            found.append(_finding(entry.key, "speed", ruling.word, f"{ruling.reason} on {machine}"))
    return found


def _failures(key: CellKey, runs: Sequence[Run]) -> list[Finding]:
    return [_finding(key, "run", "FAILED", f"seed {run.seed}: {run.reason}") for run in runs]


def _random(key: CellKey) -> float:
    scale = reference(key)
    return scale.random if scale else 0.0


def _finding(key: CellKey, aspect: Aspect, word: str, reason: str) -> Finding:
    name = task_name(key) if key.task else ""
    return Finding(suite=key.suite, algorithm=key.algorithm, task=name, aspect=aspect, word=word, reason=reason)


def _mark(word: str) -> str:
    if word in WORSE:
        return "❌"
    return "💥" if word == "FAILED" else "❓" if word in OPEN else "✅" if word == "PASSED" else "·"
