"""``rlbench eval``: what a run has learned, judged once more, and filmed where that is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from rlbench.cli import completion
from rlbench.cli.experience import dataset_of, reference_score
from rlbench.cli.options import Json, Records
from rlbench.cli.output import emit, emit_json, remark
from rlbench.cli.runs import Run, run_folder
from rlbench.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlbench.collectors.evaluate import Evaluation
    from rlbench.config.run import Spec
    from rlbench.records.types import Evaluated
    from rlbench.report.reference_scores import ReferenceScore

EVAL_SCHEMA = 1
KEPT = ("last", "best")
SILENCE = 5.0  # seconds between two words on how far it is


@dataclass(frozen=True, slots=True)
class _EvalOptions:
    """Options of the command."""

    folder: Path
    checkpoint: str
    episodes: int | None  # None: as many as the protocol
    games: int | None  # seed of fresh ones; None: those of the record once more
    device: str
    video: Path | None
    program: str | None  # that writes it, where it is not written here


@dataclass(frozen=True, slots=True)
class _Clip:
    """The film that was made."""

    frames: int
    seconds: float
    look: str  # screen, board or rendered


@dataclass(frozen=True, slots=True)
class _EvalResult:
    """Result of an evaluation."""

    spec: Spec
    epoch: int  # after which the policy was kept
    env: str  # what stepped the games
    games: tuple[tuple[float, int, int], ...]  # return, length and the seed of the lane
    recorded: Evaluated | None  # what the run noted of the same policy
    same: bool | None  # whether the recorded games came again as they were; None for fresh ones
    clip: _Clip | None

    @property
    def returns(self) -> tuple[float, ...]:
        """Of every game, in raw points."""
        return tuple(game[0] for game in self.games)


def evaluate(
    run: Run,
    *,
    episodes: Annotated[
        int | None,
        typer.Option(
            "--episodes",
            metavar="N",
            min=1,
            help="Play so many whole games; default: as many as the protocol.",
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="best|last", help="Play the best policy that was kept, or the last.")
    ] = "best",
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", min=0, help="Seed of the games; default: 0.", show_default=False),
    ] = None,
    replay_recorded: Annotated[
        bool,
        typer.Option(
            "--replay-recorded",
            help="Play the very games of the recorded evaluation, to see whether they end the same.",
        ),
    ] = False,
    video: Annotated[
        Path | None, typer.Option("--video", metavar="FILE.gif|.mp4", help="Film the first episode; default: no film.")
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
    """Play what a run has learned, by the protocol it was judged by.

    Whole games in raw points, of the same environments, chance and scale of observations; nothing is written into the
    run's folder. A film of MuJoCo needs OpenGL (MUJOCO_GL=egl, osmesa or glfw); a GIF is held in memory till it ends,
    a long film is better an MP4.
    """
    from rlbench.cli import video_writer

    if replay_recorded and (episodes, seed) != (None, None):
        raise UsageError("--replay-recorded plays what was recorded; leave --episodes and --seed out")
    program = None if video is None else video_writer.check(video)
    folder = run_folder(run, results)
    _there(folder, checkpoint)
    asked = _EvalOptions(folder, checkpoint, episodes, None if replay_recorded else seed or 0, device, video, program)
    found = _evaluated(asked)
    if json:
        emit_json(_document(asked, found))
    else:
        emit(_text(asked, found))


def _there(folder: Path, checkpoint: str) -> None:
    """Refuse a policy that is not kept where the other one is; a run that keeps neither is refused by its reader."""
    if checkpoint not in KEPT:
        raise UnknownName("checkpoint", checkpoint, KEPT)
    place, other = folder / "checkpoint", KEPT[1 - KEPT.index(checkpoint)]
    if not (place / checkpoint).is_dir() and (place / other).is_dir():
        raise UsageError(f"{place / checkpoint}: no such checkpoint; there is --checkpoint {other}")


def _evaluated(asked: _EvalOptions) -> _EvalResult:
    """Load the policy and let it play."""
    from rlbench.assembly.restore import restore_evaluation
    from rlbench.config.run import Runtime
    from rlbench.generate import kept_run
    from rlbench.ops.state_dict import whole
    from rlbench.records.store import read
    from rlbench.seeds import Seeds

    (spec, kept), record = kept_run(asked.folder, asked.checkpoint), read(asked.folder)
    epoch = whole(kept, "epoch")
    recorded = record.epochs[epoch].evaluated if epoch < len(record.epochs) else None
    if asked.games is None and recorded is None:
        raise UsageError(f"{asked.folder}: its record has no evaluation of this policy; leave --replay-recorded out")
    seeds = Seeds(spec.seed).child("evaluation", epoch) if asked.games is None else Seeds(asked.games).child("eval")
    shared = _shared(spec, asked.episodes)
    evaluation = restore_evaluation(shared, kept, Runtime(device=asked.device), seeds)
    env = dict(evaluation.envs.info.versions).get("env", spec.task.id)
    clip, played = _played(spec, evaluation, asked), evaluation.result()
    same = recorded is not None and (played.returns, played.lengths) == (recorded.returns, recorded.lengths)
    return _EvalResult(
        spec=spec,
        epoch=epoch,
        env=env,
        games=_in_rounds(played, shared.protocol.envs)[: asked.episodes],
        recorded=recorded,
        same=same if asked.games is None else None,
        clip=clip,
    )


def _shared(spec: Spec, episodes: int | None) -> Spec:
    """The Spec with a protocol of at least as many games, in equal shares of its lanes."""
    if episodes is None:
        return spec
    share = -(-episodes // min(episodes, spec.protocol.envs))
    lanes = -(-episodes // share)
    protocol = spec.protocol.model_copy(update={"episodes": share * lanes, "envs": lanes})
    return spec.model_copy(update={"protocol": protocol})


def _played(spec: Spec, evaluation: Evaluation, asked: _EvalOptions) -> _Clip | None:
    """Play every game to its end, and put the first on film where that is asked for."""
    said = monotonic()
    if asked.video is None:
        for ended in evaluation:
            said = _say(ended, evaluation, said)
        return None
    from rlbench.assembly.video import watch
    from rlbench.cli.video_writer import video_writer

    watched = watch(spec, evaluation)
    with video_writer(asked.video, seconds=watched.seconds, program=asked.program) as film:
        for ended in evaluation:
            said = _say(ended, evaluation, said)
            for picture in watched.frames():
                film.add(picture)
    return _Clip(film.count, film.count * watched.seconds, watched.camera.look)


def _say(ended: int, evaluation: Evaluation, said: float) -> float:
    """A word from time to time; when the last one was."""
    now = monotonic()
    if now - said < SILENCE:
        return said
    remark(f"{ended} of {evaluation.episodes} episodes have ended")
    return now


def _in_rounds(played: Evaluated, lanes: int) -> tuple[tuple[float, int, int], ...]:
    """The first game of every lane, then the second ones: which come first depends on no game's length."""
    share = len(played.returns) // lanes
    order = [lane * share + game for game in range(share) for lane in range(lanes)]
    return tuple((played.returns[i], played.lengths[i], played.seeds[i]) for i in order)


def _published(spec: Spec) -> tuple[float, ReferenceScore] | None:
    """Reference score of the cell in raw points, and its source."""
    from rlbench.report.reference_scores import primary

    points, found = reference_score(spec), primary(spec.suite, spec.algorithm, spec.task.id)
    return None if points is None or found is None else (points, found)


def _document(asked: _EvalOptions, found: _EvalResult) -> dict[str, object]:
    spec, published, clip = found.spec, _published(found.spec), found.clip
    return {
        "schema_version": EVAL_SCHEMA,
        "folder": str(asked.folder),
        "suite": spec.suite,
        "algorithm": spec.algorithm,
        "task": spec.task.id,
        "dataset": dataset_of(spec) or None,
        "seed": spec.seed,
        "smoke": spec.smoke,
        "checkpoint": asked.checkpoint,
        "epoch": found.epoch,
        "env": found.env,
        "device": asked.device,
        "games": asked.games,
        "episodes": [{"return": points, "length": length, "seed": seed} for points, length, seed in found.games],
        **_mean(found.returns),
        "recorded": found.recorded and {"episodes": len(found.recorded.returns), **_mean(found.recorded.returns)},
        "same": found.same,
        "documented": published
        and {
            "score": published[0],
            "estimator": published[1].estimator,
            "system": published[1].system,
            "source": published[1].source,
        },
        "video": clip
        and {"file": str(asked.video), "pictures": clip.frames, "seconds": clip.seconds, "look": clip.look},
    }


def _mean(returns: Sequence[float]) -> dict[str, float]:
    return {"mean": fmean(returns), "std": pstdev(returns)}


def _text(asked: _EvalOptions, found: _EvalResult) -> str:
    """A line an episode, then what they come to beside what was recorded and documented."""
    spec, published, clip = found.spec, _published(found.spec), found.clip
    whose = "the recorded games again" if asked.games is None else f"games of seed {asked.games}"
    lines = [f"{spec.name} seed {spec.seed}, {asked.checkpoint} policy, of epoch {found.epoch}; {whose}", ""]
    lines += [f"{'EPISODE':>7}  {'RETURN':>12}  {'LENGTH':>7}"]
    lines += [f"{i:>7}  {points:>12,.2f}  {length:>7,}" for i, (points, length, _) in enumerate(found.games, 1)]
    lines += ["", _line("measured", found.returns, "")]
    if found.recorded is not None:
        note = {None: "", True: ", the same games", False: ", OTHER GAMES THAN THESE"}[found.same]
        lines += [_line("recorded", found.recorded.returns, note)]
    if published is not None:
        points, document = published
        lines += [f"{'documented':<10}  {points:,.2f} ({document.estimator}; {document.system})"]
    if clip is not None:
        lines += [f"{'film':<10}  {asked.video}: {clip.frames:,} pictures, {clip.seconds:,.1f} s, {clip.look}"]
    return "\n".join(lines)


def _line(name: str, returns: Sequence[float], note: str) -> str:
    count = f"{len(returns)} episode{'' if len(returns) == 1 else 's'}"
    return f"{name:<10}  {fmean(returns):,.2f} ± {pstdev(returns):,.2f} ({count}{note})"
