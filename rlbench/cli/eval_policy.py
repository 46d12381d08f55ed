"""``rlbench eval --policy``: play a policy of another program by the protocol of a task, beside the reference."""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rlbench.cli.output import answer
from rlbench.config.names import number_text
from rlbench.errors import DoesNotFit, UsageError

if TYPE_CHECKING:
    from rlbench.collectors.evaluate import Evaluation
    from rlbench.config.run import Spec
    from rlbench.evaluation.model_client import ModelFormat
    from rlbench.report.reference_table import ReferenceScore

COPIES: Final = 4  # of a file's bytes in memory: read, sent, parsed, and ready to compute
NO_REFERENCE: Final = "no reference; name the algorithm with --algo"
WITHOUT_STATISTICS: Final = (
    "trained within VecNormalize, whose statistics the zip lacks; export both as --format torchscript"
)


class PolicyOptions(NamedTuple):
    """Options of the command."""

    file: Path
    form: str | None
    suite: str
    task: str | None
    algorithm: str | None  # whose reference counts; None: the one that the file names
    package: str | None  # that registers a task gym:…
    episodes: int | None  # None: as many as the protocol
    seed: int


class PolicyScore(NamedTuple):
    """Returns of a policy beside the reference, in the reference's unit."""

    returns: tuple[float, ...]
    mean: float
    interval: tuple[float, float] | None  # 95 % t-interval of the mean; None for one episode
    reference: ReferenceScore | None
    margin: float | None
    verdict: str


def evaluate_policy(options: PolicyOptions, *, json: bool) -> None:
    """Play the policy and print its returns beside the reference.

    Raises:
        UsageError: an option is missing, or the algorithm does not play the task.
        RefusedFile: the file holds no such policy, or one that does not suit the task.
    """
    if options.form is None or options.task is None:
        raise UsageError("--policy: name format and task too: rlbench eval --policy FILE --format FORMAT SUITE TASK")
    with redirect_stdout(sys.stderr), ExitStack() as stack:  # environments may print
        spec, evaluation, obstacle = _prepared(options, options.task, stack)
        for _ in evaluation:
            pass
        returns = evaluation.result().returns[: options.episodes]
    score = _score(spec, returns, obstacle)
    answer(_document(options, spec, score), _text(options, spec, score), json=json)


def reference_document(reference: ReferenceScore, score: float) -> dict[str, object]:
    """A reference for scripts, with its ``score`` in the unit of the returns."""
    return {"score": score, **{name: getattr(reference, name) for name in ("estimator", "system", "source")}}


def with_episodes(spec: Spec, episodes: int | None) -> Spec:
    """Copy a spec with a protocol of at least ``episodes``, the same number in each env."""
    if episodes is None:
        return spec
    share = -(-episodes // min(episodes, spec.protocol.envs))
    envs = -(-episodes // share)
    protocol = spec.protocol.model_copy(update={"episodes": share * envs, "envs": envs})
    return spec.model_copy(update={"protocol": protocol})


def evaluation_fits(spec: Spec, model: int = 0) -> None:
    """Refuse an evaluation whose environments, and the ``model`` bytes of another process, would not fit into memory.

    Raises:
        DoesNotFit: they would not; the message has the number.
    """
    from rlbench.config.footprint import footprint, size
    from rlbench.records.machine import available_memory

    need, free = footprint(spec), available_memory()
    if (bytes_needed := need.emulators + need.base + model) > free:
        envs = f"{spec.name}: {spec.protocol.envs:,} envs of evaluation need {size(bytes_needed)} of memory"
        raise DoesNotFit(f"{envs}, {size(free)} are free; give fewer --episodes")


def _prepared(options: PolicyOptions, task: str, stack: ExitStack) -> tuple[Spec, Evaluation, str]:
    """Read the policy and open its episodes; the text says why no reference can be compared, if so."""
    from rlbench import suites
    from rlbench.assembly.environments import describe
    from rlbench.assembly.foreign_policy import ForeignActor, foreign_evaluation, model_actor, sb3_actor
    from rlbench.config.footprint import EVAL_WORKER
    from rlbench.datasets.sb3_import import read_policy
    from rlbench.seeds import Seeds
    from rlbench.suites.plugins import import_package

    package = import_package(options.package) if options.package else None
    policy = read_policy(options.file) if options.form == "sb3" else None
    able = [name for name in suites.algorithms(options.suite) if suites.plays(options.suite, name, task)]
    algorithm = options.algorithm or (policy.algorithm if policy is not None else next(iter(able), ""))
    spec = suites.spec(options.suite, algorithm, task, package=package)
    shared = with_episodes(spec, options.episodes)
    size = options.file.stat().st_size if options.file.is_file() else 0
    evaluation_fits(shared, COPIES * size + (0 if policy else EVAL_WORKER))
    info = describe(spec)
    obstacle = "" if algorithm in {options.algorithm, policy and policy.algorithm} else NO_REFERENCE
    actor: ForeignActor
    if policy is not None:
        actor = sb3_actor(options.file, policy, info)
        obstacle = WITHOUT_STATISTICS if policy.normalized else obstacle
    else:
        form: ModelFormat = "onnx" if options.form == "onnx" else "torchscript"
        actor = stack.enter_context(model_actor(options.file, form, info))
    return spec, foreign_evaluation(shared, actor, info, Seeds(options.seed).child("eval")), obstacle


def _score(spec: Spec, returns: tuple[float, ...], obstacle: str) -> PolicyScore:
    """Compare the mean return of this one policy with the reference of a cell, unless there is an ``obstacle``."""
    from rlbench.report.estimate import interval, mean
    from rlbench.report.reference_scores import comparable, margin, primaries
    from rlbench.report.reference_table import cell_of, scale_of

    key = cell_of(spec)
    reference = primaries(spec.suite).get(key)
    if reference is None or obstacle:
        bounds = interval(returns) if len(returns) > 1 else None
        return PolicyScore(returns, mean(returns), bounds, None, None, f"NOT COMPARABLE: {obstacle or NO_REFERENCE}")
    if reference.estimator.startswith("normalized") and (scale := scale_of(key)) is not None:
        returns = tuple(100 * scale.normalized(score) for score in returns)
    bounds, apart = interval(returns) if len(returns) > 1 else None, margin(key, reference)
    if not comparable(key) or reference.kind == "training":
        verdict = "NOT COMPARABLE: the reference is of another environment, or of training returns"
    elif bounds is None or bounds[0] < reference.score - apart <= bounds[1]:
        verdict = "INCONCLUSIVE: play more episodes"
    else:
        verdict = "BELOW" if bounds[1] < reference.score - apart else "REACHED"
    return PolicyScore(returns, mean(returns), bounds, reference, apart, verdict)


def _document(options: PolicyOptions, spec: Spec, score: PolicyScore) -> dict[str, object]:
    return {
        "policy": str(options.file),
        "format": options.form,
        "suite": spec.suite,
        "algorithm": spec.algorithm,
        "task": spec.task.id,
        "games": options.seed,
        "returns": score.returns,
        "mean": score.mean,
        "low": score.interval and score.interval[0],
        "high": score.interval and score.interval[1],
        "documented": reference_document(score.reference, score.reference.score) if score.reference else None,
        "margin": score.margin,
        "verdict": score.verdict,
    }


def _text(options: PolicyOptions, spec: Spec, score: PolicyScore) -> str:
    between = "" if score.interval is None else f" [{', '.join(number_text(end, ',.2f') for end in score.interval)}]"
    count = f"{len(score.returns)} episode{'' if len(score.returns) == 1 else 's'}"
    lines = [
        f"{options.file} ({options.form}) on {spec.name}, episodes of seed {options.seed}",
        "",
        f"measured    {number_text(score.mean, ',.2f')}{between} ({count}; 95 % t-interval of the mean)",
    ]
    if (reference := score.reference) is not None and score.margin is not None:
        points = number_text(reference.score, ",.2f")
        margin = f"margin {score.margin:,.6g}"
        lines.append(f"documented  {points} ({reference.estimator}; {reference.system}), {margin}")
    lines.append(f"verdict     {score.verdict}")
    if score.reference is not None:
        lines.append("            of this one policy; a verdict on the algorithm takes three seeds: rlbench import")
    return "\n".join(lines)
