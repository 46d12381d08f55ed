"""Learning curves of d3rlpy on an ``rlb-`` data set, one evaluation per line, for ``rlbench import``.

``PYTHONPATH=. .peers-d3rlpy/bin/python benchmarks/peers/d3rlpy_curves.py ALGORITHM TASK FILE SEED UPDATES``
``[PATH=VALUE …]``

Every setting comes from rlbench's own row; a ``PATH=VALUE`` changes one, as ``rlbench run --set`` does. Both libraries
evaluate the policy's mode on the row's environment. What d3rlpy cannot set stands in ``differences``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import d3rlpy
import gymnasium
import h5py
import numpy as np
import torch
from d3rlpy.dataset import MDPDataset
from d3rlpy.dataset.transition_pickers import BasicTransitionPicker, MultiStepTransitionPicker
from d3rlpy.models import VectorEncoderFactory
from d3rlpy.preprocessing import StandardObservationScaler

from rlbench import suites
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Spec

EVALUATION_SEED = 1_000  # of the first evaluation episode


UNSET = {
    "conservative": "temperature, max_multiplier, target_entropy, log_std_min, log_std_max, log_std_offset, "
    "mean_bound, orthogonal_init, final_init, actor_first, bc_steps",
    "implicitq": "log_std_min, log_std_max, policy",
    "batchconstrained": "latent, latent_dim, latent_clip",
}
"""Settings of a method that d3rlpy fixes, or that this runner leaves at d3rlpy's value."""


def learner(spec: Spec) -> tuple[d3rlpy.base.LearnableConfig, tuple[str, ...]]:
    """The library's configuration of the row, and the settings that it cannot have."""
    algo, method = spec.algo, spec.algo.method
    encoder = VectorEncoderFactory(list(algo.widths))
    common = {"batch_size": algo.batch, "gamma": algo.gamma}
    if algo.normalize_obs:
        common["observation_scaler"] = StandardObservationScaler()
    rates = {"actor_learning_rate": algo.actor_lr, "critic_learning_rate": algo.critic_lr, "tau": algo.tau}
    pair = {"actor_encoder_factory": encoder, "critic_encoder_factory": encoder}
    both = {**common, **rates, **pair}
    match method.kind:
        case "imitation":
            plain = {"learning_rate": algo.actor_lr, "encoder_factory": encoder}
            policy = "deterministic" if method.policy == "deterministic" else "stochastic"
            return d3rlpy.algos.BCConfig(**common, **plain, policy_type=policy), ()
        case "td3bc":
            smoothing = {"target_smoothing_sigma": method.smoothing, "target_smoothing_clip": method.clip}
            delay = {"update_actor_interval": method.delay}
            return d3rlpy.algos.TD3PlusBCConfig(**both, **smoothing, **delay, alpha=method.alpha), ()
        case "conservative":
            # without a threshold the weight is fixed: d3rlpy's multiplier then never learns
            lagrange = {"alpha_threshold": method.lagrange_threshold or 0.0}
            lagrange["alpha_learning_rate"] = 0.0 if method.lagrange_threshold is None else method.multiplier_lr
            config = d3rlpy.algos.CQLConfig(
                **both,
                **lagrange,
                conservative_weight=method.conservative_weight,
                n_action_samples=method.n_action_samples,
                initial_temperature=method.alpha,
                temp_learning_rate=method.alpha_lr,
                soft_q_backup=method.soft_q_backup,
            )
            cut = (
                ()
                if method.max_grad_norm is None
                else (f"max_grad_norm={method.max_grad_norm}: gradients are not cut",)
            )
            return config, cut
        case "implicitq":
            config = d3rlpy.algos.IQLConfig(
                **both,
                value_encoder_factory=encoder,
                expectile=method.expectile,
                weight_temp=method.temperature,
                max_weight=method.max_weight,
            )
            return config, (f"lr_decay_steps={method.lr_decay_steps}: the actor's rate stays",)
        case "batchconstrained":
            config = d3rlpy.algos.BCQConfig(
                **both,
                imitator_encoder_factory=VectorEncoderFactory(list(method.vae_widths)),
                imitator_learning_rate=method.vae_lr,
                lam=method.lmbda,
                action_flexibility=method.perturbation,
                n_action_samples=method.eval_action_samples,
                beta=method.vae_kl_weight,
            )
            return config, (f"n_action_samples={method.n_action_samples}: targets sample as many as evaluations",)
        case "criticregularized":
            soft = method.target_update_interval is None
            config = d3rlpy.algos.CRRConfig(
                **both,
                beta=method.beta,
                weight_type=method.mode,
                max_weight=method.max_weight,
                n_action_samples=method.n_action_samples,
                advantage_type=method.advantage_type,
                n_critics=method.critics,
                target_update_type="soft" if soft else "hard",
                target_update_interval=method.target_update_interval or 1,
            )
            return config, ()
        case other:
            sys.exit(f"d3rlpy_curves: no runner for {other}; choose il, td3bc, cql, iql, bcq or crr")


def dataset(path: Path, spec: Spec) -> MDPDataset:
    """The steps of a file, with the rewards that the row scales and sums."""
    keys = ("observations", "actions", "rewards", "terminals", "timeouts")
    with h5py.File(path) as file:
        obs, action, reward, terminal, timeout = (np.asarray(file[key]) for key in keys)
    if spec.algo.return_span is not None:
        total = np.cumsum(reward, dtype=np.float64)[np.flatnonzero(terminal | timeout)]
        returns = np.diff(total, prepend=0.0)
        reward = (reward * spec.algo.return_span / (returns.max() - returns.min())).astype(np.float32)
    several = spec.algo.n_step > 1
    picker = MultiStepTransitionPicker(spec.algo.n_step, spec.algo.gamma) if several else BasicTransitionPicker()
    ends = {"terminals": terminal.astype(np.float32), "timeouts": timeout.astype(np.float32)}
    return MDPDataset(obs, action, reward, **ends, transition_picker=picker)


def evaluate(algorithm: object, spec: Spec) -> tuple[list[float], list[int]]:
    """Returns and lengths of the row's evaluation episodes, always the same ones."""
    env, returns, lengths = gymnasium.make(spec.task.world.id), [], []
    for episode in range(spec.protocol.episodes):
        obs, _ = env.reset(seed=EVALUATION_SEED + episode)
        total, length, over = 0.0, 0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(algorithm.predict(obs[None].astype(np.float32))[0])
            total, length, over = total + float(reward), length + 1, terminated or truncated
        returns.append(round(total, 2))
        lengths.append(length)
    return returns, lengths


def main(arguments: Sequence[str]) -> None:
    """Train, and print a line after every epoch; d3rlpy's own messages go to stderr."""
    output, sys.stdout = sys.stdout, sys.stderr
    name, task, path = arguments[0], arguments[1], Path(arguments[2])
    seed, updates = (int(text) for text in arguments[3:5])
    spec = apply_settings(suites.spec("offline", name, task), [parse(text) for text in arguments[5:]])
    torch.set_num_threads(1)
    d3rlpy.seed(seed)
    data, (config, differences) = dataset(path, spec), learner(spec)
    kind = spec.algo.method.kind
    differences += (f"d3rlpy's own values of {UNSET[kind]}",) if kind in UNSET else ()
    differences += ("terminate_on_end=false",) if spec.algo.terminate_on_end else ()
    algorithm = config.create(device=False)
    algorithm.build_with_dataset(data)
    metadata = {name: version(name) for name in ("gymnasium", "mujoco")}
    metadata |= {"peer": f"d3rlpy {version('d3rlpy')}", "suite": "offline", "algorithm": name, "task": task}
    metadata |= {"data": sha256(path.read_bytes()).hexdigest(), "settings": spec.id, "differences": differences}
    quiet, epoch = d3rlpy.logging.NoopAdapterFactory(), spec.budget.epoch
    for done in range(epoch, updates + 1, epoch):
        algorithm.fit(data, n_steps=epoch, n_steps_per_epoch=epoch, show_progress=False, logger_adapter=quiet)
        returns, lengths = evaluate(algorithm, spec)
        line = {**metadata, "seed": seed, "steps": done, "returns": returns, "lengths": lengths}
        output.write(json.dumps(line) + "\n")
        output.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
