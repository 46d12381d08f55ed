"""``rlbench verify``: whether every byte of every record is as it was written, and whether a run can be repeated."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from rlbench.cli import completion
from rlbench.cli.options import ENV_TIMEOUT, EnvTimeout, Import, Json, argument, option, typed_options
from rlbench.cli.output import one_line, print_result
from rlbench.config.names import count_text
from rlbench.errors import BelowReference, RefusedFile, UsageError


def verify(
    context: typer.Context,
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
        int | None, option("--epochs N", "Replay up to epoch N; default: the first with a gradient step.", least=0)
    ] = None,
    dataset: Annotated[
        Path | None,
        option("--dataset PATH", "Recorded experience for --replay; default: the data set that the run names."),
    ] = None,
    package: Import = None,
    env_timeout: EnvTimeout = ENV_TIMEOUT,
    json: Json = False,
) -> None:
    """Check that every record is, byte for byte, as written.

    It checks checksums and schemas of every record, checkpoint and baseline.json. Each fault is a line: where, what,
    what to do; the exit code is then 2. Checksums protect against accidents, not against forgery: --replay trains
    again, with the recorded spec, seed, threads and engine, and exits with 3 where an epoch differs.
    """
    from rlbench.report.evidence import evidence_of

    folder = folder or next((place for place in evidence_of(None).folders if place.is_dir()), evidence_of(None).own)
    if replay:
        from rlbench.cli.replay import replay as train_again

        document, text = train_again(folder, epochs, dataset, package, env_timeout)
        print_result(document, text, json=json)
        if not document["equal"]:
            raise typer.Exit(BelowReference.exit_code)
        return
    if of_replay := typed_options(context, "epochs", "dataset", "package", "env_timeout"):
        raise UsageError(f"{' and '.join(of_replay)}: belongs to --replay; give both")
    from rlbench.report.integrity import verify_records

    findings = verify_records(folder)
    if not findings.runs and not findings.baselines:
        if (run := folder.resolve().parent / "spec.json").is_file():
            command = f"rlbench verify {quote(str(run.parent))}"
            raise UsageError(f"{folder}: an attempt is verified with its run; type: {command}")
        raise UsageError(f"{folder}: holds no records; name a folder of records")
    counts = {"runs": findings.runs, "epochs": findings.epochs, "checkpoints": findings.checkpoints}
    faults = [fault._asdict() for fault in findings.faults]
    document = {"folder": str(folder), **counts, "baselines": findings.baselines, "faults": faults}
    totals = [count_text(getattr(findings, f"{noun}s"), noun) for noun in ("run", "epoch", "checkpoint", "baseline")]
    summary = f"{', '.join(totals)}: {count_text(len(faults), 'fault') if faults else 'no fault'}"
    print_result(document, "\n".join([*(one_line(fault.line) for fault in findings.faults), summary]), json=json)
    if findings.faults:
        raise typer.Exit(RefusedFile.exit_code)
