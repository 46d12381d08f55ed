"""Evaluate policies in a process beside the training, over two open pipes.

``python -m rlbench.assembly.evaluation_worker IN OUT``

It lives by its pipes and hears no signal but SIGKILL: whoever stops the training ends it, and what it had not finished
is judged again. It writes to no disk.
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
from functools import partial
from time import monotonic
from typing import Final

import torch
from torch import Tensor, nn

from rlbench.assembly.device import keep_memory
from rlbench.assembly.environments import describe
from rlbench.assembly.evaluation import EvaluationSetup, evaluation
from rlbench.assembly.offline import staged
from rlbench.config.run import Spec
from rlbench.datasets.normalization import Scale
from rlbench.envs.base import EnvInfo
from rlbench.evaluation import messages
from rlbench.evaluation.messages import EvaluationFailure, EvaluationProgress, WorkerConfig
from rlbench.ops.state_dict import into_module

OFTEN: Final = 0.1  # seconds between two words on how far an evaluation has come
DIES_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG of Linux's prctl
WHERE: Final = signal.SIGUSR2  # asks where it is, which goes to stderr
DEAF: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # to what a terminal or a scheduler sends to everybody


@dataclass(frozen=True, slots=True)
class Bench:
    """Where policies of one run are judged."""

    spec: Spec
    info: EnvInfo
    policy: nn.Module
    stage: EvaluationSetup


def bench(terms: WorkerConfig, scale: dict[str, Tensor]) -> Bench:
    """The run's own policy, and its stage, on the host; ``scale`` is mean and deviation ``[D]``."""
    keep_memory()
    torch.set_num_threads(terms.threads)
    spec = Spec.model_validate_json(terms.spec)
    info, shown = describe(spec), Scale(*(scale[part].numpy() for part in Scale._fields)) if scale else None
    parts, stage = staged(spec, info, torch.device("cpu"), scale=shown, threads=1)
    return Bench(spec, info, parts.learner.policy(), stage)


def evaluate(bench: Bench, epoch: int, policy: dict[str, Tensor], answers: int) -> None:
    """Play an evaluation as the training would with weights ``[...]`` by name; tell how it goes on, and its result."""
    into_module(bench.policy, dict(policy))
    tell = partial(_tell, answers)
    tell(EvaluationProgress(0))
    under_way, told = evaluation(bench.spec, bench.info, bench.stage, torch.device("cpu"), epoch), monotonic()
    for games in under_way:
        if monotonic() - told > OFTEN:
            tell(EvaluationProgress(games))
            told = monotonic()
    tell(under_way.result())


def _tell(answers: int, told: messages.Reply) -> None:
    line = messages.to_line(told)
    while line:
        line = line[os.write(answers, line) :]


def _leashed() -> None:
    """End with the parent, also in the middle of compiled code; elsewhere than on Linux at the next word."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)


def main(words: Sequence[str]) -> int:
    """Judge what comes through the one pipe, and answer through the other, until nobody is there."""
    for number in DEAF:
        signal.signal(number, signal.SIG_IGN)
    _leashed()
    faulthandler.enable()
    faulthandler.register(WHERE, all_threads=True)
    questions, answers = (int(word) for word in words)
    try:
        with os.fdopen(questions, "rb") as source:
            first = messages.terms_of(source)
            made = None if first is None else bench(*first)
            while made is not None and (found := messages.question_of(source)) is not None:
                evaluate(made, found[0].epoch, found[1], answers)
    except BrokenPipeError:
        return 0
    except Exception as error:  # noqa: BLE001 - of whatever kind, the run is to say it
        _tell(answers, EvaluationFailure(type(error).__name__, str(error), traceback.format_exc()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
