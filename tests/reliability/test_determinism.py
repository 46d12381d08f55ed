"""R1: equal specs give equal numbers to the last bit on a CPU, in any process, folder or sweep."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rlbench.config.run import Runtime
from rlbench.records.store import read_record
from tests.commands import run_process
from tests.reliability.families import CATCH, FEW, GAME, HOPPER, PENDULUM, Family
from tests.reliability.run_one import carry, ending

ROOT = Path(__file__).parents[2]
COMPARED = (CATCH, PENDULUM, HOPPER)
"""Three algorithms on three environments: vectors in numpy, Gymnasium's, and MuJoCo's with two threads."""

MAIN = """
import json, os, sys
cores, lines = json.loads(sys.argv[1])
if cores:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
from rlbench.cli.app import main
for line in lines:
    code = main(line)
    if code:
        sys.exit(code)
"""


def outcomes(
    families: Sequence[Family], folder: Path, hash_seed: str, *, seeds: str = "1", cores: int = 0
) -> dict[str, tuple[object, ...]]:
    """The results of runs in one process of their own."""
    folder.mkdir()
    lines = [[*family.words(folder / "results", seeds), "--quiet"] for family in families]
    command = [sys.executable, "-c", MAIN, json.dumps([cores, lines])]
    done = run_process(command, cwd=folder, timeout=600, PYTHONHASHSEED=hash_seed, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    return {family.name: ending(family.folder(folder / "results", seed=1)) for family in families}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "families", [pytest.param(COMPARED, marks=pytest.mark.slow), pytest.param((*FEW, GAME), marks=pytest.mark.soak)]
)
def test_process_hash_seed_folder_core_and_earlier_runs_change_no_bit(
    families: tuple[Family, ...], tmp_path: Path
) -> None:
    """The second process counts its hashes otherwise, stands elsewhere, has one core and runs other seeds before."""
    golden = outcomes(families, tmp_path / "here", "0")
    assert outcomes(families[::-1], tmp_path / "there and elsewhere", "4242", seeds="0-1", cores=1) == golden
    assert len({str(one[0]) for one in golden.values()}) == len(families), "they are compared with themselves"


@pytest.mark.parametrize("family", [CATCH, HOPPER], ids=lambda family: family.name)
def test_checkpoints_and_stepping_threads_change_no_bit(family: Family, tmp_path: Path) -> None:
    spec = family.spec()
    for name, runtime in (
        ("plain", Runtime(device="cpu", threads=1, checkpoint_seconds=1e9)),
        ("saved", Runtime(device="cpu", checkpoint_seconds=0.05)),  # threads: what OMP_NUM_THREADS says, and two envs'
    ):
        carry(spec, tmp_path / name, runtime=runtime)
    assert ending(family.folder(tmp_path / "saved")) == ending(family.folder(tmp_path / "plain"))
    carry(family.spec(seed=1), tmp_path / "plain")
    other = ending(family.folder(tmp_path / "plain", seed=1))
    assert other[0] != ending(family.folder(tmp_path / "plain"))[0], "another seed is another run"


@pytest.mark.slow
def test_threads_of_numpy_change_no_bit(tmp_path: Path) -> None:
    """Without OMP_NUM_THREADS numpy's BLAS would take all cores, though torch's threads are equal."""
    sets = (
        "budget.steps=2000",
        "budget.epoch=1000",
        "protocol.episodes=2",
        "protocol.envs=2",
        "algo.torso.widths=64,64",
    )
    family, weights = Family("toy", "a2c", "CartPole-v1", sets, smoke=False), []
    for threads in ("1", ""):
        results = tmp_path / f"threads{threads}"
        command = [sys.executable, "-m", "rlbench", *family.words(results), "--quiet"]
        done = run_process(command, OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads, PYTHONPATH=str(ROOT))
        assert done.returncode == 0, done.stderr
        record = read_record(family.folder(results))
        assert record.outcome is not None and record.environment["torch_threads"] == 1
        weights.append(record.outcome.weights)
    assert weights[0] == weights[1]


GRADIENTS = """
import rlbench, torch
layer, frames = torch.nn.Conv2d(4, 32, 8, 4), torch.rand(32, 4, 84, 84)
for threads in (1, 2):
    torch.set_num_threads(threads)
    layer.weight.grad = None
    layer(frames).square().mean().backward()
    print(layer.weight.grad.norm().item())
"""


@pytest.mark.parametrize("setting", ["OMP_DYNAMIC=true", "OMP_MAX_ACTIVE_LEVELS=0"])
def test_openmp_starts_as_many_threads_as_torch_counts_on(setting: str) -> None:
    """Under these variables it may start fewer, and sums of gradients then have parts that no thread has written."""
    environ = dict([setting.split("=")], PYTHONPATH=str(ROOT))
    one, two = run_process([sys.executable, "-c", GRADIENTS], **environ).stdout.split()
    assert float(one) == pytest.approx(float(two), rel=1e-3)
