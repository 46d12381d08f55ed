"""Videos: every frame is in them with its duration, and a file is whole or absent."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from rlbench.cli.video_writer import refusal_of, video_writer
from rlbench.errors import ResourceExhausted, UsageError

Pictures = list[NDArray[np.uint8]]

FFMPEG = """#!{python}
import pathlib, sys
data = sys.stdin.buffer.read()
pathlib.Path(sys.argv[-1]).write_bytes(" ".join(sys.argv[1:]).encode() + b"|" + data)
sys.exit({code})
"""


def pictures(count: int, *, colours: int = 64, size: tuple[int, int] = (40, 30)) -> Pictures:
    """So many, of noise on which a bar moves; the third and the fourth are alike."""
    draw = np.random.default_rng(0)
    noise = (draw.integers(0, colours, (*size, 1)) * np.array([3, 2, 1])).astype(np.uint8)
    made = []
    for number in range(count):
        picture = noise.copy()
        picture[5 : 8 + min(number, 2) + max(0, number - 3), 4:20] = (255, 0, number)
        made.append(made[2] if number == 3 else picture)
    return made


def shown(path: Path) -> tuple[Pictures, list[int]]:
    """The pictures of a GIF and how many milliseconds each stands."""
    with Image.open(path) as gif:
        found, stands = [], []
        for number in range(gif.n_frames):
            gif.seek(number)
            found.append(np.array(gif.convert("RGB")))
            stands.append(int(gif.info["duration"]))
        assert gif.info["loop"] == 0
    return found, stands


def test_gif_has_every_frame_at_twice_its_size(tmp_path: Path) -> None:
    made = pictures(9)
    with video_writer(tmp_path / "a.gif", seconds=4 / 60, program=None) as film:
        for picture in made:
            film.add(picture)
    found, stands = shown(tmp_path / "a.gif")
    assert film.count == 9 and len(found) == 8  # what is alike is shown once, for longer
    for one, other in zip([*made[:3], *made[4:]], found, strict=True):
        assert (other == one.repeat(2, 0).repeat(2, 1)).all()
    assert stands == [70, 60, 140, 60, 70, 70, 60, 1000]
    assert [path.name for path in tmp_path.iterdir()] == ["a.gif"]


def test_gif_of_many_colours_is_approximate(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 300).astype(np.uint8)
    picture = np.stack([np.tile(ramp, (250, 1)), np.tile(ramp[:250, None], (1, 300)), np.zeros((250, 300))], -1)
    with video_writer(tmp_path / "a.gif", seconds=0.05, program=None) as film:
        film.add(picture.astype(np.uint8))
        film.add(picture[::-1].astype(np.uint8))
    found, _ = shown(tmp_path / "a.gif")
    assert found[0].shape == (250, 300, 3)
    assert np.abs(found[0] - picture).mean() < 16 and np.abs(found[1] - picture[::-1]).mean() < 16


def cut(path: Path) -> None:
    """A film that comes to no end."""
    with video_writer(path, seconds=0.1, program=None) as film:
        film.add(pictures(1)[0])
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


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, *, code: int = 0) -> None:
    """An ffmpeg that writes down what it was told and given."""
    path = folder / "bin" / "ffmpeg"
    path.parent.mkdir()
    path.write_text(FFMPEG.format(python=sys.executable, code=code), encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent))


def test_ffmpeg_writes_every_frame_into_an_mp4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch)
    made, path = pictures(5), tmp_path / "a.mp4"
    with video_writer(path, seconds=0.05, program=refusal_of(path)) as film:
        for picture in made:
            film.add(picture)
    words, _, data = path.read_bytes().partition(b"|")
    assert data == b"".join(picture.tobytes() for picture in made)
    assert b"-s 30x40 -r 20.000000" in words and b"scale=60:80" in words and b"yuv420p" in words
    assert not list(tmp_path.glob(".*"))


def test_failing_ffmpeg_is_reported_in_one_line_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, monkeypatch, code=3)
    path = tmp_path / "a.mp4"
    with (
        pytest.raises(UsageError, match=r"ended with 3\); name it .gif"),
        video_writer(path, seconds=0.05, program=refusal_of(path)) as film,
    ):
        film.add(pictures(1)[0])
    assert [found.name for found in tmp_path.iterdir()] == ["bin"]


def test_without_ffmpeg_an_mp4_is_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UsageError, match=r"nothing here writes MP4; install ffmpeg, or name it \.gif"):
        refusal_of(tmp_path / "a.mp4")
