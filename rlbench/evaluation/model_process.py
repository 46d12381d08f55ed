"""A TorchScript or ONNX model as a function from observations to numbers, computed in a process without rights.

``python -m rlbench.evaluation.model_process torchscript|onnx PARENT``: stdin brings the model, then observations;
stdout answers with actions. Every message is a header of little-endian numbers and bytes (``ModelClient`` reads them).

The process has no files, network, programs or signals, and bounded memory, before a library reads a byte of the model.
The kernel's system call filter (seccomp) allows memory, threads, clocks and the open pipes, and refuses every other
call. It stays for the life of the process, in every thread.
"""

from __future__ import annotations

import ctypes
import encodings.cp437  # noqa: F401 - zipfile decodes names by it, when no file can be read
import os
import platform
import resource
import select
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import Final, Literal, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench import disk
from rlbench.config.names import printable
from rlbench.errors import RefusedFile, UsageError
from rlbench.signals import end_with_parent

Array: TypeAlias = NDArray[np.generic]
Model: TypeAlias = Callable[[Array], Array]
REQUEST: Final = struct.Struct("<cQ4I")  # dtype (f, B), bytes, and a shape padded with zeros
RESPONSE: Final = struct.Struct("<cII")  # A: actions [rows, columns] float64; E: an error of so many bytes
STDOUT, STDERR = 1, 2  # file descriptors
TRACEBACK: Final = "Traceback of TorchScript"  # above the line with the cause
MODEL_SIZE: Final = struct.Struct("<Q")
DTYPES: Final = {b"f": np.float32, b"B": np.uint8}
MEMORY: Final = 8 * 2**30  # bytes of address space; torch itself takes some four

ARCHITECTURES: Final = {"x86_64": (0xC000003E, 317, 0), "aarch64": (0xC00000B7, 277, 1)}
"""AUDIT_ARCH, the number of ``seccomp``, and the column of ``SYSTEM_CALLS``, by machine."""

SYSTEM_CALLS: Final = """
read 0 63, write 1 64, close 3 57, fstat 5 80, lseek 8 62, poll 7 -, ppoll 271 73,
brk 12 214, mmap 9 222, munmap 11 215, mremap 25 216, mprotect 10 226, madvise 28 233,
futex 202 98, rseq 334 293, set_robust_list 273 99, membarrier 324 283, sched_yield 24 124, sched_getaffinity 204 123,
rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, sigaltstack 131 132, restart_syscall 219 128,
clock_gettime 228 113, clock_nanosleep 230 115, nanosleep 35 101, gettimeofday 96 169, getrandom 318 278,
getpid 39 172, gettid 186 178, getcpu 309 168, getrusage 98 165, exit 60 93, exit_group 231 94
"""
"""Names of the system calls that are allowed, and their numbers on x86-64 and ARM64 (Linux, ``asm/unistd.h``)."""

CLONE: Final = (56, 220)  # allowed for threads
CLONE3: Final = 435  # its flags are in memory, where no filter sees them; without it the C library takes clone
CLONE_THREAD: Final = 0x10000
NO_NEW_PRIVILEGES, FILTER_MODE, ALL_THREADS = 38, 1, 1
LOAD, EQUAL, HAS_BITS, RETURN = 0x20, 0x15, 0x45, 0x06  # instructions of the Berkeley packet filter
ALLOW, REFUSE, MISSING = 0x7FFF0000, 0x00050001, 0x00050026  # the calls fail with EPERM and ENOSYS
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # places in ``struct seccomp_data``

ModelFormat: TypeAlias = Literal["torchscript", "onnx"]
MAX_BYTES: Final = 512 * 2**20  # bytes of a file
LOAD_TIMEOUT: Final = 120.0  # seconds, imports included
REPLY_TIMEOUT: Final = 30.0  # seconds for one batch
MAX_ACTION_DIM: Final = 10_000  # numbers of one action
ENV_VARIABLES: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME", "VIRTUAL_ENV")
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
            [sys.executable, "-P", "-m", "rlbench.evaluation.model_process", form, str(os.getpid())],
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
        reason = f"its process ended with code {self._process.wait()}, probably for lack of memory"
        return RefusedFile(f"{self.path}: {reason}; check the model")


def main(form: str, parent: int) -> None:
    """Load the model and answer until stdin ends."""
    end_with_parent(parent)  # a model that loops never reads that stdin ends
    limit_resources()
    responses = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)  # a model may print
    torch.set_num_threads(1)
    torch.nn.functional.conv2d(torch.ones(1, 1, 8, 8), torch.ones(1, 1, 3, 3)) @ torch.ones(6, 6)  # loads libraries
    runtime = import_module("onnxruntime") if form == "onnx" else None
    raw = _read(MODEL_SIZE.unpack(_read(MODEL_SIZE.size))[0])
    refuse_system_calls()
    try:
        model = _torchscript(raw) if runtime is None else _onnx(raw, runtime)
        _write(responses, RESPONSE.pack(b"A", 0, 0))
        while head := sys.stdin.buffer.read(REQUEST.size):
            kind, size, *shape = REQUEST.unpack(head)
            obs = np.frombuffer(_read(size), DTYPES[kind]).reshape([n for n in shape if n])
            action = np.asarray(model(obs), np.float64)
            action = action.reshape(len(obs if action.ndim < 2 else action), -1)
            _write(responses, RESPONSE.pack(b"A", *action.shape) + action.tobytes())
    except Exception as error:  # noqa: BLE001 - a model may raise anything; the parent names it
        text = f"{type(error).__name__}: {error}".rstrip()
        raw = text[text.rfind("\n") + 1 if TRACEBACK in text else 0 :].encode()[:2000]
        _write(responses, RESPONSE.pack(b"E", len(raw), 0) + raw)


def _torchscript(raw: bytes) -> Model:
    load: Callable[[BytesIO], Callable[[torch.Tensor], object]] = vars(torch.jit)["load"]  # has no types
    if (name := zipfile.ZipFile(BytesIO(raw)).testzip()) is not None:  # torch compares no checksum
        raise ValueError(f"{name} is damaged")
    module = load(BytesIO(raw))

    def act(obs: Array) -> Array:
        with torch.inference_mode():
            output = module(torch.from_numpy(obs.copy()))
        first = output[0] if isinstance(output, tuple) else output
        return np.asarray(first)

    return act


def _onnx(raw: bytes, runtime: object) -> Model:
    ort = vars(runtime)
    options = ort["SessionOptions"]()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort["InferenceSession"](raw, options, providers=["CPUExecutionProvider"])
    model_input = session.get_inputs()[0]
    dtype = {"tensor(uint8)": np.uint8, "tensor(double)": np.float64}.get(model_input.type, np.float32)

    def act(obs: Array) -> Array:
        rows = np.split(obs, len(obs)) if model_input.shape[:1] == [1] else [obs]
        return np.concatenate([session.run(None, {model_input.name: row.astype(dtype)})[0] for row in rows])

    return act


def _read(size: int) -> bytes:
    raw = sys.stdin.buffer.read(size)
    if len(raw) != size:
        os._exit(0)  # the parent is gone
    return raw


def _write(pipe: int, raw: bytes) -> None:
    unsent = memoryview(raw)
    while unsent:
        unsent = unsent[os.write(pipe, unsent) :]


class _Filter(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def check_platform() -> None:
    """Refuse a machine without the filter.

    Raises:
        UsageError: it is no Linux on x86-64 or ARM64.
    """
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES:
        raise UsageError(
            f"a model runs in a process without network, which {sys.platform} on {platform.machine()} does not offer; "
            "use Linux on x86-64 or ARM64"
        )


def limit_resources() -> None:
    """Bound the address space, and forbid files and core dumps."""
    for kind, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (most, most))


def refuse_system_calls() -> None:
    """Install the filter in every thread.

    Raises:
        OSError: the kernel refuses it.
    """
    arch, seccomp, column = ARCHITECTURES[platform.machine()]
    calls = (call.split()[1:] for call in SYSTEM_CALLS.split(","))
    call_numbers = [int(numbers[column]) for numbers in calls if numbers[column] != "-"]
    count = len(call_numbers)
    program = [
        _instruction(LOAD, ARCHITECTURE),
        _instruction(EQUAL, arch, otherwise=count + 5),
        _instruction(LOAD, NUMBER),
        *(_instruction(EQUAL, number, then=count + 4 - place) for place, number in enumerate(call_numbers)),
        _instruction(EQUAL, CLONE3, then=5),
        _instruction(EQUAL, CLONE[column], otherwise=2),
        _instruction(LOAD, FIRST_ARGUMENT),
        _instruction(HAS_BITS, CLONE_THREAD, then=1),
        _instruction(RETURN, REFUSE),
        _instruction(RETURN, ALLOW),
        _instruction(RETURN, MISSING),
    ]
    filters = _Filter(len(program), b"".join(program))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.syscall(
        seccomp, FILTER_MODE, ALL_THREADS, ctypes.byref(filters)
    ):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _instruction(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """``struct sock_filter``: jumps count from the next instruction."""
    return struct.pack("HBBI", code, then, otherwise, value)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
