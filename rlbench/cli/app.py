"""The command ``rlbench`` with its verbs; errors become a line and an exit code here."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import sleep
from typing import Annotated, Final, TypeAlias

import typer

from rlbench import __version__
from rlbench.cli.baseline import baseline
from rlbench.cli.check import check
from rlbench.cli.completion import mistyped
from rlbench.cli.data import data
from rlbench.cli.doctor import doctor
from rlbench.cli.eval import evaluate
from rlbench.cli.export import export
from rlbench.cli.help_texts import TYPICAL, PanelVerb, Verb, command_group, examples
from rlbench.cli.import_curves import import_curves
from rlbench.cli.list import listing
from rlbench.cli.options import option
from rlbench.cli.output import escaped, print_error, print_text, stdout_for_results, tolerate_narrow_encodings
from rlbench.cli.plan import plan
from rlbench.cli.report import plot, report
from rlbench.cli.run import run
from rlbench.cli.show import show
from rlbench.cli.status import status
from rlbench.cli.table import compare, table
from rlbench.cli.verify import verify
from rlbench.config.names import printable
from rlbench.errors import Interrupted, ResourceExhausted, RlbenchError, UsageError
from rlbench.signals import INTERRUPTIONS, Terminated, interruption_behind

Handler: TypeAlias = Callable[[int, object], None] | signal.Handlers

INTERNAL = 1

app = command_group(
    "",
    """Measure published scores of deep reinforcement learning anew.

    `run` trains an algorithm on a task with its documented settings, and `table` says whether the published score was
    reproduced. `rlbench VERB --help` explains a verb. After --install-completion, Tab completes verbs, options and
    names in a new shell; in a checkout, put its folder scripts on your PATH first.
    """,
)
app.command("run", epilog=examples("run"), cls=PanelVerb, context_settings={"max_content_width": 100})(run)
VERBS: Final[dict[str, Callable[..., None]]] = {
    "table": table, "plan": plan, "report": report, "plot": plot, "eval": evaluate, "compare": compare,
    "import": import_curves, "check": check, "baseline": baseline, "list": listing, "show": show, "status": status,
    "verify": verify, "doctor": doctor,
}  # fmt: skip
for name, command in VERBS.items():
    app.command(name, epilog=examples(name), cls=Verb)(command)
app.add_typer(data)
app.add_typer(export)


NO_MEMORY: Final = ("failed to map segment", "cannot allocate memory", "can't start new thread")
"""Messages of the dynamic loader and of threads when memory is exhausted."""

MAX_REASON_LENGTH: Final = 200
NO_HOME: Final = "Could not determine home directory"  # of an unknown user

REFUSED_PATH: Final = (
    *(errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP),
    *(errno.EIO, errno.EEXIST, errno.EROFS),
)
"""Errors of the system about a path that the user gave."""


TERMINATING: Final = (signal.SIGTERM, signal.SIGHUP)  # a closed terminal sends SIGHUP
CALLBACK_SECONDS: Final = 0.01  # time for a callback of Python to end
EXIT_SECONDS: Final = 60.0  # time for threads and exit handlers of plug-ins and libraries, such as W&B's, to end
SIGNAL_EXIT_SECONDS: Final = 10.0  # the same after a signal, which promises an end within 30 seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; every error is one line on stderr."""
    tolerate_narrow_encodings()
    before, sys.unraisablehook = sys.unraisablehook, partial(_raise_ignored, sys.unraisablehook)
    code = INTERNAL  # of shell completion, which leaves by SystemExit; shells do not read it
    try:
        with stdout_for_results(ends=arguments is None):
            code = _main(arguments)
    finally:
        sys.unraisablehook = before
        _replace_handlers(_terminate, signal.SIG_DFL)  # Python's exit would print the traceback
        if arguments is None:
            if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C
            with suppress(RuntimeError):  # the machine allows no further thread
                threading.Thread(target=_end_stuck_exit, args=(code,), daemon=True).start()
    return code


def _end_stuck_exit(code: int) -> None:
    """End the process and its children where a thread or an exit handler would keep it for ever."""
    seconds = EXIT_SECONDS if code < 128 else SIGNAL_EXIT_SECONDS
    sleep(seconds)
    names = [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    culprit = ", ".join(names) or "an exit handler"
    message = f"{culprit} of a plug-in or library has not ended within {seconds:.0f} s; the process ends without it"
    note = threading.Thread(target=print_error, args=(message,), daemon=True)  # nobody may read stderr
    note.start()
    note.join(1.0)
    try:
        import psutil

        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it has ended by itself
                child.terminate()
    finally:
        os._exit(code)


def _main(arguments: Sequence[str] | None) -> int:
    os.environ["PYTHONSAFEPATH"] = "1"  # libraries start children too, which would import from the current folder
    for name in ("MPLBACKEND", "SOURCE_DATE_EPOCH"):  # figures need neither; matplotlib fails on invalid ones
        os.environ.pop(name, None)
    if threading.current_thread() is threading.main_thread():
        _replace_handlers(signal.SIG_DFL, _terminate)
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    if arguments is None and not debug:
        warnings.showwarning = lambda *_, **__: None  # they quote texts of files, and an error is one line
    try:
        _refuse_empty(words)
        os.environ.update({n: _expand_home(text) for n, text in os.environ.items() if n.startswith("RLBENCH_")})
        code = _run_command([_expand_home(word) for word in words if word != "--debug"])
    except typer.TyperException as error:
        print_error(mistyped(error))
        return error.exit_code
    except RlbenchError as error:
        _trace(debug=debug)
        print_error(str(error))
        return error.exit_code
    except INTERRUPTIONS as end:
        _replace_handlers(_terminate, signal.SIG_IGN)  # `timeout` sends two
        print_error("stopped")
        return end.exit_code if isinstance(end, Terminated) else 128 + signal.SIGINT
    except typer.Abort:
        print_error("stopped")
        return INTERNAL
    except Exception as error:  # noqa: BLE001 - the last line of defence: even a bug is one line and a code
        _trace(debug=debug)
        return _unforeseen(error, debug=debug)
    return code if isinstance(code, int) else 0


def _run_command(words: list[str]) -> object:
    """Run the command; raise the interruption behind an error."""
    try:
        return typer.main.get_command(app).main(words, prog_name="rlbench", standalone_mode=False)
    except ResourceExhausted:
        raise  # such as a full disk while the interruption ends the command
    except Exception as error:
        if (interruption := interruption_behind(error)) is None:
            raise
        raise interruption from None


def _expand_home(word: str) -> str:
    """Expand the ``~`` of a path where no shell does: behind ``--results=``, in quotes, in a variable of a service."""
    match = re.fullmatch(r"(|--[\w-]+=)(~(?:/.*)?)", word, re.DOTALL)
    return f"{match[1]}{Path(match[2]).expanduser()}" if match else word


def _refuse_empty(words: Sequence[str]) -> None:
    """Refuse an empty word, as an unset variable of a shell leaves it: a path would be the current folder."""
    for before, word in pairwise(["rlbench", *words]):
        if not word or (word.startswith("--") and word.endswith("=")):
            raise UsageError(f"{word or before}: the name after it is empty; write one")


@app.callback(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
def top(
    context: typer.Context,
    *,
    version: Annotated[bool, option("--version", "Print the version and stop.")] = False,
    debug: Annotated[bool, option("--debug", "Show the traceback of an error; anywhere on the line.")] = False,
) -> None:
    """Print the version, or typical commands where no verb is given."""
    del debug  # ``main`` has taken it from the arguments; it is here for --help
    if version:
        print_text(f"rlbench {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print_text(TYPICAL)
        raise typer.Exit(2)


def _replace_handlers(old: Handler, new: Handler) -> None:
    for number in TERMINATING:
        if signal.getsignal(number) == old:
            signal.signal(number, new)


def _terminate(number: int, _frame: object) -> None:
    """Raise, so that half-written files are removed, as after Ctrl-C; a closed terminal may send both signals."""
    _replace_handlers(_terminate, signal.SIG_IGN)
    raise Terminated(128 + number)


def _raise_ignored(hook: Callable[[sys.UnraisableHookArgs], object], unraisable: sys.UnraisableHookArgs) -> None:
    """Raise an interruption again that Python ignores within a callback, such as of a weak reference."""
    interruption = unraisable.exc_value
    if not isinstance(interruption, (*INTERRUPTIONS, Interrupted)):
        hook(unraisable)
        return

    def raise_interruption(*_: object) -> None:
        signal.signal(signal.SIGALRM, former)
        raise interruption

    former = signal.signal(signal.SIGALRM, raise_interruption)
    signal.setitimer(signal.ITIMER_REAL, CALLBACK_SECONDS)


def _unforeseen(error: Exception, *, debug: bool) -> int:
    if isinstance(error, OSError) and error.errno in REFUSED_PATH:
        print_error(
            f"{printable(str(error.filename or 'a file'))}: {error.strerror}; check the path and its permissions"
        )
    elif isinstance(error, MemoryError) or any(word in str(error).lower() for word in NO_MEMORY):
        print_error(f"memory is exhausted ({error!r}); free some, or raise `ulimit -v`, and run the same command again")
        return ResourceExhausted.exit_code
    elif (limit := os.strerror(errno.EMFILE)) in str(error):
        print_error(f"{limit}: raise `ulimit -n`, and run the same command again")
    elif (no_space := os.strerror(errno.ENOSPC)) in str(error):
        print_error(f"{no_space}: free some space, and run the same command again")
        return ResourceExhausted.exit_code
    elif NO_HOME in str(error):
        print_error(f"{NO_HOME}; set HOME, or write a path that begins with ~ in full")
    elif isinstance(error, KeyError | ValueError) and "_RLBENCH_COMPLETE" in os.environ:
        print_error(f"_RLBENCH_COMPLETE is set without the variables of a shell's completion ({error}); unset it")
    elif (library := _library_of(error)) is not None:
        reason = printable(" ".join(str(error).split()), MAX_REASON_LENGTH)
        print_error(f"{library} cannot be imported ({reason}); check its environment variables and its installation")
    else:
        hint = "report it with the traceback above" if debug else "run it again with --debug and report what it prints"
        print_error(f"internal error: {type(error).__name__}: {error}; this is a bug, please {hint}")
        return INTERNAL
    return UsageError.exit_code


def _library_of(error: Exception) -> str | None:
    """The library whose import has raised the error, as for an invalid environment variable; None of other errors."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "<module>"]
    name = str(frames[-1].f_globals.get("__name__", "rlbench")).partition(".")[0] if frames else "rlbench"
    return None if name in {"rlbench", "__main__"} else name


def _trace(*, debug: bool) -> None:
    if debug:
        typer.echo(escaped(traceback.format_exc()), err=True)
