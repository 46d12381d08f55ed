"""Compiled losses against eager ones over whole updates, and functions that cannot be compiled."""

import os
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.parity import STRIDES, TOLERANCES, largest_distance, run_updates
from benchmarks.rigs import CELLS, rig, trained_tensors
from rlbench.accel.graph_capture import CACHE, CompiledLoss
from rlbench.algorithms.base import Compilable
from rlbench.assembly.engine import composites, refusals
from rlbench.config.run import Runtime
from tests.slow import slow_but


def compile_losses(learner: object, backend: str) -> None:
    """Compile the losses of a learner and of those within it."""
    for part in composites(learner):
        if isinstance(part, Compilable):
            part.compiler = partial(CompiledLoss, backend=backend)


RUNTIME = Runtime(device="cpu", threads=1, update_engine="eager")


@pytest.mark.parametrize("cell", slow_but(CELLS, 0, 9))
def test_updates_traced_by_dynamo_equal_eager_ones(cell: str) -> None:
    plain, quick = rig(cell, RUNTIME), rig(cell, RUNTIME)
    torch._dynamo.reset()
    compile_losses(quick.learner, "eager")  # traced, and run by the same kernels: a break or another meaning shows
    for run in (plain, quick):
        torch.manual_seed(3)
        if cell.startswith("atari"):  # frames take long
            run.updater.run(0, 4)
        else:
            run_updates(run)
    assert refusals(quick.updater, quick.learner) == ()
    learners = [part for part in composites(quick.learner) if isinstance(part, Compilable)]
    assert any(sorted(learner.compiled) == learner.losses() for learner in learners)
    expected = trained_tensors(plain)
    for name, value in trained_tensors(quick).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # by torch itself
@pytest.mark.parametrize("cell", slow_but(["toy/dqn/Catch", "toy/sac/Pendulum-v1"], 0, mark=pytest.mark.soak))
@torch._inductor.config.patch("cpp.vec_isa_ok", True)  # it need not compile programs that try the instructions
def test_updates_compiled_by_inductor_agree_with_eager_ones(cell: str) -> None:
    plain, quick = rig(cell, RUNTIME), rig(cell, RUNTIME)
    before = trained_tensors(plain)
    compile_losses(quick.learner, "inductor")
    for run in (plain, quick):
        torch.manual_seed(3)
        run_updates(run)
    assert refusals(quick.updater, quick.learner) == ()
    name, worst = largest_distance(before, trained_tensors(quick), trained_tensors(plain), TOLERANCES["compiled"])
    assert worst <= 1, name
    assert plain.updater.take().count == sum(STRIDES)


@pytest.mark.parametrize("kind", ["own", "group", "open", "link", "another user's"])
def test_a_cache_that_another_user_can_write_to_is_not_used(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor executes what lies in its folder in ``/tmp``, which anybody can make beforehand."""
    (cache := tmp_path / "cache").mkdir()
    cache.chmod({"open": 0o757, "group": 0o775}.get(kind, 0o755))
    if kind == "link":
        cache.rename(tmp_path / "target")
        cache.symlink_to(tmp_path / "target")
    if kind == "another user's":
        monkeypatch.setattr("os.getuid", lambda: cache.stat().st_uid + 1)
    monkeypatch.setenv(CACHE, str(cache))
    with torch._inductor.config.patch(cpp_cache_precompile_headers=True):
        assert CompiledLoss(torch.neg).refusal is None
        assert torch._inductor.config.cpp_cache_precompile_headers == (kind == "own"), "they lie in torch's own folder"
    folder = Path(os.environ[CACHE])
    assert (folder == cache) == (kind == "own")
    if folder != cache:
        assert folder.stat().st_mode & 0o777 == 0o700
        folder.rmdir()


def test_without_a_cache_nothing_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE, str(tmp_path / "file"))
    assert CompiledLoss(torch.neg).refusal == "inductor has no cache (File exists)"


def test_function_with_a_graph_break_stays_eager_with_a_reason() -> None:
    def broken(x: Tensor) -> Tensor:
        return x * float(x.sum().item() > 0) if bool(x.sum() > 0) else x

    compiled = CompiledLoss(broken, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3))
    assert str(compiled.refusal).startswith("could not be compiled (")
    assert "\n" not in str(compiled.refusal)


def test_an_error_of_the_function_itself_is_not_swallowed() -> None:
    def wrong(x: Tensor) -> Tensor:
        return x.view(7)

    with pytest.raises(RuntimeError, match="shape"):
        CompiledLoss(wrong, backend="eager")(torch.ones(3))


def test_difference_is_measured_in_shares_of_the_tolerance() -> None:
    before, expected = {"x": torch.zeros(2), "y": torch.ones(1)}, {"x": torch.tensor([3.0, 4.0]), "y": torch.ones(1)}
    allowed = TOLERANCES["compiled"]._replace(way=0.1, size=0.0)
    assert largest_distance(before, expected, expected, allowed) == ("", 0.0)
    near = {"x": torch.tensor([3.0, 4.25]), "y": torch.ones(1)}
    assert largest_distance(before, near, expected, allowed) == ("x", pytest.approx(0.5))
    assert largest_distance(before, {**near, "y": torch.tensor([1.1])}, expected, allowed) == ("y", float("inf"))
    assert largest_distance(before, {**expected, "x": torch.tensor([3.0, torch.nan])}, expected, allowed) == (
        "x",
        float("inf"),
    )
