"""Videos: every frame is in them with its duration, and a file is whole or absent."""

import os
import sys
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from rlbench.cli.video_writer import refusal_of, video_writer
from rlbench.errors import ResourceExhausted, UsageError
from tests.conftest import Patch

FrameList = list[NDArray[np.uint8]]

FFMPEG = """#!{python}
import pathlib, sys
data = sys.stdin.buffer.read()
pathlib.Path(sys.argv[-1]).write_bytes(" ".join(sys.argv[1:]).encode() + b"|" + data)
sys.exit({code})
"""


def noise_frames(count: int, *, colours: int = 64, size: tuple[int, int] = (40, 30)) -> FrameList:
    """Frames of noise on which a bar moves; the third and the fourth are alike."""
    draw = np.random.default_rng(0)
    noise = (draw.integers(0, colours, (*size, 1)) * np.array([3, 2, 1])).astype(np.uint8)
    images = []
    for number in range(count):
        image = noise.copy()
        image[5 : 8 + min(number, 2) + max(0, number - 3), 4:20] = (255, 0, number)
        images.append(images[2] if number == 3 else image)
    return images


def decode(path: Path) -> tuple[FrameList, list[int]]:
    with Image.open(path) as gif:
        images, stands = [], []
        for number in range(gif.n_frames):
            gif.seek(number)
            images.append(np.array(gif.convert("RGB")))
            stands.append(int(gif.info["duration"]))
        assert gif.info["loop"] == 0
    return images, stands


def test_gif_has_every_frame_at_twice_its_size(tmp_path: Path) -> None:
    images = noise_frames(9)
    with video_writer(tmp_path / "a.gif", seconds=4 / 60, program=None) as writer:
        for image in images:
            writer.add(image)
    decoded, stands = decode(tmp_path / "a.gif")
    assert writer.count == 9 and len(decoded) == 8  # what is alike is shown once, for longer
    for one, other in zip([*images[:3], *images[4:]], decoded, strict=True):
        assert (other == one.repeat(2, 0).repeat(2, 1)).all()
    assert stands == [70, 60, 140, 60, 70, 70, 60, 1000]
    assert [path.name for path in tmp_path.iterdir()] == ["a.gif"]


def test_gif_of_many_colours_is_approximate(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 300).astype(np.uint8)
    image = np.stack([np.tile(ramp, (250, 1)), np.tile(ramp[:250, None], (1, 300)), np.zeros((250, 300))], -1)
    with video_writer(tmp_path / "a.gif", seconds=0.05, program=None) as writer:
        writer.add(image.astype(np.uint8))
        writer.add(image[::-1].astype(np.uint8))
    decoded, _ = decode(tmp_path / "a.gif")
    assert decoded[0].shape == (250, 300, 3)
    assert np.abs(decoded[0] - image).mean() < 16 and np.abs(decoded[1] - image[::-1]).mean() < 16


def cut(path: Path) -> None:
    with video_writer(path, seconds=0.1, program=None) as writer:
        writer.add(noise_frames(1)[0])
        raise InterruptedError


def test_failed_video_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a.gif").write_bytes(b"before")
    with pytest.raises(ResourceExhausted):
        cut(tmp_path / "a.gif")
    assert (tmp_path / "a.gif").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["a.gif"]


@pytest.mark.parametrize("name", ["a.avi", "a", ".gif.txt", "none/a.gif", "folder.gif"])
def test_unwritable_video_is_refused_before_the_evaluation(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.gif").mkdir()
    with pytest.raises(UsageError, match="--video"):
        refusal_of(tmp_path / name)


def test_a_fifo_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.gif")
    with pytest.raises(UsageError, match="is a plain file"):
        refusal_of(tmp_path / "a.gif")


@pytest.mark.parametrize("script", ["", "#!/bin/sh\ncat > /dev/null\n"], ids=["no program", "writes nothing"])
def test_an_ffmpeg_that_writes_nothing_leaves_the_old_video(script: str, tmp_path: Path, monkeypatch: Patch) -> None:
    program(tmp_path, monkeypatch, script=script or "\x7fELF")
    (path := tmp_path / "a.mp4").write_bytes(b"before")
    ffmpeg = refusal_of(path)
    with pytest.raises(UsageError, match="ffmpeg: c"), video_writer(path, seconds=0.05, program=ffmpeg) as writer:
        writer.add(noise_frames(1)[0])
    assert path.read_bytes() == b"before"
    assert {file.name for file in tmp_path.iterdir()} == {"bin", "a.mp4"}


def program(folder: Path, monkeypatch: Patch, *, code: int = 0, script: str = FFMPEG) -> None:
    """An ffmpeg that writes its arguments and its input to files."""
    path = folder / "bin" / "ffmpeg"
    path.parent.mkdir()
    path.write_text(script.format(python=sys.executable, code=code), encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")


def test_ffmpeg_writes_every_frame_into_an_mp4(tmp_path: Path, monkeypatch: Patch) -> None:
    program(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    images, path = noise_frames(5), Path("12:30.mp4")  # "12:" would be a protocol
    with video_writer(path, seconds=0.05, program=refusal_of(path)) as writer:
        for image in images:
            writer.add(image)
    words, _, data = path.read_bytes().partition(b"|")
    assert data == b"".join(image.tobytes() for image in images)
    assert f" {tmp_path}/.12:30".encode() in words
    assert b"-s 30x40 -r 20.000000" in words and b"scale=60:80" in words and b"yuv420p" in words
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("free", "error", "match"),
    [
        (2**30, UsageError, r"ended with 3\); name it .gif"),
        (0, ResourceExhausted, "No space left on device; free some"),
    ],
)
def test_failing_ffmpeg_is_reported_in_one_line_and_leaves_no_file(
    free: int, error: type[Exception], match: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    program(tmp_path, monkeypatch, code=3)
    monkeypatch.setattr("shutil.disk_usage", lambda _: Mock(free=free))
    path = tmp_path / "a.mp4"
    with pytest.raises(error, match=match), video_writer(path, seconds=0.05, program=refusal_of(path)) as writer:
        writer.add(noise_frames(1)[0])
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def write_slowly(path: Path, frames: FrameList) -> None:
    with video_writer(path, seconds=0.05, program=refusal_of(path)) as writer:
        for frame in frames:
            writer.add(frame)
            while not Path("pid").exists() or not Path("pid").read_text():
                sleep(0.01)


def test_frames_of_another_size_end_ffmpeg_and_leave_no_file(tmp_path: Path, monkeypatch: Patch) -> None:
    program(tmp_path, monkeypatch)
    (tmp_path / "bin/ffmpeg").write_text("#!/bin/sh\necho $$ > pid\nexec /bin/sleep 60\n")
    monkeypatch.chdir(tmp_path)
    frames = noise_frames(1) + noise_frames(1, size=(30, 40))
    with pytest.raises(UsageError, match=r"from \(40, 30, 3\) to \(30, 40, 3\); name it .gif"):
        write_slowly(tmp_path / "a.mp4", frames)
    assert not Path("/proc", Path("pid").read_text().strip()).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "pid"]


WITHOUT_PROGRAM = SimpleNamespace(get_ffmpeg_exe=Mock(side_effect=RuntimeError("No ffmpeg exe")))


@pytest.mark.parametrize("package", [None, WITHOUT_PROGRAM], ids=["no package", "no program in it"])
def test_without_ffmpeg_an_mp4_is_refused_with_the_remedy(package: object, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", package)
    with pytest.raises(UsageError, match=r"nothing here writes MP4; install ffmpeg, or name it \.gif"):
        refusal_of(tmp_path / "a.mp4")
