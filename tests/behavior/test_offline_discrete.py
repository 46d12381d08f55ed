"""Offline learning of discrete actions from a half-trained agent: cloning matches it, offline RL exceeds it."""

import pytest
import torch

from rlbench import suites
from rlbench.algorithms.base import OffPolicyLearner
from rlbench.assembly.discrete import discrete_offline_parts
from rlbench.assembly.environments import describe
from rlbench.buffers.dataset import dataset_ring
from rlbench.ops.types import Transition
from tests.behavior.played import Recording, half_trained, play_episodes, score
from tests.slow import slow_but

CPU = torch.device("cpu")
NOISE = 0.3
STEPS = {"Catch": 2_400, "CartPole-v1": 5_000}
ROWS = {"Catch": 200, "CartPole-v1": 300}
UPDATES = {"Catch": 500, "CartPole-v1": 1_200}
ABOVE = {"Catch": 0.2, "CartPole-v1": 10.0}


@pytest.fixture(scope="module", params=slow_but(["Catch", "CartPole-v1"], 0, mark=pytest.mark.soak))
def task(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def data(task: str) -> Recording:
    return play_episodes(half_trained(task, STEPS[task]), task, rows=ROWS[task], epsilon=NOISE)


def train(algorithm: str, task: str, data: Recording, seed: int) -> OffPolicyLearner[Transition]:
    torch.manual_seed(seed)
    spec = suites.spec("offline", algorithm, task, seed=seed)
    learner = discrete_offline_parts(spec, spec.algo, describe(spec), CPU).learner
    generator = torch.Generator().manual_seed(seed)
    source = dataset_ring(data.dataset, n_step=spec.algo.n_step, gamma=spec.algo.gamma, generator=generator, device=CPU)
    for number in range(1, UPDATES[task] + 1):
        learner.update(source.sample(spec.algo.batch), 0)
        for periodic in learner.periodic_actions:
            if number % periodic.period == 0:
                periodic.action()
    return learner


@pytest.mark.parametrize("seed", slow_but([0, 1, 2], 0, mark=pytest.mark.soak))
def test_behavior_cloning_matches_the_data_and_offline_rl_exceeds_it(task: str, data: Recording, seed: int) -> None:
    scores = {name: score(train(name, task, data, seed), task) for name in ("il", "bcq", "cql", "crr")}
    assert scores["il"] > data.mean - ABOVE[task]
    for name in ("bcq", "cql", "crr"):
        assert scores[name] > data.mean + ABOVE[task], name
