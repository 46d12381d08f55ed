"""``rlbench export``: convert records for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlbench.cli.help_texts import Verb, command_group, examples
from rlbench.cli.options import Json, Records, argument, check_recorded_suite, check_results_folder, option
from rlbench.cli.output import print_error, print_left_out, print_note, print_result, refuse_same_file
from rlbench.config.names import count_text
from rlbench.errors import RefusedFile, UsageError

if TYPE_CHECKING:
    from rlbench.report.reference_table import CellKey
    from rlbench.report.run_index import Runs

SuiteNames = Annotated[list[str] | None, argument("[SUITE]…", "Only these suites; default: all.")]

export = command_group("export", "Records for other programs: csv, npz, tensorboard.")


@export.command("tensorboard", epilog=examples("export tensorboard"), cls=Verb)
def tensorboard(
    names: SuiteNames = None,
    *,
    output: Annotated[Path, option("--output DIR", "Folder for: tensorboard --logdir DIR.")],
    results: Records = None,
    json: Json = False,
) -> None:
    """Write the curves of runs for TensorBoard.

    Each run has a file, to which the same command adds new epochs. A damaged record is named and left out, and so
    is a record of results/ that an own run repeats.
    """
    from rlbench.cli.trackers import curves_in
    from rlbench.records.files import folders, refuse_run_folder, suite_of
    from rlbench.records.store import read_record
    from rlbench.report.evidence import evidence_of
    from rlbench.report.exports import events, update_file

    refuse_run_folder(output, "--output")
    check_results_folder(results)
    suites = [check_recorded_suite(name, results) for name in names or ()]
    places = [(place, folder) for place in evidence_of(results).folders for folder in folders(place)]
    longest: dict[Path, tuple[Path, Path, int]] = {}  # by file: the results, the run's folder and its epochs
    repeats, damaged = 0, False
    for place, folder in places:
        if suites and suite_of(folder) not in suites:
            continue
        try:
            record = read_record(folder)
        except RefusedFile as error:
            print_error(str(error))
            damaged = True
            continue
        path = curves_in(output, record.spec)
        first_place, _, epochs = longest.get(path, (place, folder, 0))
        repeats += epochs > 0
        if not epochs or (place == first_place and len(record.epochs) > epochs):  # of copies the longest, as in a table
            longest[path] = place, folder, len(record.epochs)
    rows = []
    for path, (_, folder, _) in longest.items():
        record = read_record(folder)
        new = update_file(path, events(record.epochs), append=True)
        rows.append({"folder": str(folder), "file": str(path), "epochs": len(record.epochs), "changed": new})
    count = sum(bool(row["changed"]) for row in rows)
    text = f"{output}: {count_text(len(rows), 'run')}, {count} with something new"
    print_result({"runs": rows}, text, json=json)
    if repeats:
        print_note(f"{count_text(repeats, 'run')} with the identity and seed of another: left out")
    if damaged:
        raise typer.Exit(RefusedFile.exit_code)


@export.command("csv", epilog=examples("export csv"), cls=Verb)
def to_csv(
    names: SuiteNames = None,
    *,
    output: Annotated[Path, option("--output FILE.csv", "The table to write.")],
    results: Records = None,
    json: Json = False,
) -> None:
    """Write the curves of a table's runs as one tidy table.

    One row an evaluation of the documented settings: suite, algo, task, dataset, seed, step, return, length, kind,
    origin. `rlbench import` reads it back.
    """
    from rlbench.report import exports

    cells = _cells(names, results)
    _save(output, *exports.curves_csv(cells), noun="curve", json=json)
    if failed := sum(len(runs.failed) for runs in cells.values()):
        print_note(f"{count_text(failed, 'failed run')}: tables score it as a random policy, an import does not")
    print_left_out(cells)


@export.command("npz", epilog=examples("export npz"), cls=Verb)
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
    print_left_out(cells, short="short of the budget")


def _cells(names: list[str] | None, results: Path | None) -> dict[CellKey, Runs]:
    from rlbench.report.evidence import evidence_of

    check_results_folder(results)
    suites = [check_recorded_suite(name, results) for name in names or ()]
    return {
        key: runs for key, runs in evidence_of(results).with_imported().items() if not suites or key.suite in suites
    }


def _save(output: Path, content: bytes, count: int, *, noun: str, json: bool) -> None:
    from rlbench.records.files import refuse_record_file
    from rlbench.report.exports import update_file

    refuse_record_file(output, "--output")
    refuse_same_file(output, "--output")
    if not count:
        raise UsageError(f"no {noun} to write to {output}; name a folder of records with --results, or other suites")
    new = update_file(output, content)
    text = f"{output}: {count} {noun if count == 1 else {'curve': 'curves', 'matrix': 'matrices'}[noun]}"
    print_result({"file": str(output), "count": count, "changed": new}, text, json=json)
