"""Checkpoints: whole or refused, and never read wrongly."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rlbench import checkpoint
from rlbench.errors import RefusedFile
from rlbench.ops.state_dict import State
from rlbench.records import files, manifest
from tests.conftest import Patch


def tree() -> State:
    return {
        "count": 3,
        "seconds": 0.25,
        "name": "x/y",
        "network": {"layers.0.weight": torch.randn(3, 4), "flags": torch.tensor([True, False])},
        "ring": {
            "obs": torch.randint(0, 256, (50, 2, 7), dtype=torch.uint8),
            "empty": torch.zeros(0),
            "scalar": torch.tensor(2.5),
        },
        "deep": {"deeper": {"number": torch.arange(5)}},
    }


def flat(state: State) -> dict[str, object]:
    """Every value of a state, with its type."""
    return {
        name: (value.dtype, value.shape, value.tolist()) if isinstance(value, torch.Tensor) else (type(value), value)
        for name, value in checkpoint.flatten(state)
    }


def test_loaded_state_equals_the_saved_one(tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(3, 4)
    state = {**tree(), "column": whole[:, 1], "rows": whole[:2]}
    folder = tmp_path / "caf\udce9"  # a byte that is no UTF-8, which safetensors does not open
    checkpoint.save(folder, state)
    assert flat(checkpoint.load(folder)) == flat(state)
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_umask_decides_who_reads_the_files(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        checkpoint.save(tmp_path / "c", {"weight": torch.zeros(2)})
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "c").iterdir()} == {0o666 & ~umask}


def test_a_large_tensor_is_split_over_files_and_put_together_in_order(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(checkpoint, "SHARD_BYTES", 16)
    state = {**tree(), "rows": torch.arange(200, dtype=torch.uint8).view(100, 2)}
    checkpoint.save(tmp_path / "c", state)
    assert len(list((tmp_path / "c").glob("*.safetensors"))) > 11
    assert flat(checkpoint.load(tmp_path / "c")) == flat(state)


def test_a_file_that_is_replaced_after_its_sum_was_verified_is_not_read(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "c", {"x": torch.ones(3)})
    ((name, digest),) = manifest.read_manifest(tmp_path / "c").files.items()
    for error in (FileNotFoundError(), RuntimeError("unable to open file </proc/self/fd/8>: Too many open files (24)")):
        with pytest.raises(OSError, match="Too many open files"), manifest.opened(tmp_path / "c", name, digest):
            raise error  # as safetensors and torch do where no descriptor is left
    with pytest.raises(RuntimeError, match="size"), manifest.opened(tmp_path / "c", name, digest):
        raise RuntimeError("another size")
    with manifest.opened(tmp_path / "c", name, digest) as path:
        checkpoint.save(tmp_path / "c", {"x": torch.zeros(3)})
        assert load_file(path)["x@000000"].tolist() == [1, 1, 1]
    with pytest.raises(RefusedFile, match="missing or damaged"), manifest.opened(tmp_path / "c", name, digest):
        pass


def test_a_new_checkpoint_replaces_the_old_one_whole(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "c", tree())
    checkpoint.save(tmp_path / "c", {"only": 1})
    assert checkpoint.load(tmp_path / "c") == {"only": 1}


def test_tensors_are_on_the_disk_before_the_checkpoint_is_in_its_place(tmp_path: Path, monkeypatch: Patch) -> None:
    events: list[str] = []
    fsync, swap = os.fsync, checkpoint._swap

    def record_sync(handle: int) -> None:
        events.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(checkpoint, "_swap", lambda *places: events.append("swap") or swap(*places))
    checkpoint.save(tmp_path / "c", tree())
    assert "tensors-000.safetensors" in events[: events.index("swap")]
    assert events[events.index("swap") :] == ["swap", tmp_path.name]


def test_a_crash_while_writing_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: Patch) -> None:
    checkpoint.save(tmp_path / "c", {"old": 1})

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "_swap", fail)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path / "c", {"new": 2})
    assert checkpoint.load(tmp_path / "c") == {"old": 1}


def test_traces_of_a_crash_do_not_stop_the_next_checkpoint(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "c", {"old": 1})
    for name in (".c.old", ".c.12345.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("written")
    checkpoint.save(tmp_path / "c", {"new": 2})
    assert checkpoint.load(tmp_path / "c") == {"new": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_reader_does_not_touch_a_checkpoint_between_its_renames(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "c", {"old": 1})
    (tmp_path / ".c.12345.tmp").mkdir()
    (tmp_path / ".c.12345.tmp" / "half").write_text("written")
    assert checkpoint.exists(tmp_path / "c")
    assert checkpoint.load(tmp_path / "c") == {"old": 1}
    (tmp_path / "c").rename(tmp_path / ".c.old")  # and now it is put in place
    assert checkpoint.exists(tmp_path / "c")
    assert checkpoint.load(tmp_path / "c") == {"old": 1}
    assert (tmp_path / ".c.12345.tmp" / "half").is_file() and not (tmp_path / "c").exists()
    checkpoint.save(tmp_path / "c", {"new": 2})
    assert checkpoint.load(tmp_path / "c") == {"new": 2}


def test_discarded_checkpoint_is_removed(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "c", tree())
    checkpoint.discard(tmp_path / "c")
    assert list(tmp_path.iterdir()) == []
    checkpoint.discard(tmp_path / "c")


def test_a_large_tensor_is_never_twice_in_memory(tmp_path: Path, monkeypatch: Patch) -> None:
    """Loading allocates what it gives back and one shard beside it."""
    monkeypatch.setattr(checkpoint, "SHARD_BYTES", 2**20)
    rows = torch.randint(0, 256, (16 * 2**20 // 1024, 1024), dtype=torch.uint8)
    checkpoint.save(tmp_path / "c", {"rows": rows})
    sizes: list[int] = []
    load = checkpoint._load_shard

    def count_load(*words: object) -> dict[str, torch.Tensor]:
        state_back = load(*words)
        sizes.append(sum(t.nbytes for t in state_back.values()))
        return state_back

    monkeypatch.setattr(checkpoint, "_load_shard", count_load)
    monkeypatch.setattr(torch, "cat", None)  # putting pieces together at the end would need them all at once
    loaded = checkpoint.load(tmp_path / "c")["rows"]
    assert isinstance(loaded, torch.Tensor)
    assert torch.equal(loaded, rows)
    assert max(sizes) <= 2**20


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    for missing in ("manifest.json", "tensors-000.safetensors"):
        checkpoint.save(tmp_path / "c", tree())
        (tmp_path / "c" / missing).unlink()
        with pytest.raises(RefusedFile, match=missing):
            checkpoint.load(tmp_path / "c")


@pytest.mark.parametrize(("schema", "name", "message"), [(1, "../elsewhere", "elsewhere"), (99, "x", "newer")])
def test_a_file_outside_or_a_newer_schema_is_refused(schema: int, name: str, message: str, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "c", tree())
    head = files.seal({"schema_version": schema, "files": {f"{name}.safetensors": "0"}, "values": {}, "split": {}})
    (tmp_path / "c" / "manifest.json").write_text(head)
    with pytest.raises(RefusedFile, match=message):
        checkpoint.load(tmp_path / "c")
