"""One run loop: a run in this process is a sweep with an inline executor, a few frames above the gradient step."""

import inspect
import json
import sys
from pathlib import Path
from types import FrameType

from rlbench.algorithms.dqn import QLearner
from rlbench.cli import inline
from rlbench.config.run import Runtime, Spec
from rlbench.errors import UsageError
from tests.commands import run_command, stdout_of
from tests.conftest import Patch
from tests.laws.source import ROOT

FRAMES, GENERATORS = 12, 3


def package_frames(frame: FrameType | None) -> list[FrameType]:
    """Frames of rlbench on the stack, outermost first."""
    frames = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(str(ROOT / "rlbench")):
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def test_gradient_step_is_twelve_frames_and_three_generators_below_the_command(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    stacks: list[list[tuple[str, bool]]] = []
    update = QLearner.update

    def observed(self: QLearner, *arguments: object) -> object:
        if not stacks:
            frames = package_frames(sys._getframe(1))
            stacks.append([(f.f_code.co_name, bool(f.f_code.co_flags & inspect.CO_GENERATOR)) for f in frames])
        return update(self, *arguments)

    monkeypatch.setattr(QLearner, "update", observed)
    stdout_of(f"run toy dqn --task Catch --smoke --quiet --device cpu --results {tmp_path}")
    (stack,) = stacks
    names = [name for name, _ in stack]
    assert names[0] == "main"
    assert len(stack) + 1 <= FRAMES, names  # with ``update`` itself
    assert sum(generator for _, generator in stack) <= GENERATORS, names


def test_failed_seed_does_not_stop_the_others(tmp_path: Path, monkeypatch: Patch) -> None:
    import rlbench.run  # noqa: PLC0415 - brings torch
    from rlbench.errors import Diverged  # noqa: PLC0415 - as above

    keep = rlbench.run._Recorder.keep

    def broken(self: rlbench.run._Recorder, epoch: object) -> None:
        if self.spec.seed == 1:
            raise Diverged("planted is not a finite number")
        keep(self, epoch)

    monkeypatch.setattr(rlbench.run._Recorder, "keep", broken)
    words = ["run", "toy", "dqn", "--task", "Catch", "--smoke", "--seeds", "0-2", "--json", "--device", "cpu"]
    rows = json.loads(stdout_of([*words, "--results", str(tmp_path)], 5))["runs"]
    assert [row["status"] for row in rows] == ["done", "failed", "done"]
    assert "planted" in rows[1]["reason"] and "attempts" not in rows[1]


def test_a_run_that_cannot_begin_does_not_stop_the_others(tmp_path: Path, monkeypatch: Patch) -> None:
    check_data = inline.check_data

    def refused(spec: Spec, runtime: Runtime) -> object:
        if spec.seed != 1:
            raise UsageError("hopper-medium-v2: not in /data; download it")
        return check_data(spec, runtime)

    monkeypatch.setattr(inline, "check_data", refused)
    words = ["run", "toy", "dqn", "--task", "Catch", "--smoke", "--device", "cpu", "--results", str(tmp_path)]
    code, out, error = run_command([*words, "--seeds", "0-2", "--quiet", "--json"])
    assert code == 2 and [row["status"] for row in json.loads(out)["runs"]] == ["refused", "done", "refused"]
    assert error == "rlbench: hopper-medium-v2: not in /data; download it\n"
    code, out, error = run_command([*words, "--seeds", "3"])
    assert (code, out) == (2, "") and error == "rlbench: hopper-medium-v2: not in /data; download it\n"
