"""Terminals of 80 columns: no text is cut or too wide, and colors suit any background."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from io import StringIO
from pathlib import Path
from typing import get_args
from unittest.mock import Mock

import pytest

from rlbench.cli.app import main
from rlbench.cli.status import _cut
from rlbench.report.tables import STYLES
from rlbench.report.verdict import Word
from tests.commands import screen_of
from tests.conftest import Capture, Patch, RecordRun
from tests.laws.source import ROOT

NARROW = 80
QUIET = {"RLBENCH_DATASETS", "D4RL_DATASET_DIR", "MINARI_DATASETS_PATH", "NO_COLOR", "COLUMNS"}
LINES = [
    "status --state done", "plan mujoco ppo", "plan mujoco --budget 20h", "list runs", "list tasks", "list algos",
    "data list",
    "doctor toy",
    "show mujoco ppo Hopper-v4", "show mujoco ppo Hopper-v4 --documented", "check mujoco", "baseline show saved.json",
    "compare ppo a2c --suite mujoco", "compare results results", "verify", "run mujoco ppo --task Hopper-v4 --dry-run",
]  # fmt: skip
TABLES = ["table mujoco", "table toy", "table offline", "table all", "table atari"]


class Screen(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def some_records(record_run: RecordRun, monkeypatch: Patch) -> None:
    for name in QUIET:
        monkeypatch.delenv(name, raising=False)
    for seed in range(3):
        record_run([3521.5, 8000.0 + seed], seed=seed, suite="mujoco", algo="ppo", task="InvertedDoublePendulum-v4")
        record_run([52.5, 700.0 + seed], seed=seed, suite="mujoco", algo="a2c", task="InvertedDoublePendulum-v4")
    record_run([1.0], suite="atari", algo="qrdqn", task="SpaceInvadersNoFrameskip-v4", status="failed")
    record_run([0.5], suite="toy", algo="dqn", task="Catch", status=None)
    assert main(["baseline", "save", "saved.json"]) == 0


def output(line: str, capsys: Capture, monkeypatch: Patch, columns: int | None) -> str:
    """The stdout of a command: a terminal of so many columns, or a pipe."""
    capsys.readouterr()
    if columns is None:
        main(line.split())
        return re.sub(r"[0-9]", "9", capsys.readouterr().out)  # what is free of a disk changes meanwhile
    screen = Screen()
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setattr(sys, "stdout", screen)
        main(line.split())
    return re.sub(r"[0-9]", "9", screen.getvalue())


def words(text: str) -> set[str]:
    return set(text.replace("/", "/ ").replace("@", "@ ").split())


def too_wide(text: str) -> list[str]:
    """Lines of more columns than there are, but for single words, and commands that are to be copied."""
    return [
        line
        for line in text.split("\n")
        if len(line) > NARROW and len(line.split()) > 2 and not line.lstrip().startswith("`")
    ]


@pytest.mark.parametrize("line", LINES)
def test_output_fits_a_narrow_terminal_without_losing_words(line: str, capsys: Capture, monkeypatch: Patch) -> None:
    piped, screen = output(line, capsys, monkeypatch, None), output(line, capsys, monkeypatch, NARROW)
    assert piped.strip() and too_wide(screen) == []
    assert words(piped) <= words(screen)
    assert "\x1b" not in screen
    assert output(line, capsys, monkeypatch, 300).replace(" ", "").replace("\t", "") == piped.replace(" ", "").replace(
        "\t", ""
    )


@pytest.mark.parametrize(
    ("height", "columns", "rows", "rest"),
    [(12, 300, 8, ""), (11, 300, 6, "2 runs"), (8, 300, 3, "5 runs"), (8, 50, 1, "7 runs"), (18, 50, 4, "4 runs")],
)
def test_watched_runs_fit_the_height_of_a_terminal(
    height: int, columns: int, rows: int, rest: str, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("LINES", str(height))
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("time.sleep", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(sys, "stdout", screen := Screen())
    assert main(["status", "--watch", "--state", "done", "--state", "failed", "--state", "interrupted"]) == 0
    lines = re.sub(r"\x1b\[.", "", screen.getvalue()).split("\n")
    assert len(lines) <= height and lines[0].startswith("STATE") and lines[-2] == "1 failed, 6 done, 1 interrupted"
    assert sum(line.startswith(("done", "failed", "interrupted")) for line in lines) == rows
    assert lines[-3] == (rest and f"{rest} not shown: enlarge the terminal")


def test_watched_runs_leave_a_low_terminal_their_count(monkeypatch: Patch) -> None:
    for height in (1, 3, 5):
        assert _cut("STATE\nrow\nrow\nrow\n\n3 done", 300, height) == "3 done"


@pytest.mark.parametrize("line", TABLES)
def test_a_table_in_a_narrow_terminal_keeps_its_scores_and_verdicts(
    line: str, capsys: Capture, monkeypatch: Patch
) -> None:
    screen = re.sub(r"\x1b\[[9;]*m", "", output(line, capsys, monkeypatch, NARROW))
    assert too_wide(screen) == []
    rows = output(f"{line} --format csv", capsys, monkeypatch, None).splitlines()[1:]
    assert sum(screen.count(word) for word in ("NOT RUN", *({*STYLES} - {"NOT RUN"}))) >= len(rows)
    assert "…" not in screen


@pytest.mark.parametrize(
    ("line", "environ", "colours"),
    [
        ("table mujoco", {"TERM": "xterm-256color"}, {1, 2, 31}),
        ("table mujoco", {"TERM": "xterm-256color", "NO_COLOR": "1"}, {1, 2}),
        ("table mujoco", {"TERM": "dumb"}, set()),
        ("status --state done", {"TERM": "xterm-256color"}, set()),
    ],
)
def test_width_of_a_real_terminal_is_used(
    line: str, environ: dict[str, str], colours: set[int], tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, NARROW, 0, 0))
    rest = {name: value for name, value in os.environ.items() if name not in QUIET}
    process = subprocess.Popen(
        [sys.executable, "-m", "rlbench", *line.split()],
        cwd=tmp_path,
        env=rest | {"PYTHONPATH": str(ROOT)} | environ,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    with process:
        text = screen_of(ours)
    assert too_wide(re.sub(r"\x1b\[[0-9;]*m", "", text)) == [] and "InvertedDoublePendulum-v4" in text
    codes = {int(code) for part in re.findall(r"\x1b\[([0-9;]*)m", text) for code in part.split(";") if code}
    assert codes - {0} == colours  # of the terminal's own palette: no white, no black, nothing bright


def test_verdicts_differ_in_words_not_in_colours_alone() -> None:
    assert set(STYLES.values()) <= {"green", "cyan", "red", "yellow", "dim"}
    assert set(STYLES) == set(get_args(Word))
