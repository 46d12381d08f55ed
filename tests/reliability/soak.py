"""Mixed short runs under random SIGKILLs, repeated until they end, and compared with uninterrupted ones.

``python -m tests.reliability.soak MINUTES FILE [SEED]`` goes on until the time is over, writes down what came of it,
and fails on any difference. The tests of R3 ask for so many kills instead.
"""

import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from rlbench.datasets import checksums
from rlbench.records.machine import environment
from rlbench.report.integrity import verify_records
from tests.reliability.families import CATCH, GAME, GENERATED, GRID, HOPPER, PENDULUM, RAINBOW, REACH, Family
from tests.reliability.run_one import ending, epochs_of
from tests.reliability.zygote import Zygote

MIXED = (CATCH, GAME, HOPPER, GENERATED, RAINBOW, GRID, PENDULUM, REACH)
SHARE = 0.7
"""Of an uninterrupted run's time, within which an attempt is killed."""

MOST = 40
"""Kills of one run; then it is left alone."""

RECIPE = ["Hopper-v4", "--policy", "hopper-openai_imitation-trpo_iter200", "--steps", "400", "--quiet"]
RECIPE += ["--name", GENERATED.dataset]


@dataclass(slots=True)
class Toll:
    """The results of the runs of one family."""

    golden: object
    seconds: float  # of an uninterrupted run
    runs: int = 0
    attempts: int = 0
    kills: int = 0
    lost: int = 0  # attempts that were killed with evaluations on disk
    faults: list[str] = field(default_factory=list)


class Ground:
    """A folder for golden runs and for those that are killed, and a process that starts them."""

    def __init__(self, folder: Path, start: Zygote, seed: int) -> None:
        self.folder, self.start, self.draw = folder, start, np.random.default_rng(seed)
        self.environ = {"RLBENCH_DATASETS": str(folder / "sets")}
        self.tolls: dict[str, Toll] = {}
        self.generate = ["data", "generate", *RECIPE]

    def golden(self, family: Family) -> Toll:
        """The result of an uninterrupted run, computed once."""
        if family.name not in self.tolls:
            if family == GENERATED:
                self._generated()
            results = self.folder / "golden"
            done = self.start([*family.words(results), "--quiet"], environ=self.environ)
            if done.status != 0:
                raise AssertionError(f"exit code {done.status}: {done.output}")
            self.tolls[family.name] = Toll(golden=ending(family.folder(results)), seconds=done.seconds)
        return self.tolls[family.name]

    def killed_often(self, family: Family, kills: int) -> Toll:
        """Run after run, until they were killed so often; all of them must have ended as the golden one."""
        while self.golden(family).kills < kills:
            self.killed(family)
            assert self.golden(family).faults == []
        return self.golden(family)

    def killed(self, family: Family) -> None:
        """One run, killed and done again until it ends, and compared."""
        toll = self.golden(family)
        number = sum(toll.runs for toll in self.tolls.values())
        results, before = self.folder / f"{number:05}", list[dict[str, object]]()
        folder = family.folder(results)
        toll.runs += 1
        for attempt in range(MOST + 1):
            patience = float(self.draw.uniform(0, SHARE * toll.seconds)) if attempt < MOST else None
            done = self.start([*family.words(results), "--quiet"], environ=self.environ, kill_after=patience)
            toll.attempts += 1
            toll.kills += done.status == -signal.SIGKILL
            now = epochs_of(folder)
            if now[: len(before)] != before:
                toll.faults.append(f"{folder}: an evaluation was lost at kill {attempt + 1}")
            before = now
            toll.lost += done.status == -signal.SIGKILL and bool(now)
            toll.faults += [fault.line for fault in verify_records(results).faults] if results.exists() else []
            if done.status != -signal.SIGKILL:
                break
        if done.status != 0:
            toll.faults.append(f"{folder}: exit code {done.status}: {done.output}")
        elif ending(folder) != toll.golden:
            toll.faults.append(f"{folder}: ended otherwise than the run that was left alone")

    def _generated(self) -> None:
        """A data set, whose making is killed a few times too."""
        path, error = self.folder / "sets" / f"{GENERATED.dataset}.hdf5", ""
        for patience in (0.05, 0.2, 0.5, 1.0, None):
            if not path.exists():
                error = self.start(self.generate, environ=self.environ, kill_after=patience).output
        if not path.exists():
            raise AssertionError(error)
        checksums.verify(path)


def soaked(minutes: float, seed: int) -> tuple[dict[str, Toll], float]:
    """The tolls of so many minutes, and the seconds that it took."""
    begun = time.monotonic()
    with TemporaryDirectory() as folder, Zygote(Path(folder)) as start:
        ground = Ground(Path(folder), start, seed)
        for family in cycle(MIXED):
            ground.killed(family)
            if time.monotonic() - begun > 60 * minutes or any(toll.faults for toll in ground.tolls.values()):
                break
    return ground.tolls, time.monotonic() - begun


def report_lines(tolls: dict[str, Toll], seconds: float, seed: int) -> Iterator[str]:
    """The summary, line by line."""
    env = environment()
    faults = [fault for toll in tolls.values() for fault in toll.faults]
    kills, runs = sum(toll.kills for toll in tolls.values()), sum(toll.runs for toll in tolls.values())
    yield "# Soak"
    yield ""
    yield (
        f"{runs} runs survived {kills} SIGKILLs in {seconds / 60:.1f} minutes; {len(faults)} differences. "
        "Each run was killed at random, done again until it ended, and compared with one that was left alone: weights, "
        "scores, every epoch, the policies it keeps. After every kill `rlbench verify` ran, and no recorded "
        "epoch was missing."
    )
    yield ""
    yield "| run | uninterrupted, s | runs | attempts | kills | of them with epochs recorded |"
    yield "|---|---|---|---|---|---|"
    for name, toll in tolls.items():
        yield f"| {name} | {toll.seconds:.1f} | {toll.runs} | {toll.attempts} | {toll.kills} | {toll.lost} |"
    yield ""
    yield f"rlbench {env['rlbench']} at {env['commit']}, {env['system']}, {env['cpu']}, seed {seed}."
    yield from faults


def main() -> int:
    minutes, file = float(sys.argv[1]), Path(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    tolls, seconds = soaked(minutes, seed)
    text = "\n".join(report_lines(tolls, seconds, seed)) + "\n"
    file.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return int(any(toll.faults for toll in tolls.values()))


if __name__ == "__main__":
    sys.exit(main())
