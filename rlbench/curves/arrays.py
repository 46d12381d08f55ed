"""Curves in numpy's ``.npz``: Stable-Baselines3's ``evaluations.npz``, and rliable's matrices of final scores.

An array of objects, which only a pickle can hold, is refused.
"""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbench.curves.points import MAX_CURVES, Label, Points, listing
from rlbench.errors import RefusedFile

READ_ERRORS: Final = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, MemoryError)
MAX_UNPACKED_BYTES: Final = 2**28  # bytes
MEMBERS: Final = 1_000
EVALUATIONS: Final = {"timesteps", "results"}

Arrays = Mapping[str, NDArray[np.generic]]


def arrays(raw: bytes, path: Path) -> dict[str, NDArray[np.generic]]:
    """The arrays of an ``.npz`` by name.

    Raises:
        RefusedFile: it is no such file, too large, or holds objects.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as members:
            sizes = [member.file_size for member in members.infolist()]
        if sum(sizes) > MAX_UNPACKED_BYTES or len(sizes) > MEMBERS:
            allowed = f"{MAX_UNPACKED_BYTES:,} in {MEMBERS:,} are allowed"
            raise RefusedFile(f"{path}: unpacks to {sum(sizes):,} bytes in {len(sizes):,} arrays, {allowed}; thin it")
        with np.load(io.BytesIO(raw), allow_pickle=False) as members:
            content = {name: np.asarray(members[name]) for name in members.files}
            for texts in (array for array in content.values() if array.dtype.kind == "U"):
                texts.tobytes().decode("utf-32-be" if texts.dtype.byteorder == ">" else "utf-32-le")
    except (*READ_ERRORS, ValueError, KeyError, TypeError, OverflowError, RuntimeError, SyntaxError, TokenError):
        raise RefusedFile(f"{path}: not an npz file of plain arrays; write numbers and texts only") from None
    if len(content) < len(sizes):
        raise RefusedFile(f"{path}: two arrays have one name; remove one")
    return content


def evaluations(arrays: Arrays, path: Path, label: Label) -> list[Points]:
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
            returns=results.astype(np.float64).mean(axis=1),
            lengths=None if lengths is None else lengths.astype(np.float64).mean(axis=1),
        )
    ]


def score_matrices(arrays: Arrays, path: Path, algorithm: str) -> list[Points]:
    """Read final scores ``[seeds, tasks]``, named ``ALGO`` or ``SUITE/ALGO``, with arrays ``tasks`` and ``seeds``.

    A NaN is a seed that a task has not. The steps are not known: they are NaN.

    Raises:
        RefusedFile: an array is of another shape, or no names of the tasks are there.
    """
    curves = []
    for name, scores in arrays.items():
        suite, _, last = name.rpartition("/")
        if last in {"tasks", "seeds"}:
            continue
        tasks = arrays.get(f"{suite}/tasks" if suite else "tasks")
        if tasks is None or tasks.dtype.kind != "U" or scores.ndim != 2 or scores.shape[1:] != tasks.shape:
            raise RefusedFile(
                f"{path}: {listing([name])} has the shape {scores.shape}; "
                "give scores [seeds, tasks] and an array 'tasks'"
            )
        if scores.dtype.kind not in "fiu":
            raise RefusedFile(f"{path}: {listing([name])} holds no numbers; write scores")
        if (count := max(scores.size, len(scores))) > MAX_CURVES:
            raise RefusedFile(f"{path}: {listing([name])} has {count:,} scores, {MAX_CURVES:,} are allowed")
        seeds = arrays.get(f"{name}/seeds", np.arange(len(scores)))
        if seeds.shape != scores.shape[:1] or seeds.dtype.kind not in "iu":
            raise RefusedFile(f"{path}: the seeds of {listing([name])} do not fit; give one number a row")
        for task_index, seed in np.argwhere(~np.isnan(scores.T.astype(np.float64))):
            task, _, dataset = str(tasks[task_index]).partition(" on ")
            label = Label(suite, last if suite else algorithm or last, task, dataset, int(seeds[seed]))
            curves.append(
                Points(
                    label=label,
                    kind="evaluation",
                    steps=np.array([np.nan]),
                    returns=scores[[seed], [task_index]].astype(np.float64),
                    unknown=("steps", "estimator") if suite == "" else ("curve",),
                )
            )
    return curves
