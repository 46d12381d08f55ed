"""R10: no code of the current folder runs, and no link, special file or name in foreign results is followed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import typer
from typer.core import TyperCommand

from rlbench.cli import completion, sweep
from rlbench.cli.app import main
from rlbench.cli.resolve import resolve
from rlbench.datasets import dqn_replay, shard_conversion
from rlbench.evaluation import pool
from rlbench.records.store import folder_of
from rlbench.report.check import Finding, to_junit
from rlbench.suites import plugins
from rlbench.sweep.local import Worker
from tests.commands import RLBENCH, line_of_refusal, refusal_of, run_command, run_process, stdout_of
from tests.conftest import Patch
from tests.forging import locked
from tests.records.test_store import outcome
from tests.reliability.odd import sealed
from tests.reliability.test_fuzz_data import CORPUS
from tests.reliability.test_hostile_records import record_epoch

PLANTED = "import os\nopen(os.environ['CANARY'], 'w').close()\n"


def sweep_child() -> None:
    child = Worker(["--version"], Path("results"), os.environ)
    child.process.wait(60)
    os.close(child.pipe)


def evaluation_worker() -> None:
    words = [sys.executable, *pool.PROGRAM, "{}", "1", "0", "1", str(os.getpid())]
    subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)


def import_workers() -> None:
    missing = [shard_conversion.Source(Path(name), name, "") for name in ("a", "b")]
    Path("set").mkdir()
    results = list(shard_conversion._convert_all(missing, Path("set"), dqn_replay.convert_log, 2))
    assert all(result.refusal is not None for result in results)


def library_child() -> None:
    """A child process of a library that the command line imports; glfw starts one."""
    main(["--version"])
    subprocess.run([sys.executable, "-c", "import colorsys"], check=True, timeout=60)


CHILDREN: dict[str, tuple[Callable[[], object], str]] = {
    "a sweep's run, a library": (sweep_child, "typer.py"),
    "a sweep's run, another checkout": (sweep_child, "rlbench/__main__.py"),
    "python -m rlbench": (lambda: run_process([*RLBENCH, "--version"]).check_returncode(), "typer.py"),
    "an offline evaluation worker": (evaluation_worker, "numpy.py"),
    "the look for GPUs": (lambda: sweep._free_gpus("cuda"), "torch.py"),
    "a data import's workers": (import_workers, "pickle.py"),
    "a library's": (library_child, "colorsys.py"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHILDREN)
def test_no_child_process_imports_from_the_current_folder(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    start, planted = CHILDREN[name]
    (tmp_path / "work" / planted).parent.mkdir(parents=True)
    (tmp_path / "work" / planted).write_text(PLANTED)
    if "/" in planted:
        (tmp_path / "work" / planted).with_name("__init__.py").write_text("__version__ = '9.9.9'\n")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("CANARY", str(tmp_path / "canary"))
    monkeypatch.setattr(sweep, "GPU_DRIVERS", ("/",), raising=False)
    start()
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("line", ["status", "status --watch", "list suites", "run toy dqn --task Catch --smoke"])
def test_command_in_a_removed_folder_says_so(line: str, tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.delenv("RLBENCH_RESULTS")
    plugins.plugins.cache_clear()
    assert line_of_refusal(line) == "rlbench: the current folder was removed; cd to another\n"


RUN = ("run", "toy", "dqn", "--task", "Catch", "--smoke", "--quiet", "--device", "cpu")
READERS = {
    "table": ("table", "toy"),
    "status": ("status",),
    "verify": ("verify", "results"),
    "check": ("check", "toy"),
    "plan": ("plan", "toy"),
    "export": ("export", "tensorboard", "--output", "out"),
}


def begin_run(*, smoke: bool = False) -> Path:
    spec = resolve("toy", "dqn", "Catch", smoke=smoke).spec
    locked(spec, Path("results")).release()
    return folder_of(spec, Path("results"))


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder of somebody else's beside the current one."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "victim" / "resume").mkdir(parents=True)
    (tmp_path / "victim" / "resume" / "cv.tex").write_text("precious")
    (tmp_path / "victim" / "file").write_text("precious")
    return tmp_path / "victim"


def content(folder: Path) -> dict[Path, str | None]:
    return {path: path.read_text() if path.is_file() else None for path in folder.rglob("*")}


LINKS = {
    **dict.fromkeys(("log.txt", "attempts.jsonl", "outcome.json"), "file"),
    **dict.fromkeys(("epochs.jsonl", "crash.txt"), "new"),
    **dict.fromkeys(("checkpoint/resume", "checkpoint/.best.9.tmp"), "resume"),
    **dict.fromkeys(("checkpoint", ".", "..", "../..", "../../../.."), "."),
}


@pytest.mark.parametrize("more", [(), ("--jobs", "1"), ("--force",)], ids=" ".join)
@pytest.mark.parametrize("name", LINKS)
def test_a_run_writes_through_no_link_in_its_results(name: str, more: tuple[str, ...], victim: Path) -> None:
    link = Path(os.path.normpath(begin_run(smoke=True) / name))
    if link.exists():
        link.rename(victim.parent / "moved") if link.is_dir() else link.unlink()
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.normpath(victim / LINKS[name]))
    before = content(victim)
    assert f"{link}: is " in refusal_of([*RUN, *more])
    assert content(victim) == before


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("depth", "target"), [(0, "moved"), (1, "moved"), (4, "moved"), (0, "gone"), (4, "gone")])
def test_a_linked_folder_of_results_is_named_by_every_reader(
    depth: int, target: str, reader: str, victim: Path
) -> None:
    folder = begin_run()
    linked = [folder, *folder.parents][depth]
    linked.rename(victim.parent / "moved")
    linked.symlink_to(victim.parent / target)
    assert f"{linked}: is a link" in refusal_of(READERS[reader])


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("epochs.jsonl", READERS["table"]),
        ("outcome.json", READERS["table"]),
        *((name, verb) for name in ("checkpoint", "spec.json") for verb in (("eval",), ("verify", "--replay"))),
    ],
)
def test_a_file_of_a_record_that_is_a_link_without_a_target_is_named(
    name: str, reader: tuple[str, ...], victim: Path
) -> None:
    path = begin_run() / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(victim / "gone")
    words = reader if reader == READERS["table"] else (*reader, str(path.parent))
    assert f"{path}: is a link" in refusal_of(words)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("inside", [".", "attempt-1", "toy/dqn"])
def test_a_record_that_lies_in_another_records_folder_is_named(inside: str, reader: str, victim: Path) -> None:
    run = begin_run()
    nested = run / inside / run.name  # as a second ``cp -r`` to a folder that is there makes it
    shutil.copytree(run, nested)
    assert f"{nested}: is in the folder of another run; move it beside that one" in refusal_of(READERS[reader])


def test_the_results_folder_itself_may_be_a_link(victim: Path) -> None:
    begin_run()
    Path("results").rename(victim.parent / "disk")
    Path("results").symlink_to(victim.parent / "disk")
    assert run_command("table toy")[0] == 0
    begin_run()


SPECIALS: dict[str, Callable[[Path], None]] = {
    "FIFO": os.mkfifo,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to a file": lambda path: path.symlink_to("/proc/self/environ"),
    "larger than any record": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 2**40),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["spec.json", "epochs.jsonl", "outcome.json"])
@pytest.mark.parametrize("kind", SPECIALS)
def test_a_special_file_in_a_record_is_refused_by_every_reader(kind: str, name: str, reader: str, victim: Path) -> None:
    path = begin_run() / name
    path.unlink(missing_ok=True)
    SPECIALS[kind](path)
    assert str(path) in refusal_of(READERS[reader])


ODD_NAMES = {
    "absolute": "/canary",
    "above": "../../canary",
    "above, behind a good part": "a/../../../canary",
    "title of a terminal": "\x1b]0;PWNED\x07",
    "line break": "a\nb",
    "right to left": "a\u202eb",
    "markup": "<script>x</script>",
    "formula of a spreadsheet": "=1+1",
    "column of Markdown": "a|b",
    "command": "$(touch canary)",
    "mathematics": "$\\frac$",
    "template": "{{machines}}",
    "12 KB": "a " * 6_000,
}
FIELDS = ("suite", "algorithm", "task.id", "task.dataset", "protocol.name", "task.world.id")


def renamed(field: str, name: str) -> None:
    spec = branch = resolve("offline", "il", "hopper-medium-v2").spec.model_dump(mode="json")
    *branches, leaf = field.split(".")
    for key in branches:
        branch = branch[key]
    branch[leaf] = name
    folder = Path("results", "offline", "il", "x", "0123456789ab", "seed=0")
    folder.mkdir(parents=True)
    text = sealed({"schema_version": 1, "id": "0123456789ab", "spec": spec, "environment": {}})
    (folder / "spec.json").write_text(text)


def prints(out: str) -> bool:
    """Every line is of letters that a terminal shows."""
    return all(line.isprintable() for line in out.replace("\t", " ").split("\n"))


@pytest.mark.parametrize(("name", "field"), [*product(ODD_NAMES, FIELDS[:1]), *zip(ODD_NAMES, cycle(FIELDS[1:]))])
def test_an_odd_name_in_a_record_reaches_neither_a_path_nor_a_terminal(name: str, field: str, victim: Path) -> None:
    renamed(field, ODD_NAMES[name])
    for words in (("table", "offline"), ("export", "tensorboard", "--output", "out"), ("verify", "results")):
        text = refusal_of(words)
        assert "spec.json" in text and "is no name; rename it" in text and prints(text) and len(text) < 1_000
    code, out, _ = run_command("status")
    assert code == 2 and "damaged" in out and prints(out)
    assert not [path for path in victim.parent.rglob("*") if "canary" in path.name or "pwned" in path.name.lower()]


@pytest.mark.parametrize(
    "name", ["\x1b]0;PWN\x07\n", "$(touch canary)", "$\\frac$", "a" * 240, "=1+1", "-x", "caf\udce9"]
)
def test_a_data_file_of_an_odd_name_is_refused_with_what_to_do(name: str, victim: Path) -> None:
    shutil.copy(next(CORPUS.glob("*.hdf5")), name + ".hdf5")
    run = ["run", "offline", "il", "--task", "Hopper-v4", "--dry-run", "--dataset"]
    code, out, error = run_command([*run, f"./{name}.hdf5"])
    assert (code, out) == (2, "")
    assert "rename" in error and prints(error)


TEXT = "\x1b]0;PWNED\x07 \u202e {}\n"


@pytest.mark.parametrize(
    "words",
    [("status",), ("status", "--json"), ("table", "toy", "--format", "csv"), ("table", "toy", "--format", "md")],
    ids=" ".join,
)
def test_texts_of_a_record_are_shown_without_control_characters(words: tuple[str, ...], victim: Path) -> None:
    environment = {"cpu": TEXT, "commit": TEXT, "env": {"env": TEXT}}
    record_epoch(Path("results"), environment, replace(outcome("failed", 1), reason=TEXT * 1_000))
    out = stdout_of(words)
    assert prints(out) and len(out) < 20_000


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\u202e"])
@pytest.mark.parametrize("reader", READERS)
def test_a_folder_whose_name_does_not_print_is_refused(reader: str, name: str, victim: Path) -> None:
    folder = begin_run()
    folder.parent.rename(folder.parent.with_name(name))
    text = refusal_of(READERS[reader])
    assert "does not print" in text and prints(text)


def test_junit_is_well_formed_whatever_a_name_holds() -> None:
    odd = "\x00\x1b<&\ufffe\ud800"
    below = Finding(suite=odd, algorithm=odd, task=odd, aspect="score", word="BELOW", reason=odd)
    cases = ET.fromstring(to_junit([below, replace(below, word="PASSED")], odd).encode())  # noqa: S314 - our own text
    assert cases[0].attrib["classname"].startswith("??<&")
    assert [case[0].get("message") or case[0].text for case in cases] == ["BELOW: ??<&??", "PASSED: ??<&??"]


@pytest.mark.parametrize("name", ["$(touch canary)", "`x`", "a b", "a;b", "a'b", "a\nb", "&", "~", "#", "*"])
def test_completion_offers_no_folder_that_a_shell_would_run(name: str, victim: Path) -> None:
    plain = begin_run()
    other = plain.parent.parent / name / "seed=0"
    other.mkdir(parents=True)
    (other / "spec.json").write_text("")
    context = typer.Context(TyperCommand("eval"))
    context.params["results"] = "results"
    offers = completion.runs(context)
    assert str(plain) in offers or "\n" in name
    assert str(other) not in offers
    Path(name).mkdir()
    Path("--option").mkdir()
    assert "results" in (sides := completion.sides(context)) and not {name, "--option"} & set(sides)
