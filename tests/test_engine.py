"""The choice of a run's update engine, its description, and its record if it fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from rlbench import suites
from rlbench.accel.graph_capture import Compiled
from rlbench.assembly import engine as engines
from rlbench.assembly.engine import Engine, engine_of
from rlbench.cli.inline import environment_of
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.errors import Interrupted
from rlbench.records import attempts
from rlbench.records.store import Store
from rlbench.run import run
from rlbench.signals import Stop
from tests.accel.graph_tape import Tape
from tests.slow import slow_but

CPU, CARD = torch.device("cpu"), torch.device("cuda")
DQN, PPO = (suites.spec("toy", name, "CartPole-v1") for name in ("dqn", "ppo"))


@pytest.mark.parametrize(
    ("spec", "asked", "device", "told"),
    [
        (DQN, "auto", CPU, "eager: no CUDA GPU"),
        (DQN, "cuda-graph", CPU, "eager: no CUDA GPU"),
        (
            DQN,
            "auto",
            CARD,
            "eager: CUDA graphs are untested on a GPU; choose them with --update-engine cuda-graph",
        ),
        (DQN, "cuda-graph", CARD, "cuda-graph"),
        (DQN, "eager", CARD, "eager"),
        (DQN, "compiled", CPU, "compiled"),
        (DQN, "numpy", CPU, "eager: only on-policy algorithms have a numpy engine"),
        (PPO, "auto", CPU, "numpy: where networks are small, else eager"),
        (PPO, "auto", CARD, "eager: steps on a rollout are not captured"),
        (PPO, "cuda-graph", CARD, "eager: steps on a rollout are not captured"),
        (PPO, "numpy", CPU, "numpy"),
        (PPO, "eager", CPU, "eager"),
    ],
)
def test_requested_engine_is_used_or_refused_with_a_reason(
    spec: Spec, asked: str, device: torch.device, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines.shutil, "which", lambda name: f"/bin/{name}")
    assert engine_of(spec, Runtime.model_validate({"update_engine": asked}), device).description == told


def test_without_a_compiler_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.shutil, "which", lambda _: None)
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    runtime = Runtime(update_engine="compiled")
    assert engine_of(DQN, runtime, CPU).description == "eager: no C++ compiler"
    assert engine_of(DQN, runtime, CARD).description == "eager: no Triton"


def test_a_record_says_how_its_updates_were_computed() -> None:
    assert environment_of(DQN, Runtime(device="cpu"), None)["updates"] == "eager: no CUDA GPU"


class FailingCompiled(Compiled[object, object]):
    """No loss can be compiled."""

    def __init__(self, plain: Callable[..., object]) -> None:
        super().__init__(plain, backend=failing)


def failing(*_: object) -> None:
    raise RuntimeError("nothing can be compiled today\nand here is why at length")


def test_run_whose_engine_fails_continues_eagerly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ("budget.steps=80", "budget.epoch=20", "algo.learning_starts=40", "protocol.episodes=1", "protocol.envs=1")
    spec = apply_settings(suites.spec("toy", "dqn", "Catch"), [parse(text) for text in texts])
    told: dict[str, str] = {}
    for kind in ("eager", "compiled"):
        with monkeypatch.context() as patched:
            patched.setattr(engines, "_lacking", lambda _: "")
            patched.setattr(engines, "Compiled", FailingCompiled)
            store = Store.claim(spec, tmp_path / kind, {})
            assert store is not None
            runtime = Runtime.model_validate({"device": "cpu", "threads": 1, "update_engine": kind})
            assert len(list(run(spec, runtime, store, Stop()))) > 5
            store.release()
        assert store.outcome is not None
        told[kind] = str(store.outcome.weights)
        noted = [line["updates"] for line in attempts.read_attempts(store.folder) if line["event"] == "engine"]
        assert len(noted) == (kind == "compiled")
        assert all("could not be compiled" in str(line) and "\n" not in str(line) for line in noted)
    assert told["compiled"] == told["eager"]


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
def test_run_with_captured_updates_equals_the_eager_run(
    cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, algorithm, task = cell.split("/")
    spec = apply_settings(suites.spec(suite, algorithm, task), [parse(text) for text in (*SMALL, *RUNS[cell])])
    spec = spec.model_copy(update={"smoke": suite == "offline"})  # then it learns from random actions
    plain = weights(spec, tmp_path / "eager", None)
    tapes: list[Tape] = []

    def taped(_: torch.device, streams: Sequence[torch.Generator]) -> Tape:
        tapes.append(Tape(streams))
        return tapes[-1]

    monkeypatch.setattr(engines, "CudaGraphs", taped)
    monkeypatch.setattr(torch.cuda, "default_generators", (torch.default_generator,))
    monkeypatch.setattr(engines, "captured", lambda _: Engine("cuda-graph"))
    assert weights(spec, tmp_path / "cuda-graph", None) == plain
    assert weights(spec, tmp_path / "interrupted", 170) == plain
    assert len(tapes) == 3
    assert all(tape.recorded for tape in tapes)


def weights(spec: Spec, results: Path, interrupted: int | None) -> str:
    """What a run comes to; it is stopped at so many steps, and begun again."""
    for at in (interrupted, None) if interrupted else (None,):
        store = Store.claim(spec, results, {})
        assert store is not None
        stop = Stop()
        with suppress(Interrupted):
            for record in run(spec, Runtime(device="cpu", threads=1), store, stop):
                if at is not None and record.steps >= at:
                    stop.signal = 15
        store.release()
        assert not [line for line in attempts.read_attempts(store.folder) if line["event"] == "engine"]
    assert store.outcome is not None
    assert store.outcome.status == "done"
    return str(store.outcome.weights)
