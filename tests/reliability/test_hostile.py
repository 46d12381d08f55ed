"""R10: no foreign file runs code, or writes outside its place.

Every file here would make a canary if anything in it were run; each is given to the real command, which refuses it by
name with exit code 2. The first test shows that the canary sings.
"""

import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from rlbench import checkpoint, suites
from rlbench.config.run import Spec
from rlbench.datasets import catalogue, recording_format, recording_writer
from rlbench.records.manifest import sha256_of
from rlbench.records.store import folder_of
from tests.commands import refusal_of, run_command
from tests.datasets.conftest import minari_set
from tests.forging import locked
from tests.reliability.odd import sealed
from tests.reliability.test_fuzz_data import CORPUS, framed, segmented
from tests.zips import torch_zip, zip_of

Words = list[str]


class Evil:
    """An object that runs a command when it is unpickled: here, one that only creates a file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch '{self.canary}'",)


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path that no command may create, beside every folder that commands may write."""
    for name in ("work", "sets", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name in ("RLBENCH_DATASETS", "D4RL_DATASET_DIR", "MINARI_DATASETS_PATH"):
        monkeypatch.setenv(name, str(tmp_path / "sets"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "canary"


def torched(canary: Path) -> bytes:
    return torch_zip({"a": Evil(canary)})


def spec() -> Spec:
    return suites.spec("toy", "dqn", "Catch")


def record_with(changes: dict[str, bytes]) -> Words:
    folder = folder_of(spec(), Path("results"))
    locked(spec(), Path("results")).release()
    for name, raw in changes.items():
        (folder / name).write_bytes(raw)
    return ["table", "toy"]


def checkpointed(raw: bytes, files: dict[str, str] | None = None) -> Words:
    """A run whose checkpoint is hostile under a right checksum, or names other files."""
    record_with({})
    place = folder_of(spec(), Path("results")) / "checkpoint" / "resume"
    checkpoint.save(place, {"a": torch.zeros(2)})
    (shard,) = place.glob("*.safetensors")
    shard.write_bytes(raw)
    head = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(sealed(head | {"files": files or {shard.name: sha256_of(shard)}}))
    return ["run", "toy", "dqn", "--task", "Catch", "--device", "cpu", "--quiet"]


def hdf5(column: object, *, verb: str = "show") -> Words:
    with h5py.File("rlb-evil.hdf5", "w") as file:
        file["observations"] = np.zeros((3, 2), "f4")
        file["actions"] = np.zeros((3, 1), "f4")
        file["terminals"] = np.zeros(3, "?")
        if isinstance(column, h5py.SoftLink | h5py.ExternalLink):
            file["rewards"] = column
        else:
            file.create_dataset("rewards", data=column)
    return ["data", verb, "rlb-evil.hdf5"]


def circular(canary: Path) -> Words:
    """Minari's layout whose observations lie in themselves."""
    folder = Path("evil", "data")
    folder.mkdir(parents=True)
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        episode = file.create_group("episode_0")
        episode["rewards"] = np.zeros(2)
        episode.create_group("observations")
        episode["observations/x"] = episode["observations"]
    (folder / "metadata.json").write_text(json.dumps({"data_format": "hdf5"}))
    return ["data", "show", "evil"]


def raw_file(name: str, raw: bytes, *words: str) -> Words:
    Path(name).write_bytes(raw)
    return [*words, name]


def zipped(policy: bytes, data: bytes = b"{}", **more: bytes) -> Words:
    Path("evil.zip").write_bytes(zip_of({"data": data, "policy.pth": policy, **more}))
    return policy_words("evil.zip")


def recording(raw: bytes, name: str = "play.00000.segment", verb: str = "verify") -> Words:
    folder = Path("rlb-evil.frames")
    folder.mkdir()
    (folder / name).write_bytes(raw)
    contents = {"segments": {name: recording_format.digest_name(raw)}, "told": {}}
    (folder / catalogue.CONTENTS).write_bytes(recording_writer.seal_set(contents))
    return ["data", verb, str(folder)]


def frames(head: dict[str, object], rest: bytes) -> Words:
    return recording(segmented(json.dumps(head).encode() + b"\n" + rest))


def wandering(canary: Path) -> Words:
    """Recorded play made of files that lie elsewhere: a good one, of somebody else's."""
    own = (CORPUS / "rlb-corpus.frames" / "play.00000.segment").read_bytes()
    return recording(own, "../play.00000.segment", "show")


def policy_words(name: str, set_name: str = "rlb-evil") -> Words:
    return ["data", "generate", "HalfCheetah-v4", "--policy", name, "--steps", "10", "--name", set_name]


CATCH = ("show", "toy", "dqn", "Catch")
IMPORT = ("data", "import", "--name", "rlb-evil")
LEARN = ("run", "offline", "il", "--task", "hopper-medium-v2")
CODE = "__import__('os').system('touch ../canary')"
HOSTILE: dict[str, Callable[[Path], Words]] = {
    "pickle as a policy": lambda c: raw_file("e.safetensors", pickle.dumps(Evil(c))) and policy_words("e.safetensors"),
    "torch zip as a policy": lambda c: raw_file("e.safetensors", torched(c)) and policy_words("e.safetensors"),
    "pickle in a zip of a policy": lambda c: zipped(torched(c)),
    "pickle as a zip's weights": lambda c: zipped(pickle.dumps(Evil(c))),
    "pickle as a zip's data": lambda c: zipped(b"", pickle.dumps(Evil(c))),
    "zip whose members lie above it": lambda c: zipped(b"", **{"../canary": b"x", "../../canary": b"x", str(c): b"x"}),
    "pickle as spec.json": lambda c: record_with({"spec.json": pickle.dumps(Evil(c))}),
    "pickle as epochs.jsonl": lambda c: record_with({"epochs.jsonl": pickle.dumps(Evil(c)) + b"\n"}),
    "pickle as outcome.json": lambda c: record_with({"outcome.json": pickle.dumps(Evil(c))}),
    "NaN in outcome.json": lambda c: record_with({"outcome.json": b'{"checksum":"0","final":NaN,"status":"done"}'}),
    "spec.json without a bottom": lambda c: record_with({"spec.json": b'{"a":' * 100_000}),
    "spec.json of a task that lies above": lambda c: record_with(
        {"spec.json": sealed({"id": "x", "schema_version": 1, "spec": {"task": {"id": "../../../canary"}}}).encode()}
    ),
    "pickle as a checkpoint": lambda c: checkpointed(pickle.dumps(Evil(c))),
    "torch zip as a checkpoint": lambda c: checkpointed(torched(c)),
    "checkpoint that names another file": lambda c: checkpointed(b"", {"../../spec.json": "0" * 64}),
    "objects in HDF5": lambda c: hdf5(np.array([pickle.dumps(Evil(c)).hex()] * 3, h5py.string_dtype())),
    "opaque bytes in HDF5": lambda c: hdf5(np.frombuffer(pickle.dumps(Evil(c))[:30], "V10")),
    "link to another file in HDF5": lambda c: hdf5(h5py.ExternalLink("/etc/passwd", "/x")),
    "link to itself in HDF5": lambda c: hdf5(h5py.SoftLink("/rewards")),
    "HDF5 brought along": lambda c: [*hdf5(np.zeros(3, "V10"), verb="import"), "--name", "rlb-evil"],
    "observations that lie in themselves": circular,
    "npz of objects as data": lambda c: npz(c) and ["data", "show", "e.hdf5"],
    "pickle as data": lambda c: raw_file("e.hdf5", pickle.dumps(Evil(c)), "data", "show"),
    "pickle as a shard": lambda c: raw_file("e.gz", pickle.dumps(Evil(c)), *IMPORT, "rlu"),
    "pickle in a shard": lambda c: raw_file("e.gz", framed([pickle.dumps(Evil(c))]), *IMPORT, "rlu"),
    "frames that are objects": lambda c: frames({"shape": [1], "dtype": "O", "pieces": []}, pickle.dumps(Evil(c))),
    "frames of a structure": lambda c: frames({"shape": [1], "dtype": "O,f4", "pieces": [[0, 1, [1, 1]]]}, b"xx"),
    "frames of many dimensions": lambda c: frames({"shape": [1] * 70, "dtype": "|u1", "pieces": []}, b""),
    "long header of frames": lambda c: frames({"shape": [1], "dtype": "|u1", "pieces": [], "x": "x" * 2**22}, b""),
    "recorded games that lie elsewhere": wandering,
    "code as a value": lambda c: ["show", "toy", "dqn", "Catch", "--set", f"algo.lr={CODE}"],
    "code in a config": lambda c: raw_file("e.toml", f'[algo]\nlr = "{CODE}"\n'.encode(), *CATCH, "--config"),
    "YAML as a config": lambda c: raw_file(
        "e.toml", b"!!python/object/apply:os.system ['touch ../canary']\n", *CATCH, "--config"
    ),
    "pickle as a config": lambda c: raw_file("e.toml", pickle.dumps(Evil(c)), *CATCH, "--config"),
    "pickle as a baseline": lambda c: raw_file("b.json", pickle.dumps(Evil(c)), "baseline", "show"),
    "task that lies above": lambda c: ["run", "toy", "dqn", "--task", "../../canary"],
    "algorithm that lies above": lambda c: ["run", "toy", "../../canary"],
    "suite that lies above": lambda c: ["run", "../canary", "dqn"],
    "data set that lies above": lambda c: ["data", "show", "../canary"],
    "download to above": lambda c: ["data", "download", "../../canary"],
    "download of Minari's to above": lambda c: ["data", "download", "a/../../canary-v0"],
    "import under a name above": lambda c: [*hdf5(np.zeros(3), verb="import"), "--name", "rlb-../../canary"],
    "set made under a name above": lambda c: policy_words(str(CORPUS / "policy.safetensors"), "rlb-../../canary"),
    "learning from a set above": lambda c: [*LEARN, "--dataset", "rlb-../../canary"],
}  # fmt: skip


def npz(canary: Path) -> bool:
    np.savez("e.npz", rewards=np.array([Evil(canary)] * 2, object))
    Path("e.npz").rename("e.hdf5")
    return True


def test_canary_detects_executed_code(canary: Path) -> None:
    pickle.loads(pickle.dumps(Evil(canary)))  # noqa: S301 - it is our own, and this is what it does
    assert canary.exists()
    canary.unlink()
    torch.load(io.BytesIO(torched(canary)), weights_only=False)
    assert canary.exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_without_side_effects(name: str, canary: Path) -> None:
    words = HOSTILE[name](canary)
    before = {path for path in canary.parent.rglob("*") if "results" not in path.parts}
    refusal_of(words)
    assert not canary.exists(), "it was run"
    new_files = {path for path in canary.parent.rglob("*") if "results" not in path.parts} - before
    assert not [path for path in new_files if path.name.startswith("canary")]
    assert not [path for path in new_files if path.suffix in {".hdf5", ".safetensors"}], "refused, yet kept"


def test_metadata_that_name_a_program_are_not_followed(canary: Path) -> None:
    """Minari's own loader makes the environment that a file names; here it is only a name."""
    episode = {"observations": np.zeros((3, 2)), "actions": np.zeros((2, 1)), "rewards": np.zeros(2)}
    episode |= dict.fromkeys(("terminations", "truncations"), np.zeros(2, "?"))
    spec = {"id": "Evil-v0", "entry_point": "os:system", "kwargs": {"command": f"touch '{canary}'"}}
    minari_set(Path("evil"), [episode], env_spec=json.dumps(spec))
    assert run_command("data show evil")[0] == 0
    assert not canary.exists()
