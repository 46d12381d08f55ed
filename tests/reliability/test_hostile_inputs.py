"""R10 and R14: odd input of every other kind is refused in one line, within bounds of memory, disk and time."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ale_py import roms

from rlbench import suites
from rlbench.build.environments import environments
from rlbench.errors import UsageError
from rlbench.spec.override import applied, parse
from tests.reliability.odd import told


def linked(folder: Path) -> None:
    """ale-py's own ROMs."""
    for path in Path(str(roms.__file__)).parent.glob("*.bin"):
        (folder / path.name).symlink_to(path)


def falsified(folder: Path) -> None:
    """Another file under the name of each ROM."""
    for name in roms.get_all_rom_ids():
        (folder / f"{name}.bin").write_bytes(b"x")


ROMS: dict[str, tuple[Callable[[Path], object], bool]] = {
    "whole": (linked, True),
    "empty": (lambda folder: None, False),
    "missing": (lambda folder: folder.rmdir(), False),
    "a file": (lambda folder: (folder.rmdir(), folder.touch()), False),
    "of other bytes": (falsified, False),
}


@pytest.mark.parametrize("kind", ROMS)
@pytest.mark.parametrize("engine", ["ale", "envpool", "gymnasium"])
def test_a_folder_of_roms_is_used_in_silence_or_refused(
    engine: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if engine != "ale":
        pytest.importorskip("cv2" if engine == "gymnasium" else "envpool")
    prepare, good = ROMS[kind]
    (tmp_path / "roms").mkdir()
    prepare(tmp_path / "roms")
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path / "roms"))
    task = applied(suites.spec("atari", "dqn", "PongNoFrameskip-v4"), [parse(f"task.env={engine}")]).task
    if good:
        env = environments(task, seeds=(1,), training=True)
        env.reset()
        env.close()
    else:
        with pytest.raises(UsageError, match="ALE_ROMS_DIR"):
            environments(task, seeds=(1,), training=True)
    code, out, _ = told(["doctor", "atari", "--json"])
    assert code == (0 if good else 2)
    states = {finding["what"]: finding["state"] for finding in json.loads(out)["findings"]}
    assert states["ale roms"] == ("ok" if good else "missing")
    assert capfd.readouterr().out == ""
