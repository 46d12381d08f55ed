"""From files of any library to curves of a cell: the format is recognised, the task and the unit of steps resolved."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, compress
from pathlib import Path, PurePath
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from rlbench import disk, suites
from rlbench.config.names import MAX_NAME_LENGTH
from rlbench.curves import binary, delimited, json_files
from rlbench.curves.curve_files import Format, curve_files
from rlbench.curves.points import (
    MAX_CURVES,
    NUMBER,
    RUN_NAMES,
    Label,
    Points,
    label_of,
    listing,
    number_seeds,
    refuse_beyond_memory,
    sort_points,
)
from rlbench.errors import RefusedFile, UnknownName, UsageError, suggest_path
from rlbench.records.imported import ImportedCurve, Kind, check_curve

FORMATS: Final[tuple[Format, ...]] = get_args(Format)
Unit: TypeAlias = Literal["frames", "decisions"]

MAX_BYTES: Final = 2**28  # bytes of a file
MEMORY_PER_BYTE: Final = 16  # of memory for a byte of a file, whose scalars become objects of Python
MEMORY_PER_VALUE: Final = 160  # bytes of memory for a value of CSV or JSON
SEPARATORS: Final = (b",", b"[", b"{", b"\n")  # of values; "\n" is also the tag of a value in a TensorBoard event
FRAME_SKIP: Final = 4
BUDGET_FACTOR: Final = 1.5  # times the documented budget that steps reach before their unit is in doubt
PROTOCOL: Final = ("settings", "environment version", "episodes per evaluation")
"""Parts of the protocol that a file may leave unstated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOptions:
    """Options of the command line about the files."""

    suite: str
    algorithm: str
    task: str | None
    format: Format | None
    kind: Kind | None
    unit: Unit | None
    tag: str | None


def read_curves(paths: Sequence[Path], options: ImportOptions) -> list[ImportedCurve]:
    """The curves of all files, each checked.

    Raises:
        UsageError: a file is missing, or an option is missing.
        RefusedFile: a file is not of the format, or holds what is no curve.
    """
    curves, curve_paths = list[Points](), list[Path]()
    pairs = [(inside, source) for source in paths for inside in curve_files(source, options.format)]
    every_path = [inside for inside, _ in pairs]
    _refuse_experiments(every_path, options)
    parts = Counter(path.parent for path in every_path if "tfevents" in path.name or path.name.endswith("monitor.csv"))
    if folder := next((folder for folder, count in parts.items() if count > 1), None):
        raise UsageError(f"{folder}: holds parts of one run, which are no seeds; name one, or give each seed a folder")
    folders = Counter(path.parent for path in every_path)
    several_numbers = sum(NUMBER.fullmatch(folder.name) is not None for folder in folders) > 1
    for path, source in pairs:
        raw = _content(path, links=path in paths)  # a link that the user names is read
        format_, points = _read(raw, path, options)
        if len(points) == 1 and points[0].label.seed is None:
            is_seed = several_numbers or folders[path.parent] == 1
            label = _with_names(points[0].label, path, source, options.suite, numbers=is_seed)
            points = [replace(points[0], label=label)]
        digest = sha256(raw).hexdigest()
        curves += [replace(curve, origin=replace(curve.origin, format=format_, sha256=digest)) for curve in points]
        curve_paths += [path] * len(points)
        if len(curves) > MAX_CURVES:
            raise RefusedFile(f"{path}: holds more than {MAX_CURVES:,} curves; import it in parts")
    if not curves:
        formats = f"no file of a known format; known: {', '.join(FORMATS)}; see --format"
        raise UsageError(f"{paths[0]}: holds {'no score; give another file' if every_path else formats}")
    names = {curve.label.task or label_of(path.parent).task for curve, path in zip(curves, curve_paths, strict=True)}
    _refuse_tasks(names - {""}, options)
    have_seeds = [curve.label.seed is not None and "seeds" not in curve.unknown for curve in curves]
    cell_curves = [_curve(curve, options) for curve in number_seeds(curves)]
    _refuse_parts(cell_curves, have_seeds, curve_paths)
    return _refuse_duplicates(cell_curves, curve_paths)


def _with_names(label: Label, path: Path, source: Path, suite: str, *, numbers: bool) -> Label:
    """The label with seed and task in the file's name, or in those of its folders up to ``source``.

    With ``numbers`` the name of the file's folder may be a number alone, which otherwise may be a year or a user's id.
    """
    own, top = label_of(path.stem), path.parent if path == source else source
    top_name = top.name if top.name not in {"", ".."} else top.resolve().name
    folders = PurePath(top_name) / path.parent.relative_to(top)
    seed = label_of(folders if numbers else folders / path.name).seed if own.seed is None else own.seed
    names = [own.task, *chain.from_iterable(_task_names(name) for name in reversed(folders.parts))]
    task = next((name for name in names if _is_task(suite, name)), own.task)  # an experiment's name, as sac-v2, is none
    return label._replace(seed=seed, task=label.task or task)


def _task_names(folder: str) -> tuple[str, ...]:
    """Candidates for the task in the name of a folder: ``Hopper-v4`` of ``trpo-Hopper-v4``, or ``Hopper`` itself."""
    return label_of(folder).task, folder, re.sub(r"^.*[-_ ](?=[A-Za-z0-9]+-v\d+$)", "", folder)


def _refuse_experiments(paths: Sequence[Path], options: ImportOptions) -> None:
    """Refuse ``--as`` for runs of several programs of CleanRL, of which it would make one."""
    matches = [RUN_NAMES[0].fullmatch(part) for path in paths for part in path.parts if len(part) <= MAX_NAME_LENGTH]
    names = sorted({match["experiment"] for match in matches if match})
    if options.algorithm and len(names) > 1:
        cell = f"--as {options.suite}/{options.algorithm}"
        raise UsageError(f"{cell}: the files are of {listing(map(repr, names))}; import those of one program")


def _refuse_tasks(names: set[str], options: ImportOptions) -> None:
    """Refuse ``--task`` for curves of several tasks, of which it would make one."""
    others = {name for name in names if not _is_task(options.suite, name)}  # names of the library's own
    if options.task and len(others) + (others != names) > 1:
        have = listing(map(repr, sorted(names)))
        raise UsageError(f"--task {options.task}: the files name {have}; import those of one task")


def _is_task(suite: str, name: str) -> bool:
    try:
        return bool(resolved_task(suite, name))
    except UnknownName:
        return False


def _content(path: Path, *, links: bool) -> bytes:
    try:
        with disk.open_regular(path, max_bytes=MAX_BYTES, links=links) as file:
            raw = file.read()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file{suggest_path(path)}; check the path") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    refuse_beyond_memory(path, len(raw) * MEMORY_PER_BYTE + MEMORY_PER_VALUE * sum(map(raw.count, SEPARATORS)))
    return raw


def _read(raw: bytes, path: Path, options: ImportOptions) -> tuple[Format, list[Points]]:
    if raw[:4] == b"PK\x03\x04":
        content = binary.npz_arrays(raw, path)
        if set(content) >= binary.EVALUATIONS:
            return _checked_format("sb3", options), binary.sb3_curves(content, path, label_of(path.parent))
        cell = (options.suite, options.algorithm)
        return _checked_format("rliable", options), binary.rliable_curves(content, path, cell, options.tag)
    if "tfevents" in path.name or options.format == "tensorboard":
        curves = binary.event_curves(raw, path, tag=options.tag, label=label_of(path.parent))
        cleanrl = "__" in path.parent.name and options.format in {None, "cleanrl"}
        return _checked_format("cleanrl" if cleanrl else "tensorboard", options), curves
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RefusedFile(f"{path}: not UTF-8 text; save it as UTF-8") from None
    format_: Format
    match text.lstrip()[:1]:
        case "{":
            format_, curves = "jsonl", json_files.json_lines_curves(text, path)
        case "[":
            format_ = "dopamine"
            curves = json_files.dopamine_curves(text, path, algorithm=options.algorithm, tag=options.tag)
        case "#" if text.startswith("#{"):
            format_, curves = "sb3", delimited.read_monitor(text, path)
        case _:
            return _table(delimited.read_table(text, str(path)), options)
    return _checked_format(format_, options), curves


def _table(table: delimited.Table, options: ImportOptions) -> tuple[Format, list[Points]]:
    if table.header == ["0", "1", "2"]:
        return _checked_format("d3rlpy", options), delimited.read_d3rlpy(table)
    if any((series := delimited.SERIES.fullmatch(name)) and not series["bound"] for name in table.header):
        if delimited.wandb_steps(table).strip().lower() in {"step", "_step"} and options.unit is None:
            raise UsageError(
                f"{table.where}: its column Step counts W&B's log calls unless the chart says otherwise; "
                "export it over global_step, or say --steps-are decisions"
            )
        return _checked_format("wandb", options), delimited.read_wandb(table, kind=options.kind, tag=options.tag)
    score = table.name_of("return")
    if score is None and table.name_of("step") is not None and not {"seed", "task"} & set(table.header):
        return _checked_format("csv", options), delimited.read_wide(table, kind=options.kind)
    cleanrl = score is not None and "episodic_return" in score
    return _checked_format("cleanrl" if cleanrl else "csv", options), delimited.read_long(table, kind=options.kind)


def _checked_format(format_: Format, options: ImportOptions) -> Format:
    """The format of a file, or the one of the command line if both are CSV or event files."""
    option = options.format
    if option is None or option == format_:
        return format_
    alike = ({"csv", "cleanrl", "wandb"}, {"tensorboard", "cleanrl"})
    if any({format_, option} <= group for group in alike):
        return option
    raise UsageError(f"--format {option}: the file is of the format {format_}; leave the option out")


def _curve(points: Points, options: ImportOptions) -> ImportedCurve:
    label = points.label
    suite = label.suite or options.suite
    own, requested_name = (_resolved_algorithm(suite, name) for name in (label.algorithm, options.algorithm))
    algorithm = own or requested_name
    if (options.suite or suite, requested_name or algorithm) != (suite, algorithm):
        raise UsageError(
            f"--as {options.suite}/{options.algorithm}: the file holds {suite}/{algorithm}; leave --as out"
        )
    if not suite or not algorithm:
        raise UsageError("--as: the file names no algorithm; say --as SUITE/ALGO, such as --as mujoco/sac")
    name = options.task or label.task
    if not name:
        raise UsageError("--task: the file names no task; say --task TASK, such as --task Hopper-v4")
    task = resolved_task(suite, name)
    with suppress(UnknownName):  # a name of the library's own, which --task translates
        if label.task and (own := resolved_task(suite, label.task)) != task:
            raise UsageError(f"--task {options.task}: the file or its folder names {own}; rename it, or omit --task")
    where = f"{suite}/{algorithm}/{task}"
    points = sort_points(_in_decisions(points, where, suite, algorithm, task, options.unit), where)
    if not len(points.steps):
        raise RefusedFile(f"{where}: seed {label.seed} has no return; remove it")
    curve = ImportedCurve(
        suite=suite,
        algorithm=algorithm,
        task=task,
        dataset=label.dataset,
        seed=label.seed or 0,
        kind=options.kind or points.kind,
        steps=tuple(map(int, points.steps.tolist())),
        returns=tuple(points.returns.tolist()),
        lengths=None if points.lengths is None else tuple(points.lengths.tolist()),
        origin=replace(
            points.origin,
            env_id=label.task or name,
            unknown=(*(part for part in PROTOCOL if part not in points.protocol_parts), *points.unknown),
        ),
    )
    return check_curve(curve, where)


def _resolved_algorithm(suite: str, name: str) -> str:
    """The suite's own name of an algorithm in another spelling, such as ``TD3+BC``; another name stays as it is."""
    algorithms = suites.algorithms(suite) if suite and name else []
    return next((own for own in algorithms if _letters(own) == _letters(name)), name)


def _letters(name: str) -> str:
    """A name in small letters without spaces and signs between them: ``td3bc`` of ``TD3 + BC``."""
    return re.sub(r"(?<=[a-z0-9])(?: *[-_+] *| +)(?=[a-z0-9])", "", name.strip().lower())


def resolved_task(suite: str, name: str) -> str:
    """The suite's own id of a task, whatever version, and of Atari whatever spelling, a file names.

    Raises:
        UnknownName: the suite has no such task, or does not exist.
    """
    names = suites.tasks(suite)
    lower = {task.lower(): task for task in names}
    last = name.rpartition("/")[2].lower()
    base = re.sub(r"-v\d+$", "", last)
    for candidate in (name.lower(), last, f"{base}-v4", f"{base}noframeskip-v4"):
        if candidate in lower:
            return lower[candidate]
    raise UnknownName("task", name[:MAX_NAME_LENGTH], names, where=suite)


def _in_decisions(points: Points, where: str, suite: str, algorithm: str, task: str, unit: Unit | None) -> Points:
    """Points in agent steps: frames are divided by the frame skip, and steps that no file states become the budget.

    Raises:
        UsageError: the unit is not stated, and the steps go far beyond the budget; or it is not the suite's.
        RefusedFile: two rows are one agent step.
    """
    try:
        budget = suites.spec(suite, algorithm, task).budget.steps
    except (UnknownName, UsageError):
        budget = 0
    if {"steps", "curve"} & {*points.unknown}:  # a final score: it lies at the end of the budget
        return replace(points, steps=np.full(points.steps.shape, float(budget or 1)))
    if suite != "atari":
        if unit == "frames":
            raise UsageError(f"--steps-are frames: only Atari counts frames, {suite} counts decisions; leave it out")
        return points
    if unit == "frames":
        frames = sort_points(points, where).steps
        equal = np.flatnonzero(np.diff(frames // FRAME_SKIP) == 0)
        if equal.size and not points.episodes:
            both = " and ".join(f"{frame:.0f}" for frame in frames[equal[0] : equal[0] + 2])
            raise RefusedFile(f"{where}: frames {both} of seed {points.label.seed} are one decision; remove one row")
        return replace(points, steps=points.steps // FRAME_SKIP)
    if unit is None and budget and (last := float(points.steps.max(initial=0.0))) > BUDGET_FACTOR * budget:
        raise UsageError(
            f"{suite}/{algorithm}/{task}: the steps reach {last:,.0f}, the reference's {budget:,} decisions; "
            "say --steps-are frames, or --steps-are decisions if they are"
        )
    return points


def _refuse_parts(curves: Sequence[ImportedCurve], have_seeds: Sequence[bool], paths: Sequence[Path]) -> None:
    """Refuse curves without a seed that may be a part or the mean of another run: they would be further seeds."""
    cells = [(curve.suite, curve.algorithm, curve.task, curve.dataset) for curve in curves]
    formats = {(cell, curve.origin.format) for curve, cell in zip(curves, cells, strict=True)}
    several_formats = Counter(cell for cell, _ in formats)
    places = {(cell, path) for cell, path, has_seed in zip(cells, paths, have_seeds, strict=True) if not has_seed}
    files = Counter((cell, path.parent) for cell, path in places)
    siblings = Counter((cell, folder.parent) for cell, folder in files)
    namesakes = Counter((cell, folder.name) for cell, folder in files)
    folders, cells_with_seeds = Counter(cell for cell, _ in files), set(compress(cells, have_seeds))
    for curve, cell, has_seed, path in zip(curves, cells, have_seeds, paths, strict=True):
        if not has_seed and cell in cells_with_seeds:
            begin = f"{path}: the curve of {'/'.join(cell[:3])} that begins at step {curve.steps[0]:,}"
            raise RefusedFile(f"{begin} has no seed, others of it have one; write its seed, or leave it out")
        if not has_seed and several_formats[cell] > 1:
            raise RefusedFile(
                f"{path}: one of several formats without seeds; name the files by seeds, or keep one format"
            )
        folder = path.parent
        is_part = files[cell, folder] > 1 or any((cell, up) in files for up in folder.parents)
        is_part |= siblings[cell, folder.parent] > 1 < namesakes[cell, folder.name]  # a/eval and a/train, b/eval
        if folders[cell] > 1 and is_part:
            raise RefusedFile(
                f"{folder}: other files in, beside or above it may be of the same run; name them by seeds"
            )


def _refuse_duplicates(curves: list[ImportedCurve], paths: Sequence[Path]) -> list[ImportedCurve]:
    """Refuse two curves of the same cell and seed, or one that is equal to another seed's."""
    labels, digests = dict[Label, Path](), dict[tuple[Label, str], int]()
    for curve, path in zip(curves, paths, strict=True):
        label = Label(curve.suite, curve.algorithm, curve.task, curve.dataset, curve.seed)
        cell = f"{curve.suite}/{curve.algorithm}/{curve.task}"
        if label in labels:
            where = f"twice in {path}" if path == labels[label] else f"in two files, {labels[label]} and {path}"
            raise UsageError(f"{cell}: seed {curve.seed} is {where}; keep one of them, or name other seeds")
        labels[label] = path
        digest = curve.digest
        first = digests.setdefault((label._replace(seed=None), digest), curve.seed)
        if digest and first != curve.seed:
            raise UsageError(f"{cell}: seed {curve.seed} has the curve of seed {first}; remove the copy")
    return curves
