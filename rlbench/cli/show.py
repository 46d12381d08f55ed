"""``rlbench show``: every setting of a run, the source of its value, and its meaning."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from rlbench.cli import completion
from rlbench.cli.options import (
    Algo,
    Config,
    Import,
    Json,
    Reference,
    References,
    Sets,
    Smoke,
    Steps,
    Suite,
    argument,
    option,
)
from rlbench.cli.output import print_result, terminal_width
from rlbench.report.columns import aligned, fits, sentences

if TYPE_CHECKING:
    from rlbench.cli.resolve import Resolved
    from rlbench.config.footprint import Footprint

LEGEND = (
    "default: rlbench's default value; suite table: the value for this algorithm and task; "
    "--documented shows the published scores"
)


def show(
    suite: Suite,
    algo: Algo,
    task: Annotated[str, argument("TASK", "A task id; see: rlbench list tasks", completion.tasks)],
    *,
    seed: Annotated[int | None, option("--seed N", "The seed of the run; default: 0.", least=0)] = None,
    sets: Sets = None,
    config: Config = None,
    steps: Steps = None,
    smoke: Smoke = False,
    documented: Annotated[
        bool, option("--documented", "Show what was published about it instead, every number with its source.")
    ] = False,
    package: Import = None,
    json: Json = False,
    references: References = None,
    reference: Reference = None,
) -> None:
    """Show every setting of a run, its source and its meaning.

    One `path = value` a line: the paths that --set takes. Below them the run's id and the memory it will take.
    """
    del references, reference  # their callbacks have selected them
    if documented:
        from rlbench.report.provenance import cells_of, provenance_document, provenance_text

        cells = cells_of(suite, algo, task)
        text = "\n".join(sentences(provenance_text(cells).split("\n"), terminal_width(), hang=11))
        print_result(provenance_document(cells), text, json=json)
        return
    from rlbench.cli.dataset_option import rows_of
    from rlbench.cli.resolve import resolve
    from rlbench.config.footprint import footprint
    from rlbench.suites.plugins import import_package

    resolved = resolve(
        suite,
        algo,
        task,
        seed=seed,
        sets=sets or (),
        config=config,
        steps=steps,
        smoke=smoke,
        environ=os.environ,
        package=import_package(package) if package else None,
    )
    memory = footprint(resolved.spec, steps=rows_of(None)(resolved.spec))
    print_result(_document(resolved, memory), _text(resolved, memory), json=json)


def _text(resolved: Resolved, memory: Footprint) -> str:
    """A line per setting; a terminal too narrow for the meanings has them below their settings."""
    from rlbench.config.overrides import written

    rows = [(f"{path} = {written(value)}", f"# {source}", text) for path, value, source, text in resolved.rows()]
    width = terminal_width()
    if width is None or fits([max(map(len, column)) for column in zip(*rows, strict=True)], width):
        lines = aligned(rows)
    else:
        settings = aligned([row[:2] for row in rows])
        lines = [
            line
            for line, row in zip(settings, rows, strict=True)
            for line in (line, *sentences([f"    {row[2]}"], width, hang=0))
        ]
    lines += ["", f"id {resolved.spec.id}", *sentences([memory.line(), LEGEND], width)]
    return "\n".join(lines)


def _document(resolved: Resolved, memory: Footprint) -> dict[str, object]:
    return {
        "id": resolved.spec.id,
        "fields": [dict(zip(("path", "value", "source", "meaning"), row, strict=True)) for row in resolved.rows()],
        "memory": {
            "replay": memory.replay,
            "networks": memory.networks,
            "environments": memory.emulators,
            "scratch": memory.scratch,
            "libraries": memory.base,
            "total": memory.total,
        },
    }
