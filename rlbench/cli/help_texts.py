"""Help texts: the panels of options, and the examples at the end of every verb, each with its purpose.

The examples are in ``examples.txt``. A test parses every one of them, so that all names in them exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
from typer.core import TyperCommand

from rlbench.cli.output import prints_to_stderr

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter


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


def examples(verb: str) -> str:
    """The examples of a verb as the end of its help, which nothing wraps again."""
    lines = [f"  # {purpose}\n  {command}" if purpose else f"  {command}" for purpose, command in EXAMPLES[verb]]
    return "\n".join(["\b", "Examples:", *lines])


def command_group(verb: str, text: str) -> typer.Typer:
    """An application of plain help texts for the commands below ``verb``; its names are suggested by ``app.main``."""
    return typer.Typer(
        name=verb or "rlbench",
        help=text,
        epilog=examples(verb),
        suggest_commands=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


PANELS: Final = {
    "What to run": ("task", "package", "dataset", "seeds", "sets", "config"),
    "How long": ("steps", "until", "until_decided", "most_seeds", "smoke", "dry_run"),
    "Where": ("device", "jobs", "shard"),
    "Output": ("results", "force", "quiet", "json", "track"),
}
"""The panels in the help of ``run``, and their options; every other option is in a last panel."""


class Verb(TyperCommand):
    """A command whose results alone reach stdout."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the options; from then on what packages and environments print goes to stderr."""
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:  # of completion
            ctx.with_resource(prints_to_stderr())
        return rest


class PanelVerb(Verb):
    """A verb with help panels."""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the arguments, then each panel."""
        of = {option: panel for panel, options in PANELS.items() for option in options}
        panels: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", *PANELS, "Rarely used")}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                is_argument = parameter.param_type_name == "argument"
                panels["Arguments" if is_argument else of.get(parameter.name or "", "Rarely used")].append(record)
        for name, records in panels.items():
            with formatter.section(name):
                formatter.write_dl(records)
