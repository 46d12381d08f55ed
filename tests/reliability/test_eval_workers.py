"""Evaluation beside the training: the same record to the bit, also if a worker or the run ends."""

import itertools
import math
import os
import re
import signal
import time
from pathlib import Path
from unittest import mock

import psutil
import pytest
import torch
from safetensors.torch import load

from rlbench import checkpoint
from rlbench.assembly.assemble import build
from rlbench.assembly.environments import describe
from rlbench.config.footprint import footprint
from rlbench.config.run import Runtime
from rlbench.errors import BrokenEnvironment, ResourceExhausted, RunFailed
from rlbench.evaluation import pool
from rlbench.ops.state_dict import subtree
from rlbench.records.store import read_record
from tests.commands import HEARING
from tests.forging import outcome_of
from tests.reliability.eval_workers import program
from tests.reliability.families import FLAT, GRID, Family
from tests.reliability.run_one import carry, ending, epochs_of
from tests.reliability.test_disk import no_file_beyond
from tests.reliability.test_not_a_number import breaking, weight
from tests.reliability.test_signals import heard, remaining, started, wait_for

Patch = pytest.MonkeyPatch
NORMALIZED = FLAT._replace(sets=(*FLAT.sets, "algo.normalize_obs=true"))
STOCHASTIC = FLAT._replace(algorithm="bcq")
"""Draws from torch's own stream while it acts."""


def within(eval_workers: int, *, often: bool = False, patience: float = 600.0) -> Runtime:
    seconds = 1e-6 if often else 1e9
    return Runtime(device="cpu", threads=1, checkpoint_seconds=seconds, eval_workers=eval_workers, env_timeout=patience)


def golden(family: Family, results: Path) -> tuple[object, ...]:
    carry(family.spec(), results, runtime=within(0))
    return ending(family.folder(results))


def reason(family: Family, results: Path) -> str:
    outcome = outcome_of(family.folder(results))
    assert outcome.status == "failed"
    return outcome.reason


def workers_of_this_process() -> list[psutil.Process]:
    return [p for p in psutil.Process().children(recursive=True) if "eval" in " ".join(p.cmdline())]


@pytest.mark.parametrize(
    ("family", "eval_workers"),
    [(GRID, 2), pytest.param(STOCHASTIC, 1, marks=pytest.mark.soak)],
    ids=lambda value: getattr(value, "name", value),
)
def test_evaluation_in_a_worker_equals_in_process_evaluation(family: Family, eval_workers: int, tmp_path: Path) -> None:
    carry(family.spec(), tmp_path / "beside", runtime=within(eval_workers))
    assert ending(family.folder(tmp_path / "beside")) == golden(family, tmp_path / "within")
    assert not workers_of_this_process()


def test_pending_policies_are_evaluated_oldest_first_by_as_many_workers_as_allowed(monkeypatch: Patch) -> None:
    epochs: list[int] = []

    class Worker:
        def __init__(self, _: pool.WorkerConfig) -> None:
            self.epoch: int | None = None

        def send(self, epoch: int, _: object) -> None:
            self.epoch = epoch
            epochs.append(epoch)

        def close(self) -> None:
            self.epoch = None

    monkeypatch.setattr(pool, "EvalWorker", Worker)
    policy = torch.nn.Linear(1, 1)
    workers = pool.EvalPool(policy, pool.WorkerConfig("", 1, {}), max_workers=2, env_timeout=1.0)
    workers.load_state_dict({str(epoch): dict(policy.state_dict()) for epoch in (10, 9, 2)})
    workers.submit(11)
    assert epochs == [2, 9]
    workers.load_state_dict({"7": dict(policy.state_dict())})
    assert workers.state_dict().keys() == {"7"}


def test_an_hour_of_suspension_is_no_silence_of_a_worker(monkeypatch: Patch) -> None:
    monkeypatch.setattr(pool, "PROGRAM", ("-c", "input()"))
    worker = pool.EvalWorker(pool.WorkerConfig("", 1, {}))
    monkeypatch.setattr(pool, "monotonic", itertools.count(time.monotonic() + 3600, 10).__next__)
    assert worker.poll(1.0) is None and worker.silent_seconds == pool.MAX_SILENCE
    assert "(signal 40)" in str(worker._death(-40))  # of real time, without a name
    worker.close()


@pytest.mark.slow
@pytest.mark.parametrize(("crash", "then"), [(False, 0), (True, 1)])
def test_pending_evaluations_are_done_after_a_resume(
    *, crash: bool, then: int, tmp_path: Path, monkeypatch: Patch
) -> None:
    whole = golden(NORMALIZED, tmp_path / "whole")
    monkeypatch.setattr(pool, "PROGRAM", program("late"))
    folder = NORMALIZED.folder(tmp_path / "cut")
    carry(NORMALIZED.spec(), tmp_path / "cut", 6, crash=crash, runtime=within(1, often=True))
    assert not workers_of_this_process(), "nobody stays behind"
    state = subtree(checkpoint.load(folder / "checkpoint" / "resume"), "trainer")
    assert subtree(state, "pending").keys() == subtree(state, "judges").keys() != set(), "nothing was under way"
    before = epochs_of(folder)
    monkeypatch.setattr(pool, "PROGRAM", ("-m", "rlbench.assembly.evaluation_worker"))
    carry(NORMALIZED.spec(), tmp_path / "cut", runtime=within(then))
    assert epochs_of(folder)[: len(before)] == before
    assert ending(folder) == whole


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("crash", [False, True])
def test_run_interrupted_at_every_fifth_record_equals_an_uninterrupted_one(*, crash: bool, tmp_path: Path) -> None:
    whole = golden(FLAT, tmp_path / "whole")
    before: list[dict[str, object]] = []
    while read_status(tmp_path / "cut") != "done":
        carry(FLAT.spec(), tmp_path / "cut", 5, crash=crash, runtime=within(2, often=True))
        now = epochs_of(FLAT.folder(tmp_path / "cut"))
        assert now[: len(before)] == before, "an evaluation was lost"
        before = now
    assert ending(FLAT.folder(tmp_path / "cut")) == whole


def read_status(results: Path) -> str:
    outcome = read_record(FLAT.folder(results)).outcome if FLAT.folder(results).exists() else None
    return "" if outcome is None else outcome.status


@pytest.mark.parametrize(
    ("way", "error", "what"),
    [
        ("raise", BrokenEnvironment, "BrokenEnvironment: env 1, step 7: the joint is loose"),
        pytest.param("other", RunFailed, "RunFailed: KeyError: 'a bug'", marks=pytest.mark.soak),
        pytest.param(
            "abort",
            BrokenEnvironment,
            r"BrokenEnvironment: the worker that evaluated epoch 1 ended \(SIGABRT\): .*",
            marks=pytest.mark.slow,
        ),
        pytest.param("exit", BrokenEnvironment, r".* epoch 1 ended .+: without a message", marks=pytest.mark.soak),
        pytest.param(
            "deadlock",
            BrokenEnvironment,
            "BrokenEnvironment: epoch 1: the environments .* not answered for 1 s; .*",
            marks=pytest.mark.slow,
        ),
        pytest.param("idle", BrokenEnvironment, "BrokenEnvironment: epoch 1: .* for 1 s; .*", marks=pytest.mark.soak),
    ],
)
def test_failing_eval_worker_fails_the_run_and_keeps_earlier_evaluations(
    way: str, error: type[RunFailed], what: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(pool, "PROGRAM", program(way))
    with pytest.raises(error):
        carry(FLAT.spec(), tmp_path, runtime=within(1, patience=1.0))
    assert re.fullmatch(what, reason(FLAT, tmp_path))
    assert [line["number"] for line in epochs_of(FLAT.folder(tmp_path))] == [0]
    failure = (FLAT.folder(tmp_path) / "failure.txt").read_text()
    assert ("tests/reliability/eval_workers.py" in failure) == (way != "exit"), "where it broke, there"
    assert not workers_of_this_process()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["killed", pytest.param("memory", marks=pytest.mark.soak)])
def test_eval_worker_without_memory_halts_the_run(way: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(pool, "PROGRAM", program(way))
    with pytest.raises(ResourceExhausted, match=r"memory is exhausted|probably for lack of memory"):
        carry(FLAT.spec(), tmp_path, runtime=within(1))
    assert read_record(FLAT.folder(tmp_path)).outcome is None
    monkeypatch.undo()
    carry(FLAT.spec(), tmp_path, runtime=within(0))
    assert read_status(tmp_path) == "done"


def test_policy_beyond_the_file_size_limit_halts_the_run(monkeypatch: Patch) -> None:
    monkeypatch.setattr(pool, "PROGRAM", ("-c", "input()"))
    worker = pool.EvalWorker(pool.WorkerConfig(spec="", threads=1, obs_moments={}))
    with no_file_beyond(1_000), pytest.raises(ResourceExhausted, match="raise `ulimit -f`"):
        worker.send(0, {"weight": torch.zeros(300)})
    worker.close()


def test_policy_is_sent_whole_however_short_each_write_is(monkeypatch: Patch) -> None:
    monkeypatch.setattr(pool, "PROGRAM", ("-c", "input()"))
    worker = pool.EvalWorker(pool.WorkerConfig(spec="", threads=1, obs_moments={}))
    weight, memory = torch.arange(300.0), worker._weights
    monkeypatch.setattr(worker, "_weights", mock.Mock(wraps=memory, write=lambda raw: memory.write(raw[:7])))
    worker.send(0, {"weight": weight})
    assert torch.equal(load(os.pread(memory.fileno(), 2**16, 0))["policy.weight"], weight)
    worker.close()


@pytest.mark.slow
def test_evaluations_before_a_divergence_are_recorded_as_in_process(tmp_path: Path, monkeypatch: Patch) -> None:
    ends = []
    for name, eval_workers in (("within", 0), ("beside", 1)):
        monkeypatch.setattr(pool, "PROGRAM", program("late"))
        breaking(39, weight, math.nan, monkeypatch)
        with pytest.raises(RunFailed):
            carry(FLAT.spec(), tmp_path / name, runtime=within(eval_workers))
        ends.append((reason(FLAT, tmp_path / name), epochs_of(FLAT.folder(tmp_path / name))))
    assert ends[0] == ends[1]
    assert [line["number"] for line in ends[1][1]] == [0, 1], "the third policy is no number"


@pytest.mark.slow
def test_signal_during_the_start_of_a_worker_stops_the_run_and_the_resume_repeats_the_evaluation() -> None:
    trainer = build(FLAT.spec(), within(1), describe(FLAT.spec()))
    pool = trainer.eval_pool
    pool.submit(0)
    (first,) = psutil.Process().children()
    first.send_signal(signal.SIGTERM)
    wait_for(lambda: first.status() == psutil.STATUS_ZOMBIE)
    while isinstance(status := pool.poll(0, 0.2), int):
        pass
    assert len(status.returns) == 2
    (second,) = psutil.Process().children()
    second.send_signal(signal.SIGTERM)  # now it hears none
    pool.submit(1)
    while isinstance(status := pool.poll(1, 0.2), int):
        pass
    assert (second.pid == psutil.Process().children()[0].pid) and second.pid != first.pid
    trainer.close()
    assert not psutil.pid_exists(second.pid)


SLOW = (  # however fast the machine, it is not over before the test has looked
    "import time; from rlbench.training.offline import OfflineTrainer; at_once = OfflineTrainer._train; "
    f"OfflineTrainer._train = lambda self, count: (time.sleep(2), at_once(self, count))[1]; {HEARING}"
)
HANGING = f"from rlbench.evaluation import pool; pool.PROGRAM = {program('deadlock')}; {SLOW}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "start", "message"),
    [
        (signal.SIGTERM, SLOW, "epoch 1"),
        (signal.SIGKILL, HANGING, "epoch 0"),
        pytest.param(signal.SIGKILL, SLOW, "epoch 1", marks=pytest.mark.soak),
        pytest.param(signal.SIGTERM, HANGING, "epoch 0", marks=pytest.mark.soak),
    ],
)
def test_no_eval_worker_outlives_its_run(number: signal.Signals, start: str, message: str, tmp_path: Path) -> None:
    long = [word.replace("budget.steps=60", "budget.steps=200") for word in FLAT.words(tmp_path)]
    with started(*long, "--eval-workers", "1", program=start) as process:
        heard(process, message)
        time.sleep(1)  # until it hangs, where it does
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 1
        code, _, err = remaining(process, number)
        assert code == (143 if number == signal.SIGTERM else -9), err
        wait_for(lambda: not children[0].is_running() or children[0].status() == psutil.STATUS_ZOMBIE)


@pytest.mark.soak
@pytest.mark.parametrize("algorithm", ["td3bc", "bcq", "cql"])
def test_memory_of_an_eval_worker_is_estimated_within_a_tenth(algorithm: str) -> None:
    spec = FLAT._replace(algorithm=algorithm, sets=()).spec()
    trainer = build(spec, within(1), describe(spec))
    for epoch in (0, 1):
        trainer.eval_pool.submit(epoch)
        while isinstance(trainer.eval_pool.poll(epoch, 0.2), int):
            pass
    (worker,) = psutil.Process().children()
    resident = worker.memory_info().rss
    trainer.close()
    assert abs(resident / footprint(spec, 1).eval_workers - 1) < 0.1
