"""Runs as a report counts them: read from their records; those that repeat one experiment, and notes on the others."""

from __future__ import annotations

import statistics
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rlbench.config.names import clean_texts, count_text, printable
from rlbench.errors import RefusedFile
from rlbench.records import files, store
from rlbench.records.aside import ATTEMPT_PARTS
from rlbench.records.attempts import resumptions
from rlbench.records.epochs import read_epochs
from rlbench.records.types import Epoch, Estimator
from rlbench.report.estimate import FULL, maximum
from rlbench.report.reference_table import CellKey, Scale, on_scale, published_scores

if TYPE_CHECKING:
    from rlbench.report.run_index import Runs

REPAIRS = ("rlbench", "commit", "python", "packages", "env")
"""Parts of an environment whose change can remove a failure, beside the content of the data set. Threads, engine,
processor and command line only change rounding: a rerun with others is a second sample."""


class Evaluation(NamedTuple):
    """One evaluation of a run."""

    env_steps: int
    seconds: float  # wall clock since the run began
    mean: float  # of the games' raw returns


class Attempt(NamedTuple):
    """An attempt at a run, which ``--force`` put aside."""

    name: str  # of its folder
    status: str  # done, failed or interrupted
    reason: str
    environment: Mapping[str, object]  # of its last process


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The record of one run, for reports."""

    folder: Path
    suite: str
    algorithm: str
    task: str
    dataset: str  # empty where nothing was recorded beforehand
    seed: int
    id: str  # of its settings: runs of equal id are repeats of each other
    smoke: bool
    budget: int  # steps it was to take
    settings: Mapping[str, object]  # the whole Spec, as JSON has it; empty of an imported curve
    environment: Mapping[str, object]  # where it was made
    evaluations: tuple[Evaluation, ...]
    speeds: tuple[float, ...]  # steps a second, per epoch in which it learned; of an offline run gradient steps
    has_learned: bool = False  # took a gradient step, so another seed with equal numbers is a copy of it
    env_steps: int  # at the end of its last epoch; of an offline run gradient steps
    seconds: float
    status: str  # done, failed, or interrupted, which includes running
    reason: str  # one printable line, whatever the record holds
    digest: str = ""  # SHA-256 of its losses and returns: equal records are copies of each other, whatever their clock
    resumed: tuple[Mapping[str, object], ...] = ()  # what differed in the environment of a later process
    inexact: tuple[int, ...] = ()  # steps of the resumes that were not bit for bit
    attempts: tuple[Attempt, ...] = ()  # put aside by ``--force``
    epoch: int = 1  # steps from one evaluation to the next

    @property
    def counts_in_full(self) -> bool:
        """True if it has an evaluation, and is done or was killed after its last step; a failed run never."""
        has_all_steps = self.status == "done" or self.env_steps >= self.budget
        return has_all_steps and self.status != "failed" and len(self.evaluations) > 0

    @property
    def environments(self) -> tuple[Mapping[str, object], ...]:
        """The distinct environments of the processes that trained the run."""
        environments = [dict(self.environment)]
        for changes in self.resumed:
            environments.append({**environments[-1], **changes})
        return tuple(environments)

    @property
    def origin(self) -> Mapping[str, object]:
        """The origin of an imported curve; empty of a run of rlbench."""
        origin = self.environment.get("origin")
        return origin if isinstance(origin, Mapping) else {}

    @property
    def has_curve(self) -> bool:
        """False of an imported score whose steps no file states; its one evaluation lies at the end of the budget."""
        unknown = self.origin.get("unknown", ())
        return not (isinstance(unknown, Sequence) and {"steps", "curve"} & {*unknown})

    @property
    def data(self) -> Mapping[str, object]:
        """The record of its data; empty if it has none."""
        data = self.environment.get("data")
        return data if isinstance(data, Mapping) else {}

    @property
    def data_file(self) -> str | None:
        """The SHA-256 of its data file; None if it has none, or is unknown."""
        return _data_file(self.environment)

    @property
    def speed(self) -> float | None:
        """Steps a second: the median of its epochs; None before it learns, or if several machines trained it."""
        return statistics.median(self.speeds) if self.speeds and len(self.machines) == 1 else None

    @property
    def speed_class(self) -> str:
        """The machine and the number of torch's threads, which decide a speed."""
        threads = self.environment.get("torch_threads")
        return self.machines[0] + (f", {count_text(threads, 'thread')}" if isinstance(threads, int) else "")

    @property
    def machines(self) -> tuple[str, ...]:
        """The classes of machine of its processes, each an accelerator and a processor."""
        names = dict[str, None]()
        for environment in self.environments:
            device = environment.get("gpu") or str(environment.get("device", "unknown device")).split(":")[0]
            names[f"{device}, {environment.get('cpu', 'unknown processor')}"] = None
        return tuple(names)

    @property
    def env_versions(self) -> str | None:
        """``gymnasium/Hopper-v4, mujoco 3.3.7`` of every process of the run; None if unknown.

        Of an imported curve its task and stated versions; files spell the environment's id in several ways.
        """
        names = dict[str, None]()
        for env in (environment.get("env") for environment in self.environments):
            if isinstance(env, Mapping):
                versions = [f"{name} {version}" for name, version in sorted(env.items()) if name != "env"]
                if versions or not self.origin:
                    names[", ".join([self.task if self.origin else str(env.get("env")), *versions])] = None
        return ", then ".join(names) or None

    @property
    def env_id(self) -> str:
        """The environment backend that the run recorded."""
        backend = self.environment.get("env")
        name = backend.get("env") if isinstance(backend, dict) else None
        return name if isinstance(name, str) else self.task


def read_run(folder: Path) -> Run:
    """Read a run's record; once, until one of its files changes.

    Raises:
        RefusedFile: a file is damaged, missing or newer than this version; the message names it.
    """
    return _read(folder, files.record_stamps(folder))


def epoch_numbers(folder: Path) -> list[str]:
    """Losses and returns of each epoch of a run as text: equal text, equal to the bit."""
    return [_numbers(epoch) for epoch in read_epochs(folder, complete=False)]


@lru_cache(maxsize=8192)
def _read(folder: Path, stamps: tuple[object, ...]) -> Run:
    del stamps  # part of the cache's key
    record = store.read_record(folder)
    spec, epochs = record.spec, record.epochs
    settings = spec.model_dump(mode="json")
    speeds = (e.collected.steps_per_second for e in epochs if e.updated is not None and e.collected is not None)
    return Run(
        folder=folder,
        suite=spec.suite,
        algorithm=spec.algorithm,
        task=spec.task.id,
        dataset=str(settings["task"].get("dataset") or ""),
        seed=spec.seed,
        id=spec.id,
        smoke=spec.smoke,
        budget=spec.budget.steps,
        settings=settings,
        environment=record.environment,
        evaluations=tuple(Evaluation(e.steps, e.seconds, e.evaluated.mean) for e in epochs if e.evaluated is not None),
        has_learned=any(epoch.updated is not None for epoch in epochs),
        speeds=tuple(_offline_speeds(epochs) if spec.task.kind == "offline" else filter(None, speeds)),
        env_steps=epochs[-1].steps if epochs else 0,
        seconds=epochs[-1].seconds if epochs else 0.0,
        status=record.outcome.status if record.outcome else "interrupted",
        reason=printable(record.outcome.reason) if record.outcome else "",
        digest=sha256("\n".join(map(_numbers, epochs)).encode()).hexdigest(),
        resumed=tuple(line.environment for line in record.resumed),
        inexact=record.outcome.inexact if record.outcome else (),
        attempts=attempts(folder),
        epoch=spec.budget.epoch,
    )


def _numbers(epoch: Epoch) -> str:
    return repr((epoch.updated, epoch.evaluated and epoch.evaluated.returns))


def _offline_speeds(epochs: Sequence[Epoch]) -> Iterator[float]:
    """Yield the gradient steps a second of each epoch but the first, its evaluation among them."""
    for before, epoch in pairwise(epochs):
        if epoch.steps > before.steps and epoch.seconds > before.seconds:
            yield (epoch.steps - before.steps) / (epoch.seconds - before.seconds)


def attempts(folder: Path) -> tuple[Attempt, ...]:
    """The attempts below a run's folder, the oldest first.

    Raises:
        RefusedFile: one is a link, or one of its files is damaged or newer than this version.
    """
    numbers = sorted(int(number) for path in folder.glob("attempt-*") if (number := path.name[8:]).isdecimal())
    try:
        return tuple(filter(None, (_attempt(folder / f"attempt-{number}") for number in numbers)))
    except (RefusedFile, OSError) as error:
        fault = str(error).rpartition("; ")[0] if isinstance(error, RefusedFile) else f"{folder}: unreadable ({error})"
        raise RefusedFile(f"{fault}; restore it, or move the attempt away, which may have failed") from None


def _attempt(folder: Path) -> Attempt | None:
    """An attempt that was put aside; None while nothing of it was moved."""
    files.refuse_link(folder)
    names = {path.name for path in folder.iterdir()}
    if names.isdisjoint(ATTEMPT_PARTS):
        return None
    if names.isdisjoint({"spec.json", "outcome.json"}):
        return Attempt(folder.name, "interrupted", "", {})
    metadata = files.read_sealed(folder / "spec.json")
    environments = [metadata.get("environment"), *(line.environment for line in resumptions(metadata, folder))]
    outcome = files.read_sealed(folder / "outcome.json") if "outcome.json" in names else {"status": "interrupted"}
    reason = printable(str(outcome.get("reason")))
    last = ChainMap(*(values for part in environments[::-1] if isinstance(values := clean_texts(part), dict)))
    return Attempt(folder.name, str(outcome.get("status")), reason, last)


def failure(previous: tuple[Attempt, ...], environments: Sequence[Mapping[str, object]]) -> Attempt | None:
    """The first attempt that failed in code, versions and data of one of a run's ``environments``."""
    failed = (attempt for attempt in previous if attempt.status == "failed")
    return next((a for a in failed if not all(_is_repair(a.environment, later) for later in environments)), None)


def _is_repair(environment: Mapping[str, object], later: Mapping[str, object]) -> bool:
    """True if a part whose change can remove a failure is known of both, and differs; a data file's name is no part."""
    pairs = [(_data_file(environment), _data_file(later)), *((environment.get(p), later.get(p)) for p in REPAIRS)]
    return any(before is not None and after is not None and before != after for before, after in pairs)


def _data_file(environment: Mapping[str, object]) -> str | None:
    data = environment.get("data")
    digest = data.get("sha256") if isinstance(data, Mapping) else None
    return digest if isinstance(digest, str) else None


def mark_failed(run: Run) -> Run:
    """The run, marked as failed if an earlier attempt failed and nothing has changed since."""
    attempt = None if run.smoke or run.status == "failed" else failure(run.attempts, run.environments)
    if attempt is None:
        return run
    reason = f"{attempt.name} failed ({attempt.reason}), and --force made it again with equal code and versions"
    return replace(run, status="failed", reason=reason)


def failed_in_full(run: Run, others: Iterable[Run]) -> Run | None:
    """A run of fewer steps that failed, itself or an attempt at it, and that no other run of its seed mends."""
    last = Attempt(run.folder.name, run.status, run.reason, run.environments[-1])
    same_seed = [failure((*run.attempts, last), other.environments) for other in others if other.seed == run.seed]
    attempt = next(filter(None, same_seed), None) if same_seed or run.status != "failed" else last
    return None if attempt is None else replace(run, status="failed", reason=attempt.reason)


def separate(group: Runs) -> None:
    """Move runs that are no repeats out of a cell's runs: other files, other versions, copies."""
    scoring = [group.complete, group.failed, group.short]
    _of_one(attrgetter("data_file"), [*scoring, group.other_protocol], group.other_data)
    _of_one(attrgetter("env_versions"), scoring, group.other_versions)
    _of_one_seed(group)
    _of_one_curve(group)


def _of_one(kind: Callable[[Run], str | None], parts: Sequence[list[Run]], others: list[Run]) -> None:
    """Keep the runs of the kind with most runs in the first part; of equals, or if that has none, of the first kind."""
    kinds = Counter(name for run in parts[0] if (name := kind(run)) is not None)
    kinds = kinds or Counter(name for part in parts for run in part if (name := kind(run)) is not None)
    main_kind = {None, *(name for name, _ in kinds.most_common(1))}
    for part in parts:
        others += [run for run in part if kind(run) not in main_kind]
        part[:] = [run for run in part if kind(run) in main_kind]


def _of_one_seed(group: Runs) -> None:
    """Keep one record of a seed, and at each step the lowest evaluation of its unfinished ones: none lifts a score."""
    ended, short, lowest = [*group.complete, *group.failed], group.short, dict[tuple[int, int], Evaluation]()
    for run in short:
        for e in run.evaluations:
            lowest[run.seed, e.env_steps] = min(lowest.get((run.seed, e.env_steps), e), e, key=attrgetter("mean"))
    group.duplicates += [*keep_one(ended, attrgetter("seed")), *keep_one(short, attrgetter("seed"))]
    group.complete[:] = [run for run in ended if run.status != "failed"]
    group.failed[:] = [run for run in ended if run.status == "failed"]
    short[:] = [replace(r, evaluations=tuple(lowest[r.seed, e.env_steps] for e in r.evaluations)) for r in short]


def keep_one(part: list[Run], identity: Callable[[Run], object]) -> list[Run]:
    """Keep the first record of each identity in the order of ``_rank``, and return the others."""
    worst: dict[object, Run] = {}
    for run in sorted(part, key=_rank):
        worst.setdefault(identity(run), run)
    others = [run for run in part if worst[identity(run)] is not run]
    part[:] = [run for run in part if worst[identity(run)] is run]
    return others


def _rank(run: Run) -> tuple[bool, float, bool, float]:
    """Failed records first, then the longest, finished ones, and the lowest maximum; a whole run is as long as any."""
    return run.status != "failed", -min(run.env_steps, FULL * run.budget), run.status != "done", maximum(run)


def _of_one_curve(group: Runs) -> None:
    """Keep the lowest seed of runs with equal losses."""
    group.same_numbers += take_copies(group.complete)


def take_copies(part: list[Run]) -> list[Run]:
    """Take from runs of equal settings the copies, which have the losses of one before them, and return these."""
    first = {run.digest: run for run in reversed(part) if run.status != "failed"}
    copies = [r for r in part if r.has_learned and r.status != "failed" and first[r.digest] is not r]
    part[:] = [run for run in part if run not in copies]
    return copies


BEHAVIOUR, EXPERT = "behaviour", "qrdqn-expert"  # rows of the references that describe a data set


class DatasetReturns(NamedTuple):
    """Mean raw returns; None if unknown."""

    dataset: float | None = None  # of the episodes
    behavior_policy: float | None = None  # mean return of the policy that recorded the data


UNKNOWN = DatasetReturns()


def recorded_returns(runs: Iterable[Run]) -> dict[str, DatasetReturns]:
    """The facts that records hold about each data set, by its SHA-256."""
    returns: dict[str, DatasetReturns] = {}
    for run in runs:
        if "behaviour" in (data := run.data):
            returns[str(data.get("sha256"))] = DatasetReturns(_number(data["behaviour"]), _number(data.get("expert")))
    return returns


def dataset_returns(key: CellKey, runs: Iterable[Run], returns_by_file: Mapping[str, DatasetReturns]) -> DatasetReturns:
    """The dataset return of a cell, by its own records or others on the same file, else as published."""
    for run in runs:
        if run.data and (returns := returns_by_file.get(str(run.data.get("sha256")))) is not None:
            return returns
    if key.suite != "offline":
        return UNKNOWN
    return DatasetReturns(
        _reference_score(key._replace(algorithm=BEHAVIOUR)),
        _reference_score(key._replace(algorithm=EXPERT, dataset="")) if key.dataset.startswith("qrdqn-") else None,
    )


def _reference_score(key: CellKey) -> float | None:
    scores = published_scores(key.suite).get(key)
    return scores[0].score if scores else None


def failed_score(scores: Sequence[float], estimator: Estimator, runs: Sequence[Run], scale: Scale | None) -> float:
    """The score of a failed seed: the random policy's, and at most the lowest of a finished seed.

    Without a known random score, the first evaluation of untrained policies replaces it.
    """
    random = on_scale(scale, estimator)
    untrained = [run.evaluations[0].mean for run in runs if run.evaluations]
    floors = [random] if random is not None else untrained
    return min([*floors, *scores], default=0.0)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
