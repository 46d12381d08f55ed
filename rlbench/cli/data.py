"""``rlbench data``: the verbs of data sets."""

from __future__ import annotations

import typer

from rlbench.cli.generate import generate

data = typer.Typer(name="data", no_args_is_help=True, help="Data sets: made, and looked at.", rich_markup_mode=None)
data.callback()(lambda: None)
data.command("generate")(generate)
