"""A comparison as text for a terminal, and as a document for scripts."""

from __future__ import annotations

from rlbench.config.names import number_text, steps_text
from rlbench.report.aggregate import INTERVAL_SEEDS, Estimate
from rlbench.report.columns import aligned, sentences
from rlbench.report.compare import Comparison, Task, split_folder
from rlbench.report.estimate import mean
from rlbench.report.reference_table import cell_name, task_name
from rlbench.report.tables import score_text


def comparison_text(comparison: Comparison, width: int | None = None) -> str:
    """A line per task, and the sides as wholes, folded to a terminal of ``width`` columns."""
    first, second = comparison.names
    header = ("TASK", first, second, f"P({second} better)")
    rows = [
        (
            _name(task, first) + ("" if task.step is None else f" @{steps_text(task.step)}"),
            *(
                f"{score_text(mean(scores))} ({len(scores)})" + " (imported)" * is_imported
                for scores, is_imported in zip((task.first, task.second), task.is_imported, strict=True)
            ),
            _percent(task.improvement),
        )
        for task in comparison.tasks
    ]
    few = comparison.fewest < INTERVAL_SEEDS
    at_steps = any(task.step is not None for task in comparison.tasks)
    lines = ["At equal steps: means of a seed's last three evaluations to the largest step of both sides."] * at_steps
    for name, middle, gap in zip(comparison.names, comparison.interquartile_means, comparison.gaps, strict=True):
        lines.append(f"interquartile mean of {name}: {_text(middle, few=few)}; optimality gap: {_text(gap, few=few)}")
    lines.append(f"probability that a run of {second} beats one of {first}: {_percent(comparison.improvement)}")
    lines.append(f"Scores: mean over seeds (how many). Scale: {comparison.scale}. Intervals: 95 %, over seeds.")
    if few:
        lines.append(f"Fewer than {INTERVAL_SEEDS} seeds of a task: no interval of a mean is shown; run more seeds.")
    for task in comparison.tasks:
        settings = f"settings {task.settings}" if task.settings else ""
        lines += [f"{_name(task, first)}: {text}." for text in (task.versions, task.sources, settings) if text]
    lines += [f"Not compared: {text}." for text in comparison.left_out]
    return "\n".join([*aligned([header, *rows], width), "", *sentences(lines, width)])


def _name(task: Task, first: str) -> str:
    return cell_name(task.key) if split_folder(first) else f"{task.key.suite}/{task_name(task.key)}"


def comparison_document(comparison: Comparison) -> dict[str, object]:
    """The same for scripts; ``low`` and ``high`` of a mean are null below five seeds."""
    bare = {"low": None, "high": None} if comparison.fewest < INTERVAL_SEEDS else {}
    return {
        "names": list(comparison.names),
        "scale": comparison.scale,
        "iqm": [estimate._asdict() | bare for estimate in comparison.interquartile_means],
        "optimality_gap": [gap._asdict() | bare for gap in comparison.gaps],
        "improvement": comparison.improvement._asdict(),
        "left_out": list(comparison.left_out),
        "tasks": [
            {
                **task.key._asdict(),
                **({} if task.step is None else {"step": task.step}),
                "left": list(task.first),
                "right": list(task.second),
                "imported": list(task.is_imported),
                "improvement": task.improvement._asdict(),
                **{name: text for name in ("versions", "sources", "settings") if (text := getattr(task, name))},
            }
            for task in comparison.tasks
        ],
    }


def _text(estimate: Estimate, *, few: bool) -> str:
    """A mean with its interval, without it where seeds are too few, or where all are equal and it has no width."""
    bare = few or estimate.low == estimate.high
    low, high = number_text(estimate.low, ".3f"), number_text(estimate.high, ".3f")
    return number_text(estimate.value, ".3f") + ("" if bare else f" [{low}, {high}]")


def _percent(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.0f} % [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]"
