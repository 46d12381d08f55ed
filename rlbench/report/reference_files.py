"""References from outside the package: TOML files that an option, the environment or an installed wheel names.

A file holds tables ``[[reference]]``: a source, an estimator, and rows of scores, inline or in a CSV file beside it. A
row may name a learning curve, another CSV file beside it. No code of a wheel is run to find its file.
"""

from __future__ import annotations

import csv
import io
import os
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError, field_validator

from rlbench import disk, suites
from rlbench.config.canonical import Frozen
from rlbench.config.names import check_name, printable
from rlbench.config.overrides import DOTS
from rlbench.errors import RefusedFile, UsageError, suggest_path
from rlbench.records.types import MAX_RETURN, Estimator
from rlbench.suites.plugins import entry_points

VARIABLE: Final = "RLBENCH_REFERENCES"
CHOICE: Final = "RLBENCH_REFERENCE"
GROUP: Final = "rlbench.references"
MAX_BYTES: Final = 2**22  # bytes of a CSV file
MAX_FILE_ROWS: Final = 10_000  # rows of a CSV file
MAX_ROWS: Final = 100_000  # of all sources of a TOML file, and points of their curves
MAX_TOML_BYTES: Final = 2**18  # bytes; the parser takes time and memory by the square of the dots of a key
MAX_COUNT: Final = 10**15
MAX_EXPONENT: Final = 320  # of ten, in a number

_FILES: ContextVar[tuple[Path, ...]] = ContextVar("_FILES", default=())
_NAME: ContextVar[str] = ContextVar("_NAME", default="")


def _decimal(text: str) -> Decimal:
    """The number with its last printed digit.

    Raises:
        ValueError: its exponent is beyond those of float.
    """
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("Infinity")
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > MAX_EXPONENT:
        raise ValueError(f"{printable(text, 40)} is no finite number, or has too many digits")
    return number


def _check_plain_name(text: str) -> str:
    if "/" in text:
        raise ValueError(f"{text!r}: a name without / is needed")
    return check_name(text) if text else text


Printed: TypeAlias = Annotated[
    Decimal,
    BeforeValidator(lambda value: Decimal(value) if type(value) is int else value),
    AfterValidator(lambda value: _decimal(str(value))),
]
Name: TypeAlias = Annotated[str, AfterValidator(lambda text: text and check_name(text))]


class ScoreRow(Frozen):
    """One published score, in the unit of the estimator."""

    task: Name
    score: Printed = Field(ge=-MAX_RETURN, le=MAX_RETURN)  # its last digit is its resolution
    std: float | None = Field(default=None, ge=0, le=MAX_RETURN)  # over seeds
    n: int | None = Field(default=None, ge=1, le=MAX_COUNT)  # seeds, if they differ from the reference's
    dataset: Name = ""
    curve: str = ""  # a CSV file of points beside this one

    _name = field_validator("curve")(_check_plain_name)


class Point(Frozen):
    """One point of a published learning curve of evaluations, in raw points."""

    env_step: int = Field(ge=0, le=MAX_COUNT)  # agent steps of the source's clock
    mean_return: float = Field(ge=-MAX_RETURN, le=MAX_RETURN)
    std: float = Field(ge=0, le=MAX_RETURN)  # over seeds
    seeds: int = Field(ge=2, le=MAX_COUNT)


class OutsideReference(Frozen):
    """One source of scores: its protocol, its settings and its rows."""

    name: str
    title: str
    url: str
    version: str  # commit or DOI
    suite: str
    algorithm: str
    estimator: Estimator
    kind: Literal["evaluation", "training"] = "evaluation"
    n: int | None = Field(default=None, ge=1, le=MAX_COUNT)  # seeds; None where the source does not say
    steps: int | None = Field(default=None, ge=1, le=MAX_COUNT)  # agent steps within which the scores were reached
    uncounted_steps: int = Field(default=0, ge=0, le=MAX_COUNT)  # random steps before the curves' clock starts
    protocol: str = ""
    scores: tuple[ScoreRow, ...] = Field(default=(), strict=False)
    file: str = ""  # a CSV file beside this one: task,score,std,n,dataset,curve

    _names = field_validator("name", "suite", "algorithm", "file")(_check_plain_name)

    @field_validator("title", "url", "version", "protocol")
    @classmethod
    def _printable(cls, text: str) -> str:
        return printable(text)


_REFERENCES: Final = TypeAdapter(list[OutsideReference])
_Record = TypeVar("_Record", bound=Frozen)


@contextmanager
def select_references(*, files: Sequence[Path] = (), name: str = "") -> Iterator[None]:
    """Add the references of ``files``, and compare with the reference called ``name``."""
    tokens = _FILES.set(tuple(files) or _FILES.get()), _NAME.set(name or _NAME.get())
    try:
        yield
    finally:
        _FILES.reset(tokens[0])
        _NAME.reset(tokens[1])


def selected_name() -> str:
    """The name of the reference to compare with, by option or environment; empty for the primary one."""
    return _NAME.get() or os.environ.get(CHOICE, "")


def selected_files() -> tuple[Path, ...]:
    """The files that options, the environment and installed wheels name."""
    files = _FILES.get() or tuple(map(Path, filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))))
    return (*files, *_installed())


def reference_files() -> Iterator[Path]:
    """Yield the selected files, and the CSV files that they name; of a file that cannot be read only itself."""
    for path in selected_files():
        yield path
        with suppress(UsageError, RefusedFile):
            for score in read_references(path):
                yield from (path.parent / name for name in (score.reference.file, score.row.curve) if name)


@cache
def _installed() -> tuple[Path, ...]:
    """The files of wheels: an entry point ``NAME = "package:file.toml"``."""
    files = set[Path]()
    for dist, point in entry_points(GROUP):
        package, _, name = point.value.partition(":")
        file = Path(str(dist.locate_file(Path(*package.split("."), name))))
        if not file.is_file():
            problem = f"its entry point {printable(point.value, 80)!r} of {GROUP} names no file"
            raise UsageError(f"{dist.name} {dist.version}: {problem}; repair or remove it")
        files.add(file)
    return tuple(sorted(files))


@cache
def read_references(path: Path) -> tuple[OutsideScore, ...]:
    """The rows of a file, of all suites.

    Raises:
        UsageError: the file is missing.
        RefusedFile: the file is malformed; the message names the row and the field.
    """
    try:
        text = _text(path, MAX_TOML_BYTES, links=True)
        if any(line.count(".") > DOTS for line in text.splitlines()):
            raise RefusedFile(f"{path}: a line has more than {DOTS:,} dots; write the scores one per line")
        content = tomllib.loads(text, parse_float=_decimal)
        references = _REFERENCES.validate_python(content.get("reference", []))
    except ValidationError as error:
        raise RefusedFile(f"{path}: {_fault(error, 'reference')}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError
        raise RefusedFile(f"{path}: not TOML ({error}); write tables [[reference]]") from None
    if not references:
        raise RefusedFile(f"{path}: holds no table [[reference]]; write one a source")
    scores, rows = [], 0
    for reference in references:
        for row in _rows(reference, path):
            curve = _curve(reference, row, path)
            scores.append(OutsideScore(reference, row, curve))
            rows += 1 + (len(curve.env_steps) if curve else 0)
            if rows > MAX_ROWS:
                raise RefusedFile(f"{path}: its sources have more than {MAX_ROWS:,} rows and points; thin the files")
    return tuple(scores)


def _rows(reference: OutsideReference, path: Path) -> Sequence[ScoreRow]:
    if reference.suite == "toy" or reference.suite not in suites.names():
        names = [name for name in suites.names() if name != "toy"]
        raise RefusedFile(f"{path}: {reference.name}: suite {reference.suite!r} is not among {', '.join(names)}")
    if not reference.file:
        return reference.scores
    if reference.scores:
        raise RefusedFile(f"{path}: {reference.name}: has both scores and file {reference.file}; remove one of them")
    return _table(path.parent / reference.file, ScoreRow)


def _curve(reference: OutsideReference, row: ScoreRow, path: Path) -> Curve | None:
    if not row.curve:
        return None
    if reference.kind == "training":
        raise RefusedFile(f"{path}: {reference.name}, curve: of training returns; give the curve of its evaluations")
    curve_file = path.parent / row.curve
    points = _table(curve_file, Point)
    if len(points) < 2:
        raise RefusedFile(f"{curve_file}: {len(points)} points are no curve; give two or more")
    for number, (before, after) in enumerate(pairwise(points), start=2):
        if after.env_step <= before.env_step:
            raise RefusedFile(f"{curve_file}: row {number}, env_step: {after.env_step} does not rise; sort the rows")
    return Curve(
        n=min(point.seeds for point in points),
        uncounted_steps=reference.uncounted_steps,
        source=f"{reference.url}@{reference.version}",
        env_steps=tuple(point.env_step for point in points),
        mean=tuple(point.mean_return for point in points),
        std=tuple(point.std for point in points),
    )


@cache
def _table(path: Path, record: type[_Record]) -> Sequence[_Record]:
    """The rows of a CSV file whose columns are fields of ``record``; cached, since many rows may name one file."""
    reader, rows = csv.DictReader(io.StringIO(_text(path, MAX_BYTES))), list[_Record]()
    try:
        for name in reader.fieldnames or ():
            if name not in record.model_fields:
                fields = ", ".join(record.model_fields)
                raise RefusedFile(f"{path}: column {printable(name, 40)!r} is not among {fields}; rename or remove it")
        if len(set(reader.fieldnames or ())) < len(reader.fieldnames or ()):
            raise RefusedFile(f"{path}: has a column twice; write each column once")
        for row in reader:
            if len(rows) == MAX_FILE_ROWS:
                raise RefusedFile(f"{path}: more than {MAX_FILE_ROWS:,} rows; thin the file")
            if None in row:
                raise RefusedFile(f"{path}: row {len(rows) + 1} has more cells than the header; correct the row")
            rows.append(record.model_validate({k: v for k, v in row.items() if v}, strict=False))
    except csv.Error as error:
        raise RefusedFile(f"{path}: not CSV ({error}); write one row per line") from None
    except ValidationError as error:
        raise RefusedFile(f"{path}: {_fault(error, f'row {len(rows) + 1}')}") from None
    if not rows:
        raise RefusedFile(f"{path}: has no row below the header; write one")
    return rows


def _fault(error: ValidationError, noun: str) -> str:
    """The first fault with its row and field: ``reference 2, scores 5, std: …``."""
    first = error.errors(include_url=False, include_input=False)[0]
    words = [noun]
    for part in first["loc"]:
        if isinstance(part, int):
            words[-1] += f" {part + 1}"
        else:
            words.append(part)
    return f"{printable(', '.join(words))}: {printable(first['msg'])}; correct the field"


def _text(path: Path, max_bytes: int, *, links: bool = False) -> str:
    try:
        with disk.open_regular(path, max_bytes=max_bytes, links=links) as file:
            return file.read().decode("utf-8-sig")  # spreadsheets write its mark
    except UnicodeDecodeError:
        raise RefusedFile(f"{path}: not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror}){suggest_path(path) or '; check the path'}"
        ) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One documented curve; the three tuples are equally long."""

    n: int  # seeds
    uncounted_steps: int  # random steps that the agent takes before the curve's clock starts
    source: str
    env_steps: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


class OutsideScore(NamedTuple):
    """One published score of a file, with its source and its learning curve if it has one."""

    reference: OutsideReference
    row: ScoreRow
    curve: Curve | None
