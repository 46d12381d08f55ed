"""Recorded play: what writing games costs while they are played, and how fast they are read.

A freshly drawn QR-DQN plays Pong with ε 0.2 in ten envs, once into a film and once into nothing, by turns of 2,000
steps in one process, so that both meet the same machine. It sees what a trained one sees: the emulator's frames.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import torch

from benchmarks.cases import Case
from rlbench import suites
from rlbench.assembly import dqn
from rlbench.assembly.environments import describe
from rlbench.assembly.restore import policy_player
from rlbench.collectors.recording import ShardRecorder, record
from rlbench.config.online import QLearning
from rlbench.datasets import recording_reader, recording_writer
from rlbench.datasets.recording_format import Chunk
from rlbench.datasets.recording_writer import RecordingWriter
from rlbench.ops.state_dict import of_module

NUM_ENVS, TURN = 10, 2_000


class Blind(RecordingWriter):
    """A film that keeps nothing."""

    def add(self, piece: Chunk) -> None:
        """Nothing is added."""

    def flush(self) -> None:
        """Nothing is written."""


def written(case: Case) -> dict[str, list[float]]:
    """Steps a second, recorded and not, over ``case.steps`` of each."""
    with tempfile.TemporaryDirectory(prefix="rlbench-") as folder:
        games = {
            "rlbench": _games(RecordingWriter(Path(folder, "kept.frames")), case),
            "played, not recorded": _games(Blind(Path(folder, "blind.frames")), case),
        }
        seconds, done = dict.fromkeys(games, 0.0), dict.fromkeys(games, 0)
        for turn in range(max(2, case.steps // TURN) + 1):
            for name, game in games.items():
                began = perf_counter()
                steps = _turn(game)
                if turn:  # the first one warms up
                    seconds[name] += perf_counter() - began
                    done[name] += steps
    return {name: [done[name] / seconds[name]] for name in games}


def read(case: Case) -> dict[str, list[float]]:
    """Transitions a second from the files of a set to arrays."""
    with tempfile.TemporaryDirectory(prefix="rlbench-") as folder:
        path = Path(folder, "kept.frames")
        reel = RecordingWriter(path)
        game = _games(reel, case)
        steps = sum(_turn(game) for _ in range(max(2, case.steps // TURN)))
        reel.flush()
        recording_writer.finish(path, reel.digests, {})
        recording_reader.read_recording(path)
        began = perf_counter()
        count = len(recording_reader.read_recording(path).reward)
        took = perf_counter() - began
    if count < steps:
        raise RuntimeError(f"{count} rows were read of {steps} steps")
    return {"rlbench": [count / took]}


def _games(reel: RecordingWriter, case: Case) -> Iterator[int]:
    spec = suites.spec("atari", "qrdqn", "PongNoFrameskip-v4")
    torch.manual_seed(0)
    torch.set_num_threads(case.threads)
    if not isinstance(spec.algo, QLearning):
        raise TypeError(type(spec.algo).__name__)
    fresh = dqn.dqn_parts(spec, spec.algo, describe(spec), torch.device("cpu")).learner.policy()
    actor, stacked, explorer, envs = policy_player(
        spec, {"policy": of_module(fresh)}, epsilon=0.2, num_envs=NUM_ENVS, seed=0
    )
    return record(actor, stacked, explorer, envs, ShardRecorder(reel, num_envs=NUM_ENVS, steps=10_000_000))


def _turn(game: Iterator[int]) -> int:
    first = last = next(game)
    while last - first < TURN:
        last = next(game)
    return last - first
