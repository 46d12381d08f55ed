"""Learning curves that other programs measured, a sealed file per seed: ``SUITE/ALGO/TASK/imported/seed=N/curve.json``.

An imported curve has no Spec: how it was made is known from its ``origin`` alone, so it never stands for a run.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from itertools import pairwise
from os.path import lexists
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pydantic import TypeAdapter

from rlbench import disk, faults
from rlbench.config.names import check_name, clean_texts
from rlbench.errors import RefusedFile, UsageError
from rlbench.records import files
from rlbench.records.types import MAX_RETURN

FILE: Final = "curve.json"
UNFINISHED: Final = ".unfinished"  # beside the seeds of a cell: those of an import that is not yet whole
MAX_POINTS: Final = 400_000  # points that a sealed line holds
MIN_DISTINCT_RETURNS: Final = 3
MAX_NAMED_SEEDS: Final = 10  # missing ones, in a message
PATIENCE: Final = 10.0  # seconds that an import waits for another one into the same folder
MAX_STEP: Final = 2**53
MAX_SEED: Final = 2**31
Kind: TypeAlias = Literal["training", "evaluation"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The file that an imported curve comes from."""

    format: str
    sha256: str
    env_id: str  # the task as the file names it
    unknown: tuple[str, ...]  # parts of the protocol that the file does not say
    library: str = ""  # name and version of the program that trained
    data: str = ""  # SHA-256 of the file that an offline algorithm learned from
    packages: tuple[str, ...] = ()  # names and versions of the environment's packages
    settings: str = ""  # identity of the Spec whose settings ran
    differences: tuple[str, ...] = ()  # settings of rlbench's row that the program cannot have


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedCurve:
    """The returns of one seed; ``steps``, ``returns`` and, where known, ``lengths`` are equally long."""

    suite: str
    algorithm: str
    task: str
    dataset: str  # empty where the task names all there is
    seed: int
    kind: Kind
    steps: tuple[int, ...]  # agent steps, offline gradient steps; rising
    returns: tuple[float, ...]  # raw points
    lengths: tuple[float, ...] | None  # agent steps an episode
    origin: Origin

    @property
    def digest(self) -> str:
        """SHA-256 of steps and returns; empty below three different returns, which two seeds may have by chance."""
        same = len(set(self.returns)) < MIN_DISTINCT_RETURNS
        return "" if same else sha256(array("d", self.steps + self.returns).tobytes()).hexdigest()


_CURVE: Final = TypeAdapter(ImportedCurve)


def curve_folder(curve: ImportedCurve, results: Path) -> Path:
    """The folder of one imported seed."""
    place = f"{curve.task}@{curve.dataset}" if curve.dataset else curve.task
    return results / curve.suite / curve.algorithm / place / "imported" / f"seed={curve.seed}"


def curve_folders(results: Path) -> Iterator[Path]:
    """Yield the folder of every imported curve below ``results``, in order of name; no link is followed.

    Raises:
        RefusedFile: a curve is reached by a link, or has another one in its folder; or an import is not whole.
    """
    for root, names, file_names in disk.walk(results):
        if UNFINISHED in file_names and Path(root).absolute().name == "imported":
            raise RefusedFile(f"{root}: {_broken_off(Path(root))}")
        names[:] = sorted(name for name in names if not name.startswith("."))
        if FILE in file_names and Path(root).name.startswith("seed="):
            files.refuse_links(Path(root), results)
            files.refuse_nested(Path(root))
            names.clear()
            yield Path(root)


def write_curves(curves: Sequence[ImportedCurve], results: Path) -> list[bool]:
    """Write curves after all of them are checked; False for each that is there already.

    Some seeds of a cell may lift its score, so until all are there no reader takes any.

    Raises:
        UsageError: another curve of a seed is there, or curves without seeds beside curves with them; or the folder
            cannot be written.
        RefusedFile: a name has forbidden signs, a number is out of its range, or a folder holds a link.
        ResourceExhausted: the disk is full.
    """
    cells: dict[Path, set[int]] = {}
    for curve in curves:
        cells.setdefault(curve_folder(curve, results).parent, set()).add(curve.seed)
    new = [_new_text(curve, results) is not None for curve in curves]
    if not any(new) and not any(lexists(cell / UNFINISHED) for cell in cells):
        return new
    with disk.refusing(results), disk.locked(results, patience=PATIENCE, required=False):  # against another import
        texts = [_new_text(curve, results) for curve in curves]
        for curve in {curve_folder(curve, results).parent: curve for curve in curves}.values():
            _refuse_mixture(curve, results)
        for cell, seeds in cells.items():
            with files.writing(cell):
                cell.mkdir(parents=True, exist_ok=True)
            files.replace(cell / UNFINISHED, " ".join(map(str, sorted(seeds | _unfinished_seeds(cell)))))
        for curve, text in zip(curves, texts, strict=True):
            if text is not None:
                folder = curve_folder(curve, results)
                with files.writing(folder):
                    folder.mkdir(exist_ok=True)
                faults.point("lock.made")
                files.replace(folder / FILE, text + "\n")
        for cell in cells:
            if not _missing_seeds(cell):
                (cell / UNFINISHED).unlink()
    if unfinished := next((cell for cell in cells if lexists(cell / UNFINISHED)), None):
        raise UsageError(f"{unfinished}: {_broken_off(unfinished)}")
    return [text is not None for text in texts]


def _unfinished_seeds(cell: Path) -> set[int]:
    with suppress(RefusedFile):  # no text, which the next import replaces
        return {int(seed) for seed in re.findall(r"[0-9]{1,10}", files.read_text(cell / UNFINISHED))}
    return set()


def _missing_seeds(cell: Path) -> list[int]:
    return sorted(seed for seed in _unfinished_seeds(cell) if not (cell / f"seed={seed}" / FILE).exists())


def _broken_off(cell: Path) -> str:
    missing = ", ".join(map(str, _missing_seeds(cell)[:MAX_NAMED_SEEDS]))
    lacks = f", and lacks seeds {missing}" if missing else ""
    return f"an import was broken off or is under way{lacks}; type it again, or remove the folder"


def _new_text(curve: ImportedCurve, results: Path) -> str | None:
    """The text of a curve's file; None where the same curve is there already."""
    folder = curve_folder(check_curve(curve, curve.task), results)
    content = {field.name: getattr(curve, field.name) for field in fields(curve)} | {"origin": asdict(curve.origin)}
    text = files.seal(content)
    if len(text) > files.MAX_LINE_LENGTH:
        size = f"seed {curve.seed} takes {len(text):,} characters, {files.MAX_LINE_LENGTH:,} are allowed"
        raise RefusedFile(f"{curve.task}: {size}; thin the file, or round its numbers")
    files.refuse_links(folder, results)
    with disk.refusing(results):
        if not (folder / FILE).exists():
            return text
    if read_curve(folder) != curve:
        raise UsageError(f"{folder}: holds another curve of seed {curve.seed}; choose another folder with --results")
    return None


def _refuse_mixture(curve: ImportedCurve, results: Path) -> None:
    """Refuse a curve without a seed beside earlier ones with one, or the reverse: it may be their mean or a part."""
    cell = curve_folder(curve, results).parent
    for path in sorted(cell.glob(f"seed=*/{FILE}"))[:1]:  # the others are alike
        files.refuse_links(path.parent, results)
        pair = ["without" if "seeds" in it.origin.unknown else "with" for it in (read_curve(path.parent), curve)]
        if pair[0] != pair[1]:
            which = f"holds curves {pair[0]} seeds, the files curves {pair[1]} them"
            raise UsageError(f"{cell}: {which}; write the seeds, or choose another folder with --results")


def read_curve(folder: Path) -> ImportedCurve:
    """The curve of a folder.

    Raises:
        RefusedFile: the file is damaged, missing, newer than this version, no curve, or another folder's.
    """
    path = folder / FILE
    try:
        content = files.read_sealed(path)
    except RefusedFile as error:
        raise RefusedFile(str(error).replace("start over with --force", "remove it and import again")) from None
    content.pop("schema_version", None)
    with files.validating(str(path), "a curve"):
        curve = _CURVE.validate_python({**content, "origin": clean_texts(content.get("origin"))})
    check_curve(curve, str(path))
    place = curve_folder(curve, Path()).parts
    if folder.absolute().parts[-len(place) :] != place:
        raise RefusedFile(f"{path}: is the curve of {Path(*place)}; move it there")
    return curve


def check_curve(curve: ImportedCurve, where: str) -> ImportedCurve:
    """Return a curve whose names and numbers are valid.

    Raises:
        RefusedFile: a name has forbidden signs, or a number is out of its range.
    """
    try:
        for name in (curve.suite, curve.algorithm, curve.task, curve.dataset, curve.origin.env_id):
            check_name(name) if name else None
    except ValueError as error:
        raise RefusedFile(f"{where}: {error}") from None
    if "/" in curve.suite + curve.algorithm:
        raise RefusedFile(f"{where}: {curve.suite}/{curve.algorithm}: a name without / is needed")
    size = len(curve.steps)
    if not 0 < size <= MAX_POINTS or len(curve.returns) != size or len(curve.lengths or curve.returns) != size:
        raise RefusedFile(
            f"{where}: seed {curve.seed} has {size:,} points; 1 to {MAX_POINTS:,} are allowed, thin the file"
        )
    if not 0 <= curve.seed < MAX_SEED:
        raise RefusedFile(f"{where}: seed {str(curve.seed)[:40]} is not from 0 to {MAX_SEED - 1:,}; correct it")
    if not 0 <= curve.steps[0] <= curve.steps[-1] < MAX_STEP or any(b <= a for a, b in pairwise(curve.steps)):
        raise RefusedFile(f"{where}: the steps of seed {curve.seed} do not rise; sort the file")
    if not all(0 <= length < MAX_STEP for length in curve.lengths or ()):
        raise RefusedFile(f"{where}: a length of an episode of seed {curve.seed} counts no steps; remove the row")
    if not all(abs(number) <= MAX_RETURN for number in curve.returns):
        raise RefusedFile(f"{where}: a return of seed {curve.seed} is not below {MAX_RETURN:g}; remove the row")
    return curve


def origin_texts(origins: Sequence[Mapping[str, object]], name: str) -> tuple[str, ...]:
    """The texts of a field of all origins, each once."""
    texts = (text for origin in origins if isinstance(parts := origin[name], tuple) for text in parts)
    return tuple(dict.fromkeys(texts))
