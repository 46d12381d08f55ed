"""Films on disk: pictures, one after the other, into a GIF or an MP4 that is there whole or not at all.

A GIF is Pillow's, which holds all its pictures in memory; an MP4 is ``ffmpeg``'s, which takes one at a time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Protocol

from rlbench.errors import ResourceExhausted, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

ENDINGS: Final = (".gif", ".mp4")
LINGER: Final = 1.0  # seconds that the last picture of a GIF stands before it begins anew
SMALL: Final = 240  # pixels; what is narrower is shown at twice its size


class VideoWriter(Protocol):
    """Takes pictures, ``[H, W, 3]`` bytes of one size."""

    count: int

    def add(self, picture: NDArray[np.uint8]) -> None:
        """The next one."""

    def end(self) -> None:
        """There are no more."""


def check(path: Path) -> str | None:
    """See to it, before anything is played, that a film could be written; the program that makes it, if one does.

    Raises:
        UsageError: it could not; the message says why and what to do.
    """
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"--video {path}: a film ends in {' or '.join(ENDINGS)}; name it so")
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder; name a file" if path.is_dir() else f"{path.parent} is not a folder; make it first"
        raise UsageError(f"--video {path}: {what}")
    if path.suffix.lower() == ".gif":
        return None
    program = shutil.which("ffmpeg")
    if program is None and find_spec("imageio_ffmpeg") is not None:
        program = str(import_module("imageio_ffmpeg").get_ffmpeg_exe())
    if program is None:
        raise UsageError(f"--video {path}: nothing here writes MP4; install ffmpeg, or name it .gif")
    return program


@contextmanager
def video_writer(path: Path, *, seconds: float, program: str | None) -> Iterator[VideoWriter]:
    """A film of pictures that stand for so many seconds each; it takes its name when it is whole.

    Raises:
        UsageError: the folder cannot be written.
        ResourceExhausted: the disk is full.
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}.tmp")
    try:
        with temporary.open("wb") as file:
            film: VideoWriter = GifWriter(file, seconds) if program is None else Mp4Writer(program, file, seconds)
            yield film
            film.end()
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except PermissionError:
        raise UsageError(f"--video {path}: {path.parent} cannot be written; choose another folder") from None
    except OSError as error:
        raise ResourceExhausted(f"--video {path}: {error.strerror}; free some space and ask again") from None
    finally:
        temporary.unlink(missing_ok=True)


class GifWriter:
    """Pictures for a GIF that repeats for ever; Pillow writes them, from memory, when the last one is there."""

    def __init__(self, file: IO[bytes], seconds: float) -> None:
        self.count, self._file, self._seconds = 0, file, seconds
        self._images: list[Image.Image] = []

    def add(self, picture: NDArray[np.uint8]) -> None:
        """The next one."""
        from PIL import Image

        image = Image.fromarray(picture).quantize()  # a byte a pixel; exact where there are at most 256 colours
        times = 2 if image.width < SMALL else 1
        self._images.append(image.resize((image.width * times, image.height * times)))
        self.count += 1

    def end(self) -> None:
        """Write them; the last one stands a little."""
        ends = [round(100 * number * self._seconds) for number in range(self.count)]
        stands = [10 * (end - begin) for begin, end in pairwise(ends)] + [round(1000 * LINGER)]
        first, *others = self._images
        first.save(self._file, "GIF", save_all=True, append_images=others, duration=stands, loop=0)


class Mp4Writer:
    """Hands every picture to ffmpeg."""

    def __init__(self, program: str, file: IO[bytes], seconds: float) -> None:
        self.count, self._program, self._path, self._seconds = 0, program, file.name, seconds
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, picture: NDArray[np.uint8]) -> None:
        """The next one; the first says how large they are."""
        process = self._process = self._process or self._begun(*picture.shape[:2])
        try:
            if process.stdin is not None:
                process.stdin.write(picture.tobytes())
        except BrokenPipeError:
            raise self._refused(process) from None
        self.count += 1

    def end(self) -> None:
        """Wait until it is written."""
        if self._process is not None:
            self._process.communicate()
            if self._process.returncode:
                raise self._refused(self._process)

    def _begun(self, height: int, width: int) -> subprocess.Popen[bytes]:
        times = 2 if width < SMALL else 1
        size = (
            f"scale={-(-width * times // 2) * 2}:{-(-height * times // 2) * 2}:flags=neighbor"  # H.264 wants even ones
        )
        words = [self._program, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
        words += ["-s", f"{width}x{height}", "-r", f"{1 / self._seconds:.6f}", "-i", "-", "-an", "-vf", size]
        words += ["-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", str(self._path)]
        silent = subprocess.DEVNULL
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=silent, stderr=silent)  # noqa: S603 - our own words

    def _refused(self, process: subprocess.Popen[bytes]) -> UsageError:
        return UsageError(f"{self._program}: could not write the film (it ended with {process.wait()}); name it .gif")
