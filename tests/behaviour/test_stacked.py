"""``--stack``: seeds that learn together leave the records that each would leave alone, however they are stopped."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import pytest
import torch

from rlbench import checkpoint, suites
from rlbench.build.stacked import Company, Member
from rlbench.cli.app import main
from rlbench.cli.live import Silent
from rlbench.cli.preflight import fits
from rlbench.cli.stacked import together
from rlbench.errors import DoesNotFit
from rlbench.fast.stacked import Stack
from rlbench.record import machine
from rlbench.record.store import folder_of, read
from rlbench.record.types import Epoch, Progress
from rlbench.run import Stop
from rlbench.spec.footprint import footprint
from rlbench.spec.override import applied, parse
from rlbench.spec.run import Spec
from tests.reliability.carried import QUIET, carry
from tests.reliability.test_signals import heard, left, started

HOPPER = (
    "budget.steps=160", "budget.epoch=60", "budget.segment=90", "algo.warmup=40", "algo.widths=16,16", "algo.batch=8",
    "algo.replay.capacity=400", "protocol.episodes=2", "protocol.envs=2",
)  # fmt: skip
CELLS = (("ddpg", ()), ("td3", ()), ("sac", ()), ("redq", ("algo.updates_per_step=1", "algo.delay=3")))


def specs_of(algorithm: str, *changes: str, seeds: int = 3) -> list[Spec]:
    made = [suites.spec("mujoco", algorithm, "Hopper-v4", seed=seed) for seed in range(seeds)]
    return [applied(spec, [parse(change) for change in (*HOPPER, *changes)]) for spec in made]


class Stopping(Silent):
    """Asks everybody to stop once so many records were shown of the seed whose bar moves."""

    def __init__(self, stop: Stop, after: float) -> None:
        self.stop, self.left = stop, after

    def show(self, record: Progress | Epoch) -> None:
        self.left -= 1
        if self.left == 0:
            self.stop.signal = signal.SIGTERM


def stacked(specs: list[Spec], results: Path, *, stop_after: float = math.inf) -> list[str]:
    stop = Stop()
    told = together(specs, QUIET, results, stop, Stopping(stop, stop_after), force=False)
    return [str(row["status"]) for row in told]


def near(specs: list[Spec], one: Path, other: Path) -> None:
    """Every epoch of every seed: its games, figures and evaluation."""
    for spec in specs:
        ours, theirs = (read(folder_of(spec, results)) for results in (one, other))
        assert ours.outcome is not None and theirs.outcome is not None
        assert (ours.outcome.status, ours.outcome.env_steps, ours.outcome.updates) == (
            *("done", theirs.outcome.env_steps, theirs.outcome.updates),
        )
        assert len(ours.epochs) == len(theirs.epochs) > 2
        for a, b in zip(ours.epochs, theirs.epochs, strict=True):
            assert a.collected.lengths == b.collected.lengths
            assert a.collected.returns == pytest.approx(b.collected.returns, rel=1e-3)
            assert a.evaluated.returns == pytest.approx(b.evaluated.returns, rel=1e-3)
            assert (a.updated is None) == (b.updated is None)
            if a.updated is not None:
                assert astuple(a.updated) == pytest.approx(astuple(b.updated), rel=1e-3, abs=1e-4)
        last = [checkpoint.load(folder_of(spec, results) / "checkpoint" / "last")["policy"] for results in (one, other)]
        assert all(torch.allclose(last[0][name], value, atol=1e-3) for name, value in last[1].items())


def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many seeds learned together, update by update."""
    made: list[int] = []
    learn = Stack.run

    def counted(self: Stack, first: int, count: int) -> None:
        made.extend([len(self.members)] * count)
        learn(self, first, count)

    monkeypatch.setattr(Stack, "run", counted)
    return made


@pytest.mark.parametrize(("algorithm", "changes"), CELLS)
def test_seeds_that_learn_together_leave_the_records_that_they_would_leave_alone(
    tmp_path: Path, algorithm: str, changes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sizes(monkeypatch)
    specs = specs_of(algorithm, *changes)
    assert stacked(specs, tmp_path / "stacked") == ["done"] * 3
    assert len(made) > 100 and set(made) <= {2, 3}  # they did learn together
    for spec in specs:
        carry(spec, tmp_path / "alone")
    near(specs, tmp_path / "stacked", tmp_path / "alone")
    environment = read(folder_of(specs[0], tmp_path / "stacked")).environment
    assert environment["updates"] == "eager, stacked with 3 seeds"


def test_seeds_stopped_at_unequal_points_alone_or_together_end_as_if_they_never_were(tmp_path: Path) -> None:
    """The first is stopped alone, all are stopped together twice, the second goes on alone, the rest together."""
    specs = specs_of("sac")
    carry(specs[0], tmp_path / "stopped", stop_at=70)
    for after in (30, 20):
        assert stacked(specs, tmp_path / "stopped", stop_after=after) == ["interrupted"] * 3
    carry(specs[1], tmp_path / "stopped")
    assert stacked(specs, tmp_path / "stopped") == ["done"] * 3
    for spec in specs:
        carry(spec, tmp_path / "alone")
    near(specs, tmp_path / "stopped", tmp_path / "alone")


def breaking(member: Member) -> None:
    with torch.no_grad():
        next(member.due.eager.learner.policy().parameters()).view(-1)[0] = math.nan


def test_a_seed_that_diverges_fails_and_the_others_go_on_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_some(20, breaking, monkeypatch)
    specs, made = specs_of("td3"), sizes(monkeypatch)
    assert stacked(specs, tmp_path / "stacked") == ["done", "failed", "done"]
    monkeypatch.undo()
    assert made == sorted(made, reverse=True) and made.count(2) > 40  # it is not dragged along
    outcome = read(folder_of(specs[1], tmp_path / "stacked")).outcome
    assert outcome is not None and outcome.reason.startswith("Diverged")
    rest = [specs[0], specs[2]]
    for spec in rest:
        carry(spec, tmp_path / "alone")
    near(rest, tmp_path / "stacked", tmp_path / "alone")


def failing(member: Member) -> None:
    def fail(_batch: int) -> None:
        raise RuntimeError("out of luck")

    member.due.eager.source.sample = fail


def test_what_breaks_while_they_learn_fails_every_seed_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_some(20, failing, monkeypatch)
    specs = specs_of("ddpg", seeds=2)
    assert stacked(specs, tmp_path) == ["failed", "failed"]
    for spec in specs:
        outcome = read(folder_of(spec, tmp_path)).outcome
        assert outcome is not None and outcome.reason == "RuntimeError: out of luck"
        assert (folder_of(spec, tmp_path) / "failure.txt").exists()


def after_some(updates: int, into: Callable[[Member], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something to the second seed once."""
    learn, happened = Company.learn, list[bool]()

    def learned(self: Company, members: list[Member]) -> None:
        if not happened and len(members) > 1 and members[1].due.first > updates:
            happened.append(True)
            into(members[1])
        learn(self, members)

    monkeypatch.setattr(Company, "learn", learned)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["toy", "dqn", "--task", "Catch"], "only ddpg, td3, sac and redq on real actions"),
        (["mujoco", "sac", "--task", "Hopper-v4", "--set", "algo.replay.priority=priority"], "uniform replay"),
        (["mujoco", "sac", "--task", "Hopper-v4", "--jobs", "2"], "leave --jobs and --engine out"),
        (["mujoco", "sac", "--task", "Hopper-v4", "--engine", "ray"], "leave --jobs and --engine out"),
        (["mujoco", "sac", "--task", "Hopper-v4", "--updates", "captured"], "leave --updates captured out"),
    ],
)
def test_what_cannot_be_stacked_is_refused_in_one_line_that_says_what_to_do(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words, "--seeds", "0-2", "--stack", "--results", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_command_trains_a_stack_for_every_cell_and_tells_of_every_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = [word for change in (*HOPPER, "budget.steps=60") for word in ("--set", change)]
    words = ["run", "mujoco", "ddpg", "--task", "Hopper-v4", "--task", "Walker2d-v4", "--seeds", "0,1", "--stack"]
    assert main([*words, "--device", "cpu", "--results", str(tmp_path), "--json", *sets]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)["runs"]
    assert [(row["task"], row["seed"], row["status"]) for row in told] == [
        (task, seed, "done") for task in ("Hopper-v4", "Walker2d-v4") for seed in (0, 1)
    ]
    assert "Hopper-v4 seed 1  epoch 1" in said.err


def test_a_signal_saves_every_seed_and_a_kill_loses_none(tmp_path: Path) -> None:
    """Stopped together, killed together, and then one of them goes on alone."""
    changes = (*HOPPER, "budget.steps=40000", "algo.replay.capacity=40000")
    sets = [word for change in changes for word in ("--set", change)]
    words = ["run", "mujoco", "sac", "--task", "Hopper-v4", "--device", "cpu", "--results", str(tmp_path), *sets]
    both = [*words, "--seeds", "0,1", "--stack"]
    with started(*both, "--json") as process:
        heard(process, "seed 1  epoch 2")
        code, out, err = left(process, signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert err.count("the same command resumes") == 2
    rows = json.loads(out)["runs"]
    assert [row["status"] for row in rows] == ["interrupted"] * 2
    assert all((Path(row["folder"]) / "checkpoint" / "resume").is_dir() for row in rows)
    with started(*both) as again:
        heard(again, f"seed 1  resumes at {rows[1]['env_steps']:,}/")
        again.send_signal(signal.SIGKILL)
        again.wait()
    with started(*words, "--seeds", "1") as alone:
        heard(alone, f"seed 1  resumes at {rows[1]['env_steps']:,}/")


def test_as_many_seeds_as_do_not_fit_at_once_are_refused_with_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = specs_of("sac")
    monkeypatch.setattr(machine, "available_memory", lambda: 2 * footprint(specs[0]).total)
    fits(specs, QUIET, tmp_path)
    with pytest.raises(DoesNotFit, match=r"3 times .* stack fewer seeds"):
        fits(specs, QUIET, tmp_path, at_once=3)
