"""R4, R9, R10: foreign curves and references, and numbers that overflow arithmetic, are refused by name."""

import io
import json
import lzma
import re
import struct
import sys
import zipfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlbench import suites
from rlbench.cli.eval_policy import check_evaluation_memory
from rlbench.cli.resolve import resolve
from rlbench.curves.formats import _resolved_algorithm
from rlbench.datasets.crc32c import masked_crc
from rlbench.errors import DoesNotFit, RefusedFile, UsageError
from rlbench.records import files, imported, looks, machine
from rlbench.records.imported import ImportedCurve, Origin
from rlbench.records.locks import FolderLock
from rlbench.records.types import MAX_RETURN
from rlbench.report import pages, parity, reference_files, tables
from rlbench.report.parity import Parity
from rlbench.report.reference_table import CellKey
from tests.commands import json_of, refusal_of, run_command, stderr_of, stdout_of
from tests.conftest import Patch, RecordRun, RecordSeeds
from tests.zips import zip_of

pytestmark = pytest.mark.usefixtures("empty_folder")


def evaluations(lengths: object, steps: object = (1, 2, 3)) -> bytes:
    file = io.BytesIO()
    np.savez(file, timesteps=np.asarray(steps), results=np.ones((3, 2)), ep_lengths=np.full((3, 2), lengths))
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
    assert message in stderr_of(f"import {path} --as mujoco/sac --task Hopper-v4 --results results")
    assert not (tmp_path / "results").exists()


CURVE = ImportedCurve(
    suite="mujoco",
    algorithm="sac",
    task="Hopper-v4",
    dataset="",
    seed=0,
    kind="evaluation",
    steps=(500_000, 1_000_000),
    returns=(1.0, 2.0),
    lengths=None,
    origin=Origin(format="csv", sha256="", env_id="Hopper-v4", unknown=()),
)


def line(**fields: object) -> str:
    usual = {"peer": "x", "algorithm": "sac", "task": "Hopper-v4", "seed": 0, "steps": 1, "returns": [1.0]}
    return json.dumps({**usual, **fields})


def npz(header: str, method: int = zipfile.ZIP_STORED) -> bytes:
    raw, results = header.encode().ljust(117) + b"\n", io.BytesIO()
    np.save(results, np.ones((1, 1)))
    steps = b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw + b"12345678"
    return zip_of({"timesteps.npy": steps, "results.npy": results.getvalue()}, method)


def npz_of_shape(shape: str) -> bytes:
    return npz(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}")


def damaged(method: int) -> bytes:
    raw = bytearray(npz("{}" + " " * 50, method))
    place = raw.find(b"timesteps.npy") + len("timesteps.npy") + 12
    raw[place : place + 8] = b"\xff" * 8
    return bytes(raw)


def scores(array: object, tasks: object) -> bytes:
    """Final scores of SAC."""
    file = io.BytesIO()
    np.savez(file, sac=array, tasks=np.asarray(tasks, "U1"))
    return file.getvalue()


AGENT = '[{"Agent": "SAC", "Iteration": ITERATION, "Value": 1.0}]'
HEAD = "task,dataset,seed,step,return\nHopper-v4,"
LINE = (
    '{"peer": "x", "algorithm": "sac", "task": "Hopper-v4", "seed": %d, "steps": 1, "returns": [1], "dataset": "%s"}\n'
)
IMPORTS: dict[str, tuple[str | bytes, str]] = {
    "blank lines": ("step,return\n" + "\n" * 2**20, "no row below the header"),
    "one long cell": ("step,return\n1,x" + "1" * 100_000 + "\n" + "2,3\n" * 50_000, "row 1 has"),
    "a name of many bytes": (HEAD + "漢" * 200 + ",0,1,2\n", "File name too long"),
    "a seed of many digits": (line(seed=10**30), "is not from 0 to 2,147,483,647"),
    "a step that no float holds": (line(steps=10**400), "line 1 is no evaluation (steps"),
    "returns whose sum no float holds": (line(returns=[1.7e308] * 3), "line 1 is no evaluation (returns"),
    "a return whose square no float holds": (f"{HEAD},0,1,1e51\n", "not below 1e+50"),
    "an iteration that no float holds": (AGENT.replace("ITERATION", "1" + "0" * 400), "no rows of Agent"),
    "damaged LZMA": (damaged(zipfile.ZIP_LZMA), "not an npz file"),
    "damaged bzip2": (damaged(zipfile.ZIP_BZIP2), "not an npz file"),
    "an array larger than memory": (npz_of_shape("(10000000000000000,)"), "not an npz file"),
    "an array larger than any": (npz_of_shape("(100000000000000000000,)"), "not an npz file"),
    "a thousand and one arrays": (
        zip_of({f"{number}.npy": b"" for number in range(1_001)}),
        "unpacks to 0 bytes in 1,001 arrays, 268,435,456 in 1,000 are allowed",
    ),
    "an array of no size": (npz_of_shape("(True,)"), "not an npz file"),
    "evaluations of two data sets": (line(data="a") + "\n" + line(steps=2, data="b"), "line 2 is of another library"),
    "rows without columns": (scores(np.empty((2**40, 0)), []), "has 1,099,511,627,776 scores"),
    "a task beyond Unicode": (scores(np.ones((1, 1)), np.array([2**31], "<u4").view("<U1")), "numbers and texts only"),
    "a std beside the mean": ("step,mean,std\n0,0,1\n9,1,2\n", "no seeds but 'mean', 'std'"),
    "an index beside the seeds": (",step,seed_0\n0,0,1\n1,9,2\n", "no seeds but ''"),
    "a step in another case": ("step,Step,return\n0,0,1\n9,5,2\n", "several columns for step: step, Step"),
    "steps that are not known": (evaluations(1, np.full(3, np.nan)), "step nan of seed 0 is no count of steps"),
    "episodes without a step": ("global_step,episodic_return\n,1\n,2\n", "step nan of seed 0 is no count of steps"),
    "curves of another task": ("task,step,return\nWalker2d-v4,1,2\n", "the file or its folder names Walker2d-v4;"),
    "a bad name in a later line": ("".join(LINE % pair for pair in enumerate(["", "\\u0007"])), "'?' is no name"),
    "an infinite return of a seed": ("step,seed_0\n0,1\n9,inf\n", "seed 0 at step 9 is not finite"),
    "an infinite return of an episode": ("step,episodic_return\n0,1\n9,-inf\n", "seed 0 at step 9 is not finite"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("harm", IMPORTS)
def test_a_hostile_file_of_curves_is_refused(harm: str, tmp_path: Path) -> None:
    content, message = IMPORTS[harm]
    path = tmp_path / "curves"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "results/mujoco/sac").mkdir(parents=True)
    assert message in stderr_of(f"import {path} --as mujoco/sac --task Hopper-v4 --results results")
    assert not list(tmp_path.rglob("curve.json"))


LABELS = {
    "a run of many underscores": f"global_step,{'_' * 30_000}x - eval/return\n1,2\n",
    "a run's seed of many digits": f"global_step,seed{'1' * 5_000} - eval/return\n1,2\n",
    "a column's seed of many digits": f"step,seed{'1' * 5_000}\n1,2\n",
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("label", LABELS)
def test_a_name_that_is_too_long_for_a_seed_is_numbered(label: str, tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text(LABELS[label])
    stdout_of("import curves.csv --as mujoco/sac --task Hopper-v4 --results results")
    assert [path.parent.name for path in tmp_path.rglob("curve.json")] == ["seed=0"]


def test_lzma_errors_occur() -> None:
    with pytest.raises(lzma.LZMAError), zipfile.ZipFile(io.BytesIO(damaged(zipfile.ZIP_LZMA))) as members:
        members.read("timesteps.npy")


FORGED: dict[str, Callable[[ImportedCurve], ImportedCurve]] = {
    "is the curve of mujoco/sac/Hopper-v4/imported/seed=1": lambda curve: replace(curve, seed=1),
    "is the curve of mujoco/sac/Ant-v4/imported/seed=0": lambda curve: replace(curve, task="Ant-v4"),
    "do not rise": lambda curve: replace(curve, steps=(1, 10**400)),
    "the steps of seed 0 do not rise": lambda curve: replace(curve, steps=(5, 5)),
    "'Hopper-v4/../..' is no name": lambda curve: replace(curve, task="Hopper-v4/../.."),
    "seed 0 has 2 points": lambda curve: replace(curve, returns=(1.0,)),
    "0000 is not from 0": lambda curve: replace(curve, seed=10**30),
    "return of seed 0 is not below": lambda curve: replace(curve, returns=(1.0, -1e300)),
}


@pytest.mark.parametrize("message", FORGED)
def test_a_forged_curve_is_named_and_counted_nowhere(message: str, tmp_path: Path) -> None:
    imported.write_curves([CURVE], tmp_path)
    path = imported.curve_folder(CURVE, tmp_path) / imported.FILE
    path.write_text(files.seal({"schema_version": 1, **asdict(FORGED[message](CURVE))}))
    for line in (f"verify {tmp_path}", f"table mujoco --results {tmp_path}"):
        assert message in refusal_of(line)


def test_a_damaged_curve_is_imported_again(tmp_path: Path) -> None:
    imported.write_curves([CURVE], tmp_path)
    (imported.curve_folder(CURVE, tmp_path) / imported.FILE).write_text("{}")
    out = stdout_of(f"verify {tmp_path}", 2)
    assert "restore it, or remove it and import again" in out and "--force" not in out


def test_curve_without_a_valid_line_is_not_written(tmp_path: Path) -> None:
    numbers = [n / 7 for n in range(400_000)]
    long = replace(CURVE, steps=tuple(range(10**15, 10**15 + 400_000)), returns=tuple(numbers), lengths=tuple(numbers))
    with pytest.raises(RefusedFile, match="16,777,216 are allowed; thin the file"):
        imported.write_curves([long], tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("returns", [[MAX_RETURN, -MAX_RETURN] * 2, [5e-324] * 4, [MAX_RETURN, 1e-300, 0.0, -1.0]])
@pytest.mark.parametrize("dataset", ["", "of/others"])
def test_no_allowed_return_or_data_set_breaks_a_verdict(dataset: str, returns: list[float], tmp_path: Path) -> None:
    for seed, score in enumerate(returns):
        imported.write_curves([replace(CURVE, dataset=dataset, seed=seed, returns=(0.0, score))], tmp_path)
    for more in ("", "--at", "--pooled"):
        assert run_command(f"check mujoco {more} --results {tmp_path}")[0] in {0, 3}


@pytest.mark.parametrize(
    "words",
    [{"steps": (2_000_000, 3_000_000)}, {"steps": (0, 3_000_000), "returns": (9e3, 0.0)}, {"kind": "training"}],
    ids=["late", "early", "training"],
)
def test_a_seed_without_a_return_of_the_references_steps_and_kind_never_leaves_n(words: Any, tmp_path: Path) -> None:
    for seed in range(5):
        for name in ("good", "all"):
            imported.write_curves([replace(CURVE, seed=seed, returns=(0.0, 3_600.0 + seed))], tmp_path / name)
        imported.write_curves([replace(CURVE, seed=5 + seed, **words)], tmp_path / "all")
    gate = [run_command(f"check mujoco --results {tmp_path / name}")[1] for name in ("good", "all")]
    assert "1 REPRODUCED" in gate[0] and "1 INCONCLUSIVE" in gate[1] and "5 runs incomplete" in gate[1]
    assert "over 5;" in run_command(f"check mujoco --at --results {tmp_path / 'all'}")[1]
    assert run_command(f"export npz --output {tmp_path / 'f'} --results {tmp_path / 'all'}")[0] == 0


def test_no_later_evaluation_counts_at_equal_steps(record_run: RecordRun, tmp_path: Path) -> None:
    task = "HalfCheetah-v4"
    for seed in range(3):
        record_run([0.0, 3.0, 3.0 + seed], suite="mujoco", algo="sac", task=task, seed=seed, status="interrupted")
        late = replace(CURVE, task=task, seed=seed, steps=(2**52, 2**53 - 1), returns=(1e4, 1e4 + seed))
        imported.write_curves([late], tmp_path / "results")
        imported.write_curves([late], tmp_path / "late")
    assert "no such cell of mujoco" in stderr_of("table mujoco --parity ")
    cells = json_of(f"table mujoco --json --task {task} --results late")["cells"]
    assert {cell["at"] for cell in cells} == {None}


SAC = {"Hopper-v4": 3_542.0, "HalfCheetah-v4": 12_139.0}


@pytest.mark.parametrize(
    ("scores", "codes"),
    [({}, (0, 0)), ({"Walker2d-v4": [0.0] * 5}, (3, 3)), ({"Ant-v4": [10.0, 20.0]}, (0, 4))],
    ids=["pooled", "without a spread", "of two seeds"],
)
def test_no_cell_hides_behind_a_pooled_verdict(
    scores: dict[str, list[float]], codes: tuple[int, int], tmp_path: Path
) -> None:
    good = {task: [level + 10 * n for n in range(5)] for task, level in SAC.items()}
    for task, row in (scores | good).items():
        for seed, score in enumerate(row):
            imported.write_curves([replace(CURVE, task=task, seed=seed, returns=(0.0, score))], tmp_path)
    gate = ["check", "mujoco", "--pooled", "--results", str(tmp_path)]
    assert (run_command([*gate, "--imported"])[0], run_command([*gate, "--imported", "--strict"])[0]) == codes
    assert run_command([*gate, "--strict"])[0] == (codes[0] or 4)  # most tasks have no run


@pytest.mark.parametrize("change", [{"kind": "training"}, {"algorithm": "sca"}], ids=["training", "misspelt"])
def test_a_gate_of_imported_curves_that_compares_none_does_not_pass(change: dict[str, Any], tmp_path: Path) -> None:
    imported.write_curves([replace(CURVE, **change)], tmp_path)
    gate = f"check mujoco --imported --results {tmp_path}"
    for strict in ("", " --strict"):
        assert "holds no imported curve that can be compared with a published score" in stderr_of(gate + strict, 2)
    for seed in range(10):
        good = replace(CURVE, task="HalfCheetah-v4", seed=seed, returns=(0.0, 12_200.0 + seed))
        imported.write_curves([good], tmp_path)
    ends = {words: run_command(gate + words) for words in ("", " --strict", " --strict --at")}
    assert [code for code, *_ in ends.values()] == [0, 4, 3]  # at equal steps the straight line is behind
    assert all("NOT COMPARABLE  mujoco/" in out for _, out, _ in ends.values())


def test_imported_curves_beside_runs_are_not_left_out_silently(record_run: RecordRun) -> None:
    for task, score in (("HalfCheetah-v4", 12_200.0), ("Hopper-v4", 1.0)):
        for seed in range(10):
            imported.write_curves([replace(CURVE, task=task, seed=seed, returns=(0.0, score + seed))], Path("results"))
    record_run([0.0, 1.0], suite="mujoco", algo="sac", task="Hopper-v4", sets=["algo.actor_lr=0.01"])
    out = stdout_of("check mujoco --imported --strict --results results", 4)
    assert "mujoco/sac/Hopper-v4 score  10 imported curves left out: rlbench has runs beside them" in out


def test_a_gate_of_imported_curves_that_leaves_all_out_names_the_reason(record_run: RecordRun, tmp_path: Path) -> None:
    imported.write_curves([replace(CURVE, steps=(2_000_000, 3_000_000))], tmp_path / "late")
    imported.write_curves([CURVE], Path("results"))
    record_run([0.0, 1.0], suite=CURVE.suite, algo=CURVE.algorithm, task=CURVE.task)
    late = stderr_of(f"check mujoco --imported --results {tmp_path / 'late'}", 2)
    assert "1 imported curve left out: no evaluation within 1,000,000 steps" in late
    beside = stderr_of("check mujoco --imported --results results", 2)
    assert "1 imported curve left out: rlbench has runs beside them" in beside


def falling(length: int, seed: int, algorithm: str) -> ImportedCurve:
    """A curve that reaches 3,000 at 300,000 steps and falls to 100 at 1,000,000, cut at ``length`` steps."""
    steps = range(0, length + 1, 50_000)
    returns = [3000.0 * t / 3e5 if t <= 300_000 else 3000 - 2900 * (t - 3e5) / 7e5 for t in steps]
    curve = replace(CURVE, algorithm=algorithm, seed=seed, steps=tuple(steps))
    return replace(curve, returns=tuple(value + seed for value in returns))


@pytest.mark.parametrize(
    ("algorithm", "limit", "shortest", "word"),
    [
        ("tqc", 1_000_000, 300_000, "BELOW"),  # no seed's length cuts the others
        ("tqc", None, 300_000, "BELOW"),
        ("tqc", 300_000, 1_000_000, "REPRODUCED"),
        ("sac", 300_000, 1_000_000, "REPRODUCED"),
        ("sac", 2_000_000, 1_000_000, "PARTIAL"),
    ],
)
def test_imported_curves_are_compared_within_the_steps_of_the_reference(
    algorithm: str, limit: int | None, shortest: int, word: str, tmp_path: Path
) -> None:
    protocol = 'protocol = "ten episodes, no training returns"\n'  # whose kind is still evaluation
    fields = (
        REFERENCE.replace('"sac"', f'"{algorithm}"') + protocol + "n = 5\n" + (f"steps = {limit}\n" if limit else "")
    )
    (tmp_path / "ours.toml").write_text(fields + 'scores = [{task = "Hopper-v4", score = 3000.0, std = 30.0}]')
    for seed in range(5):
        length = shortest if seed == 0 else 1_000_000
        imported.write_curves([falling(length, seed, algorithm)], tmp_path / "results")
    options = f"--references {tmp_path / 'ours.toml'} --reference x --results {tmp_path / 'results'}"
    (row,) = json_of(f"table mujoco --algo {algorithm} --task Hopper-v4 {options} --json")["cells"]
    assert row["verdict"].partition(" ")[0] == word, row["note"]
    assert row["measured"]["env_steps"] == min(limit or 1_000_000, 1_000_000)


def test_a_reference_of_more_steps_than_a_run_takes_is_not_compared(record_seeds: RecordSeeds, tmp_path: Path) -> None:
    fields = REFERENCE + "steps = 3_000_000\nn = 5\n"
    (tmp_path / "ours.toml").write_text(fields + 'scores = [{task = "Hopper-v4", score = 1.0, std = 0.1}]')
    record_seeds(*[[0.0] * 200 + [1.0]] * 3, suite="mujoco", algo="sac", task="Hopper-v4")
    options = f"--references {tmp_path / 'ours.toml'} --reference x --results results"
    (row,) = json_of(f"table mujoco --algo sac --task Hopper-v4 {options} --json")["cells"]
    assert row["verdict"] == "NOT COMPARABLE"
    assert "documented within 3,000,000 steps, a run of rlbench takes 1,000,000" in row["note"]


def test_a_seed_with_a_whole_and_a_shorter_curve_counts_once_at_equal_steps(tmp_path: Path) -> None:
    gate = f"check mujoco --at --imported --json --results {tmp_path}"
    for place, length in ((tmp_path, 1_000_000), (tmp_path / "earlier", 500_000)):
        for seed in range(2):
            imported.write_curves([falling(length, seed, "sac")], place)
        (finding,) = json_of(gate)["findings"]
        assert (finding["word"], "over 2;" in finding["reason"]) == ("OPEN", True)


def record_beside_reference(steps: int, record_run: RecordRun, tmp_path: Path, monkeypatch: Patch) -> None:
    """Records a run and an imported curve of SAC on Hopper-v4, and chooses a score within ``steps`` as reference."""
    curve = replace(CURVE, steps=tuple(sorted((steps, 1_000_000))))
    imported.write_curves([curve], tmp_path / "theirs")
    record_run([0.0, *[1.0] * 200], suite="mujoco", algo="sac", task="Hopper-v4")
    fields = REFERENCE + f"n = 5\nsteps = {steps}\n"
    (tmp_path / "ours.toml").write_text(fields + 'scores = [{task = "Hopper-v4", score = 3000.0, std = 30.0}]')
    monkeypatch.setenv("RLBENCH_REFERENCES", str(tmp_path / "ours.toml"))
    monkeypatch.setenv("RLBENCH_REFERENCE", "x")


def test_imported_curves_of_more_steps_are_not_compared_with_runs(
    record_run: RecordRun, tmp_path: Path, monkeypatch: Patch
) -> None:
    record_beside_reference(3_000_000, record_run, tmp_path, monkeypatch)
    error = stderr_of(f"compare {tmp_path / 'theirs'} results")
    assert "they differ in budget: 3,000,000 and 1,000,000 steps; compare them with --at" in error


def test_imported_curves_end_at_the_steps_of_the_reference(
    record_run: RecordRun, tmp_path: Path, monkeypatch: Patch
) -> None:
    record_beside_reference(300_000, record_run, tmp_path, monkeypatch)
    command = f"compare {tmp_path / 'theirs'} results --json"
    assert [task.get("step") for task in json_of(command)["tasks"]] == [None]
    assert [task["step"] for task in json_of(f"{command} --at")["tasks"]] == [300_000]


def test_training_curves_end_where_their_files_end(tmp_path: Path) -> None:
    for end in (300_000, 1_000_000):
        curve = replace(CURVE, kind="training", steps=(100_000, end), returns=(1.0, 2.0))
        imported.write_curves([curve], tmp_path / f"{end}")
    names = f"{tmp_path / '300000'} {tmp_path / '1000000'}"
    assert "they differ in budget: 300,000 and 1,000,000 steps" in stderr_of(f"compare {names}")
    assert [task["step"] for task in json_of(f"compare {names} --at --json")["tasks"]] == [300_000]


def test_other_shorter_curves_of_a_seed_are_not_left_out_silently(tmp_path: Path) -> None:
    gate = f"check mujoco --imported --strict --results {tmp_path}"
    steps = (500_000, 995_000, 1_000_000, 2_000_000)
    for seed in range(5):
        for end in (1, 2, 3, 4):  # the first of these are parts of the last one
            returns = (3_000.0, 3_540.0 + seed, 3_540.0 + seed, 9.0)[:end]
            origin = replace(CURVE.origin, env_id="Hopper" if end == 2 else CURVE.origin.env_id)
            curve = replace(CURVE, seed=seed, steps=steps[:end], returns=returns, origin=origin)
            imported.write_curves([curve], tmp_path / f"{end}")
    assert "1 REPRODUCED" in stdout_of(gate)
    imported.write_curves([replace(curve, steps=(500_000,), returns=(300.0,))], tmp_path / "bad")
    assert "seed 4 has a second record with other numbers" in stdout_of(gate, 4)


def test_of_two_whole_curves_of_a_seed_no_few_steps_choose_the_better(tmp_path: Path) -> None:
    for seed in range(5):
        good = replace(CURVE, seed=seed, steps=(500_000, 1_000_000), returns=(3_000.0, 3_540.0 + seed))
        imported.write_curves([good], tmp_path)
        bad = replace(good, steps=(500_000, 995_000), returns=(300.0, 300.0 + seed))
        imported.write_curves([bad], tmp_path / "bad")
    assert "1 BELOW" in stdout_of(f"check mujoco --imported --strict --results {tmp_path}", 3)


def test_a_curve_cut_between_documented_evaluations_is_a_part_of_the_whole_one(tmp_path: Path) -> None:
    """PPO is evaluated each 30,720 steps, these curves each 5,000: 480,000 is near 491,520, but not the nearest."""
    steps = tuple(range(0, 1_000_001, 5_000))
    for seed in range(5):
        whole = replace(CURVE, algorithm="ppo", task="HalfCheetah-v4", seed=seed, steps=steps)
        whole = replace(whole, returns=tuple(7_000.0 + seed + step / 1e6 for step in steps))
        imported.write_curves([whole], tmp_path)
        part = replace(whole, steps=steps[:97], returns=whole.returns[:97])
        imported.write_curves([part], tmp_path / "early")
    assert "incomplete" not in stdout_of(f"check mujoco --imported --json --results {tmp_path}")


def test_imported_curves_that_end_early_are_undecided_only_strictly(tmp_path: Path) -> None:
    for seed in range(5):
        imported.write_curves([replace(CURVE, seed=seed, steps=(0, 1000), returns=(0.0, 1.0 + seed))], tmp_path)
    gate = f"check mujoco --imported --results {tmp_path}"
    assert [run_command(gate + strict)[0] for strict in ("", " --strict")] == [0, 4]


@pytest.mark.parametrize(("name", "expected"), [("TD3", "td3"), (" sac ", "sac"), ("SAC (ours)", ""), ("SAC+", "")])
def test_an_algorithm_is_known_by_spellings_that_add_nothing(name: str, expected: str) -> None:
    assert _resolved_algorithm("mujoco", name) == (expected or name)


def test_every_algorithm_is_known_in_other_spellings() -> None:
    for suite in suites.SUITES:
        for name in suites.algorithms(suite):
            assert _resolved_algorithm(suite, name.upper().replace("+", " + ")) == name
    for name, own in {"TD3 + BC": "td3bc", "TD3+BC-raw": "td3bc-raw"}.items():
        assert _resolved_algorithm("offline", name) == own
    assert _resolved_algorithm("atari", "PPO-ICM") == "ppo+icm" and _resolved_algorithm("atari", "QR-DQN") == "qrdqn"


@pytest.mark.parametrize("gate", ["mujoco --imported", "mujoco --imported --pooled", "toy --baseline b"])
def test_no_gate_passes_on_nothing(gate: str) -> None:
    Path("results").mkdir()
    empty = {"schema_version": 1, "kind": "rlbench baseline", "cells": [], "commits": [], "machines": []}
    Path("b").write_text(files.seal(empty))
    assert re.search("holds no (cell of|imported curve)", stderr_of(f"check {gate}"))


def test_two_sides_without_a_common_step_are_not_compared(tmp_path: Path) -> None:
    imported.write_curves([CURVE], tmp_path / "early")
    imported.write_curves([replace(CURVE, steps=(10**15, 10**15 + 1))], tmp_path / "late")
    assert "have no cell in common that can be compared at equal steps" in stderr_of("compare early late --at")


FIELDS = {"name": "x", "title": "t", "url": "u", "version": "1", "suite": "mujoco", "algorithm": "sac"}
FIELDS["estimator"] = "final"
REFERENCE = "[[reference]]\n" + "".join(f'{key} = "{value}"\n' for key, value in FIELDS.items())
NORMALIZED = REFERENCE.replace('"final"', '"normalized-final"')
REFERENCES = {
    "a number of many digits": ("[a]\nb = " + "1" * 5_000, "not TOML"),
    "a key of dots": ("a" + ".a" * 20_000 + " = 1", "more than 1,000 dots"),
    "many keys of dots": (("a" + ".a" * 900 + "\n") * 200, "are allowed"),
    "steps that no float holds": (REFERENCE + "steps = 1" + "0" * 400, "steps"),
    "a score whose square no float holds": (REFERENCE + 'scores = [{task = "Hopper-v4", score = 1e300}]', "score"),
    "many sources of one file": (
        "".join(REFERENCE.replace('"x"', f'"x{n}"') + 'file = "rows.csv"\n' for n in range(101)),
        "more than 100,000 rows and points",
    ),
    "many rows of one curve": (REFERENCE + 'file = "curves.csv"', "more than 100,000 rows and points"),
    "a normalised score without a scale": (
        NORMALIZED + 'scores = [{task = "Hopper-v4", score = 90.0}]',
        "r.toml: x, Hopper-v4, estimator: has no scale to normalise by",
    ),
    "a normalised score of a game without a scale": (
        NORMALIZED.replace("mujoco", "atari") + 'file = "games.csv"',
        "r.toml: x, AirRaidNoFrameskip-v4, estimator: has no scale to normalise by",
    ),
    "a normalised score of a data set without a scale": (
        NORMALIZED.replace("mujoco", "offline") + 'scores = [{task = "Hopper-v4", dataset = "no-v2", score = 3.0}]',
        "r.toml: x, no-v2, estimator: has no scale to normalise by",
    ),
    "a long field of CSV": (REFERENCE + 'file = "long.csv"', "not CSV"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("harm", REFERENCES)
def test_a_hostile_file_of_references_is_refused(harm: str, tmp_path: Path) -> None:
    content, message = REFERENCES[harm]
    for name, text in {
        "long.csv": "task,score\n" + "x" * 200_000 + ",1\n",
        "rows.csv": "task,score\n" + "Hopper-v4,1\n" * 1_000,
        "curves.csv": "task,score,curve\n" + "Hopper-v4,1,points.csv\n" * 1_000,
        "points.csv": "env_step,mean_return,std,seeds\n" + "".join(f"{step},1,1,5\n" for step in range(100)),
        "games.csv": "task,score\nPongNoFrameskip-v4,90\nAirRaidNoFrameskip-v4,50\n",
        "r.toml": content,
    }.items():
        Path(name).write_text(text)
    suite = next(name for name in ("atari", "offline", "mujoco") if name in content or name == "mujoco")
    assert message in stderr_of(f"table {suite} --references {tmp_path / 'r.toml'}")


def test_no_reference_comes_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "evil-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{reference_files.GROUP}]\nevil = evil:r.toml\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    reference_files._installed.cache_clear()
    try:
        assert not [path for path in reference_files._installed() if path.name == "r.toml"]
    finally:
        reference_files._installed.cache_clear()


PEER = Parity(
    key=CellKey("mujoco", "sac", "Hopper-v4", ""),
    library="=HYPERLINK(1)",
    packages=("@x",),
    differences=("-1+1", "<script>"),
    step=1,
    ours=(-1.0, 2.0),
    peer=(-1.0, 2.0),
    **dict.fromkeys(("reference", "distance", "test")),
)


def test_texts_of_a_peer_are_no_markup() -> None:
    assert "<script>" not in parity.parity_markdown([PEER])


def test_largest_returns_are_short_in_a_table(tmp_path: Path) -> None:
    row = replace(PEER, ours=(MAX_RETURN, 0.0), peer=(-MAX_RETURN, 0.0))
    (cells,) = [line for line in parity.parity_plain([row]).splitlines() if "5.000e+49 (2)" in line]
    assert "-5.000e+49 (2)" in cells and "+1.000e+50 [" in cells
    for seed, score in enumerate((MAX_RETURN, MAX_RETURN, 0.0)):
        imported.write_curves([replace(CURVE, seed=seed, returns=(0.0, score))], tmp_path)
    for line in ("table mujoco --format md", "check mujoco", "check mujoco --at"):
        _, out, _ = run_command(f"{line} --results {tmp_path}")
        assert "e+" in out and "0" * 13 not in out and ",000" * 4 not in out, out


@pytest.mark.parametrize(
    ("text", "cell_text"),
    [
        ("<img src=x>|", "&lt;img src=x>\\|"),
        ("![a](https://x.org/a.png)", "![a]&#40;https:&#47;/x.org/a.png)"),
        ("www.x.org and WWW.x.org", "www&#46;x.org and WWW&#46;x.org"),
        ("4.2 [1.0, 7.4] (3) a/b", "4.2 [1.0, 7.4] (3) a/b"),
        ("@team, il@v1", "&#64;team, il@v1"),
    ],
)
def test_a_text_in_a_table_of_markdown_holds_no_link_mention_or_html(text: str, cell_text: str) -> None:
    assert tables.markdown_row([text]) == f"| {cell_text} |"


def test_a_processor_in_a_report_of_markdown_is_no_markup() -> None:
    text = pages._cost({}, "<img src=x> ![x](https://evil)")
    assert "<img" not in text and "](" not in text and "https:&#47;/evil" in text


def test_a_look_removes_temporary_files_of_crashed_processes_only(tmp_path: Path, monkeypatch: Patch) -> None:
    other, lock = tmp_path / f"{looks.NAME}.1.tmp", FolderLock(tmp_path)
    other.write_text("half")
    assert lock.acquire()
    monkeypatch.setattr(looks, "ATTEMPTS", 1)
    with pytest.raises(UsageError, match="holds its lock"):
        looks.record_looks(tmp_path, looks.Looks(looks.DESIGN, 1))
    assert other.read_text() == "half" and looks.read_looks(tmp_path) is None
    lock.release()
    looks.record_looks(tmp_path, looks.Looks(looks.DESIGN, 1))
    assert [path.name for path in tmp_path.iterdir()] == [looks.NAME]


def test_damaged_looks_are_a_fault(record_run: RecordRun) -> None:
    cell = record_run([1.0]).parent
    (cell / looks.NAME).write_text("{}")
    out = stdout_of(f"verify {cell.parents[3]}", 2)
    assert f"{looks.NAME}: damaged" in out and "1 fault" in out and "restore it, or begin in another folder" in out


@pytest.mark.parametrize(
    "line",
    [
        *("verify LONG", "eval LONG", "compare LONG .", "data show LONG", "data show /proc/self/mem"),
        *("table toy --results LONG", "check toy --baseline LONG", "import LONG --as mujoco/sac --results ."),
        *("show mujoco ppo gym:CartPole-v1 --import __main__", "run offline td3bc --dataset ~nobody-here/a.hdf5"),
    ],
)
def test_argument_that_no_file_system_accepts_is_a_usage_error(line: str) -> None:
    assert "internal error" not in stderr_of(line.replace("LONG", "x" * 300))


def test_an_evaluation_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = resolve("atari", "dqn", "PongNoFrameskip-v4", sets=["protocol.envs=10000", "protocol.episodes=10000"]).spec
    monkeypatch.setattr(machine, "available_memory", lambda: 2**32)
    with pytest.raises(DoesNotFit, match="10,000 envs of evaluation"):
        check_evaluation_memory(spec)
