"""Values of arguments and options, and the panels of options in help texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from typer.core import TyperCommand

from rlbench.errors import UsageError

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter

    from rlbench.config.run import Spec


Checkpoint: TypeAlias = Literal["best", "last"]
Executor: TypeAlias = Literal["local", "ray"]
TRACKERS: Final = ("tensorboard", "wandb")


def parse_count(text: str | int, option: str = "--steps") -> int:
    """Parse a number of steps: ``100000``, ``100_000``, ``1e5``, ``100k`` or ``1M``.

    Raises:
        UsageError: the text is no whole number of at least 1.
    """
    digits = str(text).replace("_", "").replace(",", "")
    unit = {"k": 1e3, "K": 1e3, "M": 1e6}.get(digits[-1:], 1.0)
    with suppress(ValueError, OverflowError):
        count = round(float(digits[:-1] if unit > 1 else digits) * unit, 6)
        if 1 <= count <= 1e15 and count.is_integer():
            return int(count)
    raise UsageError(f"{option} {text}: no whole number of steps; write it as 100000, 1e5, 100k or 1M")


PANELS: Final = {
    "What to run": ("task", "package", "dataset", "seeds", "sets", "config"),
    "How long": ("steps", "until", "until_decided", "most_seeds", "smoke", "dry_run"),
    "Where": ("device", "jobs", "shard"),
    "Output": ("results", "force", "quiet", "json", "track"),
}
"""The panels in the help of ``run``, and their options; every other option is in a last panel."""


class PanelCommand(TyperCommand):
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


MAX_SEED = 2**32 - 1
MAX_SEEDS = 10_000  # most seeds of one command; more are a typing error


def parse_seeds(text: str, source: str = "--seeds") -> tuple[int, ...]:
    """The seeds in the order they were written.

    Raises:
        UsageError: a part is not a number or a range, runs backwards, or names a seed twice.
    """
    seeds: dict[int, None] = {}
    for part in text.split(","):
        for seed in _range(part.strip(), f"{source} {text!r}"):
            if seed in seeds:
                raise UsageError(f"{source} {text!r}: seed {seed} is named twice; name each seed once")
            seeds[seed] = None
            if len(seeds) > MAX_SEEDS:
                raise UsageError(f"{source} {text!r}: more than {MAX_SEEDS} seeds; split them over several commands")
    return tuple(seeds)


def seeds_text(seeds: Sequence[int]) -> str:
    """Format rising seeds as ``parse_seeds`` reads them: ``0-4,7``."""
    groups = [[seed for _, seed in group] for _, group in groupby(enumerate(seeds), lambda pair: pair[1] - pair[0])]
    return ",".join(str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups)


def _range(part: str, where: str) -> range:
    match = re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", part)
    if match is None:
        raise UsageError(f"{where}: {part!r} is not a seed; write seeds as 0, 0-9, 0,3,7 or 0-2,7")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if last < first:
        raise UsageError(f"{where}: {part} runs backwards; write {last}-{first}")
    if last > MAX_SEED:
        raise UsageError(f"{where}: {last} is too large for a seed; the highest is {MAX_SEED}")
    return range(first, last + 1)


Until: TypeAlias = "Callable[[Spec], int]"
"""The steps at which a run of a Spec pauses."""


def parse_until(text: str) -> Until:
    """Parse ``--until``: ``100000``, ``10%`` or ``informative``.

    Raises:
        UsageError: ``text`` is none of them; the result raises it for a cell without an informative test step.
    """
    if text == "informative":
        return _informative
    share = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,4})?)%", text)
    if share is not None and 0 < float(share[1]) <= 100:
        return lambda spec: max(1, round(spec.budget.steps * float(share[1]) / 100))
    with suppress(UsageError):
        steps = parse_count(text)
        return lambda _: steps
    raise UsageError(f"--until {text}: not a number of steps; write 100000, 10% or informative")


def pauses(text: str | None, specs: Iterable[Spec]) -> Until | None:
    """Parse ``--until`` and check it for every Spec.

    Raises:
        UsageError: one of the Specs has no such pause.
    """
    until = None if text is None else parse_until(text)
    if until is not None:
        for spec in specs:
            until(spec)
    return until


def _informative(spec: Spec) -> int:
    from rlbench.report.equal_steps import reference_curve
    from rlbench.report.reference_table import cell_of

    curve = reference_curve(cell_of(spec))
    first = None if curve is None else curve.first_informative()
    if first is None:
        why = "has no documented curve" if curve is None else "has no informative test step in its documented curve"
        raise UsageError(f"--until informative: {spec.name} {why}; write a number of steps, or leave it out")
    return first
