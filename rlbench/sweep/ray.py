"""The runs of a sweep as tasks of a Ray cluster, which decides where they are and notices when a machine is lost.

A task starts the same process as ``local.py`` does and hands on what it tells. Where the results folder is shared,
records go there; where it is not, the task works in a folder of its own and sends the record, with each new checkpoint,
to whoever started the sweep, who holds the claim. So a lost machine loses what was done since the last checkpoint.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from time import monotonic
from types import ModuleType
from typing import Protocol

import rlbench
from rlbench.errors import RefusedFile, UsageError
from rlbench.records.parcels import Parcel, claimed, pack, signposted, unpack
from rlbench.records.store import folder_of, set_aside
from rlbench.records.types import Progress
from rlbench.sweep.events import Exited, News, Said
from rlbench.sweep.local import Words
from rlbench.sweep.plan import Job, Order
from rlbench.sweep.worker import PATIENCE, Worker, environment

OFTEN = 2.0
"""Seconds between two words of a task on where its run stands, and between two looks for a new checkpoint."""

LOOK = 5.0
"""Seconds between two looks at how many machines there are."""

INSTALL = ".venv/bin/pip install -c constraints.txt ray"


@dataclass(frozen=True, slots=True)
class NoSharedFolder:
    """The task's machine does not see the results folder: it must be sent what there is, and will send the rest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RayJob:
    """What a task is given."""

    job: Job
    words: tuple[str, ...]
    results: str
    signpost: str  # a file below ``results`` that tells whether it is shared
    before: Parcel | None = None  # what there is of the run; None until it is known that the folder is not shared


Sent = News | NoSharedFolder | Parcel


class Stream(Protocol):
    """What a task gives, a reference at a time."""

    def __next__(self) -> object:
        """A reference to the next of it."""


def connected(address: str | None) -> ModuleType:
    """Ray, connected to a cluster.

    Raises:
        UsageError: Ray is not installed, or no cluster answers.
    """
    try:
        ray = import_module("ray")
    except ImportError:
        raise UsageError(f"--executor ray: Ray is not installed; install it with {INSTALL}") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own = {} if address is not None else {"include_dashboard": False}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=40, configure_logging=False, **own)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError(
            f"--ray-address {address}: no cluster answers ({first}); start one with ray start --head, "
            "and give this shell the RAY_AUTH_MODE and the token it was started with"
        ) from None
    return ray


def carried(errand: RayJob) -> Iterator[Sent]:
    """On some machine of the cluster: carry a run on, and give all that it tells."""
    shared = (Path(errand.results) / errand.signpost).exists()
    if not shared and errand.before is None:
        yield NoSharedFolder()
        return
    words, spec = list(errand.words), errand.job.spec
    own = None if shared else Path(tempfile.mkdtemp(prefix="rlbench-"))
    try:
        folder = errand.job.folder
        if own is not None and errand.before is not None:
            words[words.index("--results") + 1] = str(own)
            folder = folder_of(spec, own)
            if "spec.json" in errand.before.record:
                folder.mkdir(parents=True)
                unpack(errand.before, folder, spec)
        yield from _followed(errand.job, words, folder, None if own is None else _seals(errand.before))
    finally:
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)


def _followed(job: Job, words: Sequence[str], folder: Path, seals: dict[str, bytes] | None) -> Iterator[Sent]:
    """What a process tells, and its record whenever that has grown, unless it lies where everybody sees it."""
    source = str(Path(rlbench.__file__).parent.parent)
    paths = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    child = Worker(words, folder, environment(job.threads, {**os.environ, "PYTHONPATH": paths}))
    said, looked = 0.0, 0.0
    try:
        while True:
            select.select([child.pipe], [], [], OFTEN)
            for told in child.told():
                ended, now = isinstance(told, Exited), monotonic()
                if seals is not None and (ended or isinstance(told, Said) or now - looked > OFTEN):
                    looked = now
                    parcel = pack(folder, seals)
                    seals |= _seals(parcel)
                    if "spec.json" in parcel.record:
                        yield parcel
                if isinstance(told, Progress) and now - said < OFTEN:
                    continue
                said = now
                yield told
                if ended:
                    return
    finally:
        _end(child)


def _seals(parcel: Parcel | None) -> dict[str, bytes]:
    """The manifests of checkpoints that both sides have."""
    return {} if parcel is None else {name: state["manifest.json"] for name, state in parcel.states.items()}


def _end(child: Worker) -> None:
    """Let a process save its state, and do not leave before it is gone."""
    if child.process.poll() is not None:
        return
    child.ask()
    with suppress(subprocess.TimeoutExpired):
        child.process.wait(PATIENCE)
    if child.process.poll() is None:
        child.kill()
        child.process.wait()


@dataclass(slots=True)
class _Task:
    """A job on the cluster."""

    errand: RayJob
    stream: Stream
    claim: ExitStack = field(default_factory=ExitStack)  # of the folder here, where it is not shared


class Cluster:
    """The machines of a Ray cluster."""

    def __init__(self, ray: ModuleType, results: Path, words: Words, *, most: int | None, card: int = 0) -> None:
        self.ray, self.results, self.words, self.most, self.card = ray, results.absolute(), words, most, card
        self._carried = ray.remote(num_returns="streaming", max_retries=0)(carried)
        self._stack = ExitStack()
        self.signpost = self._stack.enter_context(signposted(self.results))
        self._tasks: dict[str, _Task] = {}
        self._room, self._looked = 8, float("-inf")

    def close(self) -> None:
        """Take the signpost away."""
        self._stack.close()

    def room(self, job: Job) -> bool:
        """Whether another task may wait for its place, which Ray finds; a few more than all machines could take."""
        del job
        if self.most is None and monotonic() - self._looked > LOOK:
            self._room, self._looked = 8 + 2 * int(self.ray.cluster_resources().get("CPU", 1)), monotonic()
        return len(self._tasks) < (self.most or self._room)

    def start(self, job: Job, *, force: bool) -> None:
        """Hand a job to the cluster."""
        words = tuple(self.words(Order(job, None, force)))
        errand = RayJob(job=job, words=words, results=str(self.results), signpost=self.signpost)
        self._tasks[job.name] = _Task(errand, self._given(errand))

    def news(self, seconds: float) -> list[tuple[Job, News]]:
        """What the jobs have told since, waiting at most so long for the first word."""
        found: list[tuple[Job, News]] = []
        streams = {id(task.stream): task for task in self._tasks.values()}
        if not streams:
            select.select([], [], [], seconds)
            return found
        every = [task.stream for task in streams.values()]
        self.ray.wait(every, num_returns=1, timeout=seconds)
        ready, _ = self.ray.wait(every, num_returns=len(every), timeout=0)
        for stream in ready:
            task = streams[id(stream)]
            found += [(task.errand.job, news) for news in self._heard(task)]
        return found

    def ask(self) -> None:
        """Let every job save its state and end."""
        for task in self._tasks.values():
            self.ray.cancel(task.stream)

    def kill(self) -> None:
        """End every job at once."""
        for task in self._tasks.values():
            self.ray.cancel(task.stream, force=True)

    def _given(self, errand: RayJob) -> Stream:
        job = errand.job
        cards = 0.0 if not job.card else min(1.0, -(-20 * job.card // self.card) / 20) if self.card else 1.0
        options = self._carried.options(num_cpus=job.threads, memory=job.memory, num_gpus=cards, name=job.name)
        stream: Stream = options.remote(errand)
        return stream

    def _heard(self, task: _Task) -> list[News]:
        """The next word of a task; its end, where there is none."""
        job = task.errand.job
        sent = self._next(task)
        if isinstance(sent, NoSharedFolder):
            return self._again(task)
        if isinstance(sent, Parcel):
            try:
                unpack(sent, job.folder, job.spec)
            except RefusedFile as error:
                return [Said(str(error))]
            return []
        if isinstance(sent, Exited):
            del self._tasks[job.name]
            task.claim.close()
        return [sent]

    def _next(self, task: _Task) -> Sent:
        errors = self.ray.exceptions
        try:
            sent: Sent = self.ray.get(next(task.stream))
        except StopIteration:
            return Exited(1, "its task ended without a word")
        except errors.TaskCancelledError:
            return Exited(-15, "cancelled")
        except errors.RayTaskError as error:
            return Exited(1, f"its task failed: {_last_line(error)}")
        except errors.RayError as error:
            return Exited(1, f"its machine or worker was lost ({type(error).__name__})", lost=True)
        return sent

    def _again(self, task: _Task) -> list[News]:
        """Send a job once more, now with all that there is of it, and hold its folder in the meantime."""
        job = task.errand.job
        if not task.claim.enter_context(claimed(job.folder.absolute(), self.results)):
            del self._tasks[job.name]
            return [Exited(0, "another process is running it")]
        forced = "--force" in task.errand.words
        if forced:
            set_aside(job.folder)  # here, where the record is: the run starts over in an empty folder elsewhere
        before = Parcel(record={}, states={}, present=()) if forced else pack(job.folder)
        task.errand = replace(task.errand, before=before)
        task.stream = self._given(task.errand)
        return []


def _last_line(error: Exception) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


def nodes(ray: ModuleType) -> Sequence[Mapping[str, float]]:
    """What each machine of the cluster has."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]
