"""Files and folders of runs, read and written so that other programs cannot deceive or break them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from rlbench import disk, faults
from rlbench.config.names import printable
from rlbench.config.overrides import one_line
from rlbench.errors import RefusedFile, ResourceExhausted, UsageError

SCHEMA_VERSION = 1
"""Schema of every JSON file below ``results/``. Older ones are read; a newer one is refused."""

MAX_BYTES: Final = 2**28  # bytes of a text file of a record
SEAL: Final = len('{"checksum":"0123456789abcdef",')
MAX_LINE_LENGTH: Final = 2**24  # characters of a sealed line: parsing takes some twenty times as many bytes


def refuse_links(folder: Path, results: Path) -> None:
    """Refuse a run's folder that is reached by a link below ``results``, or holds a link or special file.

    Raises:
        RefusedFile: it does; the message names the first link.
    """
    refuse_links_above(folder, results)
    inside = [Path(root, name) for root, folders, names in disk.walk(folder) for name in (*folders, *names)]
    for path in inside:
        refuse_link(path)


def refuse_links_above(folder: Path, results: Path) -> None:
    """Refuse a run's folder that is a link, or is reached by one below ``results``."""
    above = [path for path in (folder, *folder.parents) if path != results and path.is_relative_to(results)]
    for path in reversed(above):
        refuse_link(path)


def refuse_link(path: Path) -> None:
    """Refuse a path that is neither a folder nor a regular file; a missing path passes.

    Raises:
        RefusedFile: it is a link or a special file.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise disk.refusal_of_special_file(path)


def seal(content: Mapping[str, object]) -> str:
    """Serialize ``content`` as a line of JSON with its own checksum and, unless it has one, the schema's version.

    Bytes that are no UTF-8, as in a path, become question marks.
    """
    whole = {"schema_version": SCHEMA_VERSION, **content}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    text = text.encode("utf-8", "replace").decode("utf-8")
    return f'{{"checksum":"{_checksum(text)}",{text[1:]}'


def unsealed_json(text: str, where: str) -> str:
    """Return the JSON of a sealed line, whose checksum is verified; without parsing it where this version wrote it.

    Raises:
        RefusedFile: as ``unseal``.
    """
    body = "{" + text[SEAL:]
    intact = text.startswith(f'{{"checksum":"{_checksum(body)}",') and len(text) <= MAX_LINE_LENGTH
    return body if intact and f'"schema_version":{SCHEMA_VERSION},' in body else json.dumps(unseal(text, where))


def unseal(text: str, where: str) -> dict[str, object]:
    """Parse a sealed line.

    Raises:
        RefusedFile: not JSON, the checksum is wrong, or the schema is newer than this version.
    """
    if len(text) > MAX_LINE_LENGTH:
        raise RefusedFile(f"{where}: has {len(text):,} characters, {MAX_LINE_LENGTH:,} are allowed; restore it")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise RefusedFile(f"{where}: damaged (not complete JSON); restore it, or start over with --force") from None
    if not isinstance(content, dict) or "checksum" not in content:
        raise RefusedFile(f"{where}: damaged (no checksum); restore it, or start over with --force")
    readable(content.get("schema_version", SCHEMA_VERSION), SCHEMA_VERSION, where)
    checksum = content.pop("checksum")
    try:
        computed = _checksum(json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    except (ValueError, RecursionError):  # a lone surrogate, or too deep nesting
        computed = None
    if checksum != computed:
        raise RefusedFile(f"{where}: damaged (checksum differs); restore it, or start over with --force")
    return content


def readable(version: object, newest: int, where: str) -> None:
    """Raise RefusedFile for a schema version above ``newest``, or an invalid one."""
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RefusedFile(f"{where}: damaged (schema_version is no positive integer); restore it")
    if version > newest:
        raise RefusedFile(
            f"{where}: schema {version} was written by a newer rlbench (this one reads ≤ {newest}); upgrade"
        )


def read_sealed(path: Path) -> dict[str, object]:
    """Read a sealed file of one JSON object.

    Raises:
        RefusedFile: it is missing, damaged or newer.
    """
    return unseal(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Read a whole text file.

    Raises:
        RefusedFile: it is missing, a link, no regular file, too large, or no UTF-8.
    """
    try:
        with disk.open_regular(path, max_bytes=MAX_BYTES) as file:
            return file.read().decode()
    except UnicodeDecodeError:
        raise RefusedFile(f"{path}: damaged (not UTF-8); restore it, or start over with --force") from None
    except FileNotFoundError:
        raise RefusedFile(f"{path}: missing; restore it, or start over with --force") from None
    except OSError as error:
        raise RefusedFile(f"{path}: cannot be read ({error.strerror}); check the file and its permissions") from None


def replace(path: Path, text: str) -> None:
    """Replace a file by ``text``; a crash leaves the old file or the new one."""
    with writing(path):
        disk.replace(path, text.encode())


def replace_sealed(path: Path, content: Mapping[str, object]) -> None:
    """Replace a file by the sealed line of ``content``."""
    replace(path, seal(content) + "\n")


def append(path: Path, line: str) -> None:
    """Append a line and wait until it is on the disk.

    Raises:
        UsageError: its folder cannot be written.
        ResourceExhausted: the disk is full, or readers would refuse the longer file.
    """
    content = (line + "\n").encode()
    with writing(path), disk.open_append(path) as file:
        if len(line) > MAX_LINE_LENGTH or os.fstat(file.fileno()).st_size + len(content) > MAX_BYTES:
            problem = f"a line of {len(content):,} bytes more would make it larger than readers allow"
            raise ResourceExhausted(f"{path}: {problem}; use fewer protocol.episodes, or a longer budget.epoch")
        file.write(faults.cut("append.torn", content))
        file.flush()
        faults.point("append.torn")
        os.fsync(file.fileno())
        disk.sync(path.parent)
        faults.point("append.written")


def writing(path: Path) -> AbstractContextManager[None]:
    """Turn a failed write below ``results/`` into one line that names the file; the old file stays.

    Raises:
        UsageError: its folder cannot be written.
        ResourceExhausted: the disk is full.
    """
    return disk.writing(path, elsewhere=" with --results")


@contextmanager
def validating(where: str, what: str) -> Iterator[None]:
    """Refuse the content of a file that the body cannot validate as ``what``.

    Raises:
        RefusedFile: pydantic names what is wrong.
    """
    try:
        yield
    except ValidationError as error:
        raise RefusedFile(f"{where}: not {what} of this schema ({one_line(error)})") from None


def _checksum(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


RECORD_FILES: Final = ("spec.json", "epochs.jsonl", "outcome.json")
RUN_PARTS: Final = (*RECORD_FILES, "checkpoint")
CRASH: Final = "crash.txt"  # opened by every process of a run, for its last messages
RUN_FILES: Final = (*RUN_PARTS, "failure.txt", CRASH, "attempts.jsonl", "log.txt", "curve.json", ".lock")


def refuse_record_file(path: Path, option: str) -> None:
    """Raise UsageError for the path of a file of a record, or of a link to one, which must not be replaced."""
    real = Path(os.path.realpath(path))
    for folder in real.parents:
        name = real.relative_to(folder).parts[0]
        in_record = folder.name.startswith("seed=") and (name in RUN_FILES or name.startswith("attempt-"))
        if in_record or (folder == real.parent and name == "looks.json" and any(folder.glob("seed=*"))):
            raise UsageError(f"{option} {path}: is a file of a run's record; name another file")


def refuse_run_folder(path: Path, option: str) -> None:
    """Raise UsageError for a run's folder, or one in it: readers would refuse files of other runs there."""
    real = Path(os.path.realpath(path))
    if any(_is_run(folder) for folder in (real, *real.parents)):
        raise UsageError(f"{option} {path}: is in the folder of a run; name another folder")


def record_stamps(folder: Path) -> tuple[tuple[int, int, int] | None, ...]:
    """Inode, size and time of each file of a record, which change whenever it does; None of a missing one."""
    stamps: list[tuple[int, int, int] | None] = []
    for name in RECORD_FILES:
        try:
            state = (folder / name).stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((state.st_ino, state.st_size, state.st_mtime_ns))
    return tuple(stamps)


def folders(results: Path) -> Iterator[Path]:
    """Yield every run's folder below ``results``, in order of name, without the attempts that ``--force`` set aside.

    Raises:
        UsageError: ``results`` is no folder.
        RefusedFile: a folder in it cannot be read, is a link, lies in a run's folder and has a run's name, or has a
            name that does not print; or a path in it is a link without a target or a special file.
    """
    if results.exists() and not results.is_dir():
        raise UsageError(f"{results}: not a folder; choose a folder of records with --results")
    for root, names, file_names in disk.walk(results, onerror=_refuse_unreadable):
        names[:] = sorted(name for name in names if not name.startswith(".") and name != "lost+found")  # of a disk
        folder = results.resolve() if Path(root) == results else Path(root)  # ``.`` and a link have names of their own
        in_run = _is_run(folder)
        for name in () if in_run else file_names:  # a run's readers refuse what they need
            if not name.startswith(".") and not Path(root, name).is_file():
                refuse_link(Path(root, name))  # such as a link to a disk that is not mounted
        for name in names:
            refuse_link(Path(root, name))
            if not name.isprintable():
                raise RefusedFile(f"{Path(root, printable(name))}: has a name that does not print; rename the folder")
        if in_run:
            refuse_nested(Path(root))
            names.clear()
            yield Path(root)


def refuse_nested(folder: Path) -> None:
    """Refuse a run's folder, or an imported curve's, that has another below it, which no reader would see.

    Raises:
        RefusedFile: it has; the message names the first.
    """
    for root, names, _ in disk.walk(folder):
        names[:] = [name for name in names if not name.startswith(".")]  # as every reader
        if other := next((name for name in names if name.startswith("seed=")), None):
            raise RefusedFile(f"{Path(root, other)}: is in the folder of another run; move it beside that one")


def _is_run(folder: Path) -> bool:
    return folder.name.startswith("seed=") and any(os.path.lexists(folder / part) for part in RUN_PARTS)


def suite_of(folder: Path) -> str:
    """The suite of a run; of a damaged record that in the path, as ``store.folder_of`` builds it."""
    spec: object = None
    with suppress(RefusedFile):
        spec = read_sealed(folder / "spec.json").get("spec")
    return str(spec.get("suite")) if isinstance(spec, Mapping) else folder.resolve().parts[-5:][0]


def _refuse_unreadable(error: OSError) -> None:
    if isinstance(error, FileNotFoundError):
        return  # nothing is recorded yet, or another process removed it
    raise RefusedFile(f"{error.filename}: cannot be read ({error.strerror}); check its permissions")
