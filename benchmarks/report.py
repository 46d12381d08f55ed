"""The JSON of a benchmark, and its Markdown table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TypedDict

from benchmarks.figures import Figures, ratios
from rlbench.records.files import replace
from rlbench.records.machine import environment

SCHEMA = 1


class FigureRow(TypedDict):
    """One library in one workload on a number of threads."""

    workload: str
    subject: str
    threads: int
    unit: str
    median: float
    spread: float  # median absolute deviation, as a share of the median
    samples: list[float]


class RatioRow(TypedDict):
    """The speed of rlbench over that of ``against``; above 1 is better."""

    workload: str
    threads: int
    against: str
    ratio: float


class Report(TypedDict):
    """One run of the benchmark."""

    schema: int
    machine: dict[str, object]
    settings: dict[str, object]
    figures: list[FigureRow]
    ratios: list[RatioRow]


def report(figures: Figures, settings: dict[str, object]) -> Report:
    """The figures and ratios of a run of the benchmark, with its machine."""
    rows: list[FigureRow] = [
        {
            "workload": figure.workload,
            "subject": figure.subject,
            "threads": figure.threads,
            "unit": figure.unit,
            "median": _rounded(figure.median),
            "spread": _rounded(figure.spread),
            "samples": [_rounded(sample) for sample in figure.samples],
        }
        for figure in figures.all()
    ]
    better: list[RatioRow] = [
        {"workload": r.workload, "threads": r.threads, "against": r.against, "ratio": _rounded(r.value)}
        for r in ratios(figures)
    ]
    return {"schema": SCHEMA, "machine": environment(), "settings": settings, "figures": rows, "ratios": better}


def machine_name(result: Report) -> str:
    """A file name for a machine: ``amd-epyc-2-cores``."""
    words = re.sub(r"[^a-z0-9]+", "-", str(result["machine"]["cpu"]).lower()).strip("-")
    return f"{words}-{result['machine']['cores']}-cores"


def save(result: Report, path: Path) -> None:
    """Write the JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, json.dumps(result, indent=2) + "\n")


def load(path: Path) -> Report:
    """A report that ``save`` wrote."""
    result: Report = json.loads(path.read_text(encoding="utf-8"))
    if result["schema"] != SCHEMA:
        raise ValueError(f"{path}: schema {result['schema']}, this benchmark reads {SCHEMA}")
    return result


def markdown(result: Report) -> str:
    """A table of medians, with a column for each thread count and the ratio of rlbench to each peer."""
    machine, counts = result["machine"], sorted({row["threads"] for row in result["figures"]})
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}, "
        f"torch {_package(machine, 'torch')}, commit {machine['commit']}; "
        + ", ".join(f"{key} {value}" for key, value in result["settings"].items()),
        "",
        "| workload | what | " + " | ".join(f"{n} thread{'s' * (n > 1)} | rlbench is better by" for n in counts) + " |",
        "|---|---|" + "---:|---:|" * len(counts),
    ]
    rows = dict.fromkeys((row["workload"], row["subject"], row["unit"]) for row in result["figures"])
    for workload, subject, unit in rows:
        cells = [cell for n in counts for cell in _cells(result, workload, subject, n)]
        lines.append(f"| {workload} | {subject}, {unit} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cells(result: Report, workload: str, subject: str, threads: int) -> tuple[str, str]:
    key = (workload, subject, threads)
    medians = [row for row in result["figures"] if (row["workload"], row["subject"], row["threads"]) == key]
    against = [row for row in result["ratios"] if (row["workload"], row["against"], row["threads"]) == key]
    figure = f"{medians[0]['median']:,.4g} ± {medians[0]['spread']:.0%}" if medians else ""
    return figure, f"{against[0]['ratio']:.2f}×" if against else ""


def _package(machine: dict[str, object], name: str) -> str:
    packages = machine["packages"]
    return str(packages.get(name)) if isinstance(packages, dict) else "unknown"


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
