"""``rlbench import``: learning curves of other programs become records, marked by their origin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rlbench.cli.options import Json, argument, option
from rlbench.cli.output import print_note, print_result
from rlbench.config.names import count_text
from rlbench.errors import UsageError, suggest

if TYPE_CHECKING:
    from rlbench.records.imported import ImportedCurve


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
            "--tag NAME",
            "The tag of TensorBoard, metric of W&B, agent of Dopamine or matrix of rliable; default: the usual one.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Import learning curves that other programs measured.

    CSV (columns task, seed, step, return; or a column per seed), JSON lines, Stable-Baselines3, CleanRL, W&B,
    TensorBoard, d3rlpy, Dopamine and rliable. The records name the file's SHA-256 and the parts of the protocol that
    it does not state. `rlbench table SUITE --results DIR` then shows them beside the references. They never count as
    runs of rlbench.
    """
    from rlbench.curves.curve_files import files_left_out
    from rlbench.curves.formats import ImportOptions, read_curves
    from rlbench.records.files import refuse_run_folder
    from rlbench.records.imported import curve_folder, write_curves

    refuse_run_folder(results, "--results")
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
    for folder in paths:
        if others := files_left_out(folder, options.format):
            files = f"{count_text(len(others), 'file')} of another kind, such as {others[0]}"
            print_note(f"{folder}: left out {files}; name them to import them")
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
    """One line per cell: its format, kind, seeds and last step."""
    cells: dict[str, list[ImportedCurve]] = {}
    for curve in curves:
        cells.setdefault(f"{curve.suite}/{curve.algorithm}/{curve.dataset or curve.task}", []).append(curve)
    return [
        f"{name}: {count_text(len(group), 'seed')} to step "
        f"{max(curve.steps[-1] for curve in group):,}, {group[0].kind} returns, read as {group[0].origin.format}"
        for name, group in cells.items()
    ]
