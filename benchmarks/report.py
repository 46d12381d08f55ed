"""The benchmark's JSON, and the Markdown made from nothing else."""

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
    """One contestant in one workload on so many threads."""

    workload: str
    subject: str
    threads: int
    unit: str
    median: float
    spread: float  # median absolute deviation, as a share of the median
    samples: list[float]


class RatioRow(TypedDict):
    """How much better ours is than ``against``; above 1 is better."""

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
    """Everything a run of the benchmark found, and where."""
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


def machine_name(found: Report) -> str:
    """A file name for a kind of machine: ``amd-epyc-2-cores``."""
    words = re.sub(r"[^a-z0-9]+", "-", str(found["machine"]["cpu"]).lower()).strip("-")
    return f"{words}-{found['machine']['cores']}-cores"


def save(found: Report, path: Path) -> None:
    """Write the JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, json.dumps(found, indent=2) + "\n")


def load(path: Path) -> Report:
    """A report that ``save`` wrote."""
    found: Report = json.loads(path.read_text(encoding="utf-8"))
    if found["schema"] != SCHEMA:
        raise ValueError(f"{path}: schema {found['schema']}, this benchmark reads {SCHEMA}")
    return found


def markdown(found: Report) -> str:
    """One table of medians, one column per thread count, and the ratio to ours where there is one."""
    machine, counts = found["machine"], sorted({row["threads"] for row in found["figures"]})
    told = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}, "
        f"torch {_package(machine, 'torch')}, commit {machine['commit']}; "
        + ", ".join(f"{key} {value}" for key, value in found["settings"].items()),
        "",
        "| workload | what | " + " | ".join(f"{n} thread{'s' * (n > 1)} | rlbench is better by" for n in counts) + " |",
        "|---|---|" + "---:|---:|" * len(counts),
    ]
    seen = dict.fromkeys((row["workload"], row["subject"], row["unit"]) for row in found["figures"])
    for workload, subject, unit in seen:
        cells = [cell for n in counts for cell in _cells(found, workload, subject, n)]
        told.append(f"| {workload} | {subject}, {unit} | " + " | ".join(cells) + " |")
    return "\n".join(told) + "\n"


def _cells(found: Report, workload: str, subject: str, threads: int) -> tuple[str, str]:
    key = (workload, subject, threads)
    here = [row for row in found["figures"] if (row["workload"], row["subject"], row["threads"]) == key]
    against = [row for row in found["ratios"] if (row["workload"], row["against"], row["threads"]) == key]
    figure = f"{here[0]['median']:,.4g} ± {here[0]['spread']:.0%}" if here else ""
    return figure, f"{against[0]['ratio']:.2f}×" if against else ""


def _package(machine: dict[str, object], name: str) -> str:
    packages = machine["packages"]
    return str(packages.get(name)) if isinstance(packages, dict) else "unknown"


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
