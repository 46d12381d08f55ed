"""Films on disk: pictures, one after the other, into a GIF or an MP4 that is there whole or not at all.

A GIF is written as it comes, a picture's difference to the one before at a time, so that an hour of play needs no more
memory than a second. Pillow encodes each piece; an MP4 is ``ffmpeg``'s.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Protocol

from rlbench.errors import Halted, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

ENDINGS: Final = (".gif", ".mp4")
LINGER: Final = 1.0  # seconds that the last picture of a GIF stands before it begins anew
SMALL: Final = 240  # pixels; what is narrower is shown at twice its size
COLOURS: Final = 256
LOOP: Final = b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"


class Film(Protocol):
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
def filming(path: Path, *, seconds: float, program: str | None) -> Iterator[Film]:
    """A film of pictures that stand for so many seconds each; it takes its name when it is whole.

    Raises:
        UsageError: the folder cannot be written.
        Halted: the disk is full.
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}.tmp")
    try:
        with temporary.open("wb") as file:
            film: Film = Gif(file, seconds) if program is None else Mp4(program, file, seconds)
            yield film
            film.end()
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except PermissionError:
        raise UsageError(f"--video {path}: {path.parent} cannot be written; choose another folder") from None
    except OSError as error:
        raise Halted(f"--video {path}: {error.strerror}; free some space and ask again") from None
    finally:
        temporary.unlink(missing_ok=True)


class Gif:
    """Writes a GIF that repeats for ever."""

    def __init__(self, file: IO[bytes], seconds: float) -> None:
        self.count, self._file, self._seconds = 0, file, seconds
        self._waiting: Image.Image | None = None  # how long it stands, only the next one says
        self._before: Image.Image | None = None

    def add(self, picture: NDArray[np.uint8]) -> None:
        """The next one."""
        from PIL import Image

        self._write(self._stands(self.count))
        self._waiting, self.count = Image.fromarray(picture), self.count + 1

    def end(self) -> None:
        """The last one stands a little."""
        self._write(round(100 * LINGER))
        self._file.write(b";")

    def _stands(self, number: int) -> int:
        """Hundredths of a second of picture ``number``, counted from 1; on average they are exact."""
        return round(100 * number * self._seconds) - round(100 * (number - 1) * self._seconds)

    def _write(self, hundredths: int) -> None:
        """What the waiting picture changes of the one before."""
        from PIL import ImageChops

        image, self._waiting = self._waiting, None
        if image is None:
            return
        times = 2 if image.width < SMALL else 1
        box = (0, 0, *image.size)
        if self._before is None:
            self._file.write(b"GIF89a" + _short(image.width * times, image.height * times) + b"\x70\0\0" + LOOP)
        else:
            box = ImageChops.difference(self._before, image).getbbox() or (0, 0, 1, 1)
        part = _indexed(image.crop(box))
        part = part.resize((part.width * times, part.height * times), 0)
        control = b"\x21\xf9\x04\x04" + _short(hundredths) + b"\0\0"  # what changes is laid over what was there
        self._file.write(control + b"," + _short(box[0] * times, box[1] * times, *part.size) + _encoded(part))
        self._before = image


class Mp4:
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


def _short(*numbers: int) -> bytes:
    """Each in two bytes."""
    return b"".join(number.to_bytes(2, "little") for number in numbers)


def _indexed(image: Image.Image) -> Image.Image:
    """The picture by a table of colours: exactly where there are few enough, else by the nearest."""
    import numpy as np
    from PIL import Image

    places = np.asarray(image).astype(np.int32) @ np.array([65536, 256, 1], np.int32)
    colours, indices = np.unique(places, return_inverse=True)
    if len(colours) > COLOURS:
        return image.quantize(COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    made = Image.fromarray(indices.reshape(places.shape).astype(np.uint8), "P")
    made.putpalette(np.stack([colours >> 16, colours >> 8 & 255, colours & 255], 1).astype(np.uint8).tobytes())
    return made


def _encoded(image: Image.Image) -> bytes:
    """What follows a picture's size in a GIF: its own table of colours, and its pixels, as Pillow writes them."""
    held = BytesIO()
    image.save(held, "GIF", optimize=False, interlace=0)
    raw = held.getvalue()
    bits = raw[10] & 7  # of the table's size; it stands behind the 13 bytes of the head
    table, at = raw[13 : 13 + 3 * 2 ** (bits + 1)], 13 + 3 * 2 ** (bits + 1)
    while raw[at] == ord("!"):  # what Pillow says of a picture beside it
        at += 2
        while raw[at]:
            at += raw[at] + 1
        at += 1
    return bytes([0x80 | bits]) + table + raw[at + 10 : -1]
