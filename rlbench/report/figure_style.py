"""The settings of matplotlib that figures are drawn with; ``plots`` imports it without the current folder's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rlbench.errors import UnknownName, UsageError
from rlbench.report.reference_table import DATA

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Final = DATA / "plots.mplstyle"
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


def styled(settings: Mapping[str, str] = NO_SETTINGS) -> AbstractContextManager[None]:
    """Draw in the style of this package, which ``settings`` overrule."""
    from matplotlib import style

    return style.context([STYLE, dict(settings)])


def empty_figure(width: float, height: float) -> Figure:
    """A figure of this size in inches, or of the one that the settings name."""
    from matplotlib import rcParams, rcParamsDefault
    from matplotlib.figure import Figure

    size = rcParams["figure.figsize"]
    size = (width, height) if size == rcParamsDefault["figure.figsize"] else size
    return Figure(figsize=size, layout="constrained")


def rc_settings(texts: Sequence[str]) -> dict[str, str]:
    """Settings of matplotlib from texts such as ``font.size=8``.

    Raises:
        UnknownName: matplotlib has no such setting.
        UsageError: a setting does not take the value.
    """
    from matplotlib import rcParams

    settings = dict(text.partition("=")[::2] for text in texts)
    for name, value in settings.items():
        if name not in rcParams:
            raise UnknownName("setting of matplotlib", name, list(rcParams), where="--rc")
        try:
            with styled({name: value}):
                pass
        except ValueError as error:
            raise UsageError(f"--rc {name}={value}: {' '.join(str(error).split())}") from None
    return settings
