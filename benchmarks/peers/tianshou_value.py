"""tianshou's Q-learning on Pong; prints one JSON line.

``.peers/bin/python benchmarks/peers/tianshou_value.py STEPS THREADS ALGORITHM BATCH``

Its own policies and networks at the settings of its documented tables (ten environments, 0.1 updates a step,
three-step returns, double where it is so), with a replay buffer of 20,000 as the other libraries.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from time import perf_counter, process_time

import ale_py
import gymnasium
import torch
from tianshou.algorithm import C51, DQN, FQF, IQN, QRDQN, RainbowDQN
from tianshou.algorithm.algorithm_base import OffPolicyAlgorithm
from tianshou.algorithm.modelfree.c51 import C51Policy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.fqf import FQFPolicy
from tianshou.algorithm.modelfree.iqn import IQNPolicy
from tianshou.algorithm.modelfree.qrdqn import QRDQNPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory, RMSpropOptimizerFactory
from tianshou.data import Collector, CollectStats, PrioritizedVectorReplayBuffer, VectorReplayBuffer
from tianshou.env.atari.atari_network import C51Net, DQNet, QRDQNet, RainbowNet
from tianshou.env.atari.atari_wrapper import make_atari_env
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.discrete import FractionProposalNetwork, FullQuantileFunction, ImplicitQuantileNetwork

WARMUP, SETTLING = 2_000, 100  # steps before the first update, and then before the clock starts: it is slow
LEARNING = {"gamma": 0.99, "n_step_return_horizon": 3, "target_update_freq": 500}
STORE = {"total_size": 20_000, "buffer_num": 10, "ignore_obs_next": True, "save_only_last_obs": True, "stack_num": 4}


def dqn(shape: dict[str, int], acting: dict[str, object]) -> OffPolicyAlgorithm:
    """DQN as in ``examples/atari/atari_dqn.py``."""
    policy = DiscreteQLearningPolicy(model=DQNet(**shape), **acting)
    return DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-4), **LEARNING)


def c51(shape: dict[str, int], acting: dict[str, object]) -> OffPolicyAlgorithm:
    """51 atoms over -10 … 10."""
    policy = C51Policy(model=C51Net(**shape, num_atoms=51), **acting)
    return C51(policy=policy, optim=AdamOptimizerFactory(lr=1e-4), **LEARNING)


def qrdqn(shape: dict[str, int], acting: dict[str, object]) -> OffPolicyAlgorithm:
    """200 quantiles."""
    policy = QRDQNPolicy(model=QRDQNet(**shape, num_quantiles=200), **acting)
    return QRDQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-4), num_quantiles=200, **LEARNING)


def iqn(shape: dict[str, int], acting: dict[str, object]) -> OffPolicyAlgorithm:
    """8 fractions to predict, to bootstrap and to act."""
    torso = DQNet(**shape, features_only=True)
    net = ImplicitQuantileNetwork(preprocess_net=torso, action_shape=shape["action_shape"], hidden_sizes=[512])
    policy = IQNPolicy(model=net, sample_size=32, online_sample_size=8, target_sample_size=8, **acting)
    return IQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-4), num_quantiles=8, **LEARNING)


def fqf(shape: dict[str, int], acting: dict[str, object]) -> OffPolicyAlgorithm:
    """32 proposed fractions, kept apart by an entropy of weight 10."""
    torso = DQNet(**shape, features_only=True)
    net = FullQuantileFunction(preprocess_net=torso, action_shape=shape["action_shape"], hidden_sizes=[512])
    policy = FQFPolicy(model=net, fraction_model=FractionProposalNetwork(32, net.input_dim), **acting)
    slow = RMSpropOptimizerFactory(lr=2.5e-9)
    adam = AdamOptimizerFactory(lr=5e-5)
    return FQF(policy=policy, optim=adam, fraction_optim=slow, num_fractions=32, ent_coef=10.0, **LEARNING)


def rainbow(shape: dict[str, int], acting: dict[str, object]) -> OffPolicyAlgorithm:
    """C51, dueling, with noisy layers; its prioritized store is made in ``store``."""
    policy = C51Policy(model=RainbowNet(**shape, num_atoms=51, noisy_std=0.1), **acting)
    return RainbowDQN(policy=policy, optim=AdamOptimizerFactory(lr=6.25e-5), **LEARNING)


ALGORITHMS: dict[str, Callable[[dict[str, int], dict[str, object]], OffPolicyAlgorithm]] = {
    build.__name__: build for build in (dqn, c51, qrdqn, iqn, fqf, rainbow)
}


def store(algorithm: str) -> VectorReplayBuffer:
    """The replay buffer: one frame a step, prioritized for Rainbow."""
    if algorithm == "rainbow":
        return PrioritizedVectorReplayBuffer(**STORE, alpha=0.5, beta=0.4, weight_norm=True)
    return VectorReplayBuffer(**STORE)


def main() -> None:
    """Train, and print the steps per second."""
    steps, threads, name, batch = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    torch.set_num_threads(threads)
    gymnasium.register_envs(ale_py)
    env, training, _ = make_atari_env("PongNoFrameskip-v4", 0, 10, 1, scale=0, frame_stack=4)
    channels, height, width = env.observation_space.shape
    shape = {"c": channels, "h": height, "w": width, "action_shape": int(env.action_space.n)}
    acting = {"action_space": env.action_space, "eps_training": 0.5, "eps_inference": 0.005}
    algorithm = ALGORITHMS[name](shape, acting)
    collector = Collector[CollectStats](algorithm, training, store(name), exploration_noise=True)
    collector.reset()
    collector.collect(n_step=WARMUP)

    def train(count: int) -> tuple[float, float]:
        """Seconds and CPU seconds that ``count`` steps take."""
        parameters = OffPolicyTrainerParams(
            training_collector=collector,
            test_collector=None,
            max_epochs=1,
            epoch_num_steps=count,
            collection_step_num_env_steps=10,
            batch_size=batch,
            update_step_num_gradient_steps_per_sample=0.1,
            verbose=False,
            show_progress=False,
        )
        began, busy = perf_counter(), process_time()
        algorithm.run_training(parameters)
        return perf_counter() - began, process_time() - busy

    train(SETTLING)
    seconds, cpu_seconds = train(steps)
    sys.stdout.write(json.dumps({"tianshou": [steps / seconds], "tianshou, CPU": [steps / cpu_seconds]}) + "\n")


if __name__ == "__main__":
    main()
