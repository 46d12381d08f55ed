"""An evaluation worker that breaks: ``python -m tests.reliability.eval_workers WAY …``."""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from rlbench.assembly import evaluation_worker
from rlbench.errors import BrokenEnvironment
from tests.reliability.broken import deadlock, raising

AT = 1
"""The epoch in whose evaluation it does."""

WAYS: dict[str, Callable[[], Any]] = {
    "late": lambda: time.sleep(1.5),
    "idle": lambda: time.sleep(3600),
    "deadlock": deadlock,
    "abort": os.abort,
    "exit": lambda: os._exit(3),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "raise": lambda: raising(BrokenEnvironment("env 1, step 7: the joint is loose")),
    "memory": lambda: raising(MemoryError("std::bad_alloc")),
    "other": lambda: raising(KeyError("a bug")),
}


def program(way: str) -> tuple[str, ...]:
    return ("-m", "tests.reliability.eval_workers", way)


if __name__ == "__main__":
    way, *pipes = sys.argv[1:]
    begun = vars(evaluation_worker)["evaluation"]

    def evaluation(*arguments: Any) -> Any:
        if arguments[-1] == AT:
            WAYS[way]()
        return begun(*arguments)

    vars(evaluation_worker)["evaluation"] = evaluation
    sys.exit(evaluation_worker.main(pipes))
