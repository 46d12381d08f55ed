"""Files of learning curves with correct checksums and hostile contents: each refusal names the content."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest

from rlbench.datasets.tfrecord import masked_crc
from tests.commands import stderr_of


def evaluations(lengths: object) -> bytes:
    """An ``evaluations.npz`` of three evaluations of two episodes."""
    file = io.BytesIO()
    np.savez(file, timesteps=np.arange(1, 4), results=np.ones((3, 2)), ep_lengths=np.full((3, 2), lengths))
    return file.getvalue()


def length_alone(size: int) -> bytes:
    """The head of a TensorBoard event of ``size`` bytes, with its checksum."""
    head = struct.pack("<Q", size)
    return head + struct.pack("<I", masked_crc(head))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("evaluations.npz", evaluations("abc"), "ep_lengths holds no numbers"),
        ("evaluations.npz", evaluations(b"\xff"), "ep_lengths holds no numbers"),
        ("evaluations.npz", evaluations(1j), "ep_lengths holds no numbers"),
        ("evaluations.npz", evaluations(np.datetime64("2020-01-01")), "ep_lengths holds no numbers"),
        ("evaluations.npz", evaluations(np.nan), "a length of an episode of seed 0 counts no steps"),
        ("evaluations.npz", evaluations(-1), "a length of an episode of seed 0 counts no steps"),
        ("events.tfevents.1", length_alone(2**64 - 1), "has 18,446,744,073,709,551,615 bytes, 67,108,864 are allowed"),
    ],
    ids=["text", "bytes", "complex", "date", "NaN", "negative", "event"],
)
def test_content_of_a_curve_is_the_reason(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    line = ["import", str(path), "--as", "mujoco/sac", "--task", "Hopper-v4", "--results", str(tmp_path / "results")]
    assert message in stderr_of(line)
    assert not (tmp_path / "results").exists()
