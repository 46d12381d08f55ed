"""Write videos: a GIF or an MP4, which is whole or absent.

Pillow writes a GIF and holds all its frames in memory; ``ffmpeg`` writes an MP4 and takes one frame at a time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ENOSPC
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import IO, TYPE_CHECKING, Final

from rlbench import disk
from rlbench.cli.output import check_output_path
from rlbench.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

SMALL: Final = 240  # pixels; narrower frames are doubled


def refusal_of(path: Path) -> str | None:
    """Check that a video can be written, before any env steps; return the program that writes it, if one does."""
    if path.suffix.lower() not in {".gif", ".mp4"} or path.is_fifo() or path.is_socket():
        raise UsageError(f"--video {path}: a video ends in .gif or .mp4, and is a plain file; name it so")
    check_output_path(path, "--video")
    if path.suffix.lower() == ".gif":
        return None
    if program := shutil.which("ffmpeg"):
        return program
    with suppress(ImportError, RuntimeError):  # the package may be there without its program, as conda installs it
        return str(import_module("imageio_ffmpeg").get_ffmpeg_exe())
    raise UsageError(f"--video {path}: nothing here writes MP4; install ffmpeg, or name it .gif")


@contextmanager
def video_writer(path: Path, *, seconds: float, program: str | None) -> Iterator[GifWriter | Mp4Writer]:
    """Write a video of frames of ``seconds`` each; the file appears when it is whole.

    Raises:
        UsageError: the folder cannot be written.
        ResourceExhausted: the disk is full.
    """
    temporary = disk.temporary_of(path.absolute().with_name(f".{path.name}"))  # ffmpeg takes "a:b" for the protocol a
    disk.sweep(temporary)
    try:
        with disk.writing(path, elsewhere=" with --video", then="run the same command again"):
            with temporary.open("wb") as file:
                writer = GifWriter(file, seconds) if program is None else Mp4Writer(program, file, seconds)
                try:
                    yield writer
                    writer.end()
                finally:
                    if writer.process is not None:
                        writer.process.kill()  # nothing where it has ended
                        writer.process.communicate()
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class GifWriter:
    """Collects the frames ``[H, W, 3]`` uint8 of a repeating GIF; Pillow writes them at the end."""

    def __init__(self, file: IO[bytes], seconds: float) -> None:
        self.count, self.process, self._file, self._seconds = 0, None, file, seconds
        self._images: list[Image.Image] = []

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Add the next frame."""
        from PIL import Image

        image = Image.fromarray(frame).quantize()  # a byte a pixel; exact where there are at most 256 colours
        times = 2 if image.width < SMALL else 1
        self._images.append(image.resize((image.width * times, image.height * times)))
        self.count += 1

    def end(self) -> None:
        """Write the GIF; its last frame stays for a second before it repeats."""
        ends = [round(100 * number * self._seconds) for number in range(self.count)]
        stands = [10 * (end - begin) for begin, end in pairwise(ends)] + [1000]
        first, *others = self._images
        first.save(self._file, "GIF", save_all=True, append_images=others, duration=stands, loop=0)


class Mp4Writer:
    """Passes every frame ``[H, W, 3]`` uint8 to ffmpeg."""

    def __init__(self, program: str, file: IO[bytes], seconds: float) -> None:
        self.count, self._program, self._path, self._seconds = 0, program, Path(file.name), seconds
        self.process: Popen[bytes] | None = None
        self._shape: tuple[int, ...] = ()

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Add the next frame; the first one fixes their size."""
        if self.process is None:
            self.process, self._shape = self._start_encoder(*frame.shape[:2]), frame.shape
        if frame.shape != self._shape:
            raise UsageError(f"--video: the frames change from {self._shape} to {frame.shape}; name it .gif")
        try:
            if self.process.stdin is not None:
                self.process.stdin.write(frame.tobytes())
        except BrokenPipeError:
            raise self._write_error(self.process) from None
        self.count += 1

    def end(self) -> None:
        """Wait until ffmpeg has written the file."""
        if self.process is not None:
            self.process.communicate()
            if self.process.returncode or not self._path.stat().st_size:
                raise self._write_error(self.process)

    def _start_encoder(self, height: int, width: int) -> Popen[bytes]:
        even_width, even_height = (2 * -(-side // (1 if width < SMALL else 2)) for side in (width, height))  # for H.264
        words = [self._program, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
        words += ["-s", f"{width}x{height}", "-r", f"{1 / self._seconds:.6f}", "-i", "-", "-an"]
        words += ["-vf", f"scale={even_width}:{even_height}:flags=neighbor"]
        words += ["-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", str(self._path)]
        try:
            return Popen(words, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)  # noqa: S603 - our own words
        except OSError as error:
            raise UsageError(f"{self._program}: cannot be started ({error.strerror}); name the video .gif") from None

    def _write_error(self, process: Popen[bytes]) -> UsageError | OSError:
        if shutil.disk_usage(self._path.parent).free < 2**20:
            return OSError(ENOSPC, os.strerror(ENOSPC))
        return UsageError(f"{self._program}: could not write the video (it ended with {process.wait()}); name it .gif")
