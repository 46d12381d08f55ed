"""The update engines on a CUDA GPU; `scripts/gpu_check` compares them too, and measures their speed."""

import pytest
import torch

from benchmarks.gpu import COMPILED
from benchmarks.parity import parity
from benchmarks.rigs import CELLS, rig, trained_tensors
from rlbench.accel.graph_capture import GraphUpdater
from rlbench.config.run import Runtime

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

SLOW = (pytest.mark.slow, pytest.mark.timeout(600))


@pytest.mark.parametrize(
    ("engine", "cell"),
    [("cuda-graph", cell) for cell in CELLS] + [pytest.param("compiled", cell, marks=SLOW) for cell in COMPILED],
)
def test_captured_updates_equal_eager_ones(engine: str, cell: str) -> None:
    result = parity(cell, Runtime(device="cuda", update_engine=engine))
    assert result["ran"] == engine
    assert result["within"], result


def test_generator_continues_after_a_failed_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    run = rig("toy/td3/Pendulum-v1", Runtime(device="cuda", update_engine="cuda-graph"))
    assert isinstance(run.updater, GraphUpdater)
    plain = run.learner.update

    def waiting(batch: object, phase: int) -> object:
        report = plain(batch, phase)
        report.metrics["q"].item()
        return report

    monkeypatch.setattr(run.learner, "update", waiting)
    run.updater.run(0, 40)
    assert "could not be captured" in str(run.updater.refusal)
    assert all(bool(value.isfinite().all()) for value in trained_tensors(run).values() if value.is_floating_point())
