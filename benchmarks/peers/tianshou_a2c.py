"""What tianshou's own A2C comes to on a MuJoCo task: ``… TASK SEED STEPS`` prints a JSON line an evaluation.

For the comparison of scores, not of speed: the settings of its documented table (``examples/mujoco/mujoco_a2c.py``:
16 environments, 5 steps each, RMSprop whose rate falls to 0 over 100 epochs, scaled returns, normalised observations),
and every 30,000 steps ten games of the policy that samples.
"""

from __future__ import annotations

import json
import math
import sys
from importlib.metadata import version

import gymnasium
import numpy as np
import torch
from tianshou.algorithm import A2C
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import RMSpropOptimizerFactory
from tianshou.data import Collector, CollectStats, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, VectorEnvNormObs
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.torch_utils import policy_within_training_step, torch_train_mode
from torch import nn
from torch.distributions import Independent, Normal

EPOCH, EPOCHS, ROLLOUT, LANES, GAMES, RATE = 30_000, 100, 80, 16, 10, 7e-4
LEARNING = {"vf_coef": 0.5, "ent_coef": 0.01, "max_grad_norm": 0.5, "gae_lambda": 0.95, "gamma": 0.99}


def gaussian(parameters: tuple[torch.Tensor, torch.Tensor]) -> Independent:
    """One distribution over all actions."""
    return Independent(Normal(*parameters), 1)


def learner(env: gymnasium.Env) -> A2C:
    """Two networks of 64 and 64, orthogonal, the actor's last layer a hundredth of it."""
    shape = env.observation_space.shape
    torsos = [Net(state_shape=shape, hidden_sizes=[64, 64], activation=nn.Tanh) for _ in range(2)]
    actor = ContinuousActorProbabilistic(preprocess_net=torsos[0], action_shape=env.action_space.shape, unbounded=True)
    critic = ContinuousCritic(preprocess_net=torsos[1])
    nn.init.constant_(actor.sigma_param, -0.5)
    for layer in [*actor.modules(), *critic.modules()]:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, gain=math.sqrt(2))
            nn.init.zeros_(layer.bias)
    for layer in actor.mu.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.data.mul_(0.01)
    policy = ProbabilisticActorPolicy(
        actor=actor,
        dist_fn=gaussian,
        action_space=env.action_space,
        action_scaling=True,
        action_bound_method="clip",
        deterministic_eval=False,
    )
    optim = RMSpropOptimizerFactory(lr=RATE, eps=1e-5, alpha=0.99)
    return A2C(policy=policy, critic=critic, optim=optim, return_scaling=True, **LEARNING)


def main() -> None:
    """Train and judge."""
    task, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    np.random.seed(seed)  # noqa: NPY002 - tianshou draws from it
    torch.manual_seed(seed)
    training = VectorEnvNormObs(DummyVectorEnv([lambda: gymnasium.make(task) for _ in range(LANES)]))
    judging = VectorEnvNormObs(
        DummyVectorEnv([lambda: gymnasium.make(task) for _ in range(GAMES)]), update_obs_rms=False
    )
    judging.set_obs_rms(training.get_obs_rms())
    training.seed(seed)
    judging.seed(seed + 1000)
    algorithm = learner(gymnasium.make(task))
    collector = Collector[CollectStats](algorithm, training, VectorReplayBuffer(4096, LANES), exploration_noise=True)
    judge = Collector[CollectStats](algorithm, judging)
    collector.reset()
    done, updates, due = 0, 0, EPOCH
    while done < steps:
        with policy_within_training_step(algorithm.policy):
            done += collector.collect(n_step=ROLLOUT).n_collected_steps
            with torch_train_mode(algorithm):
                algorithm.update(buffer=collector.buffer, batch_size=None, repeat=1)
        collector.reset_buffer(keep_statistics=True)
        updates += 1
        for group in algorithm.optim._optim.param_groups:  # noqa: SLF001 - its scheduler, in one line
            group["lr"] = RATE * max(0.0, 1 - updates / (EPOCH // ROLLOUT * EPOCHS))
        if done >= due:
            judge.reset()
            found = judge.collect(n_episode=GAMES)
            told: dict[str, object] = {name: version(name) for name in ("gymnasium", "mujoco")}
            told |= {"peer": f"tianshou {version('tianshou')}"}
            told |= {"algorithm": "a2c", "task": task, "seed": seed, "steps": done}
            returns = {"returns": [round(float(x), 2) for x in found.returns], "lengths": [int(x) for x in found.lens]}
            sys.stdout.write(json.dumps(told | returns) + "\n")
            sys.stdout.flush()
            due += EPOCH


if __name__ == "__main__":
    main()
