"""The choice of a run's update engine, its description, and its record if it fails."""

from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from rlbench import suites
from rlbench.accel.graph_capture import CompiledLoss
from rlbench.assembly import engine as engines
from rlbench.assembly.engine import Engine, engine_of
from rlbench.cli.inline import environment_of
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.errors import Diverged, RlbenchError
from rlbench.records import attempts
from rlbench.records.store import folder_of, read_record
from rlbench.run import run
from rlbench.signals import Stop
from tests.accel.graph_tape import GraphRecorder
from tests.conftest import Patch
from tests.forging import locked, outcome_of
from tests.reliability.run_one import carry
from tests.slow import slow_but

CPU, GPU = torch.device("cpu"), torch.device("cuda")
EAGER = "eager: could not be compiled"
DQN, PPO = (suites.spec("toy", name, "CartPole-v1") for name in ("dqn", "ppo"))


@pytest.mark.parametrize(
    ("spec", "engine", "device", "message"),
    [
        (DQN, "auto", CPU, "eager: no CUDA GPU"),
        (DQN, "cuda-graph", CPU, "eager: no CUDA GPU"),
        (DQN, "auto", GPU, "cuda-graph"),
        (DQN, "cuda-graph", GPU, "cuda-graph"),
        (DQN, "eager", GPU, "eager"),
        (DQN, "compiled", CPU, "compiled"),
        (DQN, "numpy", CPU, "eager: only on-policy algorithms have a numpy engine"),
        (PPO, "auto", CPU, "numpy: where networks are small, else eager"),
        (PPO, "auto", GPU, "eager: steps on a rollout are not captured"),
        (PPO, "cuda-graph", GPU, "eager: steps on a rollout are not captured"),
        (PPO, "numpy", CPU, "numpy"),
        (PPO, "eager", CPU, "eager"),
    ],
)
def test_requested_engine_is_used_or_refused_with_a_reason(
    spec: Spec, engine: str, device: torch.device, message: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(engines.shutil, "which", lambda name: f"/bin/{name}")
    assert engine_of(spec, Runtime.model_validate({"update_engine": engine}), device).description == message


def test_without_a_compiler_nothing_is_compiled(monkeypatch: Patch) -> None:
    monkeypatch.setattr(engines.shutil, "which", lambda _: None)
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    runtime = Runtime(update_engine="compiled")
    assert engine_of(DQN, runtime, CPU).description == "eager: no C++ compiler"
    assert engine_of(DQN, runtime, GPU).description == "eager: no Triton"


@pytest.mark.parametrize("variable", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"])
def test_compilation_that_torch_disables_is_no_engine(variable: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(engines.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setenv(variable, "1")
    assert engine_of(DQN, Runtime(update_engine="compiled"), CPU).description == f"eager: {variable}=1"


def test_a_record_says_how_its_updates_were_computed() -> None:
    assert environment_of(DQN, Runtime(device="cpu"), None)["updates"] == "eager: no CUDA GPU"


def test_a_record_names_the_gpu_of_its_device(monkeypatch: Patch) -> None:
    def name_of(device: object = None) -> str:
        return ("A100", "T4")[torch.device("cuda" if device is None else str(device)).index or 0]

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", name_of)
    names = [environment_of(DQN, Runtime(device=device), None)["gpu"] for device in ("cuda", "cuda:1", "cpu")]
    assert names == ["A100", "T4", None]


class FailingCompiled(CompiledLoss[object, object]):
    """No loss can be compiled."""

    def __init__(self, plain: Callable[..., object]) -> None:
        super().__init__(plain, backend=failing)


class EagerCompiled(CompiledLoss[object, object]):
    """Every loss is compiled, to itself."""

    def __init__(self, plain: Callable[..., object]) -> None:
        super().__init__(plain, backend="eager")


def failing(*_: object) -> None:
    raise RuntimeError("nothing can be compiled today\nand here is why at length")


def test_run_whose_engine_fails_continues_eagerly(tmp_path: Path, monkeypatch: Patch) -> None:
    texts = ("budget.steps=80", "budget.epoch=20", "algo.learning_starts=40", "protocol.episodes=1", "protocol.envs=1")
    spec = apply_settings(suites.spec("toy", "dqn", "Catch"), [parse(text) for text in texts])
    environment: dict[str, str] = {}
    for kind in ("eager", "compiled"):
        with monkeypatch.context() as patched:
            patched.setattr(engines, "_missing_requirement", lambda _: "")
            patched.setattr(engines, "CompiledLoss", FailingCompiled)
            store = locked(spec, tmp_path / kind)
            runtime = Runtime.model_validate({"device": "cpu", "threads": 1, "update_engine": kind})
            assert len(list(run(spec, runtime, store, Stop()))) > 5
            store.release()
        assert store.outcome is not None
        environment[kind] = str(store.outcome.weights)
        updates_noted = [line["updates"] for line in attempts.read_attempts(store.folder) if line["event"] == "engine"]
        assert len(updates_noted) == (kind == "compiled")
        assert all("could not be compiled" in str(line) and "\n" not in str(line) for line in updates_noted)
        updates = read_record(store.folder).environment.get("updates")
        assert updates == (EAGER if kind == "compiled" else None)
    assert environment["compiled"] == environment["eager"]


@pytest.mark.parametrize(
    ("processes", "inexact", "updates"),
    [
        # the requested engine of each process, if it can compile, and the step at which it is stopped
        ([("compiled", False, 64), ("compiled", True, None)], (), EAGER),
        ([("compiled", False, 64), ("compiled", False, None)], (), EAGER),
        ([("compiled", True, 64), ("compiled", False, None)], (64,), EAGER),
        ([("compiled", True, 64), ("compiled", True, None)], (), None),
        ([("compiled", False, 32), ("compiled", False, None)], (), EAGER),  # before the first update
        ([("eager", True, 64), ("compiled", False, None)], (), EAGER),
        ([("eager", True, 64), ("compiled", True, 64), ("compiled", True, None)], (64,), None),
        ([("compiled", False, 64), ("auto", True, 96), ("compiled", True, None)], (), EAGER),
    ],
)
def test_a_resume_keeps_the_engine_after_a_failed_compilation_or_lists_its_step(
    processes: list[tuple[str, bool, int | None]],
    inexact: tuple[int, ...],
    updates: str | None,
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    """The first process is stopped within its first epoch, the last one ends the run."""
    texts = ("budget.steps=160", "budget.epoch=80", "algo.learning_starts=40", "protocol.episodes=1", "protocol.envs=1")
    spec = apply_settings(suites.spec("toy", "dqn", "Catch"), [parse(text) for text in texts])
    monkeypatch.setattr(engines, "_missing_requirement", lambda _: "")
    for engine, compiles, stop_at in processes:
        monkeypatch.setattr(engines, "CompiledLoss", EagerCompiled if compiles else FailingCompiled)
        runtime = Runtime.model_validate({"device": "cpu", "threads": 1, "update_engine": engine})
        carry(spec, tmp_path, stop_at=stop_at, runtime=runtime)
    outcome, record = outcome_of(folder_of(spec, tmp_path)), read_record(folder_of(spec, tmp_path))
    assert (outcome.status, outcome.inexact) == ("done", inexact)
    assert {**record.environment, **record.resumed[-1].environment}.get("updates") == updates


@pytest.mark.parametrize(
    ("engine", "killed", "updates"),
    [
        ("eager", ("compiled", True), ["compiled", "eager"]),
        ("compiled", ("eager", True), ["eager", "compiled"]),
        ("compiled", ("compiled", False), [EAGER, "compiled"]),
        ("compiled", ("auto", True), []),
    ],
)
def test_after_a_killed_process_the_record_names_the_engine_of_the_checkpoint(
    engine: str, killed: tuple[str, bool], updates: list[str], tmp_path: Path, monkeypatch: Patch
) -> None:
    texts = ("budget.steps=160", "budget.epoch=80", "algo.learning_starts=40", "protocol.episodes=1", "protocol.envs=1")
    spec = apply_settings(suites.spec("toy", "dqn", "Catch"), [parse(text) for text in texts])
    monkeypatch.setattr(engines, "_missing_requirement", lambda _: "")
    for kind, compiles, until in ((engine, True, 64), (*killed, 100), ("auto", True, None)):
        monkeypatch.setattr(engines, "CompiledLoss", EagerCompiled if compiles else FailingCompiled)
        runtime = Runtime.model_validate(
            {"device": "cpu", "threads": 1, "update_engine": kind, "checkpoint_seconds": 1e9}
        )
        values = {"updates": engine_of(spec, runtime, torch.device("cpu")).description, "torch_threads": 1}
        carry(spec, tmp_path, stop_at=until, crash=until == 100, runtime=runtime, environment=values)
    record = read_record(folder_of(spec, tmp_path))
    assert [line.environment["updates"] for line in record.resumed] == updates
    assert all(line.updates for line in record.resumed), "all of them resumed after updates"
    assert outcome_of(record.folder).inexact == ()


class BrokenLoss(CompiledLoss[object, object]):
    """No loss can be compiled, and none can be computed."""

    def __init__(self, plain: Callable[..., object]) -> None:
        super().__init__(Mock(side_effect=RuntimeError("no loss")), backend=failing)


@pytest.mark.parametrize("fault", ["first update", "first epoch", "link"])
def test_a_run_that_fails_before_it_saves_names_its_engine(fault: str, tmp_path: Path, monkeypatch: Patch) -> None:
    texts = ("budget.steps=160", "budget.epoch=80", "algo.learning_starts=40", "protocol.episodes=1", "protocol.envs=1")
    spec = apply_settings(suites.spec("toy", "dqn", "Catch"), [parse(text) for text in texts])
    monkeypatch.setattr(engines, "_missing_requirement", lambda _: "")
    monkeypatch.setattr(engines, "CompiledLoss", EagerCompiled)
    runtime = Runtime.model_validate({"device": "cpu", "threads": 1, "update_engine": "compiled"})
    environment, folder = {"updates": "compiled", "torch_threads": 1}, folder_of(spec, tmp_path)
    carry(spec, tmp_path, stop_at=64, runtime=runtime, environment=environment)

    def diverge(*_: object) -> None:
        if fault == "link":
            (folder / "attempts.jsonl").symlink_to(tmp_path / "elsewhere")
        raise Diverged("no loss")

    monkeypatch.setattr(engines, "CompiledLoss", BrokenLoss if fault == "first update" else FailingCompiled)
    monkeypatch.setattr("rlbench.run._refuse_diverged", diverge)
    with pytest.raises(RlbenchError, match="no loss"):
        carry(spec, tmp_path, runtime=runtime, environment=environment)
    assert (outcome_of(folder).status, outcome_of(folder).inexact) == ("failed", (64,))
    changes = [line.environment.get("updates") for line in read_record(folder).resumed]
    assert changes == ([] if fault == "link" else [EAGER]), "a link keeps the engine out, and hides no failure"


def test_a_process_stopped_before_its_first_update_changes_no_engine(tmp_path: Path, monkeypatch: Patch) -> None:
    texts = ("budget.steps=320", "budget.epoch=160", "algo.learning_starts=40", "algo.updates_per_step=0.025")
    texts += ("protocol.episodes=1", "protocol.envs=1")
    spec = apply_settings(suites.spec("toy", "dqn", "Catch"), [parse(text) for text in texts])
    monkeypatch.setattr(engines, "_missing_requirement", lambda _: "")
    monkeypatch.setattr(engines, "CompiledLoss", EagerCompiled)
    counts = []
    for engine, stop_at in (("eager", 200), ("compiled", 200), ("compiled", None)):
        runtime = Runtime.model_validate({"device": "cpu", "threads": 1, "update_engine": engine})
        carry(spec, tmp_path, stop_at=stop_at, runtime=runtime)
        counts.append(outcome_of(folder_of(spec, tmp_path)))
    assert 0 < counts[0].updates == counts[1].updates and counts[1].inexact == ()
    assert counts[2].inexact == (counts[1].env_steps,), "the last process computes by the engine that it requests"


SMALL = ("budget.steps=240", "budget.epoch=80", "budget.segment=120", "protocol.episodes=1", "protocol.envs=1")
RUNS = {
    "toy/dqn/Catch": ("algo.learning_starts=60", "algo.updates_per_step=0.5"),
    "toy/rainbow/Catch": ("algo.learning_starts=60", "algo.updates_per_step=0.5", "algo.batch=4"),
    "offline/bcq/Catch": ("algo.batch=4", "algo.target_update_interval=10"),
    "goals/ddpg+her/FetchReach-v4": (
        "algo.learning_starts=60",
        "algo.widths=[8,7]",
        "algo.batch=4",
        "algo.replay.capacity=400",
    ),
}


@pytest.mark.parametrize("cell", slow_but(RUNS, 0, 2))
def test_run_with_captured_updates_equals_the_eager_run(cell: str, tmp_path: Path, monkeypatch: Patch) -> None:
    suite, algorithm, task = cell.split("/")
    spec = apply_settings(suites.spec(suite, algorithm, task), [parse(text) for text in (*SMALL, *RUNS[cell])])
    spec = spec.model_copy(update={"smoke": suite == "offline"})  # then it learns from random actions
    plain = weights(spec, tmp_path / "eager")
    recorders: list[GraphRecorder] = []

    def taped(_: torch.device, streams: Sequence[torch.Generator]) -> GraphRecorder:
        recorders.append(GraphRecorder(streams))
        return recorders[-1]

    monkeypatch.setattr(engines, "CudaGraphRecorder", taped)
    monkeypatch.setattr(torch.cuda, "default_generators", (torch.default_generator,))
    monkeypatch.setattr(engines, "graph_engine", lambda _: Engine("cuda-graph"))
    assert weights(spec, tmp_path / "cuda-graph") == plain
    assert weights(spec, tmp_path / "interrupted", 170) == plain
    assert len(recorders) == 3
    assert all(recorder.graphs for recorder in recorders)


def weights(spec: Spec, results: Path, *stops: int) -> str:
    """The result of a run that is stopped at so many steps and resumed."""
    for stop in (*stops, None):
        carry(spec, results, stop_at=stop)
    folder = folder_of(spec, results)
    assert not [line for line in attempts.read_attempts(folder) if line["event"] == "engine"]
    assert outcome_of(folder).status == "done"
    return str(outcome_of(folder).weights)
