"""``rlbench eval``: evaluate a run's policy again, and record a video of its first episode."""

from __future__ import annotations

from contextlib import nullcontext
from math import inf
from pathlib import Path
from statistics import fmean, pstdev
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlbench.cli import completion
from rlbench.cli.options import (
    ENV_TIMEOUT,
    Checkpoint,
    EnvTimeout,
    Import,
    Json,
    Records,
    Run,
    argument,
    option,
    run_folder,
    typed_options,
)
from rlbench.cli.output import print_note, print_result
from rlbench.config.names import count_text, number_text
from rlbench.errors import BelowReference, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rlbench.collectors.evaluate import Evaluation
    from rlbench.config.run import Spec
    from rlbench.ops.state_dict import State
    from rlbench.records.store import Record
    from rlbench.records.types import Evaluated

INTERVAL = 5.0  # seconds between two messages of progress


def evaluate(
    context: typer.Context,
    run: Run,
    task: Annotated[
        str | None, argument("[TASK]", "With --policy, RUN is the suite and this the task; default: none.")
    ] = None,
    *,
    policy: Annotated[
        Path | None,
        option(
            "--policy FILE",
            "Play the policy of another program: eval --policy FILE --format FORMAT SUITE TASK; default: RUN's.",
        ),
    ] = None,
    form: Annotated[
        Literal["sb3", "torchscript", "onnx"] | None,
        option(
            "--format",
            "Format of FILE: a zip of Stable-Baselines3, or a model of observations to actions; default: none.",
        ),
    ] = None,
    algo: Annotated[
        str | None,
        option(
            "--algo NAME", "Compare FILE with the published score of this algorithm; default: the one named in a zip."
        ),
    ] = None,
    package: Import = None,
    episodes: Annotated[
        int | None, option("--episodes N", "Play N whole episodes; default: as many as the protocol.", least=1)
    ] = None,
    checkpoint: Annotated[Checkpoint, option("--checkpoint", "Play the best policy, or the last.")] = "best",
    seed: Annotated[int | None, option("--seed N", "Seed of the episodes; default: 0.", least=0)] = None,
    replay_recorded: Annotated[
        bool,
        option("--replay-recorded", "Play the episodes of the recorded evaluation again, and compare the returns."),
    ] = False,
    video: Annotated[
        Path | None, option("--video FILE.gif|.mp4", "Record a video of the first episode; default: no video.")
    ] = None,
    device: Annotated[
        str, option("--device cpu|cuda|cuda:N", "Device of RUN's network.", completion.devices, env="RLBENCH_DEVICE")
    ] = "cpu",
    env_timeout: EnvTimeout = ENV_TIMEOUT,
    results: Records = None,
    json: Json = False,
) -> None:
    """Play the policy of a run, by the protocol of its evaluations.

    It plays whole episodes in the same environments, and reports unclipped returns; the run's folder is not changed. A
    video of MuJoCo needs OpenGL (MUJOCO_GL=egl, osmesa or glfw). A GIF is held in memory until it ends; prefer MP4 for
    a long video.
    """
    from rlbench.cli import video_writer
    from rlbench.cli.inline import watched
    from rlbench.cli.replay import record_at, recorded_variables
    from rlbench.records.store import read_record
    from rlbench.suites.plugins import import_for_run

    if policy is not None:
        from rlbench.cli.eval_policy import evaluate_policy

        if of_run := typed_options(context, "video", "replay_recorded", "checkpoint", "device", "results"):
            raise UsageError(f"--policy {policy}: plays no run; leave {' and '.join(of_run)} out")
        with watched(str(policy), env_timeout):
            evaluate_policy(policy, form, run, task, algo, package, episodes, seed or 0, json=json)
        return
    if (task, form, algo) != (None, None, None):
        raise UsageError("TASK, --format and --algo belong to a policy of another program; name it with --policy FILE")
    if replay_recorded and (episodes, seed) != (None, None):
        raise UsageError("--replay-recorded plays the recorded episodes; leave --episodes and --seed out")
    program = None if video is None else video_writer.refusal_of(video)
    folder = run_folder(run, results)
    record = read_record(folder)
    import_for_run(package, record.spec.task)
    place, other = folder / "checkpoint", "best" if checkpoint == "last" else "last"
    if not (place / checkpoint).is_dir() and (place / other).is_dir():  # the reader refuses a run without both
        raise UsageError(f"{place / checkpoint}: no such checkpoint; there is --checkpoint {other}")
    eval_seed = None if replay_recorded else seed or 0
    if replay_recorded:
        record = record_at(record, _epoch(record, checkpoint))
    variables = recorded_variables(record) if replay_recorded else nullcontext()
    with variables, watched(str(folder), env_timeout):
        document, text = _evaluate(record, checkpoint, episodes, eval_seed, device, video, program)
    print_result(document, text, json=json)
    if document["same"] is False:
        raise typer.Exit(BelowReference.exit_code)


def _evaluate(
    record: Record,
    checkpoint: Checkpoint,
    episodes: int | None,
    eval_seed: int | None,
    device: str,
    video: Path | None,
    program: str | None,
) -> tuple[dict[str, object], str]:
    """Play the episodes of a saved policy; return the result for scripts and as text.

    ``eval_seed`` is the seed of new episodes, None: the recorded ones again. ``program`` writes the video.
    """
    from rlbench.assembly.restore import restore_evaluation
    from rlbench.cli.dataset_option import reference_score, run_document
    from rlbench.cli.eval_policy import check_evaluation_memory, reference_document, with_episodes
    from rlbench.cli.replay import machine_changes, recorded_threads
    from rlbench.config.run import Runtime
    from rlbench.report.reference_scores import primary
    from rlbench.seeds import Seeds

    spec, state, epoch, original = _policy(record, checkpoint)
    if eval_seed is None and original is None:
        raise UsageError(f"{record.folder}: its record has no evaluation of this policy; leave --replay-recorded out")
    seeds = Seeds(spec.seed).child("evaluation", epoch) if eval_seed is None else Seeds(eval_seed).child("eval")
    shared = with_episodes(spec, episodes)
    check_evaluation_memory(shared)
    runtime = Runtime(device=device, threads=recorded_threads(record) if eval_seed is None else None)
    evaluation = restore_evaluation(shared, state, runtime, seeds)
    env = dict(evaluation.envs.info.versions).get("env", spec.task.id)
    clip, evaluated = _play(spec, evaluation, video, program), evaluation.result()
    rounds = _in_rounds(evaluated, shared.protocol.envs)[:episodes]
    same = original is not None and (evaluated.returns, evaluated.lengths) == (original.returns, original.lengths)
    reference, score = primary(spec.suite, spec.algorithm, spec.task.id), reference_score(spec)
    documented = None if reference is None or score is None else reference_document(reference, score)
    changes = machine_changes(record, runtime, epoch) if eval_seed is None and not same else ()
    head = {"checkpoint": checkpoint, "epoch": epoch, "env": env, "device": device, "games": eval_seed}
    document = {
        "schema_version": 2,
        "folder": str(record.folder),
        **run_document(spec),
        "smoke": spec.smoke,
        **head,
        "episodes": [dict(zip(("return", "length", "seed"), episode, strict=True)) for episode in rounds],
        **_mean([score for score, *_ in rounds]),
        "recorded": original and {"episodes": len(original.returns), **_mean(original.returns)},
        "same": same if eval_seed is None else None,
        **({"environment": [change.document for change in changes]} if changes else {}),
        "documented": documented,
        "video": clip,
    }
    origin = "the recorded episodes again" if eval_seed is None else f"episodes of seed {eval_seed}"
    title = f"{spec.name} seed {spec.seed}, {checkpoint} policy, of epoch {epoch}; {origin}"
    note = "" if eval_seed is not None else ", the same episodes" if same else ", OTHER EPISODES THAN THESE"
    lines = [*_lines(rounds, original, note, documented, clip), *(change.line for change in changes)]
    return document, "\n".join([title, "", *lines])


def _epoch(record: Record, checkpoint: Checkpoint) -> int:
    """The epoch of a saved policy, from the record alone: torch reads its variables before it reads a checkpoint."""
    means = [-inf if epoch.evaluated is None else epoch.evaluated.mean for epoch in record.epochs]
    return means.index(max(means)) if checkpoint == "best" and means else len(means) - 1


def _policy(record: Record, checkpoint: Checkpoint) -> tuple[Spec, State, int, Evaluated | None]:
    """The settings and the state of a saved policy, its epoch, and the evaluation of that epoch."""
    from rlbench.generate import stored_run
    from rlbench.ops.state_dict import integer

    spec, state = stored_run(record.folder, checkpoint)
    epoch = integer(state, "epoch")
    return spec, state, epoch, record.epochs[epoch].evaluated if epoch < len(record.epochs) else None


def _play(spec: Spec, evaluation: Evaluation, video: Path | None, program: str | None) -> dict[str, object] | None:
    """Play every episode to its end, and record the first one if requested."""
    if video is None:
        for _ in _with_progress(evaluation):
            pass
        return None
    from rlbench.assembly.environments import record_video
    from rlbench.cli.video_writer import video_writer

    recorder = record_video(spec, evaluation)
    with video_writer(video, seconds=recorder.seconds, program=program) as writer:
        for _ in _with_progress(evaluation):
            for frame in recorder.frames():
                writer.add(frame)
    seconds = writer.count * recorder.seconds
    return {"file": str(video), "frames": writer.count, "seconds": seconds, "look": recorder.camera.frame_kind}


def _with_progress(evaluation: Evaluation) -> Iterator[int]:
    """Play episodes, with a note on their number once an interval."""
    last = monotonic()
    for ended in evaluation:
        if monotonic() - last >= INTERVAL:
            last = monotonic()
            print_note(f"{ended} of {evaluation.episodes} episodes have ended")
        yield ended


def _in_rounds(evaluated: Evaluated, envs: int) -> tuple[tuple[float, int, int], ...]:
    """Order episodes by round: the first of every env, then the second ones, whatever their lengths."""
    share = len(evaluated.returns) // envs
    order = [env * share + episode for episode in range(share) for env in range(envs)]
    return tuple((evaluated.returns[i], evaluated.lengths[i], evaluated.seeds[i]) for i in order)


def _mean(returns: Sequence[float]) -> dict[str, float]:
    return {"mean": fmean(returns), "std": pstdev(returns)}


def _lines(
    rounds: Sequence[tuple[float, int, int]],
    original: Evaluated | None,
    note: str,
    documented: Mapping[str, object] | None,
    clip: Mapping[str, object] | None,
) -> Iterator[str]:
    """A line per episode, then the means of the measured, recorded and documented returns."""
    yield f"{'EPISODE':>7}  {'RETURN':>12}  {'LENGTH':>7}"
    for number, (points, length, _) in enumerate(rounds, 1):
        yield f"{number:>7}  {number_text(points, ',.2f'):>12}  {length:>7,}"
    yield ""
    yield _line("measured", [score for score, *_ in rounds], "")
    if original is not None:
        yield _line("recorded", original.returns, note)
    if documented is not None:
        score = number_text(float(str(documented["score"])), ",.2f")
        yield f"{'documented':<10}  {score} ({documented['estimator']}; {documented['system']})"
    if clip is not None:
        yield f"{'video':<10}  {clip['file']}: {clip['frames']:,} frames, {clip['seconds']:,.1f} s, {clip['look']}"


def _line(name: str, returns: Sequence[float], note: str) -> str:
    spread = f"{number_text(fmean(returns), ',.2f')} ± {number_text(pstdev(returns), ',.2f')}"
    return f"{name:<10}  {spread} ({count_text(len(returns), 'episode')}{note})"
