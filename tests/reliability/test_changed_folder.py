"""R11: a run whose folder is changed stops with one line, and is never done over another record."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from rlbench import checkpoint
from rlbench.config.run import Runtime
from rlbench.errors import RefusedFile, ResourceExhausted
from rlbench.records.files import RECORD_FILES, refuse_links
from rlbench.records.store import Store, read_record
from rlbench.records.types import Epoch
from rlbench.run import run
from rlbench.signals import Stop
from tests.commands import stderr_of, stdout_of
from tests.forging import locked, reseal
from tests.reliability.families import SHORT
from tests.reliability.run_one import QUIET, carry, ending
from tests.slow import slow_but

ROOT = Path(__file__).parents[2]


def no_lock(folder: Path) -> None:
    (folder / ".lock").unlink()


def other_lock(folder: Path) -> None:
    (folder / "new").touch()
    (folder / "new").rename(folder / ".lock")


def fewer_epochs(folder: Path) -> None:
    lines = (folder / "epochs.jsonl").read_text().splitlines(keepends=True)
    (folder / "epochs.jsonl").write_text("".join(lines[:-1]))


def another_folder(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("copy"))
    folder.rename(folder.with_name("aside"))
    folder.with_name("copy").rename(folder)


def begun(results: Path, runtime: Runtime = QUIET) -> tuple[Store, Iterator[object]]:
    """A run that has recorded two epochs, and its next records."""
    store = locked(SHORT.spec(), results)
    records = run(SHORT.spec(), runtime, store, Stop())
    while len(store.epochs) < 2:
        next(records)
    return store, records


def no_best(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoint")


def linked_suite(folder: Path) -> None:
    suite = folder.parents[3]
    suite.symlink_to(suite.rename(suite.with_name("aside")))


CHANGES: dict[str, Callable[[Path], object]] = {
    "no best": no_best,
    "linked folder": lambda folder: folder.symlink_to(folder.rename(folder.with_name("aside"))),
    "linked suite": linked_suite,
    "no lock": no_lock,
    "other lock": other_lock,
    "fewer epochs": fewer_epochs,
    "no epochs": lambda folder: (folder / "epochs.jsonl").unlink(),
    "another folder": another_folder,
    "no folder": lambda folder: folder.rename(folder.with_name("aside")),
}


@pytest.mark.parametrize("runtime", [QUIET, Runtime(device="cpu", threads=1, checkpoint_seconds=1e-6)])
@pytest.mark.parametrize("change", CHANGES)
def test_a_run_whose_folder_is_changed_halts_with_one_line(change: str, runtime: Runtime, tmp_path: Path) -> None:
    folder, (store, records) = SHORT.folder(tmp_path), begun(tmp_path, runtime)
    CHANGES[change](folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    in_place = {"no best", "fewer epochs", "no epochs", "linked folder", "linked suite"}
    own = {".lock", "crash.txt"} if change in in_place else set()  # else they may be another's
    with pytest.raises(ResourceExhausted, match=r"^[^\n]*seed=0[^\n]*while the run was under way; [^\n]+$"):
        list(records)
    store.release()
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after == {path: raw for path, raw in before.items() if path.name not in own}


def test_a_resumed_run_whose_best_policy_is_removed_halts(tmp_path: Path) -> None:
    carry(SHORT.spec(), tmp_path, 60)
    store = locked(SHORT.spec(), tmp_path)
    records = run(SHORT.spec(), QUIET, store, Stop())
    next(records)
    no_best(SHORT.folder(tmp_path))
    with pytest.raises(ResourceExhausted, match="best: was changed while the run was under way"):
        list(records)
    store.release()


def test_a_run_beside_the_finished_record_of_another_machine_halts_and_keeps_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, other = SHORT.folder(tmp_path), SHORT.folder(tmp_path / "other")
    for results, steps in ((tmp_path, 30), (tmp_path / "other", None)):
        carry(SHORT.spec(), results, steps)
    append = Store.append

    def append_to_the_other(store: Store, epoch: Epoch) -> None:
        for name in RECORD_FILES:
            shutil.copy(other / name, folder / name)
        append(store, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "append", append_to_the_other)
        assert "while the run was under way" in stderr_of(SHORT.words(tmp_path), 5)
    assert "resume: is not of this finished run; delete it, or" in stdout_of(f"verify {folder}", 2)
    stdout_of(SHORT.words(tmp_path))
    assert checkpoint.exists(folder / "checkpoint" / "resume")


def test_a_finished_run_removes_a_damaged_checkpoint_from_which_nothing_can_resume(tmp_path: Path) -> None:
    stdout_of(SHORT.words(tmp_path))
    resume = SHORT.folder(tmp_path) / "checkpoint" / "resume"
    resume.mkdir()
    (resume / "manifest.json").write_text("x")
    stdout_of(SHORT.words(tmp_path))
    assert not resume.exists()


def both(folder: Path) -> None:
    """Two other epochs in the place of two, of the same length."""
    path = folder / "epochs.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"number":0', b'"number":7'))


def another_spec(folder: Path) -> None:
    (folder / "spec.json").write_text("{}")


def another_environment(folder: Path) -> None:
    reseal(folder / "spec.json", lambda content: content["environment"].update(cpu="another"))


@pytest.mark.parametrize("change", [both, another_spec, another_environment])
def test_run_with_another_or_unreadable_record_is_not_done(change: Callable[[Path], None], tmp_path: Path) -> None:
    folder, (store, records) = SHORT.folder(tmp_path), begun(tmp_path)
    change(folder)
    with pytest.raises(ResourceExhausted, match="while the run was under way"):
        list(records)
    store.release()
    assert not (folder / "outcome.json").exists()


SPECIALS: dict[str, Callable[[Path, Path], None]] = {
    "FIFO": lambda path, _: os.mkfifo(path),
    "link": lambda path, victim: path.symlink_to(victim),
    "dangling link": lambda path, victim: path.symlink_to(victim / "new"),
    "link to a device": lambda path, _: path.symlink_to("/dev/zero"),
}
PLACES = ("epochs.jsonl", "outcome.json", "spec.json", ".lock", "crash.txt", "failure.txt", "checkpoint")
PLACES += tuple(f"checkpoint/{name}" for name in ("resume", ".resume.old", "best", "last"))

CASES = sorted({*product(PLACES, ("FIFO", "link")), *product(("checkpoint/best", "crash.txt", "spec.json"), SPECIALS)})
RARE = sorted({*product(PLACES, SPECIALS)} - {*CASES})
QUICK = (("checkpoint", "link"), ("checkpoint/last", "link"), ("crash.txt", "FIFO"), ("outcome.json", "FIFO"))


@pytest.mark.parametrize(
    ("place", "kind"), [*slow_but(CASES, *map(CASES.index, QUICK)), *slow_but(RARE, mark=pytest.mark.soak)]
)
def test_run_follows_no_link_that_is_put_into_its_folder(place: str, kind: str, tmp_path: Path) -> None:
    victim, folder = tmp_path / "victim", SHORT.folder(tmp_path / "results")
    for name in ("resume", "best"):
        (victim / name).mkdir(parents=True)
        (victim / name / "manifest.json").write_text("precious")
    store, records = begun(tmp_path / "results", Runtime(device="cpu", threads=1, checkpoint_seconds=1e-6))
    path = folder / place
    if os.path.lexists(path):
        path.rename(tmp_path / "aside")
    SPECIALS[kind](path, victim if "checkpoint" in place else victim / "resume" / "manifest.json")
    before = {path: path.is_file() and path.read_text() for path in victim.rglob("*")}
    try:
        list(records)
    except (ResourceExhausted, RefusedFile) as error:
        message = str(error)
    else:
        message = ""
        refuse_links(folder, folder)  # it was replaced, and the run is done
    store.release()
    assert "free some" not in message and "\n" not in message
    assert {path: path.is_file() and path.read_text() for path in victim.rglob("*")} == before


def test_checkpoint_makes_no_folder_of_a_run_that_was_moved_away(tmp_path: Path) -> None:
    folder = tmp_path / "seed=0"
    with pytest.raises(ResourceExhausted, match="its folder is gone"):
        checkpoint.save(folder / "checkpoint" / "best", {"epoch": 0})
    assert not folder.exists()


def test_after_git_clean_a_second_process_takes_over_the_run(tmp_path: Path) -> None:
    spec, folder = SHORT.spec(), SHORT.folder(tmp_path)
    carry(spec, tmp_path / "whole")
    first, records = begun(tmp_path)
    no_lock(folder)
    second = locked(spec, tmp_path)
    others = run(spec, QUIET, second, Stop())
    next(others)
    with pytest.raises(ResourceExhausted, match="lock"):
        list(records)
    first.release()
    assert Store.lock(spec, tmp_path, {}) is None, "who goes lets nobody in"
    list(others)
    second.release()
    assert ending(folder) == ending(SHORT.folder(tmp_path / "whole"))


def test_lock_file_exists_only_while_it_is_held(tmp_path: Path) -> None:
    carry(SHORT.spec(), tmp_path, 30)
    assert not (SHORT.folder(tmp_path) / ".lock").exists()
    carry(SHORT.spec(), tmp_path)
    assert not (SHORT.folder(tmp_path) / ".lock").exists()
    assert read_record(SHORT.folder(tmp_path)).outcome is not None


def test_lock_file_is_not_ignored_by_git() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout")
    path = "results/toy/dqn/Catch/0123456789ab/seed=0/.lock"
    command = ["git", "-C", str(ROOT), "check-ignore", "--quiet", "--no-index", path]
    assert subprocess.run(command, check=False).returncode == 1
