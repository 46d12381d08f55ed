"""Worker process that evaluates policies beside the training.

``python -m rlbench.assembly.evaluation_worker SPEC THREADS WEIGHTS REPLIES PARENT``: stdin brings the epochs to
evaluate; ``WEIGHTS`` and ``REPLIES`` are file descriptors of shared memory and of a pipe.

It ignores SIGINT, SIGTERM and SIGHUP, and ends with its pipes or with ``PARENT``, the process of the training. A resume
repeats unfinished evaluations. It writes no files.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from time import monotonic
from typing import Final, TypeAlias

import torch
from safetensors.torch import load
from torch import Tensor, nn

from rlbench.assembly.assemble import parts_of
from rlbench.assembly.device import keep_memory
from rlbench.assembly.environments import describe
from rlbench.assembly.evaluation import EvaluationSetup, evaluation
from rlbench.collectors.evaluate import Evaluation
from rlbench.config.offline import DiscreteOfflineConfig, OfflineConfig
from rlbench.config.run import Spec
from rlbench.datasets.episodes import ObsScaler
from rlbench.ops.state_dict import load_module
from rlbench.signals import end_with_parent

PROGRESS_INTERVAL: Final = 0.1  # seconds between two reports of progress
DUMP: Final = signal.SIGUSR2  # requests the stack on stderr
IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # sent by a terminal or scheduler to every process

Evaluator: TypeAlias = tuple[nn.Module, Callable[[int], Evaluation]]
"""Policy of a run, and its evaluation in an epoch."""


def make_evaluator(spec: Spec, threads: int, obs_moments: dict[str, Tensor]) -> Evaluator:
    """Build the run's policy and evaluation setup on the host; ``obs_moments`` is mean and std ``[D]``.

    Raises:
        TypeError: the run does not learn from data.
    """
    if not isinstance(spec.algo, OfflineConfig | DiscreteOfflineConfig):
        raise TypeError(spec.algo)
    keep_memory()
    torch.set_num_threads(threads)
    info, host = describe(spec), torch.device("cpu")
    normalization = ObsScaler(*(obs_moments[part].numpy() for part in ObsScaler._fields)) if obs_moments else None
    parts = parts_of(spec, spec.algo, info, host)
    setup = EvaluationSetup(parts.learner, 1, parts.eval_explorer, obs_transform=normalization)
    return parts.learner.policy_net(), lambda epoch: evaluation(spec, info, setup, host, epoch)


def evaluate(evaluator: Evaluator, epoch: int, policy: dict[str, Tensor], replies: int) -> None:
    """Evaluate weights ``[...]`` by name as the training would; report progress and the result."""
    module, evaluation_of = evaluator
    load_module(module, dict(policy))
    _reply(replies, "games", 0)
    evaluation_run, report_time = evaluation_of(epoch), monotonic()
    for count in evaluation_run:
        if monotonic() - report_time > PROGRESS_INTERVAL:
            _reply(replies, "games", count)
            report_time = monotonic()
    _reply(replies, "evaluation", asdict(evaluation_run.result()))


def _reply(replies: int, kind: str, content: object) -> None:
    line = (json.dumps([kind, content]) + "\n").encode()
    while line:
        line = line[os.write(replies, line) :]


def main(arguments: Sequence[str]) -> int:
    """Evaluate the requests on stdin and reply, until stdin ends."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    threads, weights, replies, parent = map(int, arguments[1:])
    end_with_parent(parent)
    faulthandler.enable()
    faulthandler.register(DUMP, all_threads=True)
    evaluator: Evaluator | None = None
    try:
        for epoch in sys.stdin:
            tensors = load(os.pread(weights, os.fstat(weights).st_size, 0))
            groups = {
                group: {name.removeprefix(group): tensors[name] for name in tensors if name.startswith(group)}
                for group in ("policy.", "scale.")
            }
            evaluator = evaluator or make_evaluator(Spec.model_validate_json(arguments[0]), threads, groups["scale."])
            evaluate(evaluator, int(epoch), groups["policy."], replies)
    except BrokenPipeError:
        return 0
    except Exception as error:  # noqa: BLE001 - the run reports any error
        failure = {"kind": type(error).__name__, "message": str(error), "trace": traceback.format_exc()}
        _reply(replies, "error", failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
