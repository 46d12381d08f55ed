"""README's second command: it shows a progress bar, writes to ``runs/``, and keeps everything on Ctrl-C."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import screen_of

ROOT = Path(__file__).parents[2]
LINE = "run atari dqn --task PongNoFrameskip-v4"
SPEED = re.compile(rb"[1-9][\d,]* steps/s")
LONGEST = 120.0
SHORT_GAMES = """
import sys
from rlbench.assembly import evaluation
real = evaluation.environments
evaluation.environments = lambda task, **rest: real(task.model_copy(update={"max_frames": 400}), **rest)
from rlbench.cli.app import main
sys.exit(main(sys.argv[1:]))
"""
"""The command line, whose first evaluation is soon over."""


@pytest.mark.slow
def test_first_run_shows_a_progress_bar_and_writes_to_runs(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RLBENCH_")}
    process = subprocess.Popen(
        [sys.executable, "-c", SHORT_GAMES, *LINE.split()],
        cwd=tmp_path,
        env=environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "160"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    screen, until = b"", time.monotonic() + LONGEST
    os.set_blocking(ours, False)
    while not SPEED.search(screen) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
        try:
            screen += os.read(ours, 65536)
        except BlockingIOError:
            continue
    process.send_signal(signal.SIGINT)
    os.set_blocking(ours, True)
    text = screen.decode(errors="replace") + screen_of(ours)
    assert process.wait(timeout=60) == 130, text[-600:]
    assert "training dqn on PongNoFrameskip-v4, seed 0: at most 10,000,000 steps" in text
    assert "results/ has seed 0, with a best evaluation of 20.1" in text
    assert SPEED.search(screen), "no bar has moved"
    (spec,) = tmp_path.glob("runs/atari/dqn/PongNoFrameskip-v4/*/seed=0/spec.json")
    assert (spec.parent / "outcome.json").is_file(), "the state is saved"
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert "/runs/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines(), "git status stays clean"
