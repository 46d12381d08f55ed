"""Placement of a sweep's runs: tables, and properties on any machine and runs."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbench import suites
from rlbench.cli import sweep
from rlbench.errors import DoesNotFit, UsageError
from rlbench.sweep.plan import Job, Machine, Placement, fewer_threads, jobs_of, parse_shard, place, worker_count
from tests.conftest import Patch

CATCH = suites.spec("toy", "dqn", "Catch")
PONG = suites.spec("atari", "dqn", "PongNoFrameskip-v4")
TD3BC = suites.spec("offline", "td3bc", "halfcheetah-medium-v2")
GB = 10**9


def job(number: int = 0, *, threads: int = 1, memory: int = GB, gpu: int = 0) -> Job:
    spec = CATCH.model_copy(update={"seed": number})
    return Job(spec=spec, folder=Path("x"), threads=threads, memory=memory, gpu=gpu)


@pytest.mark.parametrize(
    ("jobs", "cores", "pairs", "processes"),
    [(None, 8, 70, 8), (None, 8, 3, 3), (2, 8, 70, 2), (16, 8, 70, 16), (None, 1, 5, 1), (4, 2, 0, 1)],
)
def test_worker_count_is_the_requested_number_or_one_per_core(
    jobs: int | None, cores: int, pairs: int, processes: int
) -> None:
    assert worker_count(jobs, cores, pairs) == processes


@pytest.mark.parametrize(
    ("spec", "cores", "processes", "threads", "share"),
    [
        (PONG, 8, 8, None, 1),
        (PONG, 8, 2, None, 4),
        (PONG, 16, 2, None, 4),  # more do not pay
        (PONG, 6, 2, None, 3),
        (PONG, 2, 4, None, 1),
        (CATCH, 8, 2, None, 1),  # small networks use one
        (CATCH, 8, 2, 3, 3),  # requested
    ],
)
def test_each_process_gets_its_share_of_the_cores(
    spec: object, cores: int, processes: int, threads: int | None, share: int
) -> None:
    (job_of_spec,) = jobs_of([spec], Path("r"), Machine(cores=cores, memory=100 * GB), processes, threads)
    assert job_of_spec.threads == share


@pytest.mark.parametrize(
    ("cores", "processes", "gpus", "jobs", "threads", "eval_workers"),
    [
        (2, 1, (), None, 2, 0),  # both learn
        (8, 1, (), None, 4, 4),
        (8, 2, (), None, 4, 0),
        (16, 2, (80 * GB,), None, 1, 7),
        (2, 2, (), 1, 1, 1),  # requested
    ],
)
def test_eval_workers_of_an_offline_run_use_idle_cores(
    cores: int, processes: int, gpus: tuple[int, ...], jobs: int | None, threads: int, eval_workers: int
) -> None:
    machine = Machine(cores=cores, memory=100 * GB, gpus=gpus)
    (job_of_spec,) = jobs_of([TD3BC], Path("r"), machine, processes, None, jobs)
    (bare,) = jobs_of([TD3BC], Path("r"), machine, processes, None, 0)
    assert (job_of_spec.threads, job_of_spec.eval_workers) == (threads, eval_workers)
    assert job_of_spec.memory >= bare.memory + (eval_workers - bare.eval_workers) * 360_000_000


def test_gpu_holds_replay_and_networks() -> None:
    host = jobs_of([PONG], Path("r"), Machine(cores=8, memory=100 * GB), 1, None)[0]
    gpu = jobs_of([PONG], Path("r"), Machine(cores=8, memory=100 * GB, gpus=(80 * GB,)), 1, None)[0]
    assert host.gpu == 0 and gpu.gpu > 700_000_000
    assert gpu.memory < host.memory and gpu.threads == 1


def test_run_larger_than_the_machine_is_refused_with_the_number_unless_it_has_ended(monkeypatch: Patch) -> None:
    with pytest.raises(DoesNotFit, match=r"atari/dqn/Pong.*1\.\d\d GB of it on this machine, which has 1\.00 GB free"):
        jobs_of([PONG], Path("r"), Machine(cores=8, memory=GB), 1, None)
    with pytest.raises(DoesNotFit, match="GPU"):
        jobs_of([PONG], Path("r"), Machine(cores=8, memory=100 * GB, gpus=(GB,)), 1, None)
    monkeypatch.setattr("rlbench.sweep.plan.is_due", lambda *_: False)
    assert len(jobs_of([PONG], Path("r"), Machine(cores=8, memory=GB), 1, None)) == 1
    with pytest.raises(DoesNotFit, match="this machine"):
        jobs_of([PONG], Path("r"), Machine(cores=8, memory=GB), 1, None, force=True)


@pytest.mark.parametrize(("device", "free"), [("cuda", (7, 9)), ("cuda:1", (0, 9)), ("cuda:2", ()), ("cpu", ())])
def test_free_memory_is_that_of_the_gpus_that_a_device_allows(
    device: str, free: tuple[int, ...], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(sweep, "GPU_DRIVERS", ("/",))
    monkeypatch.setattr(sweep.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="7 9", returncode=0))
    assert sweep._free_gpus(device) == free


@pytest.mark.parametrize(
    ("running", "new", "where"),
    [
        ([], {}, "host"),
        ([{}], {}, "host"),
        ([{}, {}], {}, None),  # two processes
        ([{"memory": 7 * GB}], {"memory": 3 * GB}, "host"),
        ([{"memory": 7 * GB}], {"memory": 3 * GB + 1}, None),
        ([{"threads": 3}], {"threads": 1}, "host"),
        ([{"threads": 3}], {"threads": 2}, None),
        ([], {"threads": 9}, "host"),  # alone, whatever it takes
        ([], {"gpu": 4 * GB}, 1),  # the freer gpu
        ([{"gpu": 4 * GB, "on": 1}], {"gpu": 4 * GB}, 0),
        ([{"gpu": 4 * GB, "on": 0}], {"gpu": 6 * GB}, 1),
        ([{"gpu": 4 * GB, "on": 1}], {"gpu": 6 * GB}, None),
    ],
)
def test_a_job_starts_where_there_is_room(running: list[dict[str, int]], new: dict[str, int], where: object) -> None:
    machine = Machine(cores=4, memory=10 * GB, gpus=(5 * GB, 6 * GB))
    beside = [
        Placement(job(n, **{k: v for k, v in one.items() if k != "on"}), one.get("on")) for n, one in enumerate(running)
    ]
    start = place(job(9, **new), beside, machine, 2)
    assert (None if start is None else "host" if start.gpu is None else start.gpu) == where


jobs = st.builds(
    job,
    st.integers(0, 99),
    threads=st.integers(1, 4),
    memory=st.integers(1, 12 * GB),
    gpu=st.one_of(st.just(0), st.integers(1, 9 * GB)),
)
machines = st.builds(
    Machine,
    cores=st.integers(1, 8),
    memory=st.integers(12 * GB, 30 * GB),
    gpus=st.lists(st.integers(9 * GB, 20 * GB), min_size=1, max_size=3).map(tuple),
)


@given(st.lists(jobs, max_size=30), machines, st.integers(1, 8), st.data())
def test_packing_respects_memory_cores_and_gpus_and_starts_every_job(
    waiting: list[Job], machine: Machine, processes: int, data: st.DataObject
) -> None:
    running: list[Placement] = []
    while waiting or running:
        for one in list(waiting):
            start = place(one, running, machine, processes)
            if start is not None:
                waiting.remove(one)
                running.append(start)
        assert running, "nothing fits into an empty machine"
        assert len(running) <= processes
        assert sum(p.job.memory for p in running) <= machine.memory
        assert len(running) == 1 or sum(p.job.threads for p in running) <= max(machine.cores, processes)
        for gpu, free in enumerate(machine.gpus):
            assert sum(p.job.gpu for p in running if p.gpu == gpu) <= free
        running.pop(data.draw(st.integers(0, len(running) - 1)))


@given(st.integers(1, 40), st.integers(0, 200))
def test_shards_partition_the_runs_evenly(total: int, pairs: int) -> None:
    parts = [range(pairs)[parse_shard(f"{number}/{total}")] for number in range(1, total + 1)]
    assert sorted(pair for part in parts for pair in part) == list(range(pairs))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.integers(1, 8), st.integers(1, 8), st.lists(st.sampled_from([PONG, CATCH]), min_size=1, max_size=6))
def test_threads_of_all_processes_together_are_no_more_than_the_cores(cores: int, most: int, specs: list) -> None:
    processes = worker_count(most, cores, len(specs))
    job_list = jobs_of(specs, Path("r"), Machine(cores=cores, memory=100 * GB), processes, None)
    assert max(one.threads for one in job_list) * processes <= max(cores, processes)


def test_the_plan_does_not_depend_on_what_is_finished() -> None:
    """Else a sweep that is started again would compute with other threads, and its numbers would differ."""
    machine, specs = Machine(cores=8, memory=100 * GB), [PONG.model_copy(update={"seed": n}) for n in range(4)]
    processes = worker_count(None, machine.cores, len(specs))
    every = jobs_of(specs, Path("r"), machine, processes, None)
    assert every == jobs_of(specs, Path("r"), replace(machine, memory=50 * GB), processes, None)
    assert [one.threads for one in every] == [2, 2, 2, 2]


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", "1/4/2", ""])
def test_invalid_shards_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--shard"):
        parse_shard(text)


def test_shards_are_numbered_from_one() -> None:
    assert "abcdefg"[parse_shard("1/3")] == "adg"


def test_sweep_reports_runs_with_other_rounding_than_alone(tmp_path: Path) -> None:
    """Two cores are two threads for frames alone, and one for each of two runs; a small network has one anyway."""
    machine = Machine(cores=2, memory=10**12)
    for suite, task, processes, message in (
        ("atari", "PongNoFrameskip-v4", 2, "computes with 1 thread of torch here and with 2 alone"),
        ("atari", "PongNoFrameskip-v4", 1, ""),
        ("toy", "Catch", 2, ""),
    ):
        specs = [suites.spec(suite, "dqn", task, seed=seed) for seed in range(2)]
        note = fewer_threads(jobs_of(specs, tmp_path, machine, processes, None), machine)
        assert message in note and bool(message) == bool(note)
        assert not note or note.endswith("OMP_NUM_THREADS=1 gives the same ones alone")
