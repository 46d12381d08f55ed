"""The examples at the end of every verb's help, each with its purpose, from ``examples.txt``.

A test parses every one of them, so that all names in them exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final


def _examples(text: str) -> Iterator[tuple[str, str]]:
    purpose = ""
    for line in text.replace("\\\n", "\\").splitlines():
        if line.startswith("# "):
            purpose = line.removeprefix("# ")
        elif line:
            yield purpose, line.replace("\\", "\\\n")
            purpose = ""


_SECTIONS: Final = Path(__file__).with_name("examples.txt").read_text(encoding="utf-8").split("\n==")[1:]
EXAMPLES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    verb.strip(): tuple(_examples(text)) for verb, _, text in (section.partition("\n") for section in _SECTIONS)
}
"""Examples by verb; the empty verb is the command itself. An example without a purpose continues the one before."""

TYPICAL: Final = """\
rlbench run toy dqn Catch --seeds 0-2      train three seeds, a minute; the same command resumes
rlbench run atari dqn PongNoFrameskip-v4   train with the published settings
rlbench table mujoco                       published scores beside measured ones, with verdicts
rlbench plan mujoco --budget 2h            the runs that decide most verdicts in two hours
rlbench --help                             every verb; rlbench VERB --help explains one"""
"""The answer to ``rlbench`` alone."""


def of(verb: str) -> str:
    """The examples of a verb as the end of its help, which nothing wraps again."""
    lines = [f"  # {purpose}\n  {command}" if purpose else f"  {command}" for purpose, command in EXAMPLES[verb]]
    return "\n".join(["\b", "Examples:", *lines])
