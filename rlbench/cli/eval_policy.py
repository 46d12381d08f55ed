"""``rlbench eval --policy``: play a policy of another program by the protocol of a task, beside the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from rlbench import suites
from rlbench.cli.output import print_result
from rlbench.config.footprint import EVAL_WORKER, footprint, size_text
from rlbench.config.names import count_text, number_text
from rlbench.config.run import Spec
from rlbench.datasets.sb3_import import SB3Policy, read_policy
from rlbench.errors import DoesNotFit, UsageError
from rlbench.records import machine
from rlbench.report.estimate import interval, mean
from rlbench.report.reference_scores import comparable, margin, primary_references
from rlbench.report.reference_table import ReferenceScore, cell_of, scale_of
from rlbench.seeds import Seeds
from rlbench.suites.plugins import import_package

COPIES: Final = 4  # of a file's bytes in memory: read, sent, parsed, and ready to compute
NO_REFERENCE: Final = "no reference; name the algorithm with --algo"
WITHOUT_STATISTICS: Final = (
    "trained within VecNormalize, whose statistics the zip lacks; export both as --format torchscript"
)


def evaluate_policy(
    file: Path,
    form: str | None,
    suite: str,
    task: str | None,
    algorithm: str | None,
    package: str | None,
    episodes: int | None,
    seed: int,
    *,
    json: bool,
) -> None:
    """Play the policy and print its returns beside the reference of ``algorithm``, or of the one that the file names.

    Raises:
        UsageError: an option is missing, or the algorithm does not play the task.
        RefusedFile: the file holds no such policy, or one that does not suit the task.
    """
    if form is None or task is None:
        raise UsageError("--policy: name format and task too: rlbench eval --policy FILE --format FORMAT SUITE TASK")
    installed = import_package(package) if package else None
    policy = read_policy(file) if form == "sb3" else None
    able = [name for name in suites.algorithms(suite) if suites.has_cell(suite, name, task)]
    name = algorithm or (policy and policy.algorithm) or next(iter(able), "")
    spec = suites.spec(suite, name, task, package=installed)
    returns = _play(file, form, policy, spec, episodes, seed)
    obstacle = "" if name in {algorithm, policy and policy.algorithm} else NO_REFERENCE
    if policy is not None and policy.normalized:
        obstacle = WITHOUT_STATISTICS
    key = cell_of(spec)
    reference = None if obstacle else primary_references(spec.suite).get(key)
    if reference is not None and reference.estimator.startswith("normalized") and (scale := scale_of(key)) is not None:
        returns = tuple(100 * scale.normalized(score) for score in returns)
    bounds = interval(returns) if len(returns) > 1 else None
    tolerance = None if reference is None else margin(key, reference)
    verdict = f"NOT COMPARABLE: {obstacle or NO_REFERENCE}"
    if reference is not None and tolerance is not None:
        verdict = _verdict(reference, bounds, tolerance, is_comparable=comparable(key, reference))
    low, high = bounds or (None, None)
    document = {
        "policy": str(file),
        "format": form,
        "suite": spec.suite,
        "algorithm": spec.algorithm,
        "task": spec.task.id,
        "games": seed,
        "returns": returns,
        "mean": mean(returns),
        "low": low,
        "high": high,
        "documented": reference and reference_document(reference, reference.score),
        "margin": tolerance,
        "verdict": verdict,
    }
    head = [f"{file} ({form}) on {spec.name}, episodes of seed {seed}", ""]
    print_result(document, "\n".join([*head, *_lines(returns, bounds, reference, tolerance, verdict)]), json=json)


def _lines(
    returns: Sequence[float],
    bounds: tuple[float, float] | None,
    reference: ReferenceScore | None,
    margin: float | None,
    verdict: str,
) -> Iterator[str]:
    between = "" if bounds is None else f" [{', '.join(number_text(end, ',.2f') for end in bounds)}]"
    count = f"{count_text(len(returns), 'episode')}; 95 % t-interval of the mean"
    yield f"measured    {number_text(mean(returns), ',.2f')}{between} ({count})"
    if reference is not None:
        source = f"({reference.estimator}; {reference.system}), margin {margin:,.6g}"
        yield f"documented  {number_text(reference.score, ',.2f')} {source}"
    yield f"verdict     {verdict}"
    if reference is not None:
        yield "            of this one policy; a verdict on the algorithm takes three seeds: rlbench import"


def _verdict(
    reference: ReferenceScore, bounds: tuple[float, float] | None, margin: float, *, is_comparable: bool
) -> str:
    """Compare the t-interval of one policy's mean return with a reference score."""
    if not is_comparable:
        return "NOT COMPARABLE: the reference is of another environment, or of training returns"
    least = reference.score - margin
    if bounds is None or bounds[0] < least <= bounds[1]:
        return "INCONCLUSIVE: play more episodes"
    return "BELOW" if bounds[1] < least else "REACHED"


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


def check_evaluation_memory(spec: Spec, model: int = 0) -> None:
    """Refuse an evaluation whose environments, and ``model`` bytes of another process, would not fit into memory."""
    need, free = footprint(spec), machine.available_memory()
    if (bytes_needed := need.emulators + need.base + model) > free:
        envs = f"{spec.name}: {spec.protocol.envs:,} envs of evaluation need {size_text(bytes_needed)} of memory"
        raise DoesNotFit(f"{envs}, {size_text(free)} are free; give fewer --episodes")


def _play(
    file: Path, form: str, policy: SB3Policy | None, spec: Spec, episodes: int | None, seed: int
) -> tuple[float, ...]:
    """Returns of the episodes of a ``policy``, or of the model in a process of its own."""
    from rlbench.assembly.environments import describe
    from rlbench.assembly.foreign_policy import foreign_evaluation, model_actor, sb3_actor

    shared, seeds = with_episodes(spec, episodes), Seeds(seed).child("eval")
    bytes_read = file.stat().st_size if file.is_file() else 0
    check_evaluation_memory(shared, COPIES * bytes_read + (0 if policy else EVAL_WORKER))
    info = describe(spec)
    with (
        nullcontext(sb3_actor(file, policy, info))
        if policy
        else model_actor(file, "onnx" if form == "onnx" else "torchscript", info)
    ) as actor:
        evaluation = foreign_evaluation(shared, actor, info, seeds)
        for _ in evaluation:
            pass
        return evaluation.result().returns[:episodes]
