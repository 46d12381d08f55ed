"""R10 and R14: other malformed inputs are refused in one line, within bounds of memory, disk and time."""

import gzip
import io
import json
import os
import re
import resource
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import h5py
import numpy as np
import pytest
from ale_py import roms
from matplotlib import rc_context

from rlbench import suites
from rlbench.assembly.environments import environments
from rlbench.cli.app import main
from rlbench.cli.output import print_text
from rlbench.config.overrides import apply_settings, parse
from rlbench.datasets.recipes import RECIPES
from rlbench.errors import ResourceExhausted, UsageError
from rlbench.records import files, machine
from rlbench.report.figure_style import STYLE, empty_figure
from tests.commands import refusal_of, run_command, run_process, stderr_of, stdout_of
from tests.conftest import Capture, Patch
from tests.laws.source import ROOT
from tests.reliability.test_hostile import raw_file as write
from tests.zips import zip_of


def linked(folder: Path) -> None:
    for path in Path(str(roms.__file__)).parent.glob("*.bin"):
        (folder / path.name).symlink_to(path)


def falsified(folder: Path) -> None:
    for name in roms.get_all_rom_ids():
        (folder / f"{name}.bin").write_bytes(b"x")


ROMS: dict[str, tuple[Callable[[Path], object], bool]] = {
    "whole": (linked, True),
    "empty": (lambda folder: None, False),
    "missing": (lambda folder: folder.rmdir(), False),
    "a file": (lambda folder: (folder.rmdir(), folder.touch()), False),
    "of other bytes": (falsified, False),
    "a pipe": (lambda folder: os.mkfifo(folder / "pong.bin"), False),
}


@pytest.mark.parametrize("kind", ROMS)
@pytest.mark.parametrize("engine", ["ale", "envpool", "gymnasium"])
def test_rom_folder_is_used_silently_or_refused(
    engine: str, kind: str, tmp_path: Path, monkeypatch: Patch, capfd: Capture
) -> None:
    if engine != "ale":
        pytest.importorskip("cv2" if engine == "gymnasium" else "envpool")
    prepare, good = ROMS[kind]
    (tmp_path / "roms").mkdir()
    prepare(tmp_path / "roms")
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path / "roms"))
    task = apply_settings(suites.spec("atari", "dqn", "PongNoFrameskip-v4"), [parse(f"task.env={engine}")]).task
    if good:
        env = environments(task, seeds=(1,), training=True)
        env.reset()
        env.close()
    else:
        with pytest.raises(UsageError, match="ALE_ROMS_DIR"):
            environments(task, seeds=(1,), training=True)
    code, out, _ = run_command("doctor atari --json")
    assert code == (0 if good else 2)
    states = {finding["what"]: finding["state"] for finding in json.loads(out)["findings"]}
    assert states["ale roms"] == ("ok" if good else "missing")
    assert capfd.readouterr().out == ""


def archive(data: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    return zip_of({"data": data, "policy.pth": b""}, method)


def member(method: int) -> bytes:
    """A zip whose one member's compressed bytes are damaged."""
    content = bytearray(archive(b"{}" + b" " * 9_000, method))
    start = 30 + len("data")
    content[start + 9 : start + 25] = b"\xff" * 16
    return bytes(content)


def npy(header: bytes, version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + bytes(80)


def log(part: str, header: str, version: bytes = b"\1\0") -> list[str]:
    """A log of DQN replay, one of whose files has such a header."""
    Path("logs").mkdir()
    columns = {"observation": np.zeros((9, 84, 84), np.uint8), "action": np.zeros(9, np.int32)}
    columns |= {"reward": np.ones(9, np.float32), "terminal": np.zeros(9, np.uint8)}
    for name, values in columns.items():
        with gzip.open(f"logs/$store$_{name}_ckpt.0.gz", "wb") as file:
            np.save(file, values)
    Path("logs", f"{part}_ckpt.0.gz").write_bytes(gzip.compress(npy(header.encode(), version)))
    return ["data", "import", "dqn-replay", "logs", "--task", "PongNoFrameskip-v4", "--name", "rlb-evil"]


def negative_rows() -> list[str]:
    """A log of DQN replay whose files claim as many rows less than none."""
    words = log("add_count", "")
    columns = {"observation": ("|u1", (84, 84)), "action": ("<i4", ()), "reward": ("<f4", ()), "terminal": ("|u1", ())}
    for name, (dtype, frame) in columns.items():
        header = {"descr": dtype, "fortran_order": False, "shape": (-5, *frame)}
        Path(f"logs/$store$_{name}_ckpt.0.gz").write_bytes(gzip.compress(npy(f"{header}\n".encode())))
    return words


def evaluations(header: str) -> list[str]:
    Path("e.npz").write_bytes(zip_of({"timesteps.npy": npy(header.encode())}))
    return ["import", "e.npz", "--as", "mujoco/sac", "--task", "Hopper-v4", "--results", "out"]


def groups() -> list[str]:
    with h5py.File("e.hdf5", "w") as file:
        group = file.id
        for _ in range(100):  # 100,000 overflow HDF5's stack
            group = h5py.h5g.create(group, b"a")
    return ["data", "show", "e.hdf5"]


def wide(columns: int) -> list[str]:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)  # every chunk is written
    with h5py.File("wide.hdf5", "w") as file:
        file.create_dataset("observations", (40, columns), "f4", compression="gzip", fillvalue=1.0, dcpl=properties)
        for key, shape in {"actions": (40, 2), "rewards": (40,), "terminals": (40,), "timeouts": (40,)}.items():
            file.create_dataset(key, data=np.zeros(shape, "f4" if key in {"actions", "rewards"} else "?"))
    return ["data", "show", "wide.hdf5"]


def other_facts(**facts: object) -> list[str]:
    Path("sets").mkdir()
    with h5py.File("sets/rlb-hopper-medium.hdf5", "w") as file:
        file.attrs.update({"recipe": RECIPES["rlb-hopper-medium"].model_dump_json(exclude_defaults=True), **facts})
    return ["data", "generate", "rlb-hopper-medium"]


POLICY = ("data", "generate", "HalfCheetah-v4", "--steps", "20", "--name", "rlb-x", "--policy")
CONFIG = ("run", "toy", "dqn", "--dry-run", "--config")
DOTS = "too large, or too many dots"
COUNT = "{'descr': '<i8', 'fortran_order': False, 'shape': (%d,)}\n"
HEADERS = {"a bracket": "(\n", "lines": "  x\n y\n", "minus signs": "-" * 9_000 + "1\n"}
ODD: dict[str, tuple[Callable[[], list[str]], str]] = {
    "damaged LZMA": (lambda: write("e.zip", member(zipfile.ZIP_LZMA), *POLICY), "e.zip: not a zip"),
    "damaged bzip2": (lambda: write("e.zip", member(zipfile.ZIP_BZIP2), *POLICY), "e.zip: cannot be read (Inv"),
    "JSON of brackets": (lambda: write("e.zip", archive(b"[[" + b"],[" * 2**21 + b"]]"), *POLICY), "values"),
    **{f"count of 10^{n}": (partial(log, "add_count", COUNT % 10**n), "one integer was expected") for n in (9, 13)},
    **{
        f"{kind} as a header of {part}": (partial(log, part, header), "no header of numpy")
        for kind, header in HEADERS.items()
        for part in ("add_count", "$store$_action")
    },
    **{f"{kind} in npz": (partial(evaluations, header), "e.npz: not an npz") for kind, header in HEADERS.items()},
    "a negative number of rows": (negative_rows, "holds no row"),
    "config of a device": (lambda: [*CONFIG, "/dev/zero"], DOTS),
    "config of an empty table": (lambda: write("e.toml", b"[algo.lr]", *CONFIG), "expected a number"),
    "no facts": (other_facts, "is there already"),
    "a text as a return": (partial(other_facts, episodes=1, return_mean="a", return_std=1), "is there already"),
    "groups in groups": (groups, "e.hdf5: has groups in groups"),
    "numpy's version 2": (partial(log, "$store$_action", "", b"\2\0"), "not version 1.0"),
    "config of dots": (lambda: write("e.toml", b"a" + b".a" * 20_000 + b" = 1", *CONFIG), DOTS),
    "results without a name": (lambda: ["run", "toy", "dqn", "--smoke", "--dry-run", "--results", ""], "is empty"),
    "curves without a name": (lambda: ["import", "", "--as", "mujoco/sac", "--results", "out"], "is empty"),
}


def test_a_user_s_settings_of_matplotlib_change_no_figure(tmp_path: Path) -> None:
    """TeX would run on texts of other people's records, and is not installed here."""
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nlines.linewidth: 7\n", encoding="utf-8")
    settings = {"MPLBACKEND": "unknown", "SOURCE_DATE_EPOCH": "no number", "MATPLOTLIBRC": str(tmp_path)}
    words = f"-P -m rlbench plot toy --task Catch --results {ROOT / 'results'} --output"
    for name, variables in {"usual.svg": {}, "other.svg": settings}.items():
        assert run_process([sys.executable, *words.split(), name], cwd=tmp_path, **variables).returncode == 0
    assert (tmp_path / "usual.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()


def test_variables_of_inductor_change_no_number_and_end_no_command(tmp_path: Path) -> None:
    settings = {"TORCHINDUCTOR_USE_FAST_MATH": "1", "AOTINDUCTOR_REPRO_LEVEL": "no number"}
    settings |= {"TORCH_COMPILE_OVERRIDE_BACKENDS": "0:eager"}
    (tmp_path / "torchinductor_me").mkdir()
    (tmp_path / "torchinductor_me").chmod(0o777)
    program = "import rlbench, torch._inductor.config as c; print(c.use_fast_math); "
    program += "from rlbench.accel.graph_capture import CompiledLoss; CompiledLoss(len); "
    program += "import os, torch._dynamo.config as d; assert not d.debug_backend_override; "
    program += "print(os.environ['TORCHINDUCTOR_CACHE_DIR'])"
    names = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "private"), "TMPDIR": str(tmp_path), "LOGNAME": "me"}
    done = run_process([sys.executable, "-P", "-c", program], cwd=tmp_path, **settings, **names)
    first, second = done.stdout.splitlines()
    assert first == "False" and second.startswith(f"{tmp_path}/rlbench-inductor-")


def test_a_warning_of_a_library_is_no_line_of_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", timesteps=np.array([0, 1]), results=np.full((2, 2), 1e308))
    line = "-P -m rlbench import e.npz --as mujoco/sac --task Ant-v4 --results out"
    done = run_process([sys.executable, *line.split()], cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "is not finite" in done.stderr


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("TORCH_LOGS", "nonsense", "torch cannot be imported (Invalid log settings: nonsense, must be a"),
        ("TORCHDYNAMO_REPRO_LEVEL", "nonsense", "'nonsense'); check its environment variables"),
        ("NUMPY_MADVISE_HUGEPAGE", "nonsense", "numpy cannot be imported ("),
        ("TORCH_LOGS_OUT", "/proc/none/file", "torch cannot be imported ("),
        ("_RLBENCH_COMPLETE", "complete_bash", "variables of a shell's completion ('COMP_WORDS'); unset it"),
    ],
)
def test_a_variable_that_a_library_refuses_is_a_mistake_of_the_user(
    name: str, value: str, reason: str, tmp_path: Path
) -> None:
    line = "-P -m rlbench run toy dqn --task Catch --smoke --results out"
    done = run_process([sys.executable, *line.split()], cwd=tmp_path, **{name: value})
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and reason in done.stderr


@pytest.mark.parametrize("name", ODD)
def test_odd_input_is_refused_within_a_gigabyte(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path / "sets"))
    words, reason = ODD[name]
    with memory(more=2**30):
        assert reason in stderr_of(words())


def test_summary_of_very_wide_observations_takes_under_two_gigabytes(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    with memory(more=2**31):
        assert run_command(wide(60_000))[0] == 0


def test_summary_of_equal_rewards_of_any_size_is_short(tmp_path: Path) -> None:
    columns = {"observations": np.zeros((40, 2), "f4"), "actions": np.zeros((40, 2), "f4")}
    columns |= {"rewards": np.full(40, 3e38, "f4"), "terminals": np.arange(40) % 10 == 9, "timeouts": np.zeros(40, "?")}
    with h5py.File(tmp_path / "equal.hdf5", "w") as file:
        for key, values in columns.items():
            file[key] = values
    out = stdout_of(f"data show {tmp_path / 'equal.hdf5'}")
    assert "3.000e+39" in out and not re.search(r"\d{20}", out)


def test_rows_are_counted_before_they_are_read(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    wide(2)
    with h5py.File("wide.hdf5", "a") as file:
        del file["rewards"]
        file.create_dataset("rewards", (10**9,), "f4", chunks=True)
    with memory(more=2**30):
        assert "1000000000 rows, observations have 40" in refusal_of("data verify wide.hdf5")


@contextmanager
def memory(*, more: int) -> Iterator[None]:
    """So many more bytes of address space, and no further ones."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_math_signs_in_a_figure_are_literal() -> None:
    with rc_context(fname=STYLE):
        figure = empty_figure(4, 3)
        figure.suptitle("$\\frac$ of $x")
        figure.savefig(io.BytesIO())


@pytest.mark.parametrize("command", ["table toy", "check toy", "status", "list runs", "import . --as toy/dqn"])
def test_folders_nested_beyond_the_recursion_of_python_are_refused(
    command: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("os.walk", Mock(side_effect=RecursionError))  # as Python 3.11 does at a thousand levels
    assert ": has folders nested too deep to read; remove" in stderr_of(f"{command} --results {tmp_path}")


def test_missing_results_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ResourceExhausted, match="its folder is gone; put it back and run the same command again"):
        files.replace(tmp_path / "gone" / "outcome.json", "{}")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file: is no folder; choose another with --results"):
        files.replace(tmp_path / "file" / "outcome.json", "{}")


def test_closed_or_full_stdout_has_its_exit_code(monkeypatch: Patch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(UsageError, match="stdout: cannot be written"):
        print_text("done")
    monkeypatch.setattr("sys.stdout", os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", closefd=False))
    assert main(["--help"]) == ResourceExhausted.exit_code


def test_a_record_names_no_path_of_the_machine(monkeypatch: Patch) -> None:
    monkeypatch.setattr("sys.argv", ["/home/alice/.venv/bin/rlbench", "run", "--results", "/home/alice/secret"])
    assert machine.environment()["command"] == "rlbench run --results PATH"


def test_no_committed_record_names_a_path_of_a_machine() -> None:
    commands = {path: str(files.read_sealed(path)["environment"]) for path in (ROOT / "results").rglob("spec.json")}
    assert commands
    assert not [path for path, text in commands.items() if re.search(r"[ '=](/|~)", text)]


def test_tracebacks_are_not_committed() -> None:
    assert "/results/**/failure.txt" in (ROOT / ".gitignore").read_text().splitlines()
