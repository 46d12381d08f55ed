"""Table and figure of a profile: the share of a step that each part of a workload takes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.report import Report
from benchmarks.stopwatch import PARTS

COLORS = dict(
    zip(
        PARTS,
        (
            "#0072b2", "#56b4e9", "#009e73", "#8a8f00", "#e69f00", "#cc79a7",
            "#d55e00", "#a63603", "#000000", "#7b4fb0", "#7f7f7f", "#d0d0d0",
        ),
        strict=True,
    )
)  # fmt: skip
READABLE = 0.06  # smallest share that is printed in its bar


class Step(NamedTuple):
    """A step of one workload on a number of threads."""

    name: str
    threads: int
    speed: float  # steps per second
    parts: dict[str, float]  # ms
    idle: float  # ms, within the parts, in which the training thread did not run

    @property
    def whole(self) -> float:
        """The sum of all parts, ms."""
        return sum(self.parts.values())

    def share(self, part: str) -> float:
        """The share of a part of the step, 0 … 1."""
        return self.parts.get(part, 0.0) / self.whole


def steps(result: Report) -> list[Step]:
    """The step of every profile in a report."""
    medians = {(row["workload"], row["subject"], row["threads"]): row["median"] for row in result["figures"]}
    profiles = []
    for (workload, subject, threads), speed in medians.items():
        if workload.startswith("profile ") and subject == "rlbench":
            parts = {
                part: spent
                for (of, part, on), spent in medians.items()
                if (of, on) == (f"{workload} parts", threads) and part != "idle"
            }
            idle = medians[f"{workload} parts", "idle", threads]
            name = workload.removeprefix("profile ")
            profiles.append(Step(name, threads, speed, parts, idle))
    return profiles


def table(result: Report) -> str:
    """A Markdown table with a row for each workload; parts are in percent of the step."""
    lines = [
        "| workload | threads | ms a step | " + " | ".join(PARTS) + " | idle |",
        "|---|---:|---:|" + "---:|" * (len(PARTS) + 1),
    ]
    for step in steps(result):
        shares = [f"{step.share(part):.0%}" if part in step.parts else "" for part in PARTS]
        cells = [step.name, str(step.threads), f"{step.whole:.3g}", *shares, f"{step.idle / step.whole:.0%}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def figure(result: Report, path: Path) -> None:
    """Draw a bar for each workload, as PNG."""
    rows = steps(result)
    figure = Figure(figsize=(10, 1.2 + 0.34 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for place, step in enumerate(rows):
        start = 0.0
        for part in PARTS:
            share = step.share(part)
            axes.barh(place, share, left=start, color=COLORS[part], edgecolor="white", linewidth=0.5)
            if share >= READABLE:
                axes.text(start + share / 2, place, f"{share:.0%}", ha="center", va="center", color="white", fontsize=7)
            start += share
        axes.text(1.01, place, f"{step.whole:.3g} ms", va="center", fontsize=7)
    axes.set_yticks(range(len(rows)), [f"{step.name}, {step.threads} thr." for step in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_visible(False)
    axes.spines[:].set_visible(False)
    handles = [Patch(color=COLORS[part], label=part) for part in PARTS]
    figure.legend(handles=handles, loc="outside upper center", ncols=6, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110, metadata={"Software": None})
