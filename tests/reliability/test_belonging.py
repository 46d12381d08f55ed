"""R1, R2: a checkpoint belongs to one run, and its threads and engine are part of the resumed state."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock

import pytest
import torch

from rlbench import checkpoint
from rlbench.config.run import Runtime, Spec
from rlbench.errors import Interrupted, RefusedFile
from rlbench.ops.state_dict import State, subtree, tensor
from rlbench.records import files, manifest
from rlbench.records.attempts import resumptions
from rlbench.records.store import Store, read_record
from rlbench.records.types import Epoch, plain
from rlbench.run import _Recorder, run
from rlbench.signals import Stop
from rlbench.training.online import OnlineTrainer
from tests.commands import Killed, run_command, stderr_of, stdout_of
from tests.forging import locked, outcome_of, reseal
from tests.reliability.families import CATCH, FEW_GAMES, FLAT, HOPPER, PENDULUM, Family
from tests.reliability.run_one import carry, ending

FRAMES = FEW_GAMES._replace(sets=(*FEW_GAMES.sets, "budget.steps=150", "algo.batch=32"))
"""A batch whose convolutions give other last bits with other numbers of threads."""


FOLDER = TemporaryDirectory()


@cache
def kept(family: Family, seed: int) -> Path:
    carry(family.spec(seed), Path(FOLDER.name), 60)
    return family.folder(Path(FOLDER.name), seed)


def interrupted(family: Family, results: Path, seed: int = 0) -> Path:
    """The folder of a run that was stopped in the middle, and its checkpoint; once trained, and then copied."""
    return Path(shutil.copytree(kept(family, seed), family.folder(results, seed), dirs_exist_ok=True))


def by(engine: str) -> Runtime:
    return Runtime.model_validate({"device": "cpu", "threads": 1, "checkpoint_seconds": 1e9, "update_engine": engine})


OTHERS = {
    "learning rate": CATCH._replace(sets=(*CATCH.sets, "algo.lr=0.003")),
    "capacity": CATCH._replace(sets=(*CATCH.sets, "algo.replay.capacity=480")),
    "widths": CATCH._replace(sets=(*CATCH.sets, "algo.torso.widths=8")),
    "lanes": CATCH._replace(sets=(*CATCH.sets, "task.envs=4")),
    "algorithm": CATCH._replace(algorithm="c51"),
}


@pytest.mark.parametrize("what", [*OTHERS, "seed"])
def test_checkpoint_of_another_run_is_refused_and_the_record_is_unchanged(what: str, tmp_path: Path) -> None:
    other, seed = OTHERS.get(what, CATCH), int(what == "seed")
    folder, strange = interrupted(CATCH, tmp_path), interrupted(other, tmp_path, seed)
    shutil.rmtree(folder / "checkpoint" / "resume")
    shutil.copytree(strange / "checkpoint" / "resume", folder / "checkpoint" / "resume")
    before = [(folder / name).read_bytes() for name in ("epochs.jsonl", "outcome.json")]
    code, _, error = run_command(CATCH.words(tmp_path))
    assert code == 2, error
    owner = other.spec(seed)
    assert f"belongs to {owner.id}, seed {owner.seed}" in error and "--force" in error
    assert [(folder / name).read_bytes() for name in ("epochs.jsonl", "outcome.json")] == before


def test_checkpoint_of_an_earlier_attempt_is_refused(tmp_path: Path) -> None:
    folder = interrupted(CATCH, tmp_path)
    checkpoint_of_before = folder.rename(tmp_path / "before") / "checkpoint"
    carry(CATCH.spec(), tmp_path, 60)
    shutil.rmtree(folder / "checkpoint")
    checkpoint_of_before.rename(folder / "checkpoint")
    assert "resume: is of another attempt than epochs.jsonl, or newer" in stderr_of(CATCH.words(tmp_path))


def test_history_of_another_machine_is_refused(tmp_path: Path) -> None:
    """An interrupted run is copied, both copies are finished with other code, and the newest of each file is kept."""
    interrupted(CATCH, tmp_path / "a")
    carry(CATCH.spec(), tmp_path / "a", 10)  # a resume notes the number of threads
    for place in ("b", "c"):
        shutil.copytree(tmp_path / "a", tmp_path / place)
    first, *others = (CATCH.folder(tmp_path / place) for place in ("a", "b", "c"))
    for place, commit in (("a", "aaaa"), ("b", "bbbb")):
        with_code(CATCH.spec(), tmp_path / place, commit)
    carry(CATCH.spec(), tmp_path / "c")  # in the environment in which it began
    assert stdout_of(f"verify {tmp_path}").endswith("no fault\n")
    for folder in others:
        (folder / "spec.json").write_bytes((first / "spec.json").read_bytes())
        assert "spec.json: is of another attempt than outcome.json" in stdout_of(f"verify {folder}", 2)


def test_epochs_of_another_machine_are_refused(tmp_path: Path) -> None:
    """Both copies of an interrupted run begin with the same epoch."""
    carry(CATCH.spec(), tmp_path / "a", 20)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    first, second = (CATCH.folder(tmp_path / place) for place in ("a", "b"))
    for place in ("a", "b"):
        carry(CATCH.spec(), tmp_path / place, 40)
    assert stdout_of(f"verify {tmp_path}").endswith("no fault\n")
    assert (first / "epochs.jsonl").read_bytes() != (second / "epochs.jsonl").read_bytes()  # by their seconds
    (second / "epochs.jsonl").write_bytes((first / "epochs.jsonl").read_bytes())
    assert "epochs.jsonl: is of another attempt than outcome.json" in stdout_of(f"verify {second}", 2)
    (second / "outcome.json").unlink()
    assert "resume: is of another attempt than epochs.jsonl, or newer" in stderr_of(CATCH.words(tmp_path / "b"))


def test_lines_that_end_in_crlf_are_of_the_same_attempt(tmp_path: Path) -> None:
    """As of a clone with git's core.autocrlf, before and after the resume."""
    folder = interrupted(CATCH, tmp_path)
    for _ in range(2):
        path = folder / "epochs.jsonl"
        path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
        assert stdout_of(f"verify {folder}").endswith("no fault\n")
        carry(CATCH.spec(), tmp_path)
        assert stdout_of(f"verify {folder}").endswith("no fault\n")


def test_resume_keeps_lines_with_keys_of_a_later_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("rlbench.records.store.line_of", lambda epoch: files.seal({**plain(epoch), "later": 1}))
        carry(CATCH.spec(), tmp_path, 60)
    path = CATCH.folder(tmp_path) / "epochs.jsonl"
    before = path.read_bytes()
    carry(CATCH.spec(), tmp_path)
    assert path.read_bytes().startswith(before) and b'"later"' in before
    assert stdout_of(f"verify {path.parent}").endswith("no fault\n")


@pytest.mark.parametrize("is_damaged", [False, True])
def test_process_killed_while_it_replaces_epochs_keeps_no_policy_of_theirs(
    is_damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One machine's best evaluation follows the checkpoint from which another machine, with other scores, resumes."""
    keep, append = _Recorder.keep, Store.append
    folder = interrupted(CATCH, tmp_path)
    count = len(read_record(folder).epochs)

    def with_scores(shift: float) -> None:
        def shifted(recorder: _Recorder, epoch: Epoch) -> None:
            if epoch.evaluated is not None and epoch.number >= count:
                returns = tuple(points + shift for points in epoch.evaluated.returns)
                epoch = replace(epoch, evaluated=replace(epoch.evaluated, returns=returns))
            keep(recorder, epoch)
            if shift > 0 and epoch.number == count:
                raise Killed

        monkeypatch.setattr(_Recorder, "keep", shifted)

    def append_and_die(store: Store, epoch: Epoch) -> None:
        is_other = store.replaces(epoch)
        append(store, epoch)
        if is_other:
            raise Killed

    with_scores(100.0)
    with pytest.raises(Killed):
        carry(CATCH.spec(), tmp_path)
    assert manifest.read_manifest(folder / "checkpoint" / "best").values["epoch"] >= count
    if is_damaged:
        (folder / "checkpoint" / "best" / "tensors-000.safetensors").unlink()
    with_scores(-1.0)
    monkeypatch.setattr(Store, "append", append_and_die)
    with pytest.raises(Killed):
        carry(CATCH.spec(), tmp_path)
    monkeypatch.setattr(Store, "append", append)
    carry(CATCH.spec(), tmp_path)
    assert stdout_of(f"verify {folder}").endswith("no fault\n")


def test_best_policy_of_another_attempt_is_refused(tmp_path: Path) -> None:
    carry(CATCH.spec(), tmp_path)
    folder = CATCH.folder(tmp_path)
    before = folder.rename(tmp_path / "before") / "checkpoint" / "best"
    carry(CATCH.spec(), tmp_path)
    shutil.rmtree(folder / "checkpoint" / "best")
    before.rename(folder / "checkpoint" / "best")
    assert "best: is of another attempt than epochs.jsonl" in stdout_of(f"verify {folder}", 2)
    assert "best: is of another attempt than epochs.jsonl" in stderr_of(f"eval {folder} --episodes 1")


def test_spec_of_another_attempt_is_refused(tmp_path: Path) -> None:
    """Two machines began one seed, and the newest of each file was kept, as ``rsync --update`` keeps it."""
    folder = interrupted(CATCH, tmp_path)
    spec = folder / "spec.json"
    first, outcome = spec.read_bytes(), (folder / "outcome.json").read_bytes()
    reseal(spec, lambda content: content["environment"].update(cpu="another"))
    second = spec.read_bytes()
    (folder / "outcome.json").write_bytes(outcome)
    assert "spec.json: is of another attempt than outcome.json" in stderr_of(CATCH.words(tmp_path))
    (folder / "outcome.json").unlink()
    assert "resume: is of another attempt than spec.json, or newer" in stderr_of(CATCH.words(tmp_path))
    spec.write_bytes(first)
    assert run_command(CATCH.words(tmp_path))[0] == 0
    spec.write_bytes(second)
    assert "spec.json: is of another attempt than outcome.json" in stdout_of(f"verify {folder}", 2)
    reseal(folder / "outcome.json", lambda content: content.pop("environments_sha256"))  # of older code
    shutil.rmtree(folder / "checkpoint")
    assert stdout_of(f"verify {folder}").endswith("no fault\n")


def saved(folder: Path) -> State:
    return checkpoint.load(folder / "checkpoint" / "resume")


def test_refused_resume_leaves_the_record_unchanged(tmp_path: Path) -> None:
    folder = interrupted(CATCH, tmp_path)
    state = saved(folder)
    for content, reason in (
        ({key: state[key] for key in ("trainer", "device")}, "resume: was made by an older rlbench.*--force"),
        ({**state, "device": "cuda"}, "was made on cuda, not cpu"),
    ):
        checkpoint.save(folder / "checkpoint" / "resume", content)
        with pytest.raises(RefusedFile, match=reason):
            with_code(CATCH.spec(), tmp_path, "other")
    assert outcome_of(folder).status == "interrupted"
    assert resumptions(files.read_sealed(folder / "spec.json"), folder) == []


def test_a_record_that_is_shorter_than_its_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = interrupted(CATCH, tmp_path)
    (folder / "outcome.json").unlink()
    lines = (folder / "epochs.jsonl").read_text().splitlines(keepends=True)
    (folder / "epochs.jsonl").write_text(lines[0])
    assert "resume: is of another attempt than epochs.jsonl, or newer" in stderr_of(CATCH.words(tmp_path))
    (folder / "spec.json").unlink()
    assert "spec.json: missing beside" in stderr_of(CATCH.words(tmp_path))


def shorten(trainer: State) -> None:
    online = subtree(subtree(trainer, "learner"), "online")
    online[min(online)] = torch.zeros(3)


def of_nan(trainer: State) -> None:
    online = subtree(subtree(trainer, "learner"), "online")
    online[min(online)] = torch.full_like(tensor(online, min(online)), torch.nan)


def moments(trainer: State) -> State:
    return subtree(subtree(trainer, "learner"), "optimizer 0")


def games(trainer: State) -> State:
    return subtree(subtree(trainer, "collector"), "games")


HARMS: dict[str, Callable[[State], object]] = {
    "a weight of another shape": shorten,
    "a weight of NaN": of_nan,
    "no clock": lambda trainer: trainer.pop("clock"),
    "negative steps": lambda trainer: subtree(trainer, "clock").update(env_steps=-1),
    "endless seconds": lambda trainer: subtree(trainer, "clock").update(seconds=10**400),
    "other games": lambda trainer: games(trainer).update(length=torch.zeros(3)),
    "a moment of another shape": lambda trainer: moments(trainer).update({"0.exp_avg": torch.zeros(0)}),
    "a count of another type": lambda trainer: moments(trainer).update({"0.step": torch.tensor(1)}),
    "no moment": lambda trainer: moments(trainer).pop("0.exp_avg"),
    "returns without lengths": lambda trainer: games(trainer).update(returns=torch.zeros(3)),
    "one return": lambda trainer: games(trainer).update(returns=torch.tensor(1.0), lengths=torch.tensor(1)),
    "an endless score": lambda trainer: games(trainer).update(score=torch.full((2,), torch.inf)),
    "a negative length": lambda trainer: games(trainer).update(returns=torch.zeros(1), lengths=torch.tensor([-1])),
    "negative seconds": lambda trainer: subtree(trainer, "clock").update(seconds=-1.0),
    "an endless beginning": lambda trainer: trainer.update(began=torch.tensor([torch.inf, 0.0])),
    "a beginning after the end": lambda trainer: trainer.update(began=torch.tensor([0.0, 3e38])),
    "a ring without rewards": lambda trainer: subtree(trainer, "buffer").update(reward=torch.zeros(0)),
    "rewards of another type": lambda trainer: subtree(trainer, "buffer").update(reward=torch.zeros(38, 8).double()),
    "more rows than in use": lambda trainer: subtree(trainer, "buffer").update(size=1),
    "a head beyond the ring": lambda trainer: subtree(trainer, "buffer").update(head=10**6),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_state_that_does_not_fit_is_refused_and_fails_no_run(harm: str, tmp_path: Path) -> None:
    folder = interrupted(CATCH, tmp_path)
    state = saved(folder)
    HARMS[harm](subtree(state, "trainer"))
    checkpoint.save(folder / "checkpoint" / "resume", state)
    with pytest.raises(RefusedFile, match=r"resume: is not this run's state"):
        carry(CATCH.spec(), tmp_path)
    assert outcome_of(folder).status == "interrupted"


@pytest.mark.parametrize("which", ["best", "last"])
@pytest.mark.parametrize("seed", [0, 1])
def test_verify_and_eval_refuse_the_policy_of_another_run(which: str, seed: int, tmp_path: Path) -> None:
    other = CATCH if seed else OTHERS["learning rate"]
    for family, number in ((CATCH, 0), (other, seed)):
        carry(family.spec(number), tmp_path)
    folder = CATCH.folder(tmp_path)
    assert run_command(f"verify {folder}")[0] == 0
    shutil.rmtree(folder / "checkpoint" / which)
    shutil.copytree(other.folder(tmp_path, seed) / "checkpoint" / which, folder / "checkpoint" / which)
    assert f"belongs to {other.spec(seed).id}, seed {seed}" in stdout_of(f"verify {folder}", 2)
    assert "belongs to" in stderr_of(f"eval {folder} --checkpoint {which}")


def test_verify_compares_the_last_policy_with_the_outcome(tmp_path: Path) -> None:
    """Also where nothing in it says whose it is, as in those of older code, and below a name that is no UTF-8."""
    results = tmp_path / "caf\udce9"
    for seed in (0, 1):
        carry(CATCH.spec(seed), results)
    folder, state = CATCH.folder(results), checkpoint.load(CATCH.folder(results, 1) / "checkpoint" / "last")
    checkpoint.save(folder / "checkpoint" / "last", {key: state[key] for key in ("policy", "epoch")})
    assert "last: holds other weights than outcome.json names" in stdout_of(f"verify {folder}", 2)


@pytest.mark.parametrize("source", ["best", "resume"])
@pytest.mark.parametrize("name", ["best", "last", "resume"])
def test_verify_notices_a_checkpoint_under_another_name(name: str, source: str, tmp_path: Path) -> None:
    """Also in a run that is under way, whose outcome names no epoch."""
    folder = interrupted(CATCH, tmp_path)
    place, copied = folder / "checkpoint" / name, tmp_path / "copied"
    shutil.copytree(folder / "checkpoint" / source, copied)
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(copied, place)
    assert run_command(f"verify {folder}")[0] == (0 if name == source else 2)


def with_code(spec: Spec, results: Path, commit: str, stop_after: int | None = None) -> None:
    store = locked(spec, results, {"commit": commit, "torch_threads": 1, "command": f"by {commit}"})
    try:
        for number, _ in enumerate(run(spec, by("auto"), store, Stop())):
            if number == stop_after:
                break
    finally:
        store.release()


def test_resume_under_other_code_is_recorded(tmp_path: Path) -> None:
    spec, folder = CATCH.spec(), CATCH.folder(tmp_path)
    carry_all = [("aaaa", 30), ("aaaa", 60), ("bbbb", 10), ("bbbb", 10), ("aaaa", None)]
    for commit, stop_after in carry_all:
        with_code(spec, tmp_path, commit, stop_after)
    head = files.read_sealed(folder / "spec.json")
    assert read_record(folder).environment["commit"] == "aaaa"
    assert [line.environment for line in resumptions(head, folder)] == [{"commit": "bbbb"}, {"commit": "aaaa"}]
    assert run_command(f"verify {folder}")[0] == 0


def test_the_record_names_the_threads_that_a_resumed_run_takes(tmp_path: Path) -> None:
    """Not those that the process which goes on would take for a run of its own."""
    for threads, stop_after in ((1, 20), (2, None)):
        carry(CATCH.spec(), tmp_path, stop_after, environment={"torch_threads": threads})
    assert resumptions(files.read_sealed(CATCH.folder(tmp_path) / "spec.json"), tmp_path) == []


@pytest.mark.slow
def test_resumed_run_uses_the_threads_of_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started with two and gone on with in a sweep, which gives each run one: no bit moves."""
    runtime, spec = Runtime(device="cpu", checkpoint_seconds=1e9), FRAMES.spec()
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    carry(spec, tmp_path / "whole", runtime=runtime)
    carry(spec, tmp_path / "parts", 60, runtime=runtime)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    carry(spec, tmp_path / "parts", runtime=runtime)
    assert torch.get_num_threads() == 2
    assert ending(FRAMES.folder(tmp_path / "parts")) == ending(FRAMES.folder(tmp_path / "whole"))


@pytest.mark.parametrize("error", [Interrupted("stopped", signal=2), RuntimeError("stopped")])
def test_signal_while_a_checkpoint_is_loaded_refuses_no_checkpoint(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry(CATCH.spec(), tmp_path, 20)
    error.__cause__ = Interrupted("stopped", signal=2)
    with monkeypatch.context() as patch:
        patch.setattr(OnlineTrainer, "load_state_dict", Mock(side_effect=error))
        with pytest.raises(type(error), match="stopped"):
            with_code(CATCH.spec(), tmp_path, "any")
    carry(CATCH.spec(), tmp_path)
    carry(CATCH.spec(), tmp_path / "whole")
    assert ending(CATCH.folder(tmp_path)) == ending(CATCH.folder(tmp_path / "whole"))


def inexact(family: Family, results: Path) -> tuple[int, ...]:
    return outcome_of(family.folder(results)).inexact


@pytest.mark.parametrize("engine", ["eager", "numpy"])
def test_resumed_run_uses_the_update_engine_of_its_checkpoint(engine: str, tmp_path: Path) -> None:
    carry(HOPPER.spec(), tmp_path / "whole", runtime=by(engine))
    for results, stop_after in (("parts", 20), ("parts", None)):
        carry(HOPPER.spec(), tmp_path / results, stop_after, runtime=by("auto" if stop_after is None else engine))
    assert ending(HOPPER.folder(tmp_path / "parts")) == ending(HOPPER.folder(tmp_path / "whole"))
    assert inexact(HOPPER, tmp_path / "parts") == ()


def test_record_names_the_engine_that_a_resumed_run_takes(tmp_path: Path) -> None:
    stdout_of([*HOPPER.words(tmp_path), "--update-engine", "eager", "--until", "50%"])
    stdout_of(HOPPER.words(tmp_path))
    assert resumptions(files.read_sealed(HOPPER.folder(tmp_path) / "spec.json"), tmp_path) == []


def test_resume_with_another_engine_records_the_step(tmp_path: Path) -> None:
    """At each such place once, and for ever."""
    stops = []
    for engine, stop_at in (("numpy", 30), ("eager", 60), ("eager", 120), ("numpy", None)):
        carry(HOPPER.spec(), tmp_path, stop_at=stop_at, runtime=by(engine))
        stops.append(outcome_of(HOPPER.folder(tmp_path)).env_steps)
    assert inexact(HOPPER, tmp_path) == (stops[0], stops[2])


def test_resume_of_a_stacked_run_records_the_step(tmp_path: Path) -> None:
    folder = PENDULUM.folder(tmp_path)
    carry(PENDULUM.spec(), tmp_path, stop_at=120)
    assert outcome_of(folder).updates > 0, "else no update changes its engine"
    checkpoint.save(folder / "checkpoint" / "resume", {**saved(folder), "engine": "stacked"})
    carry(PENDULUM.spec(), tmp_path)
    assert outcome_of(folder).status == "done"
    assert len(inexact(PENDULUM, tmp_path)) == 1


@pytest.mark.parametrize("part", ["engine", "cpu", "vector_instructions", "MKL_CBWR", "OPENBLAS_CORETYPE", "unset"])
def test_offline_run_records_the_steps_of_inexact_resumes(part: str, tmp_path: Path) -> None:
    folder = FLAT.folder(tmp_path)
    carry(FLAT.spec(), tmp_path, stop_at=10, runtime=by("eager"))
    rounding = json.loads(saved(folder)["rounding"]) | ({"gpu": None} if part == "unset" else {part: "another"})
    change = {part: "compiled"} if part == "engine" else {"rounding": json.dumps(rounding)}
    checkpoint.save(folder / "checkpoint" / "resume", {**saved(folder), **change})
    for stop_after in (3, None):
        carry(FLAT.spec(), tmp_path, stop_after, runtime=by("eager"))
    assert len(inexact(FLAT, tmp_path)) == (part != "unset")  # which an older checkpoint names too


def test_a_record_takes_no_resumption_beyond_the_most(tmp_path: Path) -> None:
    folder = interrupted(CATCH, tmp_path)
    lines = [{"epoch": 1, "environment": {}}] * 1000
    reseal(folder / "spec.json", lambda content: content.update(resumed=lines))
    reseal(folder / "spec.json", lambda content: content["environment"].update(commit="other"))
    shutil.rmtree(folder / "checkpoint")
    assert "spec.json: has 1,000 resumptions, the most; resume where the run was last" in stderr_of(
        CATCH.words(tmp_path)
    )
    assert len(read_record(folder).resumed) == 1000


def test_force_puts_no_other_run_aside(tmp_path: Path) -> None:
    """It would count as a failed attempt at this one."""
    folder = CATCH.folder(tmp_path, 0)
    shutil.copytree(kept(CATCH, 0), folder.with_name("seed=1"))
    with pytest.raises(RefusedFile, match=r"holds another run .*, seed 0\); move it away"):
        locked(CATCH.spec(1), tmp_path, force=True)
    assert not list(folder.with_name("seed=1").glob("attempt-*"))
    assert "holds another run" in stderr_of([*CATCH.words(tmp_path, "1"), "--force", "--dry-run"])
