"""Curves in binary files: TensorBoard's event files, and numpy's ``.npz``.

Of an event file one tag is read, by default that of tianshou, Stable-Baselines3 or CleanRL. An ``.npz`` is
Stable-Baselines3's ``evaluations.npz``, or has rliable's matrices of final scores; an array of objects, which only a
pickle can hold, is refused.
"""

from __future__ import annotations

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbench import suites
from rlbench.config.names import count_text
from rlbench.curves.delimited import kind_of
from rlbench.curves.json_files import plain_name, select_name
from rlbench.curves.points import MAX_CURVES, Label, Points, listing, refuse_beyond_memory
from rlbench.datasets.crc32c import masked_crc
from rlbench.errors import RefusedFile

READ_ERRORS: Final = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, MemoryError)
MAX_UNPACKED_BYTES: Final = 2**28  # bytes
MEMBERS: Final = 1_000
EVALUATIONS: Final = {"timesteps", "results"}

Arrays = Mapping[str, NDArray[np.generic]]


def npz_arrays(raw: bytes, path: Path) -> dict[str, NDArray[np.generic]]:
    """The arrays of an ``.npz`` by name.

    Raises:
        RefusedFile: it is no such file, too large, or holds objects.
        DoesNotFit: it unpacks to more than half of the free memory.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as members:
            sizes = [member.file_size for member in members.infolist()]
        if sum(sizes) > MAX_UNPACKED_BYTES or len(sizes) > MEMBERS:
            allowed = f"{MAX_UNPACKED_BYTES:,} in {MEMBERS:,} are allowed"
            raise RefusedFile(f"{path}: unpacks to {sum(sizes):,} bytes in {len(sizes):,} arrays, {allowed}; thin it")
        refuse_beyond_memory(path, 2 * sum(sizes))
        with np.load(io.BytesIO(raw), allow_pickle=False) as members:
            content = {name: np.asarray(members[name]) for name in members.files}
            for texts in (array for array in content.values() if array.dtype.kind == "U"):
                texts.tobytes().decode("utf-32-be" if texts.dtype.byteorder == ">" else "utf-32-le")
    except (*READ_ERRORS, ValueError, KeyError, TypeError, OverflowError, RuntimeError, SyntaxError, TokenError):
        raise RefusedFile(f"{path}: not an npz file of plain arrays; write numbers and texts only") from None
    if len(content) < len(sizes):
        raise RefusedFile(f"{path}: two arrays have one name; remove one")
    return content


def sb3_curves(arrays: Arrays, path: Path, label: Label) -> list[Points]:
    """``evaluations.npz`` of EvalCallback: ``timesteps [N]``, ``results [N, episodes]`` and ``ep_lengths`` alike.

    Raises:
        RefusedFile: the arrays do not fit together.
    """
    steps, results, lengths = arrays["timesteps"], arrays["results"], arrays.get("ep_lengths")
    shapes_fit = results.ndim == 2 and results.shape[1] > 0 and steps.shape == results.shape[:1]
    if not shapes_fit or (lengths is not None and lengths.shape != results.shape):
        raise RefusedFile(f"{path}: timesteps {steps.shape} and results {results.shape} do not fit; restore it")
    numbers = {"timesteps": steps, "results": results} | ({} if lengths is None else {"ep_lengths": lengths})
    for name, array in numbers.items():
        if array.dtype.kind not in "fiu":
            raise RefusedFile(f"{path}: {name} holds no numbers; restore it")
    return [
        Points(
            label=label,
            kind="evaluation",
            steps=steps.astype(np.float64),
            returns=results.mean(axis=1, dtype=np.float64),  # without a copy in float64
            lengths=None if lengths is None else lengths.mean(axis=1, dtype=np.float64),
        )
    ]


def rliable_curves(arrays: Arrays, path: Path, cell: tuple[str, str], tag: str | None) -> list[Points]:
    """Read final scores ``[seeds, tasks]``, named ``ALGO`` or ``SUITE/ALGO``, with arrays ``tasks`` and ``seeds``.

    A NaN is a seed that a task has not, where ``seeds`` name the rows. The steps are not known: they are NaN.

    Raises:
        RefusedFile: an array is of another shape, lacks a name or a score, or none is of the algorithm.
    """
    curves = list[Points]()
    for name in _names_to_read(arrays, path, cell, tag):
        scores, (own_suite, _, last) = arrays[name], name.rpartition("/")
        tasks = arrays.get(f"{own_suite}/tasks" if own_suite else "tasks")
        if tasks is None or tasks.dtype.kind != "U" or scores.ndim != 2 or scores.shape[1:] != tasks.shape:
            shape = f"has the shape {scores.shape}; give scores [seeds, tasks] and an array 'tasks'"
            raise RefusedFile(f"{path}: {listing([name])} {shape}")
        if scores.dtype.kind not in "fiu":
            raise RefusedFile(f"{path}: {listing([name])} holds no numbers; write scores")
        if (count := len(curves) + max(scores.size, len(scores))) > MAX_CURVES:
            raise RefusedFile(f"{path}: has {count:,} scores up to {listing([name])}, {MAX_CURVES:,} are allowed")
        seeds, missing = _seeds(arrays, name, path), np.isnan(scores.astype(np.float64))
        rows_without_score = missing.sum(axis=0).tolist()
        for task_index, seed in np.argwhere(~missing.T):
            rows, unknown = rows_without_score[task_index], ("curve",) if own_suite else ("steps", "estimator")
            unknown = unknown if f"{name}/seeds" in arrays else (*unknown, "seeds")
            task, _, dataset = str(tasks[task_index]).partition(" on ")
            label = Label(own_suite, last if own_suite else cell[1] or last, task, dataset, int(seeds[seed]))
            curves.append(
                Points(
                    label=label,
                    kind="evaluation",
                    steps=np.array([np.nan]),
                    returns=scores[[seed], [task_index]].astype(np.float64),
                    unknown=(*unknown, f"scores of {count_text(rows, 'row')}") if rows else unknown,
                )
            )
    return curves


def _names_to_read(arrays: Arrays, path: Path, cell: tuple[str, str], tag: str | None) -> list[str]:
    """The matrices of scores; of several, or of a known algorithm, the one that ``tag`` or the cell names."""
    (suite, algorithm), where = cell, f"{path}: holds the scores of"
    names = {name: last for name in arrays if (last := name.rpartition("/")[2]) not in {"tasks", "seeds"}}
    if tag is not None:
        algorithm = select_name([*dict.fromkeys(names.values())], where, algorithm="", tag=tag)
        return [name for name, last in names.items() if last == algorithm]
    bare = [name for name in names if "/" not in name]
    known_names = {plain_name(name) for name in suites.algorithms(suite)} if suite else set()
    if suite and bare and (len(bare) > 1 or plain_name(bare[0]) in known_names):
        bare = [select_name(bare, where, algorithm=algorithm, tag=None)]
    return [name for name in names if "/" in name or name in bare]


def _seeds(arrays: Arrays, name: str, path: Path) -> NDArray[np.generic]:
    """The seeds of a matrix of scores; without their array every row has a score of every task."""
    scores, title = arrays[name], listing([name])
    if (seeds := arrays.get(f"{name}/seeds")) is None:
        if (places := np.argwhere(np.isnan(scores.astype(np.float64)))).size:
            lacking = f"{title} has no score in row {places[0][0] + 1}, column {places[0][1] + 1}"
            raise RefusedFile(f"{path}: {lacking}; write one, or name the seeds in an array '{title}/seeds'")
        return np.arange(len(scores))
    if seeds.shape != scores.shape[:1] or seeds.dtype.kind not in "iu":
        raise RefusedFile(f"{path}: the seeds of {title} do not fit; give one number per row")
    return seeds


MAX_EVENT_BYTES: Final = 2**26  # bytes
FLOATS: Final = {1: "<f", 2: "<d"}  # layout of a number by TensorFlow's type: float32, float64
EVENT_TAGS: Final = (
    "test/reward",  # tianshou 1
    "test/returns_stat/mean",  # tianshou 2
    "eval/mean_reward",  # Stable-Baselines3
    "evaluation/return",  # rlbench
    "charts/episodic_return",  # CleanRL
    "rollout/ep_rew_mean",  # Stable-Baselines3
)
EPISODE_LENGTHS: Final = {"charts/episodic_return": "charts/episodic_length"}


def _scalars(raw: bytes, path: Path) -> dict[str, list[tuple[int, float]]]:
    """Step and value of every scalar, by tag.

    Raises:
        RefusedFile: the file is damaged; a record that is cut at the end is what a killed program leaves.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    points: dict[str, list[tuple[int, float]]] = {}
    for body in _events(raw, path):
        try:
            event = Event.FromString(body)
        except DecodeError:
            raise RefusedFile(f"{path}: holds what is no event of TensorBoard; restore it") from None
        for value in event.summary.value:
            tensor, kind = value.tensor, FLOATS.get(value.tensor.dtype, "")
            numbers = (
                [value.simple_value] if value.HasField("simple_value") else [*tensor.float_val, *tensor.double_val]
            )
            if kind and len(tensor.tensor_content) == struct.calcsize(kind):
                numbers = [*struct.unpack(kind, tensor.tensor_content)]
            if len(numbers) == 1:
                points.setdefault(value.tag, []).append((event.step, numbers[0]))
    return points


def event_curves(raw: bytes, path: Path, *, tag: str | None, label: Label) -> list[Points]:
    """The curve of a tag.

    Raises:
        RefusedFile: the file is damaged, its steps fall, or it lacks the tag; the message names those it has.
    """
    points = _scalars(raw, path)
    selected_tag = tag or next((name for name in EVENT_TAGS if name in points), None)
    if selected_tag is None or selected_tag not in points:
        have = f"has the tags {listing(points)}" if points else "holds no scalar"
        raise RefusedFile(f"{path}: {have}; name one with --tag")
    steps, returns = np.array(points[selected_tag]).T
    if (falls := np.flatnonzero(np.diff(steps) < 0)).size:
        before, after = steps[falls[0] : falls[0] + 2]
        raise RefusedFile(
            f"{path}: the steps of {listing([selected_tag])} fall from {before:.0f} to {after:.0f}, as where a program "
            f"began again in the same file; write one run to a file"
        )
    lengths = points.get(EPISODE_LENGTHS.get(selected_tag, ""), [])
    return [
        Points(
            label=label,
            kind=kind_of(selected_tag),
            steps=steps,
            returns=returns,
            lengths=np.array([value for _, value in lengths]) if len(lengths) == len(steps) else None,
            episodes=selected_tag in EPISODE_LENGTHS,
        )
    ]


def _events(raw: bytes, path: Path) -> Iterator[bytes]:
    """The bodies of TFRecord; both checksums of each are compared."""
    at = 0
    while at + 12 <= len(raw):
        size, check = struct.unpack_from("<QI", raw, at)
        if masked_crc(raw[at : at + 8]) != check:
            raise RefusedFile(f"{path}: damaged at byte {at:,} (the length's CRC-32C is wrong); restore it")
        if size > MAX_EVENT_BYTES:
            raise RefusedFile(
                f"{path}: an event at byte {at:,} has {size:,} bytes, {MAX_EVENT_BYTES:,} are allowed; thin it"
            )
        body, end = raw[at + 12 : at + 12 + size], at + 16 + size
        if end > len(raw):
            return
        if masked_crc(body) != struct.unpack_from("<I", raw, end - 4)[0]:
            raise RefusedFile(f"{path}: damaged at byte {at:,} (its CRC-32C is wrong); restore it")
        yield body
        at = end
