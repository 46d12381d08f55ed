"""``rlbench export``: convert records for other programs; ``rlbench import``: their curves become marked records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlbench.cli.help_texts import command_group, examples
from rlbench.cli.options import Json, Records, argument, check_suite, option
from rlbench.cli.output import print_error, print_note, print_result
from rlbench.config.names import count_text
from rlbench.errors import RefusedFile, UsageError, suggest

if TYPE_CHECKING:
    from rlbench.records.imported import ImportedCurve
    from rlbench.report.reference_table import CellKey
    from rlbench.report.run_index import Runs


SuiteNames = Annotated[list[str] | None, argument("[SUITE]…", "Only these suites; default: all.")]

export = command_group("export", "Records for other programs: csv, npz, tensorboard.")


@export.command("tensorboard", epilog=examples("export tensorboard"))
def tensorboard(
    names: SuiteNames = None,
    *,
    output: Annotated[Path, option("--output DIR", "Folder for: tensorboard --logdir DIR.")],
    results: Records = None,
    json: Json = False,
) -> None:
    """Write the curves of runs for TensorBoard.

    Each run has a file, to which the same command adds new epochs. A damaged record is named and left out.
    """
    from rlbench.cli.trackers import curves_in
    from rlbench.records.files import folders
    from rlbench.records.store import read_record
    from rlbench.report.exports import events, update_file
    from rlbench.report.sources import sources

    suites = [check_suite(name) for name in names or ()]
    places = [(folder, folder.relative_to(place)) for place in sources(results).folders for folder in folders(place)]
    rows: list[dict[str, object]] = []
    damaged = False
    for folder in (folder for folder, inside in places if not suites or inside.parts[0] in suites):
        try:
            record = read_record(folder)
        except RefusedFile as error:
            print_error(str(error))
            damaged = True
            continue
        path = curves_in(output, record.spec)
        new = update_file(path, events(record.epochs), append=True)
        rows.append({"folder": str(folder), "file": str(path), "epochs": len(record.epochs), "changed": new})
    count = sum(bool(row["changed"]) for row in rows)
    text = f"{output}: {count_text(len(rows), 'run')}, {count} with something new"
    print_result({"runs": rows}, text, json=json)
    if damaged:
        raise typer.Exit(RefusedFile.exit_code)


@export.command("csv", epilog=examples("export csv"))
def to_csv(
    names: SuiteNames = None,
    *,
    output: Annotated[Path, option("--output FILE.csv", "The table to write.")],
    results: Records = None,
    json: Json = False,
) -> None:
    """Write every measured curve as one tidy table.

    One row an evaluation: suite, algo, task, dataset, seed, step, return, length, kind, origin. `rlbench import` reads
    it back.
    """
    from rlbench.report import exports

    cells = _cells(names, results)
    _save(output, *exports.curves_csv(cells), noun="curve", json=json)
    if failed := sum(len(runs.failed) for runs in cells.values()):
        print_note(f"{count_text(failed, 'failed run')}: tables score it as a random policy, an import does not")


@export.command("npz", epilog=examples("export npz"))
def to_npz(
    names: SuiteNames = None,
    *,
    output: Annotated[Path, option("--output FILE.npz", "The arrays to write.")],
    results: Records = None,
    json: Json = False,
) -> None:
    """Write final scores as the matrices that rliable takes.

    SUITE/ALGO holds raw scores [seeds, tasks], SUITE/tasks the names of the columns, SUITE/ALGO/seeds the rows' seeds.
    A seed that a task lacks is NaN. `rlbench import` reads it back.
    """
    from rlbench.report import exports

    cells = _cells(names, results)
    _save(output, *exports.to_npz(cells), noun="matrix", json=json)
    if short := sum(len(runs.short) for runs in cells.values()):
        print_note(f"{count_text(short, 'run')} short of the budget: no score in it")


def _cells(names: list[str] | None, results: Path | None) -> dict[CellKey, Runs]:
    from rlbench.report.sources import sources

    suites = [check_suite(name) for name in names or ()]
    return {key: runs for key, runs in sources(results).with_imported().items() if not suites or key.suite in suites}


def _save(output: Path, content: bytes, count: int, *, noun: str, json: bool) -> None:
    from rlbench.records.files import refuse_record_file
    from rlbench.report.exports import update_file

    refuse_record_file(output, "--output")
    new = update_file(output, content)
    text = f"{output}: {count} {noun if count == 1 else {'curve': 'curves', 'matrix': 'matrices'}[noun]}"
    print_result({"file": str(output), "count": count, "changed": new}, text, json=json)


def import_curves(
    paths: Annotated[list[Path], argument("FILE|DIR…", "Files of curves, or folders of them.")],
    *,
    results: Annotated[Path, option("--results DIR", "Write the records to this folder.")],
    cell: Annotated[
        str | None,
        option(
            "--as SUITE/ALGO",
            "The row of a table that the curves belong to; default: columns suite and algo of the file.",
        ),
    ] = None,
    task: Annotated[str | None, option("--task TASK", "The task of every curve; default: the file's.")] = None,
    style: Annotated[
        Literal["auto", "csv", "sb3", "cleanrl", "wandb", "tensorboard", "d3rlpy", "dopamine", "rliable", "jsonl"],
        option("--format NAME", "Format of the files, such as csv; auto: recognise it."),
    ] = "auto",
    kind: Annotated[
        Literal["training", "evaluation"] | None,
        option("--kind", "The kind of the returns; default: as the format says, else evaluation."),
    ] = None,
    steps_are: Annotated[
        Literal["frames", "decisions"] | None,
        option("--steps-are", "The unit of the steps; four Atari frames are one decision. Default: decisions."),
    ] = None,
    tag: Annotated[
        str | None,
        option(
            "--tag NAME", "The tag of TensorBoard, metric of W&B or agent of Dopamine to take; default: the usual one."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Import learning curves that other programs measured.

    CSV (columns task, seed, step, return; or a column a seed), JSON lines, Stable-Baselines3, CleanRL, W&B,
    TensorBoard, d3rlpy, Dopamine and rliable. The records name the file's SHA-256 and the parts of the protocol that
    it does not state. `rlbench table SUITE --results DIR` then shows them beside the references. They never count as
    runs of rlbench.
    """
    from rlbench.curves.formats import ImportOptions, read_curves
    from rlbench.records.imported import curve_folder, write_curves

    suite, _, algorithm = (cell or "").partition("/")
    if cell is not None and (not suite or not algorithm or "/" in algorithm):
        raise UsageError(f"--as {cell}: is no row of a table; say SUITE/ALGO, such as mujoco/sac")
    options = ImportOptions(
        suite=suite,
        algorithm=algorithm,
        task=task,
        format=None if style == "auto" else style,
        kind=kind,
        unit=steps_are,
        tag=tag,
    )
    curves = read_curves(paths, options)
    _note_unknown({(curve.suite, curve.algorithm) for curve in curves})
    written_anew = write_curves(curves, results)
    rows = [
        {"folder": str(curve_folder(curve, results)), "changed": new, **_document(curve)}
        for curve, new in zip(curves, written_anew, strict=True)
    ]
    lines = [*_lines(curves), f"{results}: {count_text(len(curves), 'curve')}, {sum(written_anew)} new"]
    print_result({"curves": rows}, "\n".join(lines), json=json)


def _note_unknown(cells: set[tuple[str, str]]) -> None:
    """Remark on stderr that no reference has an algorithm, which may be mistyped."""
    from rlbench import suites

    for suite, algorithm in sorted(cells):
        names = suites.algorithms(suite)
        if algorithm not in names:
            print_note(
                f"{suite} has no algorithm {algorithm!r}, so no reference is compared{suggest(algorithm, names)}"
            )


def _document(curve: ImportedCurve) -> dict[str, object]:
    names = {name: getattr(curve, name) or None for name in ("suite", "algorithm", "task", "dataset")}
    return {
        **names,
        "seed": curve.seed,
        "kind": curve.kind,
        "points": len(curve.steps),
        "last_step": curve.steps[-1],
        "format": curve.origin.format,
        "sha256": curve.origin.sha256,
        "unknown": list(curve.origin.unknown),
    }


def _lines(curves: list[ImportedCurve]) -> list[str]:
    """One line a cell: its format, kind, seeds and last step."""
    cells: dict[str, list[ImportedCurve]] = {}
    for curve in curves:
        cells.setdefault(f"{curve.suite}/{curve.algorithm}/{curve.dataset or curve.task}", []).append(curve)
    return [
        f"{name}: {count_text(len(group), 'seed')} to step "
        f"{max(curve.steps[-1] for curve in group):,}, {group[0].kind} returns, read as {group[0].origin.format}"
        for name, group in cells.items()
    ]
