"""Limits of a process that computes another program's model: no files, network, programs or signals, bounded memory.

The kernel's system call filter (seccomp) refuses the calls. It stays for the life of the process, in every thread.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
import sys
from typing import Final

from rlbench.errors import UsageError

MEMORY: Final = 8 * 2**30  # bytes of address space; torch itself takes some four

ARCHITECTURES: Final = {"x86_64": (0xC000003E, 317, 0), "aarch64": (0xC00000B7, 277, 1)}
"""AUDIT_ARCH, the number of ``seccomp``, and the column of ``SYSTEM_CALLS``, by machine."""

SYSTEM_CALLS: Final = """
open 2 -, openat 257 56, openat2 437 437, creat 85 -, truncate 76 45, rename 82 -, renameat 264 38,
renameat2 316 276, unlink 87 -, unlinkat 263 35, mkdir 83 -, mkdirat 258 34, rmdir 84 -, link 86 -,
linkat 265 37, symlink 88 -, symlinkat 266 36, mknod 133 -, mknodat 259 33, chmod 90 -, fchmodat 268 53,
chown 92 -, lchown 94 -, fchownat 260 54, utimensat 280 88, socket 41 198, socketpair 53 199, connect 42 203,
bind 49 200, fork 57 -, vfork 58 -, execve 59 221, execveat 322 281, kill 62 129, tkill 200 130,
tgkill 234 131, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, pidfd_send_signal 424 424, pidfd_getfd 438 438,
open_by_handle_at 304 265, ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271,
io_uring_setup 425 425, prlimit64 302 261
"""
"""Names of system calls that fail, and their numbers on x86-64 and ARM64 (Linux, ``asm/unistd.h``)."""

NO_NEW_PRIVILEGES, FILTER_MODE, ALL_THREADS = 38, 1, 1
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06  # instructions of the Berkeley packet filter
ALLOW, REFUSE = 0x7FFF0000, 0x00050001  # EPERM
SECOND_ABI: Final = 0x40000000  # x32 numbers its calls from there


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
        _instruction(LOAD, 4),
        _instruction(EQUAL, arch, otherwise=count + 3),
        _instruction(LOAD, 0),
        _instruction(AT_LEAST, SECOND_ABI, then=count + 1),
        *(_instruction(EQUAL, number, then=count - place) for place, number in enumerate(call_numbers)),
        _instruction(RETURN, ALLOW),
        _instruction(RETURN, REFUSE),
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
