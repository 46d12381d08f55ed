"""Executor that runs each job as a task of a Ray cluster.

Ray places the task and notices a lost machine. The task starts the same process as ``local.py`` and forwards its
events. Every machine must see the results folder, as Ray Train requires of its storage path.
"""

from __future__ import annotations

import os
import select
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from subprocess import TimeoutExpired
from time import monotonic
from types import ModuleType

import rlbench
from rlbench.errors import UsageError
from rlbench.records.types import Progress
from rlbench.sweep.events import Event, Exited
from rlbench.sweep.local import PATIENCE, CommandLine, Worker, environment
from rlbench.sweep.plan import Job

INTERVAL = 2.0  # seconds between two Progress events of a task
POLL_SECONDS = 5.0  # seconds between two checks of the number of machines
INSTALL = ".venv/bin/pip install -c constraints.txt ray"


@dataclass(frozen=True, slots=True)
class NotShared:
    """The task's machine does not see the results folder."""

    host: str


Message = Event | NotShared


def connect(address: str | None) -> ModuleType:
    """Import Ray and connect it to a cluster.

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


def run_job(job: Job, command: Sequence[str], marker: Path) -> Iterator[Message]:
    """Run a job by its command line on the task's machine and yield its events; ``marker`` is a file of the driver."""
    if not marker.exists():
        yield NotShared(os.uname().nodename)
        return
    source = str(Path(rlbench.__file__).parent.parent)
    paths = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    worker = Worker(command, job.folder, environment(job.threads, {**os.environ, "PYTHONPATH": paths}))
    last_sent = 0.0
    try:
        while True:
            select.select([worker.pipe], [], [], INTERVAL)
            for event in worker.events():
                if isinstance(event, Progress) and monotonic() - last_sent < INTERVAL:
                    continue
                last_sent = monotonic()
                yield event
                if isinstance(event, Exited):
                    return
    finally:
        _stop(worker)


def _stop(worker: Worker) -> None:
    """Ask a process to save its state, and wait until it has ended."""
    if worker.process.poll() is not None:
        return
    worker.process.terminate()
    with suppress(TimeoutExpired):
        worker.process.wait(PATIENCE)
    if worker.process.poll() is None:
        worker.kill()
        worker.process.wait()


class Cluster:
    """Executor over the machines of a Ray cluster."""

    in_process = False

    def __init__(self, ray: ModuleType, results: Path, command: CommandLine, *, most: int | None, gpu: int = 0) -> None:
        self.ray, self.results, self.command, self.most, self.gpu = ray, results.absolute(), command, most, gpu
        self._remote = ray.remote(num_returns="streaming", max_retries=0)(run_job)
        self.results.mkdir(parents=True, exist_ok=True)
        self._marker = tempfile.NamedTemporaryFile(prefix=".sweep-", dir=self.results)  # noqa: SIM115 - until close()
        self._tasks: dict[str, tuple[Job, Iterator[object]]] = {}
        self._room, self._checked_at = 8, float("-inf")

    def close(self) -> None:
        """Remove the marker file."""
        self._marker.close()

    def has_room(self, job: Job) -> bool:
        """Allow a few more waiting tasks than the machines can run; Ray places them."""
        del job
        if self.most is None and monotonic() - self._checked_at > POLL_SECONDS:
            self._room, self._checked_at = 8 + 2 * int(self.ray.cluster_resources().get("CPU", 1)), monotonic()
        return len(self._tasks) < (self.most or self._room)

    def start(self, job: Job, *, force: bool) -> None:
        """Submit a job to the cluster."""
        command = (*self.command(job, None), *(["--force"] if force else []))
        gpus = 0.0 if not job.gpu else min(1.0, -(-20 * job.gpu // self.gpu) / 20) if self.gpu else 1.0
        options = self._remote.options(num_cpus=job.threads, memory=job.memory, num_gpus=gpus, name=job.name)
        self._tasks[job.name] = job, options.remote(job, command, Path(self._marker.name))

    def events(self, seconds: float) -> list[tuple[Job, Event]]:
        """Return new events of the jobs; wait at most ``seconds`` for the first.

        Raises:
            UsageError: a machine does not see the results folder.
        """
        if not self._tasks:
            select.select([], [], [], seconds)
            return []
        streams = [stream for _, stream in self._tasks.values()]
        self.ray.wait(streams, num_returns=1, timeout=seconds)
        ready, _ = self.ray.wait(streams, num_returns=len(streams), timeout=0)
        identities = {id(stream) for stream in ready}
        events = [(job, self._next(stream)) for job, stream in self._tasks.values() if id(stream) in identities]
        for job, event in events:
            if isinstance(event, Exited):
                del self._tasks[job.name]
        return events

    def terminate(self) -> None:
        """Let every job save its state and end."""
        for _, stream in self._tasks.values():
            self.ray.cancel(stream)

    def kill(self) -> None:
        """End every job at once."""
        for _, stream in self._tasks.values():
            self.ray.cancel(stream, force=True)

    def _next(self, stream: Iterator[object]) -> Event:
        errors = self.ray.exceptions
        try:
            message: Message = self.ray.get(next(stream))
        except StopIteration:
            return Exited(1, "its task ended without a message")
        except errors.TaskCancelledError:
            return Exited(-15, "cancelled")
        except errors.RayTaskError as error:
            return Exited(1, f"its task failed: {_last_line(error)}")
        except errors.RayError as error:
            return Exited(1, f"its machine or worker was lost ({type(error).__name__})", lost=True)
        if isinstance(message, NotShared):
            raise UsageError(
                f"--results {self.results}: {message.host} does not see this folder; --executor ray needs one "
                "that every machine of the cluster mounts at the same path"
            )
        return message


def _last_line(error: Exception) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


def nodes(ray: ModuleType) -> Sequence[Mapping[str, float]]:
    """Resources of each machine that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]
