"""Write the policies of this folder with Stable-Baselines3, and the actions that it predicts: ``python make.py``."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

POLICIES = {
    "ppo-cartpole": (PPO, "CartPole-v1", {"n_steps": 256}, {}, 512),
    "dqn-cartpole": (DQN, "CartPole-v1", {}, {}, 200),
    "a2c-pendulum": (A2C, "Pendulum-v1", {}, {"activation_fn": torch.nn.ReLU}, 50),
    "td3-pendulum": (TD3, "Pendulum-v1", {}, {}, 150),
    "ddpg-pendulum": (DDPG, "Pendulum-v1", {}, {}, 150),
    "a2c-normalized-pendulum": (A2C, "Pendulum-v1", {}, {}, 50),  # within VecNormalize
}

if __name__ == "__main__":
    actions = {}
    for name, (algorithm, task, settings, policy, steps) in POLICIES.items():
        envs = DummyVecEnv([lambda task=task: gymnasium.make(task)])
        model = algorithm(
            "MlpPolicy", VecNormalize(envs) if "normalized" in name else envs, seed=0, device="cpu",
            policy_kwargs={"net_arch": [8], **policy}, **settings,
        )  # fmt: skip
        model.learn(steps).save(name)
        obs = np.random.default_rng(0).normal(size=(16, *model.observation_space.shape)).astype(np.float32)
        actions[name] = model.predict(obs, deterministic=True)[0].tolist()
    Path("actions.json").write_text(json.dumps(actions), encoding="utf-8")
