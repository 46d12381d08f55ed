"""Runs as a report counts them: settings, evaluations and speeds of a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rlbench.config.names import printable
from rlbench.records import store
from rlbench.records.files import record_stamps
from rlbench.records.types import Epoch
from rlbench.report.reference_table import CellKey, published_scores
from rlbench.report.repeats import Attempt, attempts


class Evaluation(NamedTuple):
    """One evaluation of a run."""

    env_steps: int
    seconds: float  # wall clock since the run began
    mean: float  # of the games' raw returns


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
    settings: Mapping[str, object]  # the Spec as it was written
    environment: Mapping[str, object]  # where it was made
    evaluations: tuple[Evaluation, ...]
    speeds: tuple[float, ...]  # steps a second, per epoch in which it learned; of an offline run gradient steps
    has_learned: bool = False  # so no other seed has its numbers, whatever its clock says
    env_steps: int  # at the end of its last epoch
    seconds: float
    status: str  # done, failed, or interrupted, which includes running
    reason: str  # one printable line, whatever the record holds
    digest: str = ""  # SHA-256 of its losses and returns: equal records are copies of each other, whatever their clock
    resumed: tuple[Mapping[str, object], ...] = ()  # what differed in the environment of a later process
    attempts: tuple[Attempt, ...] = ()  # put aside by ``--force``
    epoch: int = 1  # steps from one evaluation to the next

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
    return _read(folder, record_stamps(folder))


def epoch_numbers(folder: Path) -> list[str]:
    """Losses and returns of each epoch of a run as text: equal text, equal to the bit."""
    return [_numbers(epoch) for epoch in store.read_epochs(folder, complete=False)]


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
        evaluations=tuple(
            Evaluation(epoch.steps, epoch.seconds, epoch.evaluated.mean)
            for epoch in epochs
            if epoch.evaluated is not None
        ),
        has_learned=any(epoch.updated is not None for epoch in epochs),
        speeds=tuple(_offline_speeds(epochs) if spec.task.kind == "offline" else filter(None, speeds)),
        env_steps=epochs[-1].steps if epochs else 0,
        seconds=epochs[-1].seconds if epochs else 0.0,
        status=record.outcome.status if record.outcome else "interrupted",
        reason=printable(record.outcome.reason) if record.outcome else "",
        digest=sha256("\n".join(map(_numbers, epochs)).encode()).hexdigest(),
        resumed=record.resumed,
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
        data = run.environment.get("data")
        if isinstance(data, Mapping) and "behaviour" in data:
            returns[str(data.get("sha256"))] = DatasetReturns(_number(data["behaviour"]), _number(data.get("expert")))
    return returns


def dataset_returns(key: CellKey, runs: Iterable[Run], returns_by_file: Mapping[str, DatasetReturns]) -> DatasetReturns:
    """The dataset return of a cell, by its own records or others on the same file, else as published."""
    for run in runs:
        data = run.environment.get("data")
        returns = returns_by_file.get(str(data.get("sha256"))) if isinstance(data, Mapping) else None
        if returns is not None:
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


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def origin_texts(origins: Sequence[Mapping[str, object]], name: str) -> tuple[str, ...]:
    """The texts of a field of all origins, each once."""
    texts = (text for origin in origins if isinstance(parts := origin[name], tuple) for text in parts)
    return tuple(dict.fromkeys(texts))
