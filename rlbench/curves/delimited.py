"""Curves in CSV files: long and wide tables, exports of W&B, Stable-Baselines3's monitor files, d3rlpy's metrics.

Cells are numbers or names and are never more than text; a whole column is parsed at once.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final, cast, get_args

import numpy as np

from rlbench.config.names import check_name, printable
from rlbench.curves.points import Column, Label, Points, label_of, listing
from rlbench.errors import RefusedFile
from rlbench.records.imported import Kind

LINE: Final = 2**20  # letters
COLUMNS: Final = 1_000
ALIASES: Final = {
    "suite": ("suite",),
    "algorithm": ("algo", "algorithm"),
    "task": ("task", "env", "env_id", "environment", "game"),
    "dataset": ("dataset",),
    "seed": ("seed",),
    "step": (
        "step", "steps", "env_step", "env_steps", "global_step", "timesteps", "timestep", "total_timesteps",
        "num_timesteps",
    ),
    "return": ("return", "episodic_return", "charts/episodic_return", "mean_return", "score", "mean_reward", "reward"),
    "length": ("length", "episodic_length", "charts/episodic_length", "episode_length"),
    "kind": ("kind", "evaluation_kind"),
}  # fmt: skip
OTHER_WORDS: Final = ("envs", "gae", "games", "seeds", "speed", "_step")  # columns of other meaning, one letter off
TYPO: Final = 0.82  # similarity of a mistyped name, by difflib: a letter more, less or swapped
GROUP: Final = re.compile(r"[\w./]+: ")  # of a chart of W&B that is grouped by a setting: its key and its value
SERIES: Final = re.compile(r"(?P<run>.+) - (?P<metric>\S+?)(?P<bound>__MIN|__MAX)?")
SEED_NAME: Final = re.compile(r"(?:seed|run)?[=_ ]?(?:(\d{1,9})|\d+)")


class Table:
    """The columns of a CSV file by name."""

    def __init__(self, columns: Mapping[str, Sequence[str]], where: str) -> None:
        self.where, self.columns, self.header = where, columns, list(columns)
        self.size = max(map(len, columns.values()), default=0)

    def name_of(self, field: str) -> str | None:
        """The name that a column has in this file.

        Raises:
            RefusedFile: several columns may be meant, or one that is mistyped.
        """
        aliases, plain_names = ALIASES[field], {name: name.strip().lower() for name in self.header}
        names = [name for alias in aliases for name, plain in plain_names.items() if plain == alias]
        if len(names) > 1:  # as step and global_step of W&B, of which one counts log calls
            raise RefusedFile(f"{self.where}: has several columns for {field}: {listing(names)}; keep one of them")
        candidates = () if names or field == "length" else aliases
        others = {name: plain for name, plain in plain_names.items() if plain not in (*aliases, *OTHER_WORDS)}
        for name, plain in others.items():
            for alias in get_close_matches(plain, candidates, n=1, cutoff=TYPO):
                unknown = f"unknown column {printable(name, 40)!r}; did you mean {alias!r}?"
                raise RefusedFile(f"{self.where}: {unknown} Rename or remove it")
        return next(iter(names), None)

    def texts(self, field: str) -> Sequence[str]:
        """A column of texts, of which names are each checked once; empty texts where there is none.

        Raises:
            RefusedFile: a cell has signs that names do not have.
        """
        name = self.name_of(field)
        if name is None:
            return [""] * self.size
        column = self.columns[name]
        for text in dict.fromkeys(column):
            try:
                check_name(text) if text and field != "seed" else None
            except ValueError as error:
                raise RefusedFile(f"{self.where}: column {name}: {error}") from None
        return column

    def numbers(self, name: str, *, gaps: bool = False) -> Column:
        """A column of numbers ``[N]``; with ``gaps`` an empty cell is NaN, which no cell may hold in writing.

        Raises:
            RefusedFile: a cell is no number, or NaN; the message names the row, counted without the header.
        """
        texts = self.columns[name]
        values = np.fromiter(map(_number, texts), np.float64)
        is_invalid = np.isnan(values)
        if gaps and is_invalid.any():
            is_invalid &= [bool(text.strip()) for text in texts]
        if is_invalid.any():
            line = int(np.flatnonzero(is_invalid)[0])
            raise RefusedFile(
                f"{self.where}: row {line + 1} has {printable(texts[line], 40)!r} as {printable(name, 60)}; "
                "a finite number is needed"
            )
        return values


def read_table(text: str, where: str) -> Table:
    """Read a CSV file as columns; without a header they have numbers as names.

    Raises:
        RefusedFile: it is no CSV, has too many columns, or rows of unequal length.
    """
    try:
        rows = [row for row in csv.reader(_lines(text, where), strict=True, skipinitialspace=True) if row]
    except csv.Error as error:
        raise RefusedFile(f"{where}: not CSV ({error}); write one row per line") from None
    if len(rows) < 1 or len(rows[0]) > COLUMNS:
        have = f"{len(rows[0]):,} columns, {COLUMNS:,} are allowed" if rows else "no row"
        raise RefusedFile(f"{where}: has {have}; write a header and one row per point")
    plain = all(_number(cell) == _number(cell) for cell in rows[0])
    header = [str(index) for index in range(len(rows[0]))] if plain else rows.pop(0)
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise RefusedFile(
                f"{where}: row {number + 1} has {len(row):,} cells, the header {len(header)}; correct the row"
            )
    if not rows or len(set(header)) < len(header):
        have = "a column twice" if rows else "no row below the header"
        raise RefusedFile(f"{where}: has {have}; write each column once, and one row per point")
    return Table(dict(zip(header, zip(*rows, strict=True), strict=True)), where)


def _lines(text: str, where: str) -> Iterator[str]:
    for number, line in enumerate(io.StringIO(text), start=1):
        if len(line) > LINE:
            raise RefusedFile(f"{where}: line {number} has {len(line):,} letters, {LINE:,} are allowed; see the file")
        yield line


def read_long(table: Table, *, kind: Kind | None) -> list[Points]:
    """A table with a row per point: columns step and return, and, where there are several, task, seed, algo and suite.

    Raises:
        RefusedFile: a column is missing, or a cell does not fit it.
    """
    step, score = table.name_of("step"), table.name_of("return")
    if step is None or score is None:
        missing = "step" if step is None else "return"
        raise RefusedFile(f"{table.where}: no column {missing!r} among {listing(table.header)}; rename one")
    episodes = "episodic" in score
    returns = table.numbers(score, gaps=episodes)
    numeric = ~np.isnan(returns)
    fields = [table.texts(field) for field in ("suite", "algorithm", "task", "dataset", "kind", "seed")]
    rows_by_label: dict[tuple[str, ...], list[int]] = {}
    for row, label in enumerate(zip(*fields, strict=True)):
        rows_by_label.setdefault(label, []).append(row)
    steps, name = table.numbers(step, gaps=episodes), table.name_of("length")
    lengths = table.numbers(name, gaps=True) if name else None
    curves = []
    for (suite, algorithm, task, dataset, kind_label, number), rows in rows_by_label.items():
        if kind is not None and _kind(kind_label, table.where) not in {None, kind}:
            continue
        points = np.array(rows)[numeric[rows]]
        own = None if lengths is None else lengths[points]
        curves.append(
            Points(
                label=Label(suite, algorithm, task, dataset, _seed(number, table.where)),
                kind=kind or _kind(kind_label, table.where) or ("training" if episodes else "evaluation"),
                steps=steps[points],
                returns=returns[points],
                lengths=own if own is not None and np.isfinite(own).all() else None,
                unknown=() if kind or kind_label or episodes else ("kind",),
                episodes=episodes,
            )
        )
    return curves


def read_wide(table: Table, *, kind: Kind | None) -> list[Points]:
    """Curves of a table with one column per seed; an empty cell means that the seed has ended.

    Raises:
        RefusedFile: a column has no name of a seed, such as an index or a std.
    """
    first = table.name_of("step") or table.header[0]
    seeds = {name: SEED_NAME.fullmatch(name.strip().lower()) for name in table.header if name != first}
    if others := [name for name, match in seeds.items() if match is None]:
        raise RefusedFile(f"{table.where}: no seeds but {listing(map(repr, others))}; name a column return or seed_0")
    labels = {name: Label(seed=int(match[1]) if match and match[1] else None) for name, match in seeds.items()}
    return _read_columns(table, first, labels, kind or "evaluation", () if kind else ("kind",))


def _read_columns(
    table: Table, step: str, labels: Mapping[str, Label], kind: Kind, unknown: tuple[str, ...]
) -> list[Points]:
    steps, curves = table.numbers(step), []
    for name, label in labels.items():
        returns = table.numbers(name, gaps=True)
        numeric = ~np.isnan(returns)
        curves.append(Points(label=label, kind=kind, steps=steps[numeric], returns=returns[numeric], unknown=unknown))
    return curves


def wandb_steps(table: Table) -> str:
    """The name of the column that a chart of W&B is drawn over.

    Raises:
        RefusedFile: it counts no steps.
    """
    first = table.header[0]
    if (step := table.name_of("step") or (first if first.strip().lower() == "_step" else None)) is None:
        remedy = f"export it over global_step, or rename {printable(first, 60)!r} to step if it counts env steps"
        raise RefusedFile(f"{table.where}: has no column of steps; {remedy}")
    return step


def read_wandb(table: Table, *, kind: Kind | None, tag: str | None) -> list[Points]:
    """W&B's export of a chart: a column per run, called ``RUN - METRIC``, and its bounds, which are left out.

    Raises:
        RefusedFile: it has several metrics and no ``tag`` names one, means of groups, or no column of steps.
    """
    step = wandb_steps(table)
    series = {name: match for name in table.header if (match := SERIES.fullmatch(name)) and not match["bound"]}
    metrics = list(dict.fromkeys(match["metric"] for match in series.values()))
    metric = tag or metrics[0]
    if metric not in metrics or (tag is None and len(metrics) > 1):
        raise RefusedFile(f"{table.where}: holds the metrics {listing(metrics)}; name one with --tag")
    labels = {name: label_of(match["run"]) for name, match in series.items() if match["metric"] == metric}
    if group := next((name for name, label in labels.items() if GROUP.match(name) and label.seed is None), None):
        raise RefusedFile(f"{table.where}: {printable(group, 60)!r} is the mean of a group; export the runs ungrouped")
    return _read_columns(table, step, labels, kind or kind_of(metric), ("averaging over steps",))


def read_monitor(text: str, path: Path) -> list[Points]:
    """Stable-Baselines3's ``monitor.csv``: return, length and time of each training episode of one environment.

    Raises:
        RefusedFile: its header or a column is missing.
    """
    head, _, rest = text.partition("\n")
    where = str(path)
    try:
        task = json.loads(head.removeprefix("#"))["env_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RefusedFile(f"{where}: its first line is no header of Monitor; restore it") from None
    table = read_table(rest, where)
    if not {"r", "l"} <= set(table.header):
        raise RefusedFile(f"{where}: no columns 'r' and 'l' among {listing(table.header)}; restore it")
    lengths = table.numbers("l")
    label = Label(task=task if isinstance(task, str) else "", seed=label_of(path.parent).seed)
    return [Points(label=label, kind="training", steps=np.cumsum(lengths), returns=table.numbers("r"), lengths=lengths)]


def read_d3rlpy(table: Table) -> list[Points]:
    """d3rlpy's ``environment.csv``: epoch, gradient step and mean return of each evaluation, without a header."""
    return [Points(label=Label(), kind="evaluation", steps=table.numbers("1"), returns=table.numbers("2"))]


def kind_of(metric: str) -> Kind:
    """The kind of returns by a metric's name: evaluation if it contains the word, otherwise training."""
    return "evaluation" if re.search(r"(^|[/_.])(eval|test)", metric.lower()) else "training"


def _kind(text: str, where: str) -> Kind | None:
    if text not in {"", *get_args(Kind)}:
        raise RefusedFile(f"{where}: kind {printable(text, 40)!r} is unknown; write training or evaluation")
    return cast("Kind | None", text or None)


def _seed(text: str, where: str) -> int | None:
    if text and not (text.isdecimal() and len(text) < 10):
        raise RefusedFile(f"{where}: seed {printable(text, 40)!r} is no number; write 0, 1, 2 …")
    return int(text) if text else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
