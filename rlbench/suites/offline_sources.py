"""The settings of each offline cell's primary reference, with the file and commit that each field was read in.

``offline_settings.csv`` has a row a field: the system, the cells, the value here, the words of the source, the source.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rlbench.config.overrides import Setting

FILE = Path(__file__).with_name("offline_settings.csv")


class Row(NamedTuple):
    """One field of the cells of one algorithm, as one system sets it."""

    system: str
    algorithm: str
    tasks: str  # data sets, separated by blanks
    field: str  # as overrides name it
    value: str
    in_source: str  # the setting in the source's own words
    source: str  # repository@commit:path; {task}, {body} and {quality} stand for those of the data set


@cache
def rows() -> tuple[Row, ...]:
    """Every row of the file."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(Row(**line) for line in csv.DictReader(file))


@cache
def settings(algorithm: str, task: str) -> tuple[Setting, ...]:
    """The documented fields of one cell, each with its source; none where no reference documents the cell."""
    body, _, quality = task.removesuffix("-v2").partition("-")
    names = {"task": task, "body": body, "quality": quality.replace("-", "_")}
    return tuple(
        Setting(row.field, row.value, row.source.format(**names))
        for row in rows()
        if row.algorithm == algorithm and task in row.tasks.split()
    )


def system(algorithm: str, task: str) -> str:
    """The system whose settings a cell has; empty where no reference documents the cell."""
    return next((row.system for row in rows() if row.algorithm == algorithm and task in row.tasks.split()), "")
