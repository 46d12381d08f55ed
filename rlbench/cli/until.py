"""``--until``: the steps at which a run pauses; no part of its Spec, so the same command resumes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from rlbench.cli.choices import parse_count
from rlbench.errors import UsageError

if TYPE_CHECKING:
    from rlbench.config.run import Spec

Until: TypeAlias = "Callable[[Spec], int]"
"""The steps at which a run of a Spec pauses."""


def parse_until(text: str) -> Until:
    """The pause that ``100000``, ``10%`` or ``informative`` means for a Spec.

    Raises:
        UsageError: ``text`` is none of them; or, from the result, the cell has no informative checkpoint.
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
    """The pause that ``text`` means, if any.

    Raises:
        UsageError: it means none for one of the Specs, so that nothing has started yet.
    """
    until = None if text is None else parse_until(text)
    if until is not None:
        for spec in specs:
            until(spec)
    return until


def _informative(spec: Spec) -> int:
    from rlbench.report.equal_steps import reference_curve
    from rlbench.report.reference_table import CellKey, row_of

    key = CellKey(spec.suite, spec.algorithm, *row_of(spec.suite, spec.task.id, ""))
    curve = reference_curve(key)
    first = None if curve is None else curve.first_informative()
    if first is None:
        why = "has no documented curve" if curve is None else "has no informative checkpoint in its documented curve"
        raise UsageError(f"--until informative: {spec.name} {why}; write a number of steps, or leave it out")
    return first
