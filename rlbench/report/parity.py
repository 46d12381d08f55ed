"""Parity with another library: both train the same settings in the same environment and are compared at equal steps.

ours - reference = (ours - peer) + (peer - reference). The first part is this package's. The second is the
environment's, its packages' or the library's later version's: the peer's curves are imported, so both sides ran in our
environment.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Final, Literal, NamedTuple

from rlbench.config.names import count_text, number_text
from rlbench.records.imported import origin_texts
from rlbench.report.columns import aligned
from rlbench.report.equal_steps import (
    ReferencePoint,
    end_of,
    has_reached_step,
    reference_curve,
    score_at,
    step_of_three,
    window,
)
from rlbench.report.estimate import TOLERANCE, mean, sample_std
from rlbench.report.pooled import MIN_CELLS, Effect, Meta, meta_analysis
from rlbench.report.reference_scores import SHARE
from rlbench.report.reference_table import CellKey, scale_of, task_name
from rlbench.report.run_index import LEFT_OUT, Runs, documented_spec_of_run
from rlbench.report.runs import Run, keep_one
from rlbench.report.table_data import fields
from rlbench.report.tables import escape_markdown, json_text, markdown_row, score_text, shortfall_text
from rlbench.report.verdict import (
    MIN_SEEDS,
    CellTest,
    decide,
    variance_of_mean,
    welch_interval,
    welch_test,
    with_failures,
)

ParityWord = Literal["ON PAR", "WORSE", "BETTER", "OPEN"]
WORDS: dict[str, ParityWord] = {"REPRODUCED": "ON PAR", "BELOW": "WORSE", "ABOVE": "BETTER"}
"""The word of parity for each word of the same test against a reference; every other one is OPEN."""

COLUMNS: Final = (
    "Algorithm", "Task", "Step", "rlbench", "Peer", "Reference", "rlbench - peer", "Bound", "Parity",
    "Peer - reference",
)  # fmt: skip
NUMBERS: Final = {*COLUMNS} - {"Algorithm", "Task", "Parity"}

LEGEND: Final = (
    "rlbench, Peer, Reference: mean over seeds (how many) of the last three evaluations up to the step.",
    "rlbench - peer: due to rlbench or chance, since settings and environment are equal but for the lines below.",
    "[low, high]: Welch's 95 % interval; of pooled rows that of the mean over cells. An empty Parity was not tested.",
    "Peer - reference: a difference here is due to the environment, or to a later version of the reference's code.",
    "Bound: the largest shortfall against the peer that the data allow (one-sided, 95 %), in % of the way.",
    "%: of the way from the random policy to the reference at that step; pooled rows are means over cells.",
    "ON PAR: at most a tenth of the way below the peer; WORSE, BETTER: below, above after Holm's correction; or OPEN.",
)

MIN_SEEDS_A_SIDE = 2  # seeds on either side below which a cell has no interval, and no row


@dataclass(frozen=True, kw_only=True, slots=True)
class Parity:
    """One cell: our seeds, the peer's and the documented curve at the same step, in raw points."""

    key: CellKey
    source: str = ""  # results folder of our seeds
    library: str  # name and version of the peer
    packages: tuple[str, ...]  # of the peer's environment
    differences: tuple[str, ...]  # settings of ours that the peer cannot have
    our_packages: tuple[str, ...] = ()  # those of the peer's packages that our runs have in another version
    unknown: tuple[str, ...] = ()  # parts of the protocol that the peer's curves do not state
    left_out: tuple[str, ...] = ()  # curves of other settings, environments, libraries; copies; seeds below the step
    step: int
    ours: tuple[float, ...]  # one score per seed, failed ones last at the random policy's
    peer: tuple[float, ...]
    reference: ReferencePoint | None
    distance: float | None  # from the random policy to the reference, else to the peer; None where neither has risen
    test: CellTest | None
    word: ParityWord | Literal[""] = ""  # empty where no distance is known

    @property
    def difference(self) -> float:
        """Ours less the peer's."""
        return mean(self.ours) - mean(self.peer)

    @property
    def interval(self) -> tuple[float, float]:
        """Welch's 95 % interval of the difference."""
        return welch_interval(self.ours, self.peer)

    @property
    def bound_percent(self) -> float | None:
        """The upper bound of the shortfall against the peer, in percent of the distance from the random policy."""
        if self.test is None or self.test.shortfall is None or self.distance is None:
            return None
        return 100 * self.test.shortfall / self.distance

    @property
    def peer_difference(self) -> float | None:
        """The peer's less the reference's."""
        return None if self.reference is None else mean(self.peer) - self.reference.mean

    @property
    def peer_percent(self) -> float | None:
        """The peer's score minus the reference, in percent of the distance from the random policy."""
        difference = self.peer_difference
        return None if difference is None or self.distance is None else 100 * difference / self.distance


class PooledParity(NamedTuple):
    """The pooled cells of an algorithm, as shares of the distance from the random policy."""

    suite: str
    algorithm: str
    cells: int
    ours: Meta  # ours less the peer's
    peer: Meta | None  # the peer's less the reference's

    @property
    def word(self) -> ParityWord:
        """By the whole interval: BETTER above +10 %, ON PAR above −10 %, WORSE below 0; else OPEN."""
        if self.ours.low > -SHARE:
            return "BETTER" if self.ours.low > SHARE else "ON PAR"
        return "WORSE" if self.ours.high < 0 else "OPEN"


def parity_rows(runs: Mapping[CellKey, Runs], suites: Iterable[str]) -> list[Parity]:
    """A row of each cell that has two seeds of ours and two imported curves; words after Holm over each suite's rows.

    ``runs`` has the imported curves attached, as ``with_imported`` does.
    """
    rows: list[Parity] = []
    for suite in suites:
        rows_of = [row for key, group in sorted(runs.items()) if key.suite == suite and (row := _row(key, group))]
        for row, verdict in zip(rows_of, decide([row.test for row in rows_of]), strict=True):
            rows.append(replace(row, word=WORDS.get(verdict.word, "OPEN")) if verdict else row)
    return rows


def pooled_parity(rows: Sequence[Parity]) -> list[PooledParity]:
    """A row for each suite and algorithm with two cells that have an effect, if all its cells are of one source."""
    groups: dict[tuple[str, str], list[Parity]] = {}
    for row in rows:
        groups.setdefault(row.key[:2], []).append(row)
    pooled_cells = []
    for (suite, algorithm), group in groups.items():
        ours = [effect for row in group if (effect := _effect(row)) is not None]
        peer = [effect for row in group if (effect := _peer(row)) is not None]
        if len(ours) >= MIN_CELLS and len({row.source for row in group if _effect(row) is not None}) == 1:
            theirs = meta_analysis(peer) if len(peer) >= MIN_CELLS else None
            pooled_cells.append(PooledParity(suite, algorithm, len(ours), meta_analysis(ours), theirs))
    return pooled_cells


def _row(key: CellKey, runs: Runs) -> Parity | None:
    """A cell before the other cells of its suite are tested; None without two seeds on each side at a common step."""
    evaluations = [run for run in runs.imported_curves if run.origin.get("kind") == "evaluation"]
    peers, left_out = _peers([run for run in evaluations if run.has_curve])
    left_out += ("scores without steps",) * (not all(run.has_curve for run in evaluations))
    scored_runs = [run for run in runs.evaluated if run.data_file in {peer.data_file for peer in peers}]
    if runs.of_imported or len(peers) < MIN_SEEDS_A_SIDE or len(scored_runs) < MIN_SEEDS_A_SIDE:
        return None
    epoch = scored_runs[0].epoch
    # the last evaluation that three seeds of ours have reached, and all of the peer's
    step = int(TOLERANCE * min(step_of_three(scored_runs), *map(end_of, peers))) // epoch * epoch
    window_steps = window(step, epoch)
    ours, theirs = (
        [score_at(r.evaluations, window_steps) for r in side if has_reached_step(r, step)]
        for side in (scored_runs, peers)
    )
    if step == 0 or len(ours) < MIN_SEEDS_A_SIDE or len(theirs) < len(peers):  # a curve begins beyond the step
        return None
    curve, scale = reference_curve(key), scale_of(key)
    point = curve.point(step) if curve is not None else None
    distance, test, conflicting = None, None, len({run.seed for run in runs.conflicting(runs.complete)})
    if scale is not None and (curve is None or curve.has_risen(step)):
        distance = abs((point.mean if point is not None else mean(theirs)) - scale.random) or None
    below = len(scored_runs) - len(ours) + sum(not run.evaluations for run in runs.short)
    waiting = [run for run in runs.unfinished if not (run.evaluations and has_reached_step(run, step))]
    may_be_bad = conflicting > 0 or (len(waiting) > 0 and len(runs.complete) > 0)
    left_out += tuple(_our_left_out(runs, scored_runs, conflicting=conflicting, below=below))
    left_out += (f"{count_text(len(runs.failed), 'failed run')} of rlbench",) * (scale is None and bool(runs.failed))
    failed_scores = [] if scale is None else [min(scale.random, *ours)] * len(runs.failed)
    if distance is not None:
        is_open = may_be_bad or len(theirs) < MIN_SEEDS
        test = CellTest(word="INCONCLUSIVE") if is_open else _test(ours, failed_scores, theirs, SHARE * distance)
    origins = [run.origin for run in peers]
    return Parity(
        key=key,
        library=_library(peers[0]),
        packages=origin_texts(origins, "packages"),
        differences=origin_texts(origins, "differences"),
        our_packages=_other_versions(origin_texts(origins, "packages"), scored_runs),
        unknown=origin_texts(origins, "unknown"),
        left_out=left_out,
        step=step,
        ours=(*ours, *failed_scores),
        peer=tuple(theirs),
        reference=point,
        distance=None if may_be_bad else distance,  # and so no cell of a pooled row
        test=test,
    )


def _our_left_out(runs: Runs, scored_runs: Sequence[Run], *, conflicting: int, below: int) -> Iterator[str]:
    """Count the seeds with two records, those ``below`` the step, and the runs that are no repeats."""
    if conflicting:
        yield f"second records of {count_text(conflicting, 'seed')} of rlbench"
    other_data = len(runs.other_data) + len(runs.evaluated) - len(scored_runs)
    other_versions, same_numbers = len(runs.other_versions), len(runs.same_numbers)
    counts = {"other_data": other_data, "other_versions": other_versions, "same_numbers": same_numbers}
    yield from (f"{count_text(count, 'run')} of rlbench {LEFT_OUT[part]}" for part, count in counts.items() if count)
    yield from [f"{count_text(below, 'seed')} of rlbench below the step"] * (below > 0)


def _test(ours: Sequence[float], failed_scores: Sequence[float], theirs: Sequence[float], margin: float) -> CellTest:
    """Test our seeds, with failed ones at ``failed_scores``, against the peer's."""
    std = sample_std(theirs) * ((len(theirs) - 1) / len(theirs)) ** 0.5  # divided by n, as references print it
    test_of = partial(welch_test, reference=mean(theirs), std=std, n=len(theirs), margin=margin)
    return with_failures(test_of, ours, failed_scores)


def _effect(row: Parity) -> Effect | None:
    variance = sample_std(row.ours) ** 2 / len(row.ours) + sample_std(row.peer) ** 2 / len(row.peer)
    if row.distance is None or not variance:
        return None
    return Effect(row.difference / row.distance, variance / row.distance**2)


def _peer(row: Parity) -> Effect | None:
    if row.distance is None or row.reference is None or row.peer_difference is None:
        return None
    variance = sample_std(row.peer) ** 2 / len(row.peer) + variance_of_mean(row.reference.std, row.reference.n)
    return Effect(row.peer_difference / row.distance, variance / row.distance**2) if variance else None


def _other_versions(packages: Iterable[str], ours: Iterable[Run]) -> tuple[str, ...]:
    """Our versions of the peer's ``packages``, where one of our runs has another."""
    names = {text.partition(" ")[0] for text in packages}
    parts = (environment.get("packages") for run in ours for environment in run.environments)
    versions = {f"{name} {part[name]}" for part in parts if isinstance(part, Mapping) for name in names & {*part}}
    several = {text.partition(" ")[0] for text in {*packages} ^ versions}
    return tuple(sorted(text for text in versions if text.partition(" ")[0] in several))


def _peers(curves: Sequence[Run]) -> tuple[list[Run], tuple[str, ...]]:
    """The curves of the cell's settings and environment by the library with most of them; what others are of."""
    first = {curve.digest: curve for curve in reversed(curves)}
    differences = [_other_kind(c) if not c.digest or first[c.digest] is c else "another seed (copies)" for c in curves]
    libraries = Counter(_library(curve) for curve, text in zip(curves, differences, strict=True) if not text)
    main = libraries.most_common(1)[0][0] if libraries else ""
    texts = [text or (_library(c) if _library(c) != main else "") for c, text in zip(curves, differences, strict=True)]
    peers = [curve for curve, text in zip(curves, texts, strict=True) if not text]
    texts += ["a seed that has another one"] * bool(keep_one(peers, attrgetter("seed")))
    return peers, tuple(f"curves of {text}" for text in dict.fromkeys(filter(None, texts)))


def _library(curve: Run) -> str:
    return str(curve.origin["library"] or curve.origin["format"])


def _other_kind(curve: Run) -> str:
    """The settings or the environment of a curve that are not those of its cell; empty where they are."""
    settings, env_id, spec = str(curve.origin["settings"]), str(curve.origin["env_id"]), documented_spec_of_run(curve)
    if settings not in {"", spec.id if spec else ""}:
        return f"settings {settings}"
    name = env_id.rpartition("/")[2]
    return env_id if re.search(r"-v\d+$", name) and name.lower() != curve.task.lower() else ""


NOT_ANSWERED: Final = (
    "NOT ANSWERED whether the environment explains it: no tested parity with a library; "
    "add curves: `rlbench import FILE --as {}/{} --results DIR`"
)
"""The note of a cell below its reference without a tested row of parity."""


def parity_note(row: Parity) -> str:
    """The row in a sentence, for the cell's note in a suite's table."""
    text = (
        f"at {row.step:,} steps rlbench {mean_text(row.ours)}, {row.library} in this environment {mean_text(row.peer)}"
    )
    if row.reference is not None and row.peer_difference is not None:
        text += f", the reference {score_text(row.reference.mean)}"
        gap = row.difference + row.peer_difference
        if row.peer_difference < 0 and gap < 0:
            text += f"; the library is {score_text(-row.peer_difference)} below it, rlbench {score_text(-gap)}"
    return f"{text}; parity {row.word or 'untested'}"


def mean_text(scores: Sequence[float]) -> str:
    """A mean over seeds, and how many."""
    return f"{score_text(mean(scores))} ({len(scores)})"


def parity_markdown(rows: Sequence[Parity]) -> str:
    """A table, a row per cell and a pooled row per algorithm, and below it the legend."""
    lines = [markdown_row(COLUMNS), markdown_row(["---:" if name in NUMBERS else "---" for name in COLUMNS])]
    legend = (f"- {escape_markdown(line)}" for line in _legend(rows))
    return "\n".join([*lines, *map(markdown_row, _body(rows)), "", *legend]) + "\n"


def parity_plain(rows: Sequence[Parity]) -> str:
    """A table for a terminal."""
    return "\n".join([*aligned([COLUMNS, *_body(rows)]), "", *_legend(rows)]) + "\n"


def parity_json(rows: Sequence[Parity]) -> str:
    """The document that scripts read."""
    documents = [
        {
            **fields(row, "suite algorithm cells"),
            "difference_percent": row.ours.percents,
            "peer_difference_percent": row.peer.percents if row.peer is not None else None,
            "word": row.word,
        }
        for row in pooled_parity(rows)
    ]
    return json_text([parity_document(row) for row in rows], documents)


TEXTS: Final[dict[str, Callable[[Sequence[Parity]], str]]] = {
    "rich": parity_plain, "md": parity_markdown, "json": parity_json,
}  # fmt: skip


def parity_document(row: Parity) -> dict[str, object]:
    """A row as scripts read it; every row has the same fields."""
    (low, high), point = row.interval, row.reference
    return {
        **row.key.document(),
        **fields(row, "library packages differences our_packages unknown left_out step ours peer"),
        "documented": {name: getattr(point, name, None) for name in ("reference_step", "mean", "std", "n")},
        "difference": row.difference,
        "low": low,
        "high": high,
        "bound_percent": row.bound_percent,
        "word": row.word or None,
        **fields(row, "peer_difference peer_percent"),
    }


def _body(rows: Sequence[Parity]) -> list[list[str]]:
    """The rows of each algorithm, its pooled row last."""
    pooled_cells = {(row.suite, row.algorithm): row for row in pooled_parity(rows)}
    lines = []
    for index, row in enumerate(rows):
        lines.append(_line(row))
        last = index + 1 == len(rows) or rows[index + 1].key[:2] != row.key[:2]
        if last and (whole := pooled_cells.get(row.key[:2])) is not None:
            peer = whole.peer.percent_text if whole.peer is not None else ""
            name = f"pooled, {whole.cells} cells"
            lines.append([row.key.algorithm, name, "", "", "", "", whole.ours.percent_text, "", whole.word, peer])
    return lines


def _line(row: Parity) -> list[str]:
    (low, high), point, percent = row.interval, row.reference, row.peer_percent
    behind = "" if row.peer_difference is None else _signed(row.peer_difference)
    return [
        row.key.algorithm,
        task_name(row.key),
        f"{row.step:,}",
        mean_text(row.ours),
        mean_text(row.peer),
        "" if point is None else f"{score_text(point.mean)} ({point.n})",
        f"{_signed(row.difference)} [{_signed(low)}, {_signed(high)}]",
        shortfall_text(row.bound_percent),
        row.word,
        behind + ("" if percent is None else f" ({number_text(percent, '+.0f')} %)"),
    ]


def _legend(rows: Sequence[Parity]) -> list[str]:
    lines = list(LEGEND)
    peers = (" with ".join(filter(None, (row.library, ", ".join(row.packages)))) for row in rows)
    lines += [f"Peer: {peer}." for peer in dict.fromkeys(peers)]
    differences = dict.fromkeys((row.key.algorithm, text) for row in rows for text in row.differences)
    lines += [f"Not equal in {algorithm}: {text}." for algorithm, text in differences]
    for row in rows:
        remarks = {"rlbench ran with": row.our_packages, "the peer's curves do not state": row.unknown}
        remarks["left out are"] = row.left_out
        cell = f"{row.key.algorithm} on {task_name(row.key)}"
        lines += [f"{cell}: {text} {', '.join(texts)}." for text, texts in remarks.items() if texts]
    return lines


def _signed(value: float) -> str:
    text = score_text(value)
    return text if text.startswith("-") else f"+{text}"
