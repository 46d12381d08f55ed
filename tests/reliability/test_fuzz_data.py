"""Fuzzed data sets and policies: read, or refused by name; no code is run.

Headers are changed and their checksums made right again, arrays get types and shapes that no data set has.
"""

import gzip
import io
import json
import shutil
import struct
import tempfile
import zipfile
from functools import cache
from hashlib import sha256
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from rlbench.datasets import (
    catalogue,
    checksums,
    minari,
    policies,
    recording_format,
    recording_writer,
    rl_unplugged,
    sb3_import,
    shard_conversion,
    tfrecord,
    torchfile,
)
from rlbench.datasets.crc32c import masked_crc
from tests.commands import run_command
from tests.reliability.odd import DEEP, Fuzzed, changes, damaged, only_refusals, spelled, written
from tests.slow import slow_but
from tests.zips import torch_zip, with_member, zip_of

CORPUS = Path(__file__).parent / "corpus" / "schema-1"
FLAT = CORPUS / "rlb-corpus.hdf5"
RECORDING = CORPUS / "rlb-corpus.frames"
SEGMENT = RECORDING / "play.00000.segment"
POLICY = CORPUS / "policy.safetensors"
KEYS = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
DTYPES = ("f4", "f8", "i8", "u1", "?", "S3", "c8", "i4,f4", "M8[s]", "f2")


def array(example: tuple[str, tuple[int, ...], float]) -> object:
    dtype, shape, value = example
    if dtype == "text":
        return "x" * len(str(value))
    if dtype == "objects":
        return np.full(shape, b"x", h5py.string_dtype())
    with np.errstate(all="ignore"):
        return np.zeros(shape) + value if dtype == "f8" else np.zeros(shape, "i8" if dtype == "M8[s]" else dtype)


ARRAY = st.tuples(
    st.sampled_from((*DTYPES, "text", "objects")),
    st.lists(st.sampled_from([0, 1, 2, 8, 3]), max_size=3).map(tuple),
    st.floats(width=32),
).map(array)


def h5(example: object) -> None:
    columns, attributes, gone = example
    with written("rlb-x.hdf5", FLAT.read_bytes()) as path:
        with h5py.File(path, "a") as file:
            for key in {*columns, gone} & set(file):
                del file[key]
            for key, value in columns.items():
                file[key] = value
            for key, value in attributes.items():
                file.attrs[key] = value
        run_command(f"data show {path} --json")


def h5_bytes(example: bytes) -> None:
    with written("rlb-x.hdf5", example) as path:
        run_command(f"data show {path}")


def walked(example: object) -> None:
    metadata, columns = example
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "data")
        folder.mkdir()
        (folder / "metadata.json").write_bytes(spelled(metadata if isinstance(metadata, str) else json.dumps(metadata)))
        with h5py.File(folder / "main_data.hdf5", "w") as file:
            for key, value in columns.items():
                file[f"episode_0/{key}"] = value
        only_refusals(lambda: minari.read_minari(Path(place)))


def beside(example: str) -> None:
    with written("a", b"a") as path:
        path.with_name("a.sha256.json").write_bytes(spelled(example))
        only_refusals(lambda: checksums.verify(path))
        only_refusals(lambda: checksums.seal_of(path))


def segmented(rest: bytes) -> bytes:
    """A file of recorded games under a right checksum."""
    return recording_format.MAGIC + sha256(rest).hexdigest().encode() + b"\n" + rest


def check_recording(example: object) -> None:
    """A set of recorded games, one of whose files says something else."""
    name, raw = example
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, RECORDING.name)
        shutil.copytree(RECORDING, folder)
        (folder / name).write_bytes(raw)
        if name.endswith(".segment"):
            (folder / catalogue.CONTENTS).write_bytes(
                recording_writer.seal_set({"segments": {name: recording_format.digest_name(raw)}, "told": {}})
            )
        run_command(f"data show {folder} --json")
        run_command(f"data verify {folder}")
        only_refusals(lambda: shard_conversion._record(folder, "x"))


@cache
def head() -> tuple[dict[str, object], bytes]:
    line, _, rest = SEGMENT.read_bytes()[recording_format.HEAD :].partition(b"\n")
    return json.loads(line), rest


def contents(document: object) -> bytes:
    """A document of recorded games, its seal right if it can be."""
    content = document if isinstance(document, dict) else {}
    rest = {key: value for key, value in content.items() if key != "sha256"}
    try:
        return recording_writer.seal_set(rest)
    except (TypeError, ValueError, UnicodeEncodeError):
        return json.dumps(document).encode()


def policy(example: bytes) -> None:
    only_refusals(lambda: policies.parse_policy(example, "x"))


def safetensors(header: object) -> bytes:
    raw = POLICY.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + raw[8 + size :]


@cache
def header() -> dict[str, object]:
    raw = POLICY.read_bytes()
    return json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])


@cache
def saved() -> bytes:
    return torch_zip({"action_net.weight": torch.ones(2, 3), "action_net.bias": torch.zeros(2)})


@cache
def pickled() -> bytes:
    with zipfile.ZipFile(io.BytesIO(saved())) as file:
        return file.read(next(name for name in file.namelist() if name.endswith("data.pkl")))


def torched(example: bytes) -> None:
    only_refusals(lambda: torchfile.tensors(example, "x"))


def zipped(example: tuple[str, bytes]) -> None:
    data, state = example
    with written("x.zip", zip_of({"data": spelled(data), "policy.pth": state})) as path:
        only_refusals(lambda: sb3_import.convert_sb3(path, task="Small-v0"))


def framed(records: list[bytes]) -> bytes:
    """Records of a shard, their checksums right."""
    parts = [part for body in records for part in (struct.pack("<Q", len(body)), body)]
    return gzip.compress(b"".join(part + struct.pack("<I", masked_crc(part)) for part in parts), 1)


def sharded(example: bytes) -> None:
    with written("s.gz", example) as path:
        only_refusals(lambda: rl_unplugged.read_shard(path))


def exampled(example: bytes) -> None:
    """Wire format that means nothing is a ``ValueError``, which ``rl_unplugged`` names with its place."""
    try:
        tfrecord.example(example)
    except ValueError:
        return


@st.composite
def wire(draw: st.DrawFn, depth: int = 3) -> bytes:
    """Nested fields of protocol buffers, most of them well formed."""
    leaf = st.one_of(st.binary(max_size=8), st.just(b"o_t"), st.just(b"\xff" * 9))
    body = draw(wire(depth - 1) if depth else leaf)
    size = draw(st.sampled_from([len(body), len(body), len(body), 0, 127]))
    tag = draw(st.sampled_from([10, 10, 18, 26, 8, 13]))
    return bytes([tag, size & 0x7F]) + body + (draw(wire(depth - 1)) if depth else b"")


COLUMNS = st.tuples(
    st.dictionaries(st.sampled_from(KEYS), ARRAY, max_size=3),
    st.dictionaries(st.sampled_from(["task", "algorithm", "x"]), ARRAY, max_size=2),
    st.sampled_from([*KEYS, "", ""]),
)
METADATA = {"dataset_id": "a/b-v0", "total_steps": 1, "total_episodes": 1, "data_format": "hdf5", "env_spec": "{}"}
ODD_METADATA = st.sampled_from([DEEP, "[]", "null", '{"env_spec": 3}', '{"env_spec": "[]"}', ""])
WALKED_KEYS = ("observations", "actions", "rewards", "terminations", "truncations", "observations/a/b")
WALKED = st.dictionaries(st.sampled_from(WALKED_KEYS), ARRAY, max_size=5).filter(
    lambda keys: not {"observations", "observations/a/b"} <= set(keys)
)
SEAL = {"schema_version": 1, "size": 1, "sha256": "a", "modified": 1, "url": None}
ODD_SEALS = st.sampled_from([DEEP, "null", "[]", '{"schema_version": Infinity}'])
SB3 = {"policy_kwargs": {"activation_fn": "x"}, "action_space": {"low": "[-1.]", "high": "[1.]"}}


def segment_heads() -> st.SearchStrategy[tuple[str, bytes]]:
    first, rest = head()
    return changes(first).map(lambda other: (SEGMENT.name, segmented(json.dumps(other).encode() + b"\n" + rest)))


def segment_bytes() -> st.SearchStrategy[tuple[str, bytes]]:
    raw = SEGMENT.read_bytes()[recording_format.HEAD :]
    return damaged(raw).map(lambda other: (SEGMENT.name, segmented(other)))


def set_contents() -> st.SearchStrategy[tuple[str, bytes]]:
    document = json.loads((RECORDING / catalogue.CONTENTS).read_text())
    return st.tuples(st.sampled_from([catalogue.CONTENTS, "x.done.json"]), changes(document).map(contents))


FUZZED = {
    "columns": Fuzzed(COLUMNS, h5, few=25),
    "bytes of HDF5": Fuzzed(st.deferred(lambda: damaged(FLAT.read_bytes())), h5_bytes, few=25),
    "Minari": Fuzzed(st.tuples(st.one_of(changes(METADATA), ODD_METADATA), WALKED), walked, few=25),
    "checksums beside files": Fuzzed(st.one_of(changes(SEAL).map(json.dumps), ODD_SEALS), beside, few=25),
    "heads of recorded games": Fuzzed(st.deferred(segment_heads), check_recording, few=25),
    "bytes of recorded games": Fuzzed(st.deferred(segment_bytes), check_recording, few=20),
    "contents of recorded games": Fuzzed(st.deferred(set_contents), check_recording, few=25),
    "headers of policies": Fuzzed(st.deferred(lambda: changes(header()).map(safetensors)), policy),
    "bytes of policies": Fuzzed(st.deferred(lambda: damaged(POLICY.read_bytes())), policy),
    "pickles": Fuzzed(
        st.deferred(lambda: damaged(pickled()).map(lambda raw: with_member(saved(), "data.pkl", raw))), torched
    ),
    "bytes of zips": Fuzzed(st.deferred(lambda: damaged(saved())), torched),
    "zips of policies": Fuzzed(
        st.tuples(
            st.one_of(changes(SB3).map(json.dumps), st.sampled_from([DEEP, "null", "[]", "{"])),
            st.deferred(lambda: st.just(saved())),
        ),
        zipped,
        few=25,
    ),
    "shards": Fuzzed(
        st.one_of(st.lists(wire(), max_size=3).map(framed), st.deferred(lambda: damaged(framed([b"a" * 40])))),
        sharded,
        few=25,
    ),
    "examples": Fuzzed(st.one_of(wire(), st.binary(max_size=40)), exampled),
}


@pytest.mark.parametrize("count", ["few", pytest.param("many", marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", slow_but(FUZZED, 0, 2, 6, *range(8, len(FUZZED), 2)))
def test_fuzzed_files_are_read_or_refused(kind: str, count: str) -> None:
    FUZZED[kind].check(getattr(FUZZED[kind], count))
