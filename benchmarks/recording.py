"""Recording of episodes: its cost while a policy acts, and the speed of reading.

An untrained QR-DQN acts on Pong with ε 0.2 in ten envs, with a recording and without, by turns of 2,000 steps in one
process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import torch

from benchmarks.cases import Case
from rlbench import suites
from rlbench.assembly.discrete import q_learning_parts
from rlbench.assembly.environments import describe
from rlbench.assembly.restore import record_games
from rlbench.collectors.recording import ShardRecorder
from rlbench.config.online import QLearningConfig
from rlbench.datasets import recording_reader, recording_writer
from rlbench.datasets.recording_format import Chunk
from rlbench.datasets.recording_writer import RecordingWriter
from rlbench.ops.state_dict import module_state

NUM_ENVS, TURN_STEPS = 10, 2_000


class DiscardingWriter(RecordingWriter):
    """A recording writer that discards everything."""

    def add(self, chunk: Chunk) -> None:
        """Discard the chunk."""

    def flush(self) -> None:
        """Write nothing."""


def write_speed(case: Case) -> dict[str, list[float]]:
    """Steps per second over ``case.steps`` steps, with a recording and without."""
    with tempfile.TemporaryDirectory(prefix="rlbench-") as folder:
        loops = {
            "rlbench": _acting_loop(RecordingWriter(Path(folder, "kept.frames")), case),
            "played, not recorded": _acting_loop(DiscardingWriter(Path(folder, "discarded.frames")), case),
        }
        seconds, done = dict.fromkeys(loops, 0.0), dict.fromkeys(loops, 0)
        for turn in range(max(2, case.steps // TURN_STEPS) + 1):
            for name, loop in loops.items():
                began = perf_counter()
                steps = _turn(loop)
                if turn:  # the first one warms up
                    seconds[name] += perf_counter() - began
                    done[name] += steps
    return {name: [done[name] / seconds[name]] for name in loops}


def read_speed(case: Case) -> dict[str, list[float]]:
    """Transitions per second from the files of a recording to arrays."""
    with tempfile.TemporaryDirectory(prefix="rlbench-") as folder:
        path = Path(folder, "kept.frames")
        writer = RecordingWriter(path)
        loop = _acting_loop(writer, case)
        steps = sum(_turn(loop) for _ in range(max(2, case.steps // TURN_STEPS)))
        writer.flush()
        recording_writer.finish(path, writer.digests, {})
        recording_reader.read_recording(path)
        began = perf_counter()
        count = len(recording_reader.read_recording(path).reward)
        seconds = perf_counter() - began
    if count < steps:
        raise RuntimeError(f"{count} rows were read of {steps} steps")
    return {"rlbench": [count / seconds]}


def _acting_loop(writer: RecordingWriter, case: Case) -> Iterator[int]:
    spec = suites.spec("atari", "qrdqn", "PongNoFrameskip-v4")
    torch.manual_seed(0)
    torch.set_num_threads(case.threads)
    if not isinstance(spec.algo, QLearningConfig):
        raise TypeError(type(spec.algo).__name__)
    policy = q_learning_parts(spec, spec.algo, describe(spec), torch.device("cpu")).learner.policy_net()
    recorder = ShardRecorder(writer, num_envs=NUM_ENVS, steps=10_000_000)
    return iter(record_games(spec, {"policy": module_state(policy)}, epsilon=0.2, seed=0, recorder=recorder))


def _turn(loop: Iterator[int]) -> int:
    first = last = next(loop)
    while last - first < TURN_STEPS:
        last = next(loop)
    return last - first
