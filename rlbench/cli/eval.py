"""``rlbench eval``: evaluate a run's policy again, and record a video of its first episode."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlbench.cli import choices, completion
from rlbench.cli.experience import dataset_of, reference_score
from rlbench.cli.options import Import, Json, Records, Run, run_folder
from rlbench.cli.output import answer, remark
from rlbench.config.names import number_text
from rlbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlbench.collectors.evaluate import Evaluation
    from rlbench.config.run import Spec
    from rlbench.records.types import Evaluated
    from rlbench.report.reference_table import ReferenceScore

INTERVAL = 5.0  # seconds between two messages of progress


@dataclass(frozen=True, kw_only=True, slots=True)
class _EvalResult:
    folder: Path
    checkpoint: str
    games: int | None  # seed of new episodes; None: the recorded episodes again
    device: str
    spec: Spec
    epoch: int  # after which the policy was saved
    env: str  # engine of the environments
    episodes: tuple[tuple[float, int, int], ...]  # return, length and env seed of each
    original: Evaluated | None  # the run's own evaluation of the same policy
    same: bool | None  # the recorded episodes came out the same; None for new ones
    video: dict[str, object] | None  # its file, frames, seconds and camera
    reference: ReferenceScore | None

    @property
    def returns(self) -> tuple[float, ...]:
        """Return of every episode, in raw points."""
        return tuple(episode[0] for episode in self.episodes)


def evaluate(
    run: Run,
    task: Annotated[
        str | None,
        typer.Argument(metavar="[TASK]", help="With --policy, RUN is the suite and this the task; default: none."),
    ] = None,
    *,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="Play the policy of another program: eval --policy FILE --format FORMAT SUITE TASK; default: RUN's.",
        ),
    ] = None,
    form: Annotated[
        Literal["sb3", "torchscript", "onnx"] | None,
        typer.Option(
            "--format",
            help="Format of FILE: a zip of Stable-Baselines3, or a model of observations to actions; default: none.",
        ),
    ] = None,
    algo: Annotated[
        str | None,
        typer.Option(
            "--algo",
            metavar="NAME",
            help="Compare FILE with the published score of this algorithm; default: the one that a zip names.",
        ),
    ] = None,
    package: Import = None,
    episodes: Annotated[
        int | None,
        typer.Option("--episodes", metavar="N", min=1, help="Play N whole episodes; default: as many as the protocol."),
    ] = None,
    checkpoint: Annotated[
        choices.Checkpoint, typer.Option("--checkpoint", help="Play the best policy, or the last.")
    ] = "best",
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="Seed of the episodes; default: 0.")
    ] = None,
    replay_recorded: Annotated[
        bool,
        typer.Option(
            "--replay-recorded", help="Play the episodes of the recorded evaluation again, and compare the returns."
        ),
    ] = False,
    video: Annotated[
        Path | None,
        typer.Option(
            "--video", metavar="FILE.gif|.mp4", help="Record a video of the first episode; default: no video."
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            envvar="RLBENCH_DEVICE",
            metavar="cpu|cuda|cuda:N",
            help="Where the network computes.",
            autocompletion=completion.devices,
        ),
    ] = "cpu",
    results: Records = None,
    json: Json = False,
) -> None:
    """Play the policy of a run, by the protocol of its evaluations.

    Whole episodes in raw points, in the same environments; nothing is written into the run's folder. A video of MuJoCo
    needs OpenGL (MUJOCO_GL=egl, osmesa or glfw). A GIF is held in memory until it ends; prefer MP4 for a long video.
    """
    from rlbench.cli import video_writer

    if policy is not None:
        from rlbench.cli.eval_policy import PolicyOptions, evaluate_policy

        evaluate_policy(PolicyOptions(policy, form, run, task, algo, package, episodes, seed or 0), json=json)
        return
    if (task, form, algo) != (None, None, None):
        raise UsageError("TASK, --format and --algo belong to a policy of another program; name it with --policy FILE")
    if package is not None:
        from rlbench.suites.plugins import import_package

        import_package(package)
    if replay_recorded and (episodes, seed) != (None, None):
        raise UsageError("--replay-recorded plays the recorded episodes; leave --episodes and --seed out")
    program = None if video is None else video_writer.refusal_of(video)
    folder = run_folder(run, results)
    place, other = folder / "checkpoint", "best" if checkpoint == "last" else "last"
    if not (place / checkpoint).is_dir() and (place / other).is_dir():  # the reader refuses a run without both
        raise UsageError(f"{place / checkpoint}: no such checkpoint; there is --checkpoint {other}")
    games = None if replay_recorded else seed or 0
    result = _evaluate(folder, checkpoint, episodes, games, device, video, program)
    answer(_document(result), _text(result), json=json)


def _evaluate(
    folder: Path,
    checkpoint: str,
    episodes: int | None,
    games: int | None,
    device: str,
    video: Path | None,
    program: str | None,
) -> _EvalResult:
    """Load the policy and play its episodes; an external ``program`` writes the video."""
    from rlbench.assembly.restore import restore_evaluation
    from rlbench.cli.eval_policy import evaluation_fits, with_episodes
    from rlbench.config.run import Runtime
    from rlbench.generate import stored_run
    from rlbench.ops.state_dict import integer
    from rlbench.records.store import read_record
    from rlbench.report.reference_scores import primary
    from rlbench.seeds import Seeds

    (spec, state), record = stored_run(folder, checkpoint), read_record(folder)
    epoch = integer(state, "epoch")
    original = record.epochs[epoch].evaluated if epoch < len(record.epochs) else None
    if games is None and original is None:
        raise UsageError(f"{folder}: its record has no evaluation of this policy; leave --replay-recorded out")
    seeds = Seeds(spec.seed).child("evaluation", epoch) if games is None else Seeds(games).child("eval")
    shared = with_episodes(spec, episodes)
    evaluation_fits(shared)
    with redirect_stdout(sys.stderr):  # environments may print
        evaluation = restore_evaluation(shared, state, Runtime(device=device), seeds)
        env = dict(evaluation.envs.info.versions).get("env", spec.task.id)
        clip, evaluated = _play(spec, evaluation, video, program), evaluation.result()
    same = original is not None and (evaluated.returns, evaluated.lengths) == (original.returns, original.lengths)
    return _EvalResult(
        folder=folder,
        checkpoint=checkpoint,
        games=games,
        device=device,
        spec=spec,
        epoch=epoch,
        env=env,
        episodes=_in_rounds(evaluated, shared.protocol.envs)[:episodes],
        original=original,
        same=same if games is None else None,
        video=clip,
        reference=primary(spec.suite, spec.algorithm, spec.task.id),
    )


def _play(spec: Spec, evaluation: Evaluation, video: Path | None, program: str | None) -> dict[str, object] | None:
    """Play every episode to its end, and record the first one if requested."""
    since = monotonic()
    if video is None:
        for ended in evaluation:
            since = _remark_progress(ended, evaluation, since)
        return None
    from rlbench.assembly.environments import record_video
    from rlbench.cli.video_writer import video_writer

    recorder = record_video(spec, evaluation)
    with video_writer(video, seconds=recorder.seconds, program=program) as writer:
        for ended in evaluation:
            since = _remark_progress(ended, evaluation, since)
            for frame in recorder.frames():
                writer.add(frame)
    seconds = writer.count * recorder.seconds
    return {"file": str(video), "frames": writer.count, "seconds": seconds, "look": recorder.camera.look}


def _remark_progress(ended: int, evaluation: Evaluation, since: float) -> float:
    """Remark the progress once an interval; return the time of the last remark."""
    now = monotonic()
    if now - since < INTERVAL:
        return since
    remark(f"{ended} of {evaluation.episodes} episodes have ended")
    return now


def _in_rounds(evaluated: Evaluated, envs: int) -> tuple[tuple[float, int, int], ...]:
    """Order episodes by round: the first of every env, then the second ones, whatever their lengths."""
    share = len(evaluated.returns) // envs
    order = [env * share + episode for episode in range(share) for env in range(envs)]
    return tuple((evaluated.returns[i], evaluated.lengths[i], evaluated.seeds[i]) for i in order)


def _document(result: _EvalResult) -> dict[str, object]:
    from rlbench.cli.eval_policy import reference_document

    spec, original, reference, points = result.spec, result.original, result.reference, reference_score(result.spec)
    return {
        "schema_version": 2,
        "folder": str(result.folder),
        "suite": spec.suite,
        "algorithm": spec.algorithm,
        "task": spec.task.id,
        "dataset": dataset_of(spec) or None,
        "seed": spec.seed,
        "smoke": spec.smoke,
        "checkpoint": result.checkpoint,
        "epoch": result.epoch,
        "env": result.env,
        "device": result.device,
        "games": result.games,
        "episodes": [{"return": points, "length": length, "seed": seed} for points, length, seed in result.episodes],
        **_mean(result.returns),
        "recorded": original and {"episodes": len(original.returns), **_mean(original.returns)},
        "same": result.same,
        "documented": None if points is None or reference is None else reference_document(reference, points),
        "video": result.video,
    }


def _mean(returns: Sequence[float]) -> dict[str, float]:
    return {"mean": fmean(returns), "std": pstdev(returns)}


def _text(result: _EvalResult) -> str:
    """Format a line an episode, then the means of the measured, recorded and documented returns."""
    spec, points, reference, video = result.spec, reference_score(result.spec), result.reference, result.video
    origin = "the recorded episodes again" if result.games is None else f"episodes of seed {result.games}"
    lines = [f"{spec.name} seed {spec.seed}, {result.checkpoint} policy, of epoch {result.epoch}; {origin}", ""]
    lines += [f"{'EPISODE':>7}  {'RETURN':>12}  {'LENGTH':>7}"]
    lines += [
        f"{i:>7}  {number_text(score, ',.2f'):>12}  {length:>7,}"
        for i, (score, length, _) in enumerate(result.episodes, 1)
    ]
    lines += ["", _line("measured", result.returns, "")]
    if result.original is not None:
        note = {None: "", True: ", the same episodes", False: ", OTHER EPISODES THAN THESE"}[result.same]
        lines += [_line("recorded", result.original.returns, note)]
    if points is not None and reference is not None:
        lines += [f"{'documented':<10}  {number_text(points, ',.2f')} ({reference.estimator}; {reference.system})"]
    if video is not None:
        size = f"{video['frames']:,} frames, {video['seconds']:,.1f} s, {video['look']}"
        lines += [f"{'video':<10}  {video['file']}: {size}"]
    return "\n".join(lines)


def _line(name: str, returns: Sequence[float], note: str) -> str:
    count = f"{len(returns)} episode{'' if len(returns) == 1 else 's'}"
    return f"{name:<10}  {number_text(fmean(returns), ',.2f')} ± {number_text(pstdev(returns), ',.2f')} ({count}{note})"
