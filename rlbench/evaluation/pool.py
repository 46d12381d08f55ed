"""Evaluate snapshots of the policy in worker processes beside the training.

A worker gets the policy in shared memory and the epoch on stdin; it replies in lines of JSON, ``[kind, content]``. No
read or write blocks, so the training never waits for a worker between two polls.

``concurrent.futures`` would keep fewer promises: its executor names neither the worker that died nor its exit code,
breaks every pending evaluation with it, can end a hanging worker only by private attributes, and reports no progress.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import torch
from safetensors.torch import save
from torch import Tensor, nn

from rlbench import disk
from rlbench.errors import BrokenEnvironment, ResourceExhausted, RunFailed
from rlbench.ops.state_dict import State, module_state, subtree, tensors
from rlbench.records.types import Evaluated
from rlbench.signals import cause

PROGRAM: Final = ("-P", "-m", "rlbench.assembly.evaluation_worker")
READ_SIZE: Final = 2**16  # bytes of one read
POLL_INTERVAL: Final = 0.05  # seconds between two polls of a training that does not wait; a poll costs some 0.1 ms
MAX_SILENCE: Final = 2.0  # cap on the seconds of silence that one poll counts: a suspended machine is no hang
GRACE: Final = 1.0  # seconds beyond ``env_timeout``, for the interval of replies and busy cores
STARTUP: Final = 300.0  # seconds beyond ``env_timeout`` for the imports of a new process
DUMP_TIMEOUT: Final = 1.0  # seconds to write the stack of a hanging process
DUMP: Final = signal.SIGUSR2  # requests that stack
STOP_SIGNALS: Final = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
"""Signals that end a worker only while it starts, and are meant for the run."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Configuration of a worker."""

    spec: str  # as JSON
    threads: int  # threads of torch, as many as in evaluation within the run, for equal numbers
    obs_moments: Mapping[str, Tensor]  # mean and std of observations ``[D]``; empty where these are not normalized


class EvalWorker:
    """One worker process and the epoch that it evaluates."""

    def __init__(self, config: WorkerConfig) -> None:
        self.epoch: int | None = None  # None while idle
        self.games, self.silent_seconds, self.started = 0, 0.0, False
        self._last_poll, self._partial_line, self._obs_moments = monotonic(), "", config.obs_moments
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._weights = os.fdopen(os.memfd_create("policy"), "wb", buffering=0)
        self.replies, reply_end = os.pipe()
        request_end, self.requests = os.pipe()
        numbers = config.threads, self._weights.fileno(), reply_end, os.getpid()
        inherited = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
        try:
            self.process = subprocess.Popen(  # noqa: S603 - fixed arguments, without a shell
                [sys.executable, *PROGRAM, config.spec, *map(str, numbers)],
                stdin=request_end,
                stdout=self._stderr,
                stderr=self._stderr,
                env={**inherited, "OMP_WAIT_POLICY": "passive"},  # idle threads leave the cores to the training
                pass_fds=numbers[1:3],
                process_group=0,  # a terminal's Ctrl-C is for the run alone
            )
        except OSError as error:
            raise ResourceExhausted(
                f"an evaluation worker cannot be started ({error.strerror}); free some memory and run the same "
                "command again: it resumes, with --eval-workers 0 in one process"
            ) from error
        finally:
            os.close(request_end)
            os.close(reply_end)
        os.set_blocking(self.replies, False)

    def send(self, epoch: int, policy: Mapping[str, Tensor]) -> None:
        """Send the ``policy``, weights ``[...]`` by name, to this idle worker.

        Raises:
            ResourceExhausted: the policy exceeds the memory or ``ulimit -f``.
        """
        self.epoch, self.games, self.silent_seconds, self._last_poll = epoch, 0, 0.0, monotonic()
        groups = {"policy": policy, "scale": self._obs_moments}
        content = save({f"{group}.{n}": value for group, part in groups.items() for n, value in part.items()})
        with disk.writing(Path("policy of an evaluation worker")):
            self._weights.truncate(len(content))  # raises EFBIG beyond `ulimit -f`
            self._weights.seek(0)
            rest = memoryview(content)
            while rest:
                rest = rest[self._weights.write(rest) :]
        with suppress(BrokenPipeError):  # of a dead worker, as the next poll finds
            os.write(self.requests, b"%d\n" % epoch)

    def poll(self, env_timeout: float) -> Evaluated | None:
        """Return the evaluation; None while it runs.

        Raises:
            RunFailed: the worker failed, died, or was silent for longer than ``env_timeout`` seconds.
        """
        code = self.process.poll()  # before the read, which is then complete
        lines = self._lines()
        for kind, content in map(json.loads, lines):
            if kind == "games":
                self.games = content
            elif kind == "error":
                raise _error(**content)
            else:
                self.epoch = None
                games = {name: tuple(content[name]) for name in ("returns", "lengths", "seeds")}
                return Evaluated(**games, seconds=content["seconds"])
        if code is not None:
            raise self._death(code)
        now = monotonic()
        self.started = self.started or bool(lines)
        self.silent_seconds = 0.0 if lines else self.silent_seconds + min(now - self._last_poll, MAX_SILENCE)
        self._last_poll = now
        if self.silent_seconds > env_timeout + (GRACE if self.started else STARTUP):
            raise self._timeout_error(env_timeout)
        return None

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        for end in (self.replies, self.requests):
            os.close(end)
        self._weights.close()
        self._stderr.close()

    def _lines(self) -> list[str]:
        text = self._partial_line
        with suppress(BlockingIOError):
            while piece := os.read(self.replies, READ_SIZE):
                text += piece.decode()
        *lines, self._partial_line = text.split("\n")
        return lines

    def _death(self, code: int) -> RunFailed:
        end = cause(-code) if code < 0 else f"exit code {code}"
        what = f"the worker that evaluated epoch {self.epoch} ended ({end})"
        if code == -signal.SIGKILL:
            return ResourceExhausted(f"{what}, probably for lack of memory; free some: the same command resumes")
        stderr = self._stderr_text()
        error = BrokenEnvironment(f"{what}: {(stderr.strip().splitlines() or ['without a message'])[-1]}")
        error.add_note(stderr)
        return error

    def _timeout_error(self, env_timeout: float) -> BrokenEnvironment:
        self.process.send_signal(DUMP)
        end = monotonic() + DUMP_TIMEOUT
        while monotonic() < end and not self._stderr_text():
            sleep(DUMP_TIMEOUT / 20)
        error = BrokenEnvironment(
            f"epoch {self.epoch}: the environments of its evaluation have not answered for {env_timeout:g} s; "
            "failure.txt says where they hang"
        )
        error.add_note(self._stderr_text())
        return error

    def _stderr_text(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")


class EvalPool:
    """Pool of workers, started on demand, with the policies whose evaluation is pending."""

    def __init__(self, policy: nn.Module, config: WorkerConfig, *, max_workers: int, env_timeout: float) -> None:
        """With ``max_workers`` 0 the training's process evaluates, except what its checkpoint left pending."""
        self.policy, self.config, self.max_workers, self.env_timeout = policy, config, max_workers, env_timeout
        self.pending: dict[int, dict[str, Tensor]] = {}  # policies by epoch, on the host
        self._workers: list[EvalWorker] = []
        self._results: dict[int, Evaluated | Exception] = {}
        self._last_poll = monotonic()

    def submit(self, epoch: int) -> None:
        """Evaluate a copy of the current policy."""
        self._copy(epoch, module_state(self.policy))
        self._dispatch()

    def poll(self, epoch: int, seconds: float) -> Evaluated | int:
        """Return the evaluation of an epoch, or the number of its ended episodes; wait for at most ``seconds``.

        Raises:
            RunFailed: the evaluation failed.
        """
        if epoch not in self._results and (seconds > 0 or monotonic() - self._last_poll > POLL_INTERVAL):
            self._dispatch()
            self._poll(seconds)
            self._dispatch()
        result = self._results.get(epoch, 0)
        if isinstance(result, Exception):
            raise result
        return result or next((worker.games for worker in self._workers if worker.epoch == epoch), 0)

    def take(self, epoch: int) -> State:
        """Remove a finished evaluation and return its policy."""
        del self._results[epoch]
        return dict(self.pending.pop(epoch))

    def state_dict(self) -> State:
        """Policies whose evaluation is pending."""
        return {str(epoch): dict(policy) for epoch, policy in self.pending.items()}

    def load_state_dict(self, state: State) -> None:
        """Evaluate the pending policies from the beginning."""
        self.close()
        self.pending.clear()
        self._results.clear()
        for epoch in sorted(map(int, state)):
            self._copy(epoch, subtree(state, str(epoch)))

    def close(self) -> None:
        """Kill every worker."""
        while self._workers:
            self._workers.pop().close()

    def _copy(self, epoch: int, policy: State) -> None:
        host = torch.device("cpu")
        copies = {name: value.detach().to(host, copy=True) for name, value in tensors(policy).items()}
        self.pending[epoch] = {name: value.contiguous() for name, value in copies.items()}

    def _dispatch(self) -> None:
        """Send pending policies to idle workers, the oldest first."""
        running = {worker.epoch for worker in self._workers}
        for epoch in sorted(self.pending):
            if epoch in running or epoch in self._results:
                continue
            worker = next((worker for worker in self._workers if worker.epoch is None), None)
            if worker is None and len(self._workers) < max(1, self.max_workers):
                worker = EvalWorker(self.config)
                self._workers.append(worker)
            if worker is None:
                return
            worker.send(epoch, self.pending[epoch])

    def _poll(self, seconds: float) -> None:
        busy = [worker for worker in self._workers if worker.epoch is not None]
        select.select([worker.replies for worker in busy], [], [], seconds)
        for worker in busy:
            epoch = worker.epoch
            try:
                result: Evaluated | Exception | None = worker.poll(self.env_timeout)
            except (RunFailed, MemoryError) as error:
                result = error
                self._workers.remove(worker)
                worker.close()
            if epoch is not None and result is not None and not _ended_by_signal(worker):
                self._results[epoch] = result
        self._last_poll = monotonic()


def _ended_by_signal(worker: EvalWorker) -> bool:
    """True if a signal for the whole run ended the worker; its evaluation is repeated on resume."""
    code = worker.process.returncode
    return code is not None and -code in STOP_SIGNALS


def _error(kind: str, message: str, trace: str) -> RunFailed | MemoryError:
    """Rebuild the error of a worker by the name of its class."""
    error: RunFailed | MemoryError
    match kind:
        case "BrokenEnvironment":
            error = BrokenEnvironment(message)
        case "MemoryError":
            error = MemoryError(message)
        case _:
            error = RunFailed(f"{kind}: {message}")
    error.add_note(trace)
    return error
