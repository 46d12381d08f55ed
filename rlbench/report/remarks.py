"""Notes on the runs of a cell: those that do not count, and their origin."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from rlbench.config.names import count_text, printable
from rlbench.records import imported
from rlbench.report.run_index import label

if TYPE_CHECKING:
    from rlbench.report.run_index import Runs
    from rlbench.report.runs import Run

VERSIONS = ("torch", "numpy", "gymnasium", "gymnasium-robotics", "ale-py", "envpool", "mujoco")
"""Packages whose versions a note lists if the runs of a cell differ in them."""

MAX_NAMED_SETTINGS: Final = 3  # settings that a note names


def remarks(group: Runs) -> Iterator[str]:
    """Notes on the records of a cell's score, in a fixed order."""
    runs = (*group.scored, *group.short)
    seeds = sorted({run.seed for run in group.scored})
    if seeds != list(range(len(seeds))):
        yield f"seeds {', '.join(map(str, seeds))} instead of 0 to {len(seeds) - 1}"
    if group.looks is not None:
        later = f"; {count_text(n, 'later seed')} can only lower the verdict" if (n := group.later_seeds) else ""
        yield f"{'tested by' if group.looks.count else 'not tested before'} {group.looks}{later}"
    if group.lost_seeds:
        yield f"looks.json counts a look at seeds that have not ended: {', '.join(map(str, group.lost_seeds))}"
    if earlier := [attempt for run in runs for attempt in run.attempts]:
        failed = sum(attempt.status == "failed" for attempt in earlier)
        yield f"{count_text(len(earlier), 'attempt')} put aside ({failed} failed)"
    if group.other_data:
        yield f"{count_text(len(group.other_data), 'run')} on another file of that name"
    if group.other_versions:
        versions = ", or ".join(sorted({v for run in group.other_versions if (v := run.env_versions) is not None}))
        yield f"{count_text(len(group.other_versions), 'run')} in other versions of the environment ({versions})"
    if group.same_numbers:
        yield copies_remark(len(group.same_numbers))
    if conflicting := group.conflicting(group.complete):
        yield conflicting_remark(conflicting)
    if count := len(group.duplicates) - len(conflicting):
        yield f"not counted: {count_text(count, 'more record')} of the same seeds"
    yield from _version_differences(runs)


def copies_remark(count: int) -> str:
    """Count runs that are copies of others."""
    return f"{count_text(count, 'run')} {'has' if count == 1 else 'have'} the numbers of another seed"


def conflicting_remark(conflicting: Sequence[Run]) -> str:
    """The seeds of second records, and the folder of one."""
    seeds = sorted({run.seed for run in conflicting})
    names, folder = ", ".join(map(str, seeds)), printable(str(conflicting[0].folder))
    have = f"seed {names} has a second record" if len(seeds) == 1 else f"seeds {names} have second records"
    return f"{have} with other numbers, not counted: move one of a seed's two records, such as {folder}"


def setting_remarks(runs: Runs, word: str) -> Iterator[str]:
    """Counts of the runs whose score is not shown, and the settings of those where it is one of several."""
    is_measured = word == "NOT COMPARABLE" and not runs.scored and not runs.short
    measured_runs = runs.main_protocol if is_measured else []
    others = [run for run in runs.other_protocol if run not in measured_runs]
    ids, versions = {run.id for run in measured_runs}, {None, *(run.env_versions for run in measured_runs)}
    seeds = {run.seed for run in measured_runs}
    other_versions = [run for run in others if run.id in ids and run.env_versions not in versions]
    same_settings = [run for run in (*others, *runs.variants) if run.id in ids and run not in other_versions]
    other_seeds = [run for run in same_settings if run.seed not in seeds]
    copies = sum(run.counts_in_full for run in other_seeds)
    if measured_runs and (others or runs.variants):
        yield f"the score is of {counts_by_setting(measured_runs)}"
    if count := len(same_settings) - len(other_seeds):
        yield f"not counted: {count_text(count, 'more record')} of the same seeds"
    if other_versions:
        texts = sorted({str(run.env_versions) for run in other_versions})
        yield f"{count_text(len(other_versions), 'run')} in other versions of the environment ({', or '.join(texts)})"
    if copies:
        yield copies_remark(copies)
    if incomplete := len(other_seeds) - copies:
        yield f"{count_text(incomplete, 'run')} incomplete"
    if others := [run for run in (*runs.variants, *others) if run.id not in ids]:
        failed = sum(run.status == "failed" for run in others)
        yield counts_by_setting(others) + (f" ({failed} failed)" if failed else "")


def counts_by_setting(runs: Sequence[Run]) -> str:
    """Count runs by the settings that they change: ``2 runs with lr=0.01, 1 run with lr=0.1``."""
    counts = sorted(Counter(map(label, runs)).items(), key=lambda item: (-item[1], item[0]))
    texts = [f"{count_text(count, 'run')} with {name}" for name, count in counts[:MAX_NAMED_SETTINGS]]
    rest = sum(count for _, count in counts[MAX_NAMED_SETTINGS:])
    return ", ".join([*texts, *([f"{count_text(rest, 'run')} with other settings"] if rest else [])])


def imported_remarks(runs: Runs, parity: str = "") -> Iterator[str]:
    """The origin of the curves of a cell, and the parts of the protocol that nobody states.

    ``parity`` is the cell's comparison with the curves, where it has runs of rlbench as well.
    """
    if not runs.imported_curves:
        return
    origins = [run.origin for run in runs.imported_curves]
    if not runs.of_imported:
        yield parity or f"{len(origins)} imported curves are not counted"
        return
    formats = sorted({str(origin["format"]) for origin in origins})
    files = {origin["sha256"] for origin in origins}
    yield f"imported ({', '.join(formats)}, {count_text(len(files), 'file')})"
    if runs.interval:
        yield f"only the returns nearest to each {runs.interval:,} steps count"
    if unknown := imported.origin_texts(origins, "unknown"):
        yield f"not stated: {', '.join(unknown)}"
    if runs.other_protocol:
        kinds = sorted({str(run.origin["kind"]) for run in runs.other_protocol})
        yield f"{' and '.join(kinds)} returns, the reference's are of the other kind"


def _version_differences(runs: Sequence[Run]) -> Iterator[str]:
    """Versions in which runs of one cell differ; inexact resumes; runs of several commits or of uncommitted code."""
    every = [[environment for environment in run.environments if environment] for run in runs]
    versions: dict[str, set[str]] = defaultdict(set)
    for environment in chain.from_iterable(every):
        parts = (environment.get("packages"), environment.get("env"), environment)
        texts = dict(chain.from_iterable(part.items() for part in parts if isinstance(part, Mapping)))
        for name in ("rlbench", *VERSIONS):
            versions[name] |= {str(texts[name])} if name in texts else set()
    if mixed := [f"{name} {' and '.join(sorted(texts))}" for name, texts in versions.items() if len(texts) > 1]:
        yield f"made with {', '.join(mixed)}"
    if inexact := sum(bool(run.inexact) for run in runs):
        yield f"{count_text(inexact, 'run')} resumed inexactly"
    commits = [{str(each.get("commit")).removesuffix("+dirty") for each in environments} for environments in every]
    if mixed_runs := sum(len(names) > 1 for names in commits):
        yield f"{count_text(mixed_runs, 'run')} resumed at another commit"
    if dirty := sum(any(str(env.get("commit")).endswith("+dirty") for env in environments) for environments in every):
        yield f"{count_text(dirty, 'run')} of uncommitted code"
