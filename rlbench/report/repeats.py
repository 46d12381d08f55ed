"""Select the runs of a cell that repeat one experiment; set aside copies, other versions and forced runs."""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rlbench.config.names import clean_texts, count_text, printable
from rlbench.errors import RefusedFile, UsageError
from rlbench.records import files
from rlbench.records.attempts import resumptions

if TYPE_CHECKING:
    from rlbench.report.run_index import Runs
    from rlbench.report.runs import Evaluation, Run


VERSIONS = ("torch", "numpy", "gymnasium", "ale-py", "envpool", "mujoco")
"""Packages whose versions a note lists if the runs of a cell differ in them."""


def mark_failed(run: Run) -> Run:
    """The run, marked as failed if an earlier attempt failed and nothing has changed since."""
    attempt = None if run.smoke or run.status == "failed" else failure(run.attempts, run.environments)
    if attempt is None:
        return run
    reason = f"{attempt.name} failed ({attempt.reason}), and --force made it again with equal code and versions"
    return replace(run, status="failed", reason=reason)


def separate(group: Runs) -> None:
    """Move runs that are no repeats out of a cell's runs: other files, other versions, copies."""
    _of_one(file_of, group, (group.complete, group.failed, group.short, group.other_protocol), group.other_data)
    _of_one(env_versions, group, (group.complete, group.failed, group.short), group.versions)
    _of_one_seed(group)
    _of_one_curve(group)


def file_of(run: Run) -> str | None:
    """The SHA-256 of a run's data file; None if it has none, or is unknown."""
    return data_digest(run.environment)


def data_digest(environment: Mapping[str, object]) -> str | None:
    """The SHA-256 of the data file in a run's environment; None if it has none, or is unknown."""
    data = environment.get("data")
    digest = data.get("sha256") if isinstance(data, Mapping) else None
    return digest if isinstance(digest, str) else None


def remarks(group: Runs) -> Iterator[str]:
    """Notes on the records of a cell's score, in a fixed order."""
    runs = (*group.scored, *group.short)
    seeds = sorted({run.seed for run in group.scored})
    if seeds != list(range(len(seeds))):
        yield f"seeds {', '.join(map(str, seeds))} instead of 0 to {len(seeds) - 1}"
    if group.looks is not None:
        later = (
            f"; {count_text(group.later_seeds, 'later seed')} can only lower the verdict" if group.later_seeds else ""
        )
        yield f"{'tested by' if group.looks.count else 'not tested before'} {group.looks}{later}"
    if group.lost_seeds:
        yield f"looks.json counts a look at seeds that have not ended: {', '.join(map(str, group.lost_seeds))}"
    attempts = [attempt for run in runs for attempt in run.attempts]
    if attempts:
        failed = sum(attempt.status == "failed" for attempt in attempts)
        yield f"{count_text(len(attempts), 'attempt')} put aside ({failed} failed)"
    if group.other_data:
        yield f"{count_text(len(group.other_data), 'run')} on another file of that name"
    if group.versions:
        others = sorted({text for run in group.versions if (text := env_versions(run)) is not None})
        yield f"{count_text(len(group.versions), 'run')} in other versions of the environment ({', or '.join(others)})"
    if group.copies:
        have = "has" if len(group.copies) == 1 else "have"
        yield f"{count_text(len(group.copies), 'run')} {have} the numbers of another seed"
    if group.duplicates:
        yield f"{count_text(len(group.duplicates), 'record')} of a seed that has a worse one"
    yield from _version_differences(runs)


def _of_one(kind: Callable[[Run], str | None], group: Runs, parts: tuple[list[Run], ...], others: list[Run]) -> None:
    """Keep the runs of the kind with most complete runs; of equals, or without complete runs, of the first kind."""
    kinds = Counter(name for run in group.complete if (name := kind(run)) is not None)
    kinds = kinds or Counter(name for part in parts for run in part if (name := kind(run)) is not None)
    main_kind = {None, *(name for name, _ in kinds.most_common(1))}
    for part in parts:
        others += [run for run in part if kind(run) not in main_kind]
        part[:] = [run for run in part if kind(run) in main_kind]


def env_versions(run: Run) -> str | None:
    """``gymnasium/Hopper-v4, mujoco 3.3.7`` of every process of the run; None if unknown."""
    names = dict[str, None]()
    for world in (environment.get("env") for environment in run.environments):
        if isinstance(world, Mapping):
            versions = (f"{name} {version}" for name, version in sorted(world.items()) if name != "env")
            names[", ".join([str(world.get("env")), *versions])] = None
    return ", then ".join(names) or None


def _of_one_seed(group: Runs) -> None:
    """Keep one of several records of a seed, with the lowest evaluation at each step: no record raises a score."""
    failed = {run.seed: run for run in reversed(group.failed)}
    by_seed = {run.seed: run for run in sorted(group.complete, key=_maximum, reverse=True) if run.seed not in failed}
    lowest: dict[tuple[int, int], Evaluation] = {}
    for run in group.complete:
        for e in run.evaluations:
            lowest[run.seed, e.env_steps] = min(lowest.get((run.seed, e.env_steps), e), e, key=attrgetter("mean"))
    counting_ids = {id(run) for run in (*failed.values(), *by_seed.values())}
    group.duplicates += [run for run in group.scored if id(run) not in counting_ids]
    group.complete[:] = [
        replace(run, evaluations=tuple(lowest[run.seed, e.env_steps] for e in run.evaluations))
        for run in group.complete
        if id(run) in counting_ids
    ]
    group.failed[:] = [run for run in group.failed if id(run) in counting_ids]


def _maximum(run: Run) -> float:
    return max((evaluation.mean for evaluation in run.evaluations), default=float("-inf"))


def _of_one_curve(group: Runs) -> None:
    """Keep the lowest seed of runs with equal losses: they are copies of one run."""
    first = {run.digest: run for run in reversed(group.complete)}
    group.copies += [run for run in group.complete if run.has_learned and first[run.digest] is not run]
    group.complete[:] = [run for run in group.complete if not run.has_learned or first[run.digest] is run]


def _version_differences(runs: Iterable[Run]) -> Iterator[str]:
    """Versions in which runs of one cell differ, and runs of uncommitted code."""
    every = [[environment for environment in run.environments if environment] for run in runs]
    versions: dict[str, set[str]] = defaultdict(set)
    for environment in chain.from_iterable(every):
        packages = environment.get("packages")
        texts = {**(packages if isinstance(packages, Mapping) else {}), **environment}
        for name in ("rlbench", *VERSIONS):
            versions[name] |= {str(texts[name])} if name in texts else set()
    if mixed := [f"{name} {' and '.join(sorted(texts))}" for name, texts in versions.items() if len(texts) > 1]:
        yield f"made with {', '.join(mixed)}"
    dirty = sum(any(str(each.get("commit")).endswith("+dirty") for each in environments) for environments in every)
    if dirty:
        yield f"{count_text(dirty, 'run')} of uncommitted code"


MENDED = ("rlbench", "commit", "python", "packages", "env")
"""Parts of an environment whose change can mend a failure, beside the content of the data set. Threads, engine,
processor and command line only change rounding: a rerun with others is a second sample."""


class Attempt(NamedTuple):
    """An attempt at a run, which ``--force`` put aside."""

    name: str  # of its folder
    status: str  # done, failed, interrupted, or damaged where it cannot be read
    reason: str
    environment: Mapping[str, object]  # of its last process


def attempts(folder: Path) -> tuple[Attempt, ...]:
    """The attempts below a run's folder, the oldest first, damaged ones included."""
    numbers = sorted(int(number) for path in folder.glob("attempt-*") if (number := path.name[8:]).isdecimal())
    return tuple(_attempt(folder / f"attempt-{number}") for number in numbers)


def _attempt(folder: Path) -> Attempt:
    try:
        files.refuse_link(folder)
        metadata = files.read_sealed(folder / "spec.json")
        environments = [metadata.get("environment"), *(line.environment for line in resumptions(metadata))]
        path = folder / "outcome.json"
        outcome = files.read_sealed(path) if path.exists() else {"status": "interrupted"}
    except (RefusedFile, UsageError, TypeError):
        return Attempt(folder.name, "damaged", "", {})
    reason = printable(str(outcome.get("reason")))
    last = ChainMap(*(values for part in environments[::-1] if isinstance(values := clean_texts(part), dict)))
    return Attempt(folder.name, str(outcome.get("status")), reason, last)


def failure(previous: tuple[Attempt, ...], environments: Sequence[Mapping[str, object]]) -> Attempt | None:
    """The first attempt that failed in code, versions and data of one of a run's ``environments``."""
    run_parts = [_mended_parts(environment) for environment in environments]
    failed = (attempt for attempt in previous if attempt.status == "failed")
    return next((attempt for attempt in failed if _mended_parts(attempt.environment) in run_parts), None)


def _mended_parts(environment: Mapping[str, object]) -> list[object]:
    """The parts that count; a copy of the data under another name mends nothing."""
    return [data_digest(environment), *(environment.get(part) for part in MENDED)]
