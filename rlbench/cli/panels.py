"""Help of many options in titled panels, in plain text, as wide as the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typer.core import TyperCommand

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter

WHAT: Final = "What to run"
LENGTH: Final = "How long"
WHERE: Final = "Where"
OUTPUT: Final = "Output"
RARE: Final = "Rarely used"


class PanelCommand(TyperCommand):
    """A verb whose options stand in the panels that they name, the rest last."""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the arguments, then each panel."""
        panels: dict[str, list[tuple[str, str]]] = {
            name: [] for name in ("Arguments", WHAT, LENGTH, WHERE, OUTPUT, RARE)
        }
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                usual = "Arguments" if parameter.param_type_name == "argument" else RARE
                panels.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(record)
        for name, records in panels.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)
