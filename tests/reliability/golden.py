"""Golden runs: every learner's weights, losses and evaluations on this machine.

A change of code that must move no number is compared with them: ``python -m tests.reliability.golden write`` before it,
``… check`` after it. Numbers of another processor or torch version differ in their last bits, so both are recorded.
"""

import json
import os
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

import torch
from safetensors.torch import load_file

from rlbench.records.machine import processor, vector_instructions
from rlbench.records.store import read_record
from tests.reliability.families import ALL, CATCH, FLAT, HOPPER, PENDULUM, Family
from tests.reliability.run_one import carry

GOLDEN = Path(__file__).with_name("golden.json")
KERNELS = "Haswell"  # of numpy's OpenBLAS: every x86 machine has them, and each set rounds in its own way
RESUMED = (CATCH, PENDULUM, HOPPER, FLAT)


def machine() -> dict[str, str]:
    """The processor, its instructions and the torch version, with which bits agree."""
    return {"processor": processor(), "instructions": vector_instructions(), "torch": torch.__version__}


def numbers(folder: Path) -> dict[str, object]:
    """Every number of a finished run: weights by value, whatever their names are."""
    record = read_record(folder)
    assert record.outcome is not None, folder
    tensors = {
        sha256(tensor.contiguous().numpy().tobytes()).hexdigest()
        for path in sorted((folder / "checkpoint" / "last").glob("*.safetensors"))
        for tensor in load_file(path).values()
    }
    epochs = [json.loads(line) for line in (folder / "epochs.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "weights": sha256("".join(sorted(tensors)).encode()).hexdigest(),
        "steps": [record.outcome.env_steps, record.outcome.updates, record.outcome.epochs],
        "evaluations": [epoch["evaluated"] and epoch["evaluated"]["returns"] for epoch in epochs],
        "losses": [sorted(_floats(epoch["updated"])) for epoch in epochs],
    }


def run(family: Family, results: Path) -> dict[str, object]:
    carry(family.spec(), results)
    return numbers(family.folder(results))


def resume(family: Family, results: Path) -> dict[str, object]:
    """The same run, stopped and resumed at every eighth of its budget, never within an evaluation."""
    spec = family.spec()
    for eighth in range(1, 9):
        carry(spec, results, stop_at=spec.budget.steps * eighth // 8 if eighth < 8 else None)
    return numbers(family.folder(results))


def golden() -> dict[str, object]:
    """The numbers of every learner's run, by name; runs of one name by their order."""
    runs: dict[str, object] = {}
    for family in ALL:
        name = family.name
        while name in runs:
            name += "'"
        with tempfile.TemporaryDirectory() as folder:
            runs[name] = run(family, Path(folder))
    return runs


def main(verb: str) -> int:
    """Write the golden file, or compare this checkout with it; 1 where a number moved."""
    now = golden()
    if verb == "write":
        GOLDEN.write_text(json.dumps({"machine": machine(), "runs": now}, indent=1) + "\n", encoding="utf-8")
        return 0
    before = json.loads(GOLDEN.read_text(encoding="utf-8"))
    if before["machine"] != machine():
        print(f"written on {before['machine']}, not {machine()}")  # noqa: T201 - to who started it
        return 2
    now = json.loads(json.dumps(now))
    differences = [name for name in before["runs"] if now.get(name) != before["runs"][name]]
    for family in RESUMED:
        with tempfile.TemporaryDirectory() as folder:
            if json.loads(json.dumps(resume(family, Path(folder)))) != now[family.name]:
                differences.append(f"{family.name}, resumed")
    print("\n".join(differences) or f"{len(before['runs'])} runs and {len(RESUMED)} resumed ones are equal")  # noqa: T201 - to who started it
    return 1 if differences else 0


def _floats(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for part in value.values() for number in _floats(part)]
    if isinstance(value, list):
        return [number for part in value for number in _floats(part)]
    return [float(value)] if isinstance(value, int | float) else []


if __name__ == "__main__":
    if os.environ.get("OPENBLAS_CORETYPE") != KERNELS:  # numpy reads it when it is first imported
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "OPENBLAS_CORETYPE": KERNELS})  # noqa: S606 - itself
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1]))
