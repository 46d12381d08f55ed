"""A TorchScript or ONNX model as a function from observations to numbers, computed in a process without rights."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlbench import disk
from rlbench.config.names import printable
from rlbench.errors import RefusedFile, UsageError
from rlbench.evaluation.model_process import MODEL_SIZE, REQUEST, RESPONSE, check_platform

ModelFormat: TypeAlias = Literal["torchscript", "onnx"]
MAX_BYTES: Final = 512 * 2**20  # bytes of a file
LOAD_TIMEOUT: Final = 120.0  # seconds, imports included
REPLY_TIMEOUT: Final = 30.0  # seconds for one batch
MAX_ACTION_DIM: Final = 10_000  # numbers of one action
ENV_VARIABLES: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME", "VIRTUAL_ENV", "SYSTEMROOT")
"""Environment variables that the process sees: no key and no token."""


class ModelClient:
    """A model in a process of its own, which ``with`` ends.

    Raises:
        UsageError: the library or the kernel's filter is missing here.
        RefusedFile: the file cannot be read, or the model fails, hangs or takes too much memory.
    """

    def __init__(self, path: Path, form: ModelFormat) -> None:
        check_platform()
        if form == "onnx" and find_spec("onnxruntime") is None:
            raise UsageError('--format onnx: onnxruntime is not installed: pip install "rlbench[onnx]"')
        self.path = path
        try:
            with disk.open_regular(path, max_bytes=MAX_BYTES, links=True) as file:
                raw = file.read()
        except OSError as error:
            raise RefusedFile(f"{path}: cannot be read ({error.strerror}); check the path") from None
        self._process = subprocess.Popen(  # noqa: S603 - fixed arguments, without a shell
            [sys.executable, "-P", "-m", "rlbench.evaluation.model_process", form],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**{name: os.environ[name] for name in ENV_VARIABLES if name in os.environ}, "OMP_NUM_THREADS": "1"},
            process_group=0,  # a terminal's Ctrl-C is for rlbench alone
        )
        try:
            if self._process.stdin is not None:
                os.set_blocking(self._process.stdin.fileno(), False)
            self._send(MODEL_SIZE.pack(len(raw)) + raw, LOAD_TIMEOUT)
            self._receive(LOAD_TIMEOUT)
        except BaseException:
            self.close()
            raise

    def __call__(self, obs: NDArray[np.float32] | NDArray[np.uint8]) -> NDArray[np.float64]:
        """``[N, ...]``, of at most four dimensions, to the model's first output ``[N, K]``.

        Raises:
            RefusedFile: the model fails, hangs or takes too much memory.
        """
        kind = b"B" if obs.dtype == np.uint8 else b"f"
        self._send(REQUEST.pack(kind, obs.nbytes, *obs.shape, *[0] * (4 - obs.ndim)) + obs.tobytes(), REPLY_TIMEOUT)
        response = self._receive(REPLY_TIMEOUT)
        if len(response) != len(obs):
            raise RefusedFile(f"{self.path}: answers {len(response)} rows to {len(obs)}; check the model")
        return response

    def close(self) -> None:
        """End the process; idempotent."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, raw: bytes, seconds: float) -> None:
        unsent, pipe, deadline = memoryview(raw), self._process.stdin, monotonic() + seconds
        while pipe is not None and unsent:
            if not select.select([], [pipe], [], max(0.0, deadline - monotonic()))[1]:
                raise RefusedFile(f"{self.path}: gives no answer in time; check the model")
            try:
                unsent = unsent[os.write(pipe.fileno(), unsent) :]
            except BrokenPipeError:
                raise self._exit_error() from None

    def _receive(self, seconds: float) -> NDArray[np.float64]:
        """``[N, K]``."""
        deadline = monotonic() + seconds
        kind, rows, columns = RESPONSE.unpack(self._read(RESPONSE.size, deadline))
        if kind == b"E":
            reason = printable(self._read(min(rows, 2000), deadline).decode(errors="replace"), 200)
            raise RefusedFile(f"{self.path}: fails ({reason}); check the model")
        if rows * columns > MAX_ACTION_DIM * 1000 or columns > MAX_ACTION_DIM:
            raise RefusedFile(f"{self.path}: answers {rows:,} × {columns:,} numbers; check the model")
        raw = self._read(8 * rows * columns, deadline)
        return np.frombuffer(raw, np.float64).reshape(rows, columns)

    def _read(self, size: int, deadline: float) -> bytes:
        raw, pipe = b"", self._process.stdout
        while pipe is not None and len(raw) < size:
            seconds = deadline - monotonic()
            if seconds <= 0 or not select.select([pipe], [], [], seconds)[0]:
                raise RefusedFile(f"{self.path}: gives no answer in time; check the model")
            piece = os.read(pipe.fileno(), size - len(raw))
            if not piece:
                raise self._exit_error()
            raw += piece
        return raw

    def _exit_error(self) -> RefusedFile:
        reason = f"its process ended with code {self._process.wait()}, as for lack of memory"
        return RefusedFile(f"{self.path}: {reason}; check the model")
