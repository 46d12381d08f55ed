"""Fuzzed data sets and policies: read, or refused by name; no code is run.

Headers are changed and their checksums made right again, arrays get types and shapes that no data set has.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from rlbench.datasets import (
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
from tests.commands import run_command
from tests.reliability import odd
from tests.reliability.odd import changes, damaged, only_refusals, spelled
from tests.reliability.test_fuzz import Fuzzed
from tests.slow import slow_but

CORPUS = Path(__file__).parent / "corpus" / "schema-1"
FLAT = CORPUS / "rlb-corpus.hdf5"
RECORDING = CORPUS / "rlb-corpus.frames"
SEGMENT = RECORDING / "play.00000.segment"
POLICY = CORPUS / "policy.safetensors"
KEYS = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
DTYPES = ("f4", "f8", "i8", "u1", "?", "S3", "c8", "i4,f4", "M8[s]", "f2")


def array(example: tuple[str, tuple[int, ...], float]) -> object:
    """An array of any type and shape, a text, or an array of texts."""
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
    """D4RL's layout with strange columns and attributes."""
    columns, attributes, gone = example
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "rlb-x.hdf5")
        shutil.copyfile(FLAT, path)
        with h5py.File(path, "a") as file:
            for key in {*columns, gone} & set(file):
                del file[key]
            for key, value in columns.items():
                file[key] = value
            for key, value in attributes.items():
                file.attrs[key] = value
        run_command(["data", "show", str(path), "--json"])


def h5_bytes(example: object) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "rlb-x.hdf5")
        path.write_bytes(bytes(example))
        run_command(["data", "show", str(path)])


def walked(example: object) -> None:
    """Minari's layout: strange metadata, strange columns."""
    metadata, columns = example
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "data")
        folder.mkdir()
        (folder / "metadata.json").write_bytes(spelled(metadata if isinstance(metadata, str) else json.dumps(metadata)))
        with h5py.File(folder / "main_data.hdf5", "w") as file:
            for key, value in columns.items():
                file[f"episode_0/{key}"] = value
        only_refusals(lambda: minari.read_minari(Path(place)))


def beside(example: object) -> None:
    """The record of a file's checksum."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "a")
        path.write_bytes(b"a")
        Path(place, "a.sha256.json").write_bytes(spelled(str(example)))
        only_refusals(lambda: checksums.verify(path))
        only_refusals(lambda: checksums.seal_of(path))


def segmented(rest: bytes) -> bytes:
    """A file of recorded play under a right checksum."""
    return recording_format.MAGIC + sha256(rest).hexdigest().encode() + b"\n" + rest


def check_recording(example: object) -> None:
    """A set of recorded play, one of whose files says something else."""
    name, raw = example
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, RECORDING.name)
        shutil.copytree(RECORDING, folder)
        (folder / name).write_bytes(raw)
        if name.endswith(".segment"):
            (folder / recording_writer.CONTENTS).write_bytes(
                recording_writer.seal_set({"segments": {name: recording_format.digest_name(raw)}, "told": {}})
            )
        run_command(["data", "show", str(folder), "--json"])
        run_command(["data", "verify", str(folder)])
        only_refusals(lambda: shard_conversion._record(folder, "x"))


@cache
def head() -> tuple[dict[str, object], bytes]:
    """Of the segment, and what follows it."""
    raw = SEGMENT.read_bytes()[recording_format.HEAD :]
    line, _, rest = raw.partition(b"\n")
    return json.loads(line), rest


def contents(document: object) -> bytes:
    """A document of recorded play, its seal right if it can be."""
    content = document if isinstance(document, dict) else {}
    rest = {key: value for key, value in content.items() if key != "sha256"}
    try:
        return recording_writer.seal_set(rest)
    except (TypeError, ValueError, UnicodeEncodeError):
        return json.dumps(document).encode()


def policy(example: object) -> None:
    only_refusals(lambda: policies.parse_policy(bytes(example), "x"))


def safetensors(header: object) -> bytes:
    """A policy file with this header."""
    raw = POLICY.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + raw[8 + size :]


@cache
def header() -> dict[str, object]:
    """Of the policy in the corpus."""
    raw = POLICY.read_bytes()
    head: dict[str, object] = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    return head


@cache
def saved() -> bytes:
    """The bytes that ``torch.save`` writes for two tensors."""
    file = io.BytesIO()
    torch.save({"action_net.weight": torch.ones(2, 3), "action_net.bias": torch.zeros(2)}, file)
    return file.getvalue()


def rezipped(program: bytes) -> bytes:
    """The same file with another pickle in it."""
    zip_file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved())) as old, zipfile.ZipFile(zip_file, "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, program if info.filename.endswith("data.pkl") else old.read(info))
    return zip_file.getvalue()


@cache
def pickled() -> bytes:
    """The pickle of the two tensors."""
    with zipfile.ZipFile(io.BytesIO(saved())) as file:
        return file.read(next(name for name in file.namelist() if name.endswith("data.pkl")))


def torched(example: object) -> None:
    only_refusals(lambda: torchfile.tensors(bytes(example), "x"))


def zipped(example: object) -> None:
    data, state = example
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "x.zip")
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("data", spelled(data))
            file.writestr("policy.pth", state)
        only_refusals(lambda: sb3_import.convert_sb3(path, task="Small-v0"))


def framed(records: list[bytes]) -> bytes:
    """Records of a shard, their checksums right."""
    content = b""
    for body in records:
        size = struct.pack("<Q", len(body))
        content += (
            size + struct.pack("<I", tfrecord.masked_crc(size)) + body + struct.pack("<I", tfrecord.masked_crc(body))
        )
    return gzip.compress(content, 1)


def sharded(example: object) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "s.gz")
        path.write_bytes(bytes(example))
        only_refusals(lambda: rl_unplugged.read_shard(path))


def exampled(example: object) -> None:
    """Wire format that means nothing is a ``ValueError``, which ``rlu`` names with its place."""
    try:
        tfrecord.example(bytes(example))
    except ValueError:
        return


@st.composite
def wire(draw: st.DrawFn, depth: int = 3) -> bytes:
    """Nested fields of protocol buffers, most of them well formed."""
    body = (
        draw(st.one_of(st.binary(max_size=8), st.just(b"o_t"), st.just(b"\xff" * 9)))
        if depth == 0
        else draw(wire(depth - 1))
    )
    size = draw(st.sampled_from([len(body), len(body), len(body), 0, 127]))
    return (
        bytes([draw(st.sampled_from([10, 10, 18, 26, 8, 13])), size & 0x7F])
        + body
        + (draw(wire(depth - 1)) if depth else b"")
    )


def later(make: Callable[[], st.SearchStrategy[object]]) -> st.SearchStrategy[object]:
    """Strategies whose corpus files are read on demand."""
    return st.deferred(make)


FUZZED = {
    "columns": Fuzzed(
        st.tuples(
            st.dictionaries(st.sampled_from(KEYS), ARRAY, max_size=3),
            st.dictionaries(st.sampled_from(["task", "algorithm", "x"]), ARRAY, max_size=2),
            st.sampled_from([*KEYS, "", ""]),
        ),
        h5,
        few=25,
    ),
    "bytes of HDF5": Fuzzed(later(lambda: damaged(FLAT.read_bytes())), h5_bytes, few=25),
    "Minari": Fuzzed(
        st.tuples(
            st.one_of(
                changes(
                    {
                        "dataset_id": "a/b-v0",
                        "total_steps": 1,
                        "total_episodes": 1,
                        "data_format": "hdf5",
                        "env_spec": "{}",
                    }
                ),
                st.sampled_from([odd.DEEP, "[]", "null", '{"env_spec": 3}', '{"env_spec": "[]"}', ""]),
            ),
            st.dictionaries(
                st.sampled_from(
                    ["observations", "actions", "rewards", "terminations", "truncations", "observations/a/b"]
                ),
                ARRAY,
                max_size=5,
            ).filter(lambda keys: not {"observations", "observations/a/b"} <= set(keys)),
        ),
        walked,
        few=25,
    ),
    "checksums beside files": Fuzzed(
        st.one_of(
            changes({"schema_version": 1, "size": 1, "sha256": "a", "modified": 1, "url": None}).map(json.dumps),
            st.sampled_from([odd.DEEP, "null", "[]", '{"schema_version": Infinity}']),
        ),
        beside,
        few=25,
    ),
    "heads of recorded play": Fuzzed(
        later(
            lambda: changes(head()[0]).map(
                lambda header_content: (
                    SEGMENT.name,
                    segmented(json.dumps(header_content).encode() + b"\n" + head()[1]),
                )
            )
        ),
        check_recording,
        few=25,
    ),
    "bytes of recorded play": Fuzzed(
        later(
            lambda: damaged(SEGMENT.read_bytes()[recording_format.HEAD :]).map(
                lambda raw: (SEGMENT.name, segmented(raw))
            )
        ),
        check_recording,
        few=20,
    ),
    "contents of recorded play": Fuzzed(
        later(
            lambda: st.tuples(
                st.sampled_from([recording_writer.CONTENTS, "x.done.json"]),
                changes(json.loads((RECORDING / recording_writer.CONTENTS).read_text())).map(contents),
            )
        ),
        check_recording,
        few=25,
    ),
    "headers of policies": Fuzzed(later(lambda: changes(header()).map(safetensors)), policy),
    "bytes of policies": Fuzzed(later(lambda: damaged(POLICY.read_bytes())), policy),
    "pickles": Fuzzed(later(lambda: damaged(pickled()).map(rezipped)), torched),
    "bytes of zips": Fuzzed(later(lambda: damaged(saved())), torched),
    "zips of policies": Fuzzed(
        st.tuples(
            st.one_of(
                changes(
                    {"policy_kwargs": {"activation_fn": "x"}, "action_space": {"low": "[-1.]", "high": "[1.]"}}
                ).map(json.dumps),
                st.sampled_from([odd.DEEP, "null", "[]", "{"]),
            ),
            st.deferred(lambda: st.just(saved())),
        ),
        zipped,
        few=25,
    ),
    "shards": Fuzzed(
        st.one_of(st.lists(wire(), max_size=3).map(framed), later(lambda: damaged(framed([b"a" * 40])))),
        sharded,
        few=25,
    ),
    "examples": Fuzzed(st.one_of(wire(), st.binary(max_size=40)), exampled),
}


@pytest.mark.parametrize("kind", slow_but(FUZZED, 0, 2, 6, *range(8, len(FUZZED), 2)))
def test_fuzzed_files_are_read_or_refused(kind: str) -> None:
    odd.check(FUZZED[kind].example, FUZZED[kind].body, FUZZED[kind].few)


@pytest.mark.soak
@pytest.mark.parametrize("kind", FUZZED)
def test_thousand_fuzzed_files_are_read_or_refused(kind: str) -> None:
    odd.check(FUZZED[kind].example, FUZZED[kind].body, FUZZED[kind].many)
