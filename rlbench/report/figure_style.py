"""The settings of matplotlib that figures are drawn with; ``plots`` imports it without the current folder's file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from warnings import catch_warnings

from rlbench.config.names import printable
from rlbench.errors import RlbenchError, UnknownName, UsageError
from rlbench.report.reference_table import DATA

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Final = DATA / "plots.mplstyle"
MAX_PIXELS: Final = 100_000_000
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


@contextmanager
def styled(settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[None]:
    """Draw in matplotlib's defaults and the style of this package, which ``settings`` overrule.

    A user's ``matplotlibrc`` has no effect: figures are equal on every machine, and no text of a record runs TeX.

    Raises:
        UsageError: matplotlib cannot draw with ``settings``.
    """
    from matplotlib import style

    try:
        with style.context(["default", STYLE, dict(settings)]):
            yield
    except RlbenchError:
        raise
    except Exception as error:  # each setting raises its own
        if not settings:
            raise
        texts = " ".join(f"--rc {name}={value}" for name, value in settings.items())
        raise UsageError(f"{printable(texts, 200)}: {printable(str(error))}; choose another value") from error


def refuse_pixels(figure: Figure) -> None:
    """Refuse a figure whose pixels may take more than a gigabyte of memory.

    Raises:
        UsageError: it has more than ``MAX_PIXELS``.
    """
    from matplotlib import rcParams

    dpi = figure.dpi if rcParams["savefig.dpi"] == "figure" else rcParams["savefig.dpi"]
    width, height = (dpi * inches for inches in figure.get_size_inches())
    if not width * height <= MAX_PIXELS:
        size = f"{width:,.0f} × {height:,.0f} pixels, {MAX_PIXELS:,} are allowed"
        raise UsageError(f"--rc: the figure has {size}; lower figure.figsize, which is in inches, or savefig.dpi")


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
        UsageError: a setting does not take the value, or runs TeX.
    """
    from matplotlib import rcParams

    settings = dict(text.partition("=")[::2] for text in texts)
    for name, value in settings.items():
        if name not in rcParams:
            raise UnknownName("setting of matplotlib", name, list(rcParams), where="--rc")
        if name == "text.usetex":
            raise UsageError(f"--rc {name}: would run TeX on texts of other people's records; leave it out")
        with catch_warnings(record=True) as warnings, styled({name: value}):
            if name == "font.family":
                _check_fonts(rcParams["font.family"])
        if warnings:  # matplotlib ignores the setting
            raise UsageError(f"--rc {name}: {printable(str(warnings[0].message))}; leave it out")
    return settings


def _check_fonts(families: Sequence[str]) -> None:
    """Refuse a font that is not installed: matplotlib would warn once for each text of a figure."""
    from matplotlib import font_manager

    for family in families:
        try:
            font_manager.findfont(family, fallback_to_default=False)
        except ValueError:
            names = sorted({*font_manager.font_family_aliases, *font_manager.get_font_names()} - {family})
            raise UnknownName("font", family, names, where="--rc font.family") from None
