"""The gate over a results folder: findings of every cell, against a baseline or reference scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from xml.etree import ElementTree as ET

from rlbench.config.names import count_text, printable
from rlbench.errors import BelowReference, Inconclusive, RunFailed, UsageError
from rlbench.report.baseline import Baseline, Entry, curve_score, drop_of, rule_pooled, rule_scores, rule_speed
from rlbench.report.cells import Cell, select_last_look
from rlbench.report.columns import aligned, sentences
from rlbench.report.equal_steps import reference_curve
from rlbench.report.estimate import is_whole, mean, within
from rlbench.report.pooled import Kind, pooled_rows
from rlbench.report.reference_scores import SHARE
from rlbench.report.reference_table import CellKey, scale_of, task_name
from rlbench.report.remarks import conflicting_remark, remarks
from rlbench.report.run_index import LATE, Runs, differences, gather
from rlbench.report.runs import Run, separate
from rlbench.report.tables import markdown_row, score_text

if TYPE_CHECKING:
    from rlbench.report.evidence import Evidence

Aspect = Literal["score", "at", "speed", "run", "pooled"]
WORSE = {"REGRESSED", "SLOWER", "BELOW", "BEHIND"}
UNDECIDED = {"SUSPECT", "TOO FEW", "INCONCLUSIVE", "OPEN"}
NO_VERDICT = UNDECIDED | {"NOT RUN", "PARTIAL", "TOO EARLY"}
JUNIT = {"failure": WORSE, "error": {"FAILED"}, "skipped": NO_VERDICT | {"NEW", "NOT COMPARABLE"}}


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


def against_references(
    suite: str,
    evidence: Evidence,
    *,
    alpha: float,
    margin: float | None,
    at: bool = False,
    pool: bool = False,
    of_imported: bool = False,
) -> list[Finding]:
    """Findings for every cell's verdict and for every failed run.

    ``at`` takes the verdicts at equal steps instead of those at the full budget. With ``pool`` an algorithm's verdict
    stands for the cells that it pools. With ``of_imported`` only cells of imported curves count.
    """
    cells = evidence.cells([suite], alpha=alpha, margin_share=margin)
    if of_imported:
        cells = tuple(cell for cell in cells if cell.measured is not None and cell.measured.imported)
    kind: Kind = "at" if at else "full"
    runs_by_cell = evidence.with_imported() if of_imported else evidence.runs()
    by_look = {key: select_last_look(runs) for key, runs in runs_by_cell.items()}
    share = SHARE if margin is None else margin
    rows = [row for row in pooled_rows(cells, margin=share, alpha=alpha) if pool and row.kind == kind]
    findings = []
    for row in rows:
        notes = [f"{task_name(key)}: {note}" for key in row.keys for note in remarks(by_look.get(key, Runs()))]
        key = CellKey(suite, row.algorithm, "", "")
        findings.append(_finding(key, "pooled", row.word, "; ".join([str(row), *notes])))
    pooled_keys = {key for row in rows for key in row.keys}
    whole = of_imported or not at  # else cells without a reference are left out
    alone = (cell for cell in cells if cell.key not in pooled_keys and (whole or cell.documented is not None))
    findings += [_at_finding(cell, by_look.get(cell.key, Runs())) if at else _score_finding(cell) for cell in alone]
    keys = {cell.key for cell in cells}
    for key, runs in sorted(runs_by_cell.items()):
        if key.suite == suite and runs.imported_curves and key not in keys and of_imported:
            late = f"no evaluation within {runs.budget:,} steps"
            reason = late if runs.of_imported else "rlbench has runs beside them"
            text = f"{count_text(len(runs.imported_curves), 'imported curve')} left out: {reason}"
            findings.append(_finding(key, "score", "NOT COMPARABLE", text))
        if key.suite == suite and (key in keys or not of_imported):
            findings += _run_findings(key, runs, (*runs.score_runs[1], *runs.other_data, *runs.other_versions), at=at)
    return findings


def _score_finding(cell: Cell) -> Finding:
    ours = f"measured {score_text(cell.measured.score)} over {cell.measured.n}" if cell.measured else ""
    theirs = f"documented {cell.documented.score:,.6g}" if cell.documented else ""
    reason = "; ".join(filter(None, (ours, theirs, cell.note)))
    return _finding(cell.key, "score", cell.verdict.word, reason)


def _at_finding(cell: Cell, runs: Runs) -> Finding:
    if cell.at is None:
        if cell.measured is not None and (cell.verdict.word == "NOT COMPARABLE" or reference_curve(cell.key) is None):
            return _finding(cell.key, "at", "NOT COMPARABLE", "no documented curve")
        if not all(run.has_curve for run in runs.evaluated):
            return _finding(cell.key, "at", "NOT COMPARABLE", "a score without steps is none at equal steps")
        word, reason = ("NOT RUN", "no run") if cell.measured is None else ("TOO EARLY", "no seed at a test step")
        return _finding(cell.key, "at", word, "; ".join([reason, *remarks(runs)]))
    point, scores = cell.at.reference, cell.at.scores
    numbers = f"measured {score_text(mean(scores))} over {len(scores)}; documented {score_text(point.mean)}"
    return _finding(cell.key, "at", cell.at.word, "; ".join([str(cell.at), numbers, cell.at.note, *remarks(runs)]))


def against_baseline(
    suite: str, results: Path, baseline: Baseline, *, alpha: float, margin: float, other_machine: bool
) -> list[Finding]:
    """Findings for a suite's scores, speeds and pooled score against a baseline; speeds only on its machines.

    Raises:
        UsageError: the runs were made on another class of machine, and ``other_machine`` is not set.
    """
    everything = {key: runs for key, runs in gather(results).items() if key.suite == suite}
    entries = {entry.key: entry for entry in baseline.cells if entry.key.suite == suite}
    later = {key: _runs_to_compare(everything.get(key, Runs()), entry.id) for key, entry in entries.items()}
    if not other_machine:
        _refuse_other_machines(later, baseline)
    pairs = [(entry, group.complete) for key, entry in entries.items() for group in later[key] or [Runs()]]
    findings: list[Finding] = []
    for key, runs in sorted(everything.items()):
        findings += _run_findings(key, runs, runs.all)
        for group in later.get(key, ()):
            findings += _run_findings(key, group, ()) if group is not runs else ()
        if key not in entries and (runs.complete or runs.unfinished):
            unfinished = f"; {count_text(len(runs.unfinished), 'run')} incomplete" if runs.unfinished else ""
            word = "PARTIAL" if unfinished else "NEW"
            findings.append(_finding(key, "score", word, f"not in the baseline{unfinished}"))
    findings += _score_findings(pairs, everything, alpha=alpha, margin=margin)
    findings += [finding for entry, runs in pairs for finding in _speed_findings(entry, runs)]
    suite_scores = [
        (list(entry.scores.values()), scores, _random(entry.key))
        for entry, runs in pairs
        if (scores := _curve_scores(runs))
    ]
    ruling = rule_pooled(suite_scores, alpha=alpha, margin=margin)
    if ruling.word != "TOO FEW":
        findings.append(_finding(CellKey(suite, "", "", ""), "pooled", ruling.word, ruling.reason))
    return findings


def exit_code(findings: Sequence[Finding], *, strict: bool, of_imported: bool = False) -> int:
    """The exit code: 3 worse, 5 a run failed, 4 undecided under ``strict``, otherwise 0; the first that applies.

    An imported curve that cannot be compared is undecided.
    """
    words = {finding.word for finding in findings}
    if words & WORSE:
        return BelowReference.exit_code
    if "FAILED" in words:
        return RunFailed.exit_code
    undecided = words & NO_VERDICT or nothing_compared(findings) or (of_imported and "NOT COMPARABLE" in words)
    return Inconclusive.exit_code if strict and undecided else 0


def findings_text(
    findings: Sequence[Finding], width: int | None = None, *, strict: bool = False, of_imported: bool = False
) -> str:
    """Format one line per bad or undecided finding, folded to ``width`` columns, and a line that counts all findings.

    ``strict`` adds a line for each missing run.
    """
    words = WORSE | {"FAILED"} | (NO_VERDICT if strict else UNDECIDED) | ({"NOT COMPARABLE"} if of_imported else set())
    listed = [f for f in findings if f.word in words]
    lines = aligned([(f.word, f.name, f.reason) for f in listed], width)
    below = [word_counts(findings) + ("; --json lists every row" if len(listed) < len(findings) else "")]
    if nothing_compared(findings):
        below.append("Nothing was compared, so nothing can have become worse; with --strict the exit code is 4.")
    return "\n".join([*lines, *([""] if lines else []), *sentences(below, width)])


def nothing_compared(findings: Sequence[Finding]) -> bool:
    """True if no finding is a comparison."""
    return {finding.word for finding in findings} <= {"NEW", "NOT COMPARABLE", "NOT RUN", "PARTIAL", "TOO EARLY"}


def word_counts(findings: Sequence[Finding]) -> str:
    """``2 REGRESSED, 10 PASSED``."""
    return ", ".join(f"{count} {word}" for word, count in Counter(f.word for f in findings).items())


def findings_markdown(findings: Sequence[Finding], title: str) -> str:
    """The summary for a CI system: the failures first."""
    order = sorted(findings, key=lambda f: (f.word not in WORSE, f.word != "FAILED", f.word not in NO_VERDICT))
    rows = [markdown_row([f"{_mark(f.word)} {f.word}", f.name, f.reason]) for f in order]
    return "\n".join([f"### {title}", "", word_counts(findings), "", "| | cell | |", "| --- | --- | --- |", *rows, ""])


def to_junit(findings: Sequence[Finding], title: str) -> str:
    """Format JUnit XML: worse is a failure, a failed run an error, undecided is skipped; each case has its reason."""
    kinds = [next((kind for kind, words in JUNIT.items() if f.word in words), "") for f in findings]
    counts = {"failures": kinds.count("failure"), "errors": kinds.count("error"), "skipped": kinds.count("skipped")}
    suite = ET.Element("testsuite", {"name": printable(title), "tests": str(len(findings))})
    suite.attrib.update({name: str(count) for name, count in counts.items()})
    for f, kind in zip(findings, kinds, strict=True):
        names = {"classname": ".".join(filter(None, (f.suite, f.algorithm))), "name": f"{f.task} {f.aspect}".strip()}
        case = ET.SubElement(suite, "testcase", {key: printable(name) for key, name in names.items()})
        if kind:
            ET.SubElement(case, kind, message=printable(f"{f.word}: {f.reason}"))
        else:
            ET.SubElement(case, "system-out").text = printable(f"{f.word}: {f.reason}")
    ET.indent(suite, "")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suite, encoding="unicode")}\n'


def _runs_to_compare(runs: Runs, baseline_id: str) -> list[Runs]:
    """The runs to compare with a baseline: those of the documented settings, of the baseline's, or of each other one.

    The first of these that has a run counts. Of other settings than the baseline's, runs of fewer steps than documented
    are not compared, and of runs of more steps only the evaluations within the documented ones.
    """
    if runs.complete:
        return [runs]
    groups: dict[str, Runs] = {}
    every = (*runs.variants, *runs.other_protocol)  # the latter also has runs of a missing plug-in
    own = [run for run in every if run.counts_in_full and run.id == baseline_id]
    for run in own or [run for run in runs.variants if run.status == "done"]:
        evaluations = tuple(within(run.evaluations, runs.budget))  # the level of a longer curve is another
        late = any(evaluation.env_steps >= LATE * runs.budget for evaluation in evaluations)
        if run.id == baseline_id:
            groups.setdefault(run.id, Runs()).complete.append(run)
        elif run.budget >= runs.budget and (late or evaluations == run.evaluations):  # else the next one is beyond it
            part = replace(run, evaluations=evaluations, budget=runs.budget)
            groups.setdefault(run.id, Runs()).complete.append(part)
    for group in groups.values():
        separate(group)
        runs.duplicates += group.duplicates  # of unknown versions, which ``group_runs`` tells apart
    return [groups[settings] for settings in sorted(groups)]


def _curve_scores(runs: Sequence[Run]) -> list[float]:
    return [curve_score(run) for run in runs if run.evaluations]


def _refuse_other_machines(later: Mapping[CellKey, Sequence[Runs]], baseline: Baseline) -> None:
    for run in (run for groups in later.values() for group in groups for run in group.complete):
        if others := [machine for machine in run.machines if machine not in baseline.machines]:
            raise UsageError(
                f"{run.folder}: made on {others[0]}, the baseline on {'; '.join(baseline.machines)}; "
                "make a baseline there, or compare scores alone with --other-machine"
            )


def _score_findings(
    pairs: Sequence[tuple[Entry, Sequence[Run]]], everything: Mapping[CellKey, Runs], *, alpha: float, margin: float
) -> list[Finding]:
    findings, drops = {}, {}
    for index, (entry, runs) in enumerate(pairs):
        scores = _curve_scores(runs)
        if not scores:
            findings[index] = _absent_finding(entry.key, everything.get(entry.key, Runs()))
        elif len(entry.scores) < 2:
            findings[index] = _finding(entry.key, "score", "TOO FEW", f"{len(entry.scores)} seed in the baseline")
        else:
            drops[index] = drop_of(list(entry.scores.values()), scores, _random(entry.key), margin)
    for index, ruling in zip(drops, rule_scores(list(drops.values()), alpha), strict=True):
        entry, runs = pairs[index]
        settings = [change for run in runs[:1] for change in differences(run)]
        few = f"{len(runs)} of the baseline's {len(entry.scores)} seeds" if len(runs) < len(entry.scores) else ""
        group, ids, seeds = everything[entry.key], {run.id for run in runs}, {run.seed for run in runs}
        others = [run for run in (*group.variants, *group.other_protocol) if run.id in ids and run.seed not in seeds]
        short = sum(run.status == "interrupted" for run in others) + len(group.unfinished)
        conflicting = group.conflicting(runs)
        unfinished = f"{count_text(short, 'run')} incomplete" if short else ""
        before, now = entry.versions, sorted({printable(text) for run in runs if (text := run.env_versions)})
        version_change = ""
        if before and now != [before]:
            versions = ", or ".join(now) or "not stated"
            version_change = f"the environment was {before}, is {versions}; save a new baseline"
        settings_differ = not settings and any(run.id != entry.id for run in runs)
        settings_change = "its published settings have changed since; save a new baseline" if settings_differ else ""
        data_differ = any(entry.data and run.data_file not in {None, entry.data} for run in runs)
        data_change = "learned from another data file; restore it, or save a new baseline" if data_differ else ""
        word = ruling.word
        if word == "PASSED":
            other_work = settings_differ or data_differ or version_change
            word = (
                "TOO FEW" if few or short or conflicting else "SUSPECT" if other_work else word
            )  # the others may be bad
        provenance = [] if settings else [*remarks(group)]
        provenance += [conflicting_remark(conflicting)] if conflicting and runs is not group.complete else []
        change = f"with {', '.join(settings)}" if settings else ""
        changes = version_change, settings_change, data_change
        parts = (ruling.reason, few, unfinished, *changes, *provenance, change)
        findings[index] = _finding(entry.key, "score", word, "; ".join(filter(None, parts)))
    return [findings[index] for index in range(len(pairs))]


def _absent_finding(key: CellKey, runs: Runs) -> Finding:
    if runs.other_protocol:
        return _finding(key, "score", "NOT RUN", "another protocol or environment")
    if runs.short or runs.variants:
        return _finding(
            key, "score", "PARTIAL", "no ended run of the baseline's steps with an evaluation near their end"
        )
    return _finding(key, "score", "NOT RUN", "in the baseline only")


def _speed_findings(entry: Entry, runs: Sequence[Run]) -> list[Finding]:
    findings = []
    rates = [(run, rate) for run in runs if (rate := run.speed) is not None]
    for name, baseline_speeds in entry.speeds.items():
        now = [rate for run, rate in rates if name in {run.speed_class, run.machines[0]}]  # older ones lack the threads
        ruling = rule_speed(baseline_speeds, now)
        if ruling.word != "TOO FEW":
            findings.append(_finding(entry.key, "speed", ruling.word, f"{ruling.reason} on {name}"))
    return findings


def _run_findings(key: CellKey, runs: Runs, candidates: Sequence[Run], *, at: bool = False) -> Iterator[Finding]:
    """The failed candidates, and open findings for ended runs that are left out: no good seeds hide them.

    With ``at``, at equal steps, every run that has taken a step counts as ended.
    """
    for run in candidates:
        if run.status == "failed":
            yield _finding(key, "run", "FAILED", f"seed {run.seed}: {run.reason}")
    for others, where in (
        (runs.other_versions, "in other versions of the environment"),
        (runs.other_data, "on other data"),
    ):
        if any(is_whole(run) or (at and run.env_steps) for run in others):
            text = count_text(len(others), "run")
            yield _finding(key, "run", "INCONCLUSIVE", f"{text} {where} left out")


def _random(key: CellKey) -> float:
    scale = scale_of(key)
    return scale.random if scale else 0.0


def _finding(key: CellKey, aspect: Aspect, word: str, reason: str) -> Finding:
    name = task_name(key) if key.task else ""
    return Finding(suite=key.suite, algorithm=key.algorithm, task=name, aspect=aspect, word=word, reason=reason)


def _mark(word: str) -> str:
    if word in WORSE:
        return "❌"
    return "💥" if word == "FAILED" else "❓" if word in NO_VERDICT else "✅" if word == "PASSED" else "·"
