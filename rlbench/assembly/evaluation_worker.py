"""Worker process that evaluates policies beside the training, over two open pipes.

``python -m rlbench.assembly.evaluation_worker IN OUT``

It ends with its pipes and ignores every signal but SIGKILL, so it ends with the training. A resume repeats unfinished
evaluations. It writes no files.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

import torch
from torch import Tensor, nn

from rlbench.assembly.device import keep_memory
from rlbench.assembly.environments import describe
from rlbench.assembly.evaluation import EvaluationSetup, evaluation
from rlbench.assembly.offline import staged
from rlbench.config.run import Spec
from rlbench.datasets.episodes import Scale
from rlbench.envs.base import EnvInfo
from rlbench.evaluation import pool
from rlbench.evaluation.pool import EvaluationFailure, EvaluationProgress, WorkerConfig
from rlbench.ops.state_dict import into_module

PROGRESS_INTERVAL: Final = 0.1  # seconds between two reports of progress
DIES_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG of Linux's prctl
DUMP: Final = signal.SIGUSR2  # requests the stack on stderr
IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # sent by a terminal or scheduler to every process


@dataclass(frozen=True, slots=True)
class Bench:
    """Policy and evaluation setup of one run."""

    spec: Spec
    info: EnvInfo
    policy: nn.Module
    setup: EvaluationSetup


def bench(config: WorkerConfig, scale: dict[str, Tensor]) -> Bench:
    """Build the run's policy and evaluation setup on the host; ``scale`` is mean and std ``[D]``."""
    keep_memory()
    torch.set_num_threads(config.threads)
    spec = Spec.model_validate_json(config.spec)
    info, normalization = describe(spec), Scale(*(scale[part].numpy() for part in Scale._fields)) if scale else None
    parts, setup = staged(spec, info, torch.device("cpu"), scale=normalization, threads=1)
    return Bench(spec, info, parts.learner.policy(), setup)


def evaluate(bench: Bench, epoch: int, policy: dict[str, Tensor], replies: int) -> None:
    """Evaluate weights ``[...]`` by name as the training would; report progress and the result."""
    into_module(bench.policy, dict(policy))
    _reply(replies, EvaluationProgress(0))
    running, report_time = evaluation(bench.spec, bench.info, bench.setup, torch.device("cpu"), epoch), monotonic()
    for games in running:
        if monotonic() - report_time > PROGRESS_INTERVAL:
            _reply(replies, EvaluationProgress(games))
            report_time = monotonic()
    _reply(replies, running.result())


def _reply(replies: int, reply: pool.Reply) -> None:
    line = pool.to_line(reply)
    while line:
        line = line[os.write(replies, line) :]


def _end_with_parent() -> None:
    """End with the parent, also within compiled code; elsewhere than on Linux at the next reply."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)


def main(arguments: Sequence[str]) -> int:
    """Evaluate the requests of one pipe and reply through the other, until the pipe ends."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _end_with_parent()
    faulthandler.enable()
    faulthandler.register(DUMP, all_threads=True)
    requests, replies = (int(argument) for argument in arguments)
    try:
        with os.fdopen(requests, "rb") as source:
            config = pool.read_config(source)
            setup = None if config is None else bench(*config)
            while setup is not None and (request := pool.read_request(source)) is not None:
                evaluate(setup, request[0].epoch, request[1], replies)
    except BrokenPipeError:
        return 0
    except Exception as error:  # noqa: BLE001 - the run reports any error
        _reply(replies, EvaluationFailure(type(error).__name__, str(error), traceback.format_exc()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
