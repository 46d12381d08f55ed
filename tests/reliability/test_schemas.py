"""R12: older files stay readable, and newer ones are refused with the file, both versions and the remedy.

``corpus/schema-<n>`` holds a file of every kind as version n wrote it, and is never changed. Whoever raises a version
adds a folder with ``python -m tests.reliability.make_corpus``; a test here asks for it.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rlbench import checkpoint
from rlbench.datasets import catalogue, checksums, loader, policies, recording_reader, recording_writer
from rlbench.errors import RefusedFile
from rlbench.records import files, store
from rlbench.report import baseline, runs
from tests.commands import run_command
from tests.conftest import Patch
from tests.laws.source import tree
from tests.reliability.odd import sealed

CORPUS = Path(__file__).parent / "corpus"
SCHEMAS = sorted(CORPUS.glob("schema-*"))
VERSIONS = {
    "records/files.py": files.SCHEMA_VERSION,
    "report/baseline.py": baseline.SCHEMA_VERSION,
    "datasets/checksums.py": checksums.SCHEMA_VERSION,
    "datasets/recording_writer.py": recording_writer.SCHEMA_VERSION,
}
"""Of everything that is read again; what ``--json`` prints is nobody's input."""

METRICS = {  # what the epochs of the corpus were learned by, so that every kind of line is met
    "loss q", "extra loss q", "actor_loss alpha critic_loss entropy q", "divergence entropy policy_loss value_loss",
    "actor_loss error", "actor_loss critic_loss divergence error q",
    "actor_loss alpha critic_loss entropy gap multiplier q", "actor_loss critic_loss imitated q value_loss",
    "bonus divergence entropy forward_loss inverse_loss policy_loss value_loss",
}  # fmt: skip


@pytest.fixture(params=SCHEMAS, ids=lambda path: path.name)
def corpus(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy: reading may write a checksum beside a file."""
    return Path(shutil.copytree(request.param, tmp_path / "corpus"))


def test_every_record_is_read_whole_by_both_readers(corpus: Path) -> None:
    records = [store.read_record(path.parent) for path in sorted(corpus.glob("results/**/spec.json"))]
    assert len(records) == 14
    assert {record.outcome and record.outcome.status for record in records} == {"done", "failed", "interrupted", None}
    metrics = {e.updated and " ".join(sorted(e.updated.means)) for record in records for e in record.epochs}
    assert metrics == METRICS | {None}
    assert {record.spec.suite for record in records} == {"atari", "goals", "mujoco", "offline", "toy"}
    for record in records:
        quick = runs.read_run(record.folder)
        assert (quick.seed, quick.suite, quick.smoke) == (record.spec.seed, record.spec.suite, record.spec.smoke)
        assert [e.mean for e in quick.evaluations] == [e.evaluated.mean for e in record.epochs if e.evaluated]


def test_old_records_are_read_by_every_command(corpus: Path) -> None:
    results = ["--results", str(corpus / "results")]
    cells = json.loads(run_command(["table", "all", "--json", *results])[1])["cells"]
    assert sum(cell["measured"] is not None for cell in cells) == 7
    states = [run["state"] for run in json.loads(run_command(["status", "--json", *results])[1])["runs"]]
    assert sorted(states) == ["done"] * 11 + ["failed"] + ["interrupted"] * 2
    for suite in ("toy", "atari"):
        words = ["check", suite, "--baseline", str(corpus / "baseline.json"), "--other-machine", "--json", *results]
        code, out, _ = run_command(words)
        assert code in {0, 5}
        assert {f["word"] for f in json.loads(out)["findings"]} <= {"TOO FEW", "FAILED", "PASSED"}


def test_data_policies_and_checkpoints_are_read(corpus: Path) -> None:
    assert loader.load_dataset(corpus / "rlb-corpus.hdf5", "rlb-corpus").obs.shape == (10, 3)  # two final rows
    assert checksums.verify(corpus / "rlb-corpus.hdf5").size == (corpus / "rlb-corpus.hdf5").stat().st_size
    assert recording_reader.read_recording(corpus / "rlb-corpus.frames").obs.shape == (5, 3, 12)
    assert policies.read_policy_file(corpus / "policy.safetensors").metadata.name == "corpus"
    state = checkpoint.load(corpus / "checkpoint")
    assert state["b"] == {"n": 1, "s": "x", "f": 0.5}
    assert state["a"].tolist() == [[0, 1, 2], [3, 4, 5]]


def newer(path: Path, version: int) -> None:
    """The file as a later version would write it: sealed, and of a higher number."""
    if path.name == catalogue.CONTENTS:
        head = json.loads(path.read_text())
        path.write_bytes(
            recording_writer.seal_set({k: v for k, v in head.items() if k != "sha256"} | {"schema_version": version})
        )
        return
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    seal: Callable[[object], str] = json.dumps if path.name.endswith(checksums.SUFFIX) else sealed
    lines[-1] = seal(json.loads(lines[-1]) | {"schema_version": version})
    path.write_text("\n".join(lines) + "\n")


RUN = "results/toy/dqn/Catch/dff3a282c094/seed=0"
READERS: dict[str, tuple[int, list[str]]] = {
    f"{RUN}/spec.json": (files.SCHEMA_VERSION, ["table", "toy", "--results", "results"]),
    f"{RUN}/epochs.jsonl": (files.SCHEMA_VERSION, ["table", "toy", "--results", "results"]),
    f"{RUN}/outcome.json": (files.SCHEMA_VERSION, ["run", "toy", "dqn", "--task", "Catch", "--results", "results"]),
    "baseline.json": (baseline.SCHEMA_VERSION, ["check", "toy", "--baseline", "baseline.json", "--results", "results"]),
    "rlb-corpus.hdf5.sha256.json": (checksums.SCHEMA_VERSION, ["data", "show", "rlb-corpus.hdf5"]),
    "rlb-corpus.frames/dataset.json": (recording_writer.SCHEMA_VERSION, ["data", "show", "rlb-corpus.frames"]),
}


@pytest.mark.parametrize("name", READERS)
def test_newer_schema_is_refused_with_file_versions_and_remedy(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    corpus = Path(shutil.copytree(SCHEMAS[-1], tmp_path / "corpus"))
    monkeypatch.chdir(corpus)
    version, words = READERS[name]
    newer(corpus / name, version + 1)
    code, out, error = run_command(words)
    line = next(line for line in error.splitlines() if line.startswith("rlbench: "))
    assert code == 2 and (out == "" or words[0] == "run")  # which tells what became of every run
    assert Path(name).name in line and f"schema {version + 1}" in line and f"≤ {version}" in line and "upgrade" in line


def test_a_newer_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(SCHEMAS[-1] / "checkpoint", tmp_path / "c"))
    newer(folder / "manifest.json", files.SCHEMA_VERSION + 1)
    with pytest.raises(RefusedFile, match=r"manifest.json: schema \d+ was written by a newer rlbench .* upgrade"):
        checkpoint.load(folder)


def test_every_schema_version_has_a_corpus() -> None:
    """One number for the corpus: the highest of all versions."""
    assert [path.name for path in SCHEMAS] == [f"schema-{n}" for n in range(1, max(VERSIONS.values()) + 1)]


def test_schema_versions_are_defined_in_one_place() -> None:
    """Every SCHEMA_VERSION of the package is in the table above, or of a document that is only printed."""
    records = {
        m.path.removeprefix("rlbench/")
        for m in tree()
        if "SCHEMA_VERSION = " in m.text or "SCHEMA_VERSION: Final = " in m.text
    }
    printed = {path for path in records if path.startswith("report/")} - {"report/baseline.py"}
    assert records - printed == set(VERSIONS)
