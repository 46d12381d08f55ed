"""Words that are no command: what was meant, and whose help says more."""

from __future__ import annotations

from typing import Final

import typer

from rlbench.errors import suggest

VERB: Final = "No such command "


def mistyped(error: typer.TyperException) -> str:
    """One line about words that cannot be parsed, with the nearest verbs or options that there are."""
    message, context = error.format_message().rstrip("."), getattr(error, "ctx", None)
    if context is None:
        return f"{message} (see: rlbench --help)"
    if hasattr(error, "possibilities"):  # it names an option that is unknown
        name = str(getattr(error, "option_name", ""))
        spoken = [option for option in context.command.get_params(context) if not getattr(option, "hidden", False)]
        known = [word for option in spoken for word in option.opts if word.startswith("--")]
        message = f"unknown option {name!r}{suggest(name, known)}"
    elif message.startswith(VERB):
        name = message.removeprefix(VERB)[1:-1]
        message = f"unknown verb {name!r}{suggest(name, context.command.commands)}"
    return f"{message} (see: {context.command_path} --help)"
