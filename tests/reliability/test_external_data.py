"""R10 and checksums of data: data outside an HDF5 file are neither read nor sealed with it."""

import json
import os
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

from rlbench.datasets import loader
from rlbench.datasets.catalogue import MINARI_DATA, MINARI_METADATA
from rlbench.errors import RefusedFile
from tests.commands import refusal_of
from tests.reliability.test_hostile_inputs import memory

ROWS = 4
Way = Callable[[h5py.Group, Path], None]


def raw(group: h5py.Group, folder: Path) -> None:
    """Rewards in a raw file beside it, as they could be in any file of the machine."""
    (folder / "raw.bin").write_bytes(np.full(ROWS, 100, "f4").tobytes())
    group.create_dataset("rewards", (ROWS,), "f4", external=[(str(folder / "raw.bin"), 0, 4 * ROWS)])


def other(folder: Path) -> Path:
    """Another HDF5 file with rewards."""
    with h5py.File(folder / "other.hdf5", "w") as file:
        file["rewards"] = np.full(ROWS, 100, "f4")
    return folder / "other.hdf5"


def linked(group: h5py.Group, folder: Path) -> None:
    """Rewards in another HDF5 file."""
    group["rewards"] = h5py.ExternalLink(str(other(folder)), "rewards")


def twice_linked(group: h5py.Group, folder: Path) -> None:
    """The same by way of a soft link through a group that is an external link."""
    group["aside"] = h5py.ExternalLink(str(other(folder)), "/")
    group["rewards"] = h5py.SoftLink(f"{group.name.rstrip('/')}/aside/rewards")


def waiting(group: h5py.Group, folder: Path) -> None:
    """A link that nobody reads, to a pipe on which HDF5 would wait for ever."""
    os.mkfifo(folder / "pipe")
    group["rewards"] = np.ones(ROWS, "f4")
    group["notes"] = h5py.ExternalLink(str(folder / "pipe"), "/")


def virtual(group: h5py.Group, folder: Path) -> None:
    """Rewards that are put together from another file; where that is missing, all are 7."""
    layout = h5py.VirtualLayout((ROWS,), "f4")
    layout[:] = h5py.VirtualSource(str(folder / "missing.hdf5"), "rewards", (ROWS,))
    group.create_virtual_dataset("rewards", layout, fillvalue=7)


WAYS: tuple[Way, ...] = (raw, linked, twice_linked, waiting, virtual)


def d4rl(folder: Path, way: Way) -> Path:
    path = folder / "rlb-evil.hdf5"
    with h5py.File(path, "w") as file:
        file["observations"], file["actions"] = np.zeros((ROWS, 2), "f4"), np.zeros((ROWS, 1), "f4")
        file["terminals"], file["timeouts"] = np.zeros(ROWS, "?"), np.zeros(ROWS, "?")
        way(file, folder)
    return path


def minari(folder: Path, way: Way) -> Path:
    place = folder / "set" / "evil-v0"
    (place / "data").mkdir(parents=True)
    with h5py.File(place / MINARI_DATA, "w") as file:
        group = file.create_group("episode_0")
        group["observations"], group["actions"] = np.zeros((ROWS + 1, 2), "f4"), np.zeros((ROWS, 1), "f4")
        group["terminations"], group["truncations"] = np.zeros(ROWS, "?"), np.zeros(ROWS, "?")
        way(group, folder)
    (place / MINARI_METADATA).write_text(json.dumps({"dataset_id": "set/evil-v0"}))
    return place


@pytest.mark.parametrize("layout", [d4rl, minari])
@pytest.mark.parametrize("way", WAYS)
def test_data_outside_the_file_are_refused_by_name(
    way: Way, layout: Callable[[Path, Way], Path], tmp_path: Path
) -> None:
    path = layout(tmp_path, way)
    with pytest.raises(RefusedFile, match=r"(rewards|aside|notes): lies in another file") as refusal:
        loader.load_dataset(path)
    assert str(loader.data_file(path)) in str(refusal.value)


@pytest.mark.parametrize("verb", ["show", "verify", "import"])
@pytest.mark.parametrize("way", [raw, linked, virtual])
def test_no_command_seals_a_file_whose_data_lie_elsewhere(
    way: Way, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sets").mkdir()
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path / "sets"))
    path = d4rl(tmp_path, way)
    assert "lies in another file" in refusal_of(
        ["data", verb, str(path), *(["--name", "rlb-evil"] if verb == "import" else [])]
    )
    assert not list(tmp_path.rglob("*.sha256.json")) and not list((tmp_path / "sets").iterdir())


def soft(group: h5py.Group, _: Path) -> None:
    """Rewards by a path to a group that is not read otherwise."""
    group["infos/rewards"], group["rewards"] = np.ones(ROWS, "f4"), h5py.SoftLink(f"{group.name}/infos/rewards")


def hard(group: h5py.Group, _: Path) -> None:
    """Rewards that another name has, too."""
    group["gains"] = np.ones(ROWS, "f4")
    group["rewards"] = group["gains"]


def repeated(group: h5py.Group, _: Path) -> None:
    """A group with two names, as a thousand episodes of one would be."""
    group["rewards"], group["again"] = np.ones(ROWS, "f4"), group.create_group("infos")


@pytest.mark.parametrize("layout", [d4rl, minari])
@pytest.mark.parametrize("way", [soft, hard, repeated])
def test_data_with_a_second_name_are_refused(way: Way, layout: Callable[[Path, Way], Path], tmp_path: Path) -> None:
    """Their memory would be counted once, and taken as often as they are read."""
    with pytest.raises(RefusedFile, match="is a second name of data in this file"):
        loader.load_dataset(layout(tmp_path, way), max_bytes=2**30)


def nested(group: h5py.Group, _: Path) -> None:
    del group["observations"]
    group["rewards"] = np.ones(ROWS, "f4")
    group.create_dataset("observations/infos", (2**20, 1), "f4", chunks=True)


def one_chunk(group: h5py.Group, _: Path, rows: int = 2**20, by: str = "gzip") -> None:
    group.create_dataset("rewards", data=np.ones(ROWS, "f4"), maxshape=(None,), chunks=(rows,), compression=by)


def inflating(group: h5py.Group, _: Path) -> None:
    """A chunk whose compressed bytes hold more than its rows."""
    rewards = group.create_dataset("rewards", (ROWS,), "f4", chunks=(ROWS,), compression="gzip")
    rewards.id.write_direct_chunk((0,), zlib.compress(bytes(2**16)))


def oversized(group: h5py.Group, _: Path, *, checksum: bool) -> None:
    """A chunk that holds more than its rows, without compression."""
    rewards = group.create_dataset("rewards", (ROWS,), "f4", chunks=(ROWS,), fletcher32=checksum)
    rewards.id.write_direct_chunk((0,), bytes(2**16))


def twice_filtered(group: h5py.Group, _: Path, second: str) -> None:
    """A second filter behind gzip, which hides the size of a chunk."""
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((ROWS,))
    plan.set_deflate(9)
    getattr(plan, second)()
    space = h5py.h5s.create_simple((ROWS,))
    h5py.h5d.create(group.id, b"rewards", h5py.h5t.IEEE_F32LE, space, plan)


LARGE = dict.fromkeys([nested, one_chunk, partial(one_chunk, rows=2**13, by="lzf")], "holds numbers that take")
INFLATING = dict.fromkeys(
    [inflating, partial(oversized, checksum=True), partial(oversized, checksum=False)],
    "rewards: a chunk holds more than its 16 bytes",
) | {partial(twice_filtered, second=name): "filters other than shuffle" for name in ("set_deflate", "set_shuffle")}


@pytest.mark.parametrize(("way", "says"), (LARGE | INFLATING).items())
def test_numbers_beyond_the_memory_are_refused(way: Way, says: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedFile, match=says):
        loader.load_dataset(minari(tmp_path, way), max_bytes=2**20)


def test_chunks_that_compression_enlarges_are_read(tmp_path: Path) -> None:
    def small(group: h5py.Group, _: Path) -> None:
        group.create_dataset("rewards", data=np.ones(ROWS, "i1"), chunks=(1,), compression="gzip", fletcher32=True)

    reward = loader.load_dataset(minari(tmp_path, small), max_bytes=2**20).reward
    assert reward[: ROWS - 1].tolist() == [1.0] * (ROWS - 1)


def test_a_text_that_claims_gigabytes_is_not_read(tmp_path: Path) -> None:
    def claimed(file: h5py.Group, _: Path) -> None:
        text = h5py.h5t.C_S1.copy()
        text.set_size(2**31 - 1)
        h5py.h5d.create(file.create_group("metadata").id, b"algorithm", text, h5py.h5s.create(h5py.h5s.SCALAR))

    path = d4rl(tmp_path, claimed)
    assert path.stat().st_size < 10_000
    with memory(more=2**30):
        assert loader.dataset_metadata(path) == {}
