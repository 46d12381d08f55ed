"""Judging beside the training: snapshots of the policy go to processes of their own, what they find comes back.

Between two looks nothing waits for anybody: what is written and read here never blocks.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic, sleep
from typing import Final

import torch
from torch import Tensor, nn

from rlbench.errors import BrokenEnvironment, ResourceExhausted, RunFailed
from rlbench.evaluation import messages
from rlbench.evaluation.messages import EvaluationFailure, EvaluationProgress, EvaluationRequest
from rlbench.ops.state_dict import State, branch, of_module, tensors
from rlbench.records.types import Evaluated

PROGRAM: Final = ("-P", "-m", "rlbench.assembly.evaluation_worker")
PIPE: Final = 2**20  # bytes that a pipe holds, so that a policy goes over in few looks
PIECE: Final = 2**16
OFTEN: Final = 0.05  # seconds between two looks of somebody who does not wait: a look costs some 0.1 ms
LONGEST: Final = 2.0  # seconds that one look counts for: a process that was suspended for an hour has looked once
SLACK: Final = 1.0  # seconds beyond the patience, for words that come so often and cores that others use
STARTING: Final = 300.0  # seconds beyond the patience until a process has imported everything
DUMPED: Final = 1.0  # seconds to say where it hangs
WHERE: Final = signal.SIGUSR2  # asks for that
STOPPED: Final = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}  # heard only while it starts, and meant for the run


class EvalWorker:
    """A process, and the policy that it has."""

    def __init__(self, terms: bytes) -> None:
        self.epoch: int | None = None  # of the policy; None where it waits for one
        self.games, self.silent, self.known = 0, 0.0, False
        self._looked = monotonic()
        self._unsent, self._torn = terms, ""
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self.answers, theirs = os.pipe()
        questions, self.questions = os.pipe()
        command = [sys.executable, *PROGRAM, str(questions), str(theirs)]
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own words, and no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                env=_environment(os.environ),
                pass_fds=(questions, theirs),
                process_group=0,  # a terminal's Ctrl-C is for the run alone
            )
        except OSError as error:
            raise ResourceExhausted(
                f"a process to judge in cannot be started ({error.strerror}); free some memory and run the same "
                "command again: it resumes, with --eval-workers 0 in one process"
            ) from error
        finally:
            os.close(questions)
            os.close(theirs)
        for end in (self.answers, self.questions):
            os.set_blocking(end, False)
        with suppress(OSError):
            fcntl.fcntl(self.questions, fcntl.F_SETPIPE_SZ, PIPE)

    def ask(self, epoch: int, policy: Mapping[str, Tensor]) -> None:
        """Let it judge the ``policy``, weights ``[...]`` by name; it must be waiting."""
        self.epoch, self.games, self.silent, self._looked = epoch, 0, 0.0, monotonic()
        self._unsent += messages.packed(EvaluationRequest(epoch), policy)

    def look(self, env_timeout: float) -> Evaluated | None:
        """What it has found; None while it plays.

        Raises:
            RunFailed: it cannot go on, died, or has been silent for longer than ``env_timeout`` seconds.
        """
        self._send()
        code = self.process.poll()  # asked first: what is read afterwards is then all there will ever be
        lines = self._lines()
        for line in lines:
            match messages.from_line(line):
                case EvaluationProgress(games):
                    self.games = games
                case EvaluationFailure() as failed:
                    raise _error(failed)
                case Evaluated() as found:
                    self.epoch = None
                    return found
        if code is not None:
            raise self._died(code)
        now = monotonic()
        self.known = self.known or bool(lines)
        self.silent = 0.0 if lines else self.silent + min(now - self._looked, LONGEST)
        self._looked = now
        if self.silent > env_timeout + (SLACK if self.known else STARTING):
            raise self._hung(env_timeout)
        return None

    def close(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        for end in (self.answers, self.questions):
            os.close(end)
        self._said.close()

    @property
    def unsent(self) -> bool:
        """Whether it has not taken all that it was told."""
        return bool(self._unsent)

    def _send(self) -> None:
        with suppress(BlockingIOError, BrokenPipeError):
            while self._unsent:
                self._unsent = self._unsent[os.write(self.questions, self._unsent[:PIECE]) :]

    def _lines(self) -> list[str]:
        text = self._torn
        with suppress(BlockingIOError):
            while piece := os.read(self.answers, PIECE):
                text += piece.decode()
        *lines, self._torn = text.split("\n")
        return lines

    def _died(self, code: int) -> RunFailed:
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        where = f"the process that judged epoch {self.epoch} ended ({how})"
        if code == -signal.SIGKILL:
            return ResourceExhausted(
                f"{where}, as one does where memory is exhausted; free some and run the same command again: it resumes"
            )
        words = self._words()
        error = BrokenEnvironment(f"{where}: {(words.strip().splitlines() or ['without a word'])[-1]}")
        error.add_note(words)
        return error

    def _hung(self, env_timeout: float) -> BrokenEnvironment:
        self.process.send_signal(WHERE)
        end = monotonic() + DUMPED
        while monotonic() < end and not self._words():
            sleep(DUMPED / 20)
        error = BrokenEnvironment(
            f"epoch {self.epoch}: the environments that it is judged in have not answered for {env_timeout:g} s; "
            "failure.txt says where they hang"
        )
        error.add_note(self._words())
        return error

    def _words(self) -> str:
        """All that it said on stderr."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")


class EvalPool:
    """At most so many judges, begun when they are wanted, and the policies that they have not judged yet."""

    def __init__(self, policy: nn.Module, terms: bytes, *, most: int, env_timeout: float) -> None:
        """``most`` 0: the training judges itself, but for what another attempt has left to judge."""
        self.policy, self.terms, self.most, self.env_timeout = policy, terms, most, env_timeout
        self.kept: dict[int, dict[str, Tensor]] = {}  # policies by their epoch, on the host
        self._judges: list[EvalWorker] = []
        self._found: dict[int, Evaluated | Exception] = {}
        self._looked = monotonic()

    def begin(self, epoch: int) -> None:
        """Have the policy judged as it is now."""
        self._keep(epoch, of_module(self.policy))
        self._hand_out()

    def heard(self, epoch: int, seconds: float) -> Evaluated | int:
        """What came of the evaluation, or how many of its games have ended; waits at most so many seconds for a word.

        Raises:
            RunFailed: it cannot be judged.
        """
        if epoch not in self._found and (seconds > 0 or monotonic() - self._looked > OFTEN):
            self._hand_out()
            self._look(seconds)
            self._hand_out()
        found = self._found.get(epoch, 0)
        if isinstance(found, Exception):
            raise found
        return found or next((judge.games for judge in self._judges if judge.epoch == epoch), 0)

    def taken(self, epoch: int) -> State:
        """The policy of an epoch that was heard of, which is forgotten."""
        del self._found[epoch]
        return dict(self.kept.pop(epoch))

    def state_dict(self) -> State:
        """Policies that nobody has heard of yet."""
        return {str(epoch): dict(policy) for epoch, policy in self.kept.items()}

    def load_state_dict(self, state: State) -> None:
        """Judge them, from their beginning."""
        self.close()
        self.kept.clear()
        self._found.clear()
        for epoch in sorted(map(int, state)):
            self._keep(epoch, branch(state, str(epoch)))

    def close(self) -> None:
        """End every process."""
        while self._judges:
            self._judges.pop().close()

    def _keep(self, epoch: int, policy: State) -> None:
        host = torch.device("cpu")
        copies = {name: value.detach().to(host, copy=True) for name, value in tensors(policy).items()}
        self.kept[epoch] = {name: value.contiguous() for name, value in copies.items()}

    def _hand_out(self) -> None:
        """Give what waits to who waits, the oldest first."""
        under_way = {judge.epoch for judge in self._judges}
        for epoch in sorted(self.kept):
            if epoch in under_way or epoch in self._found:
                continue
            judge = next((judge for judge in self._judges if judge.epoch is None), None)
            if judge is None and len(self._judges) < max(1, self.most):
                judge = EvalWorker(self.terms)
                self._judges.append(judge)
            if judge is None:
                return
            judge.ask(epoch, self.kept[epoch])

    def _look(self, seconds: float) -> None:
        busy = [judge for judge in self._judges if judge.epoch is not None]
        listening = [judge.questions for judge in busy if judge.unsent]
        select.select([judge.answers for judge in busy], listening, [], seconds)
        for judge in busy:
            epoch = judge.epoch
            try:
                found: Evaluated | Exception | None = judge.look(self.env_timeout)
            except (RunFailed, MemoryError) as error:
                found = error
                self._judges.remove(judge)
                judge.close()
            if epoch is not None and found is not None and not _to_be_repeated(judge):
                self._found[epoch] = found
        self._looked = monotonic()


def _to_be_repeated(worker: EvalWorker) -> bool:
    """Whether a signal ended it that was meant for the run, which will hear it too."""
    code = worker.process.returncode
    return code is not None and -code in STOPPED


def _error(failed: EvaluationFailure) -> RunFailed | MemoryError:
    """What happened there, as if it had happened here."""
    error: RunFailed | MemoryError
    match failed.kind:
        case "BrokenEnvironment":
            error = BrokenEnvironment(failed.message)
        case "MemoryError":
            error = MemoryError(failed.message)
        case kind:
            error = RunFailed(f"{kind}: {failed.message}")
    error.add_note(failed.trace)
    return error


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Idle threads of a judge sleep: the cores are the training's."""
    return {**{n: v for n, v in environ.items() if n != "GOMP_SPINCOUNT"}, "OMP_WAIT_POLICY": "passive"}
