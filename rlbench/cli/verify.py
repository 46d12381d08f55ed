"""``rlbench verify``: whether every byte of every record is as it was written, and whether a run can be repeated."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlbench.cli import completion
from rlbench.cli.options import Json, argument, option
from rlbench.cli.output import print_result
from rlbench.config.names import count_text
from rlbench.errors import BelowReference, RefusedFile, UsageError

if TYPE_CHECKING:
    from rlbench.report.integrity import Findings


def verify(
    folder: Annotated[
        Path | None,
        argument(
            "[DIR]",
            "A folder of records, or one run's folder; default: runs/, else the records of the checkout.",
            completion.runs,
            env="RLBENCH_RESULTS",
        ),
    ] = None,
    *,
    replay: Annotated[
        bool, option("--replay", "Train the first epochs of one run again and compare them to the bit.")
    ] = False,
    epochs: Annotated[
        int | None, option("--epochs N", "Replay up to epoch N; default: the first that has learned.", least=0)
    ] = None,
    dataset: Annotated[
        Path | None,
        option("--dataset PATH", "Recorded experience for --replay; default: the data set that the run names."),
    ] = None,
    json: Json = False,
) -> None:
    """Check that every record is, byte for byte, as written.

    Checksums and schemas of every record, checkpoint and baseline. Each fault is one line: where, what, and what to do;
    any makes the exit code 2. Checksums protect against accidents, not against forgery: --replay trains again, with
    the recorded spec, seed, threads and engine, and exits with 3 where an epoch differs.
    """
    from rlbench.report.sources import sources

    folder = folder or next((place for place in sources(None).folders if place.is_dir()), sources(None).own)
    if replay:
        _replay(folder, epochs, dataset, json=json)
        return
    if epochs is not None or dataset is not None:
        raise UsageError(f"{'--epochs' if dataset is None else '--dataset'}: belongs to --replay; give both")
    from rlbench.report.integrity import verify_records

    findings = verify_records(folder)
    if not findings.runs and not findings.baselines:
        raise UsageError(f"{folder}: holds no records; name a folder of records")
    counts = {"runs": findings.runs, "epochs": findings.epochs, "checkpoints": findings.checkpoints}
    faults = [fault._asdict() for fault in findings.faults]
    document = {"folder": str(folder), **counts, "baselines": findings.baselines, "faults": faults}
    print_result(document, "\n".join([*(fault.line for fault in findings.faults), _summary(findings)]), json=json)
    if findings.faults:
        raise typer.Exit(RefusedFile.exit_code)


def _replay(folder: Path, epochs: int | None, dataset: Path | None, *, json: bool) -> None:
    from rlbench.cli.replay import replay

    with redirect_stdout(sys.stderr):  # environments may print
        document, text = replay(folder, epochs, dataset)
    print_result(document, text, json=json)
    if not document["equal"]:
        raise typer.Exit(BelowReference.exit_code)


def _summary(findings: Findings) -> str:
    """``37 runs, 512 epochs, 2 checkpoints, 1 baseline: no fault``."""
    nouns = ("run", "epoch", "checkpoint", "baseline")
    totals = ", ".join(count_text(getattr(findings, f"{noun}s"), noun) for noun in nouns)
    faults = len(findings.faults)
    return f"{totals}: " + ("no fault" if not faults else count_text(faults, "fault"))
