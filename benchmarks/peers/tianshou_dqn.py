"""tianshou's DQN on Pong: ``.peers/bin/python benchmarks/peers/tianshou_dqn.py STEPS THREADS`` prints one JSON line.

Its documented settings (ten environments, 0.1 updates of 32 a step, three-step returns, double DQN), with a store of
20,000 as everybody here.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter, process_time

import ale_py
import gymnasium
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, CollectStats, VectorReplayBuffer
from tianshou.env.atari.atari_network import DQNet
from tianshou.env.atari.atari_wrapper import make_atari_env
from tianshou.trainer import OffPolicyTrainerParams

WARMUP, SETTLING = 2_000, 100  # steps before the first update, and then before the clock starts: it is slow


def main() -> None:
    """Train for so many steps and say how fast it went."""
    steps, threads = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    gymnasium.register_envs(ale_py)
    env, training, _ = make_atari_env("PongNoFrameskip-v4", 0, 10, 1, scale=0, frame_stack=4)
    channels, height, width = env.observation_space.shape
    policy = DiscreteQLearningPolicy(
        model=DQNet(c=channels, h=height, w=width, action_shape=env.action_space.n),
        action_space=env.action_space,
        eps_training=0.5,
        eps_inference=0.005,
    )
    algorithm = DQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=1e-4),
        gamma=0.99,
        n_step_return_horizon=3,
        target_update_freq=500,
    )
    store = VectorReplayBuffer(20_000, buffer_num=10, ignore_obs_next=True, save_only_last_obs=True, stack_num=4)
    collector = Collector[CollectStats](algorithm, training, store, exploration_noise=True)
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
            batch_size=32,
            update_step_num_gradient_steps_per_sample=0.1,
            verbose=False,
            show_progress=False,
        )
        began, busy = perf_counter(), process_time()
        algorithm.run_training(parameters)
        return perf_counter() - began, process_time() - busy

    train(SETTLING)
    seconds, used = train(steps)
    sys.stdout.write(json.dumps({"tianshou": [steps / seconds], "tianshou, CPU": [steps / used]}) + "\n")


if __name__ == "__main__":
    main()
