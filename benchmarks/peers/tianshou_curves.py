"""Learning curves of tianshou in the environments of rlbench, one evaluation per line, for ``rlbench import``.

``PYTHONPATH=. .peers/bin/python benchmarks/peers/tianshou_curves.py SUITE ALGORITHM TASK SEED STEPS [PATH=VALUE …]``

Every setting, the number of evaluation episodes and the steps between evaluations come from rlbench's own row; a
``PATH=VALUE`` changes one, as ``rlbench run --set`` does. Steps count as rlbench counts them, random ones before
learning included. What tianshou cannot set stands in ``differences``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from tianshou.algorithm import A2C, C51, DDPG, DQN, IQN, NPG, PPO, QRDQN, REDQ, SAC, TD3, TRPO, RainbowDQN, Reinforce
from tianshou.algorithm.algorithm_base import Algorithm
from tianshou.algorithm.modelfree.c51 import C51Policy
from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.iqn import IQNPolicy
from tianshou.algorithm.modelfree.qrdqn import QRDQNPolicy
from tianshou.algorithm.modelfree.redq import REDQPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy, ProbabilisticActorPolicy
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import (
    AdamOptimizerFactory,
    LRSchedulerFactoryLinear,
    OptimizerFactory,
    RMSpropOptimizerFactory,
)
from tianshou.data import Collector, CollectStats, PrioritizedVectorReplayBuffer, ReplayBuffer, VectorReplayBuffer
from tianshou.env import BaseVectorEnv, DummyVectorEnv, VectorEnvNormObs
from tianshou.env.atari.atari_network import C51Net, DQNet, QRDQNet, RainbowNet, ScaledObsInputActionReprNet, layer_init
from tianshou.exploration import GaussianNoise
from tianshou.utils.net.common import EnsembleLinear, Net
from tianshou.utils.net.continuous import ContinuousActorDeterministic, ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic, ImplicitQuantileNetwork
from tianshou.utils.torch_utils import policy_within_training_step, torch_train_mode
from torch import nn
from torch.distributions import Independent, Normal

from rlbench import suites
from rlbench.config.online import ActorCriticConfig, LinearSchedule, PolicyGradientConfig, QLearningConfig
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Spec
from rlbench.config.tasks import AtariTask
from rlbench.envs.atari_wrappers import reference_env

EVALUATION_SEED = 1_000  # added to the seed of the training environments
Update = Callable[[int, int], None]  # of the steps so far, and of those new since the last update


class Peer(NamedTuple):
    """A learner and the part of its loop that differs between families."""

    algorithm: Algorithm
    store: ReplayBuffer
    rollout: int  # steps between updates
    update: Update
    random_steps: int = 0  # before the first update
    uniform: bool = False  # the random steps are drawn from the action space
    differences: tuple[str, ...] = ()


def make_env(spec: Spec, *, training: bool) -> Callable[[], gymnasium.Env]:
    """Return a factory of one environment of the row."""
    if isinstance(spec.task, AtariTask):
        make = reference_env(spec.task, training=training)
        return lambda: gymnasium.wrappers.FrameStackObservation(make(), spec.task.stack)
    return lambda: gymnasium.make(spec.task.id)


def gaussian(parameters: tuple[torch.Tensor, torch.Tensor]) -> Independent:
    """One distribution over all actions."""
    return Independent(Normal(*parameters), 1)


def on_policy(spec: Spec, env: gymnasium.Env) -> Peer:
    """REINFORCE, A2C, PPO, NPG or TRPO, as ``examples/mujoco`` and ``examples/atari`` of tianshou build them."""
    algo, rollout = spec.algo, spec.algo.rollout_length * spec.task.envs
    policy, critic = _shared_networks(spec, env) if spec.suite == "atari" else _gaussian_networks(spec, env)
    differences = _unequal("activation=tanh", getattr(algo.torso, "activation", "tanh"), "tanh")
    batch, repeat = None, 1
    common = {"policy": policy, "critic": critic, "optim": _decayed(algo, rollout), "gamma": algo.gamma}
    common |= {"gae_lambda": algo.gae_lambda, "return_scaling": algo.scale_returns}
    method = algo.method
    if method.kind == "reinforce":
        algorithm = Reinforce(
            policy=policy, optim=common["optim"], gamma=algo.gamma, return_standardization=algo.scale_returns
        )
    elif method.kind == "natural":
        common |= {"optim_critic_iters": method.critic_steps, "trust_region_size": method.step}
        differences += _unequal("iterations=10, damping=0.1", (method.iterations, method.damping), (10, 0.1))
        if method.max_kl is None:
            algorithm = NPG(**common, advantage_normalization=True)
        else:
            search = {"backtrack_coeff": method.backtrack_coef, "max_backtracks": method.max_backtracks}
            algorithm = TRPO(**common, advantage_normalization=True, max_kl=method.max_kl, **search)
    else:
        common |= {"vf_coef": method.value, "ent_coef": method.entropy, "max_grad_norm": method.max_grad_norm}
        batch = rollout // method.minibatches if method.minibatches > 1 else None
        repeat = method.epochs
        if method.clip is None:
            algorithm = A2C(**common)
        else:
            algorithm = PPO(
                **common,
                eps_clip=method.clip,
                dual_clip=method.dual_clip,
                value_clip=method.value_clip,
                advantage_normalization=method.normalize,
                recompute_advantage=method.recompute,
            )
    frame_stack = {"stack_num": spec.task.stack, "ignore_obs_next": True, "save_only_last_obs": True}
    store = VectorReplayBuffer(2 * rollout, spec.task.envs, **(frame_stack if spec.suite == "atari" else {}))

    def update(_done: int, _new: int) -> None:
        with torch_train_mode(algorithm):
            algorithm.update(buffer=store, batch_size=batch, repeat=repeat)
        store.reset(keep_statistics=True)

    return Peer(algorithm, store, rollout, update, differences=differences)


def _gaussian_networks(spec: Spec, env: gymnasium.Env) -> tuple[ProbabilisticActorPolicy, ContinuousCritic]:
    algo, shape = spec.algo, env.observation_space.shape
    torsos = [Net(state_shape=shape, hidden_sizes=algo.torso.widths, activation=nn.Tanh) for _ in range(2)]
    actor = ContinuousActorProbabilistic(preprocess_net=torsos[0], action_shape=env.action_space.shape, unbounded=True)
    critic = ContinuousCritic(preprocess_net=torsos[1])
    nn.init.constant_(actor.sigma_param, algo.log_std)
    # REINFORCE has no critic: its networks are drawn from the same stream without one
    for module in (actor,) if algo.method.kind == "reinforce" else (actor, critic):
        for layer in module.modules():
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
        action_bound_method=algo.bound,
        deterministic_eval=algo.greedy,
    )
    return policy, critic


def _shared_networks(spec: Spec, env: gymnasium.Env) -> tuple[DiscreteActorPolicy, DiscreteCritic]:
    torso = DQNet(**_frames(env), features_only=True, output_dim_added_layer=spec.algo.hidden, layer_init=layer_init)
    if spec.algo.torso.scale:
        torso = ScaledObsInputActionReprNet(torso)
    actor = DiscreteActor(preprocess_net=torso, action_shape=int(env.action_space.n), softmax_output=False)
    policy = DiscreteActorPolicy(actor=actor, action_space=env.action_space, deterministic_eval=spec.algo.greedy)
    return policy, DiscreteCritic(preprocess_net=torso)


def _decayed(algo: PolicyGradientConfig, rollout: int) -> OptimizerFactory:
    """The optimizer, its rate falling to 0 with the rollouts."""
    kind = {"adam": AdamOptimizerFactory, "rmsprop": RMSpropOptimizerFactory}[algo.optimizer]
    factory = kind(lr=algo.lr, eps=algo.epsilon)
    if algo.lr_decay_steps is None:
        return factory
    return factory.with_lr_scheduler_factory(LRSchedulerFactoryLinear(1, algo.lr_decay_steps, rollout))


def off_policy(spec: Spec, env: gymnasium.Env) -> Peer:
    """SAC, TD3, DDPG or REDQ, as ``examples/mujoco`` of tianshou builds them."""
    algo, policy_kind = spec.algo, spec.algo.policy
    shape, actions = env.observation_space.shape, env.action_space.shape
    ensemble = algo.redq_subset is not None
    torso = Net(state_shape=shape, hidden_sizes=algo.widths)

    def critic() -> ContinuousCritic:
        linear = (lambda x, y: EnsembleLinear(algo.critics, x, y)) if ensemble else nn.Linear
        net = Net(state_shape=shape, action_shape=actions, hidden_sizes=algo.widths, concat=True, linear_layer=linear)
        return ContinuousCritic(preprocess_net=net, linear_layer=linear, flatten_input=not ensemble)

    common = {"policy_optim": AdamOptimizerFactory(lr=algo.actor_lr), "tau": algo.tau, "gamma": algo.gamma}
    common |= {"n_step_return_horizon": algo.replay.n_step}
    differences = _unequal("action_units=normalized", algo.action_units, "normalized")
    if policy_kind.kind == "soft":
        actor = ContinuousActorProbabilistic(
            preprocess_net=torso, action_shape=actions, unbounded=True, conditioned_sigma=True
        )
        policy = (REDQPolicy if ensemble else SACPolicy)(actor=actor, action_space=env.action_space)
        common["alpha"] = _temperature(spec, env)
        stds = (policy_kind.log_std_min, policy_kind.log_std_max)
        differences += _unequal("log_std_min=-20, log_std_max=2", stds, (-20.0, 2.0))
    else:
        actor = ContinuousActorDeterministic(preprocess_net=torso, action_shape=actions)
        noise = GaussianNoise(sigma=policy_kind.noise)
        policy = ContinuousDeterministicPolicy(actor=actor, exploration_noise=noise, action_space=env.action_space)
    for number in range(1 if ensemble else algo.critics):
        suffix = str(number + 1) if number else ""
        common |= {f"critic{suffix}": critic(), f"critic{suffix}_optim": AdamOptimizerFactory(lr=algo.critic_lr)}
    if ensemble:
        sizes = {"ensemble_size": algo.critics, "subset_size": algo.redq_subset, "actor_delay": algo.delay}
        algorithm = REDQ(policy=policy, **common, **sizes)
    elif policy_kind.kind == "soft":
        algorithm = SAC(policy=policy, **common)
    elif policy_kind.smoothing is not None:
        smoothing = {"policy_noise": policy_kind.smoothing, "noise_clip": policy_kind.clip}
        algorithm = TD3(policy=policy, **common, **smoothing, update_actor_freq=algo.delay)
    else:
        algorithm = DDPG(policy=policy, **common)
    store = VectorReplayBuffer(algo.replay.capacity, spec.task.envs)
    update = _replayed(algorithm, store, algo.batch, algo.updates_per_step)
    return Peer(algorithm, store, spec.task.envs, update, algo.learning_starts, uniform=True, differences=differences)


def _temperature(spec: Spec, env: gymnasium.Env) -> float | AutoAlpha:
    policy = spec.algo.policy
    if policy.alpha_lr is None:
        return policy.alpha
    target = -float(np.prod(env.action_space.shape)) if policy.target_entropy is None else policy.target_entropy
    return AutoAlpha(target, math.log(policy.alpha), AdamOptimizerFactory(lr=policy.alpha_lr))


def q_learning(spec: Spec, env: gymnasium.Env) -> Peer:
    """DQN, C51, QR-DQN, IQN or Rainbow, as ``examples/atari`` of tianshou builds them."""
    algo, head, frames = spec.algo, spec.algo.head, _frames(env)
    acting = {"action_space": env.action_space, "eps_inference": spec.protocol.epsilon}
    common = {"gamma": algo.gamma, "n_step_return_horizon": algo.replay.n_step}
    common |= {"optim": AdamOptimizerFactory(lr=algo.lr, eps=algo.adam_epsilon)}
    common |= {"target_update_freq": algo.target_update_interval}
    differences = _unequal("torso.scale=false", algo.torso.scale, False) + _unequal("hidden=512", algo.hidden, 512)
    differences += _unequal("max_grad_norm=none", algo.max_grad_norm, None)
    differences += _unequal("dueling, with noisy alone", algo.dueling and algo.noisy is None, False)
    match head.kind:
        case "expected":
            policy = DiscreteQLearningPolicy(model=DQNet(**frames), **acting)
            algorithm = DQN(policy=policy, **common, is_double=algo.double, huber_loss_delta=head.huber)
        case "categorical":
            atoms = {"num_atoms": head.n_atoms, "v_min": head.v_min, "v_max": head.v_max}
            net = C51Net(**frames, num_atoms=head.n_atoms)
            if algo.noisy is not None:
                net = RainbowNet(**frames, num_atoms=head.n_atoms, noisy_std=algo.noisy, is_dueling=algo.dueling)
            policy = C51Policy(model=net, **atoms, **acting)
            algorithm = (C51 if algo.noisy is None else RainbowDQN)(policy=policy, **common)
        case "quantiles":
            policy = QRDQNPolicy(model=QRDQNet(**frames, num_quantiles=head.n_quantiles), **acting)
            algorithm = QRDQN(policy=policy, **common, num_quantiles=head.n_quantiles)
        case "implicit":
            torso = DQNet(**frames, features_only=True)
            net = ImplicitQuantileNetwork(
                preprocess_net=torso,
                action_shape=frames["action_shape"],
                hidden_sizes=[algo.hidden],
                num_cosines=head.cosines,
            )
            taus = {"online_sample_size": head.n_taus, "target_sample_size": head.n_target_taus}
            policy = IQNPolicy(model=net, sample_size=head.n_eval_taus, **taus, **acting)
            algorithm = IQN(policy=policy, **common, num_quantiles=head.n_taus)
            if head.n_policy_taus not in {head.n_taus, head.n_eval_taus}:
                differences += (f"n_policy_taus={head.n_policy_taus}: tianshou acts with n_taus or n_eval_taus",)
        case other:
            sys.exit(f"tianshou_curves: no runner for the head {other}; choose dqn, c51, qrdqn, iqn or rainbow")
    sizes = {"total_size": algo.replay.capacity, "buffer_num": spec.task.envs, "stack_num": spec.task.stack}
    sizes |= {"ignore_obs_next": True, "save_only_last_obs": True}
    store, priority = VectorReplayBuffer(**sizes), algo.replay.priority
    if priority is not None:
        store = PrioritizedVectorReplayBuffer(**sizes, alpha=priority.alpha, beta=priority.beta.start, weight_norm=True)
        differences += (f"priority.beta stays at {priority.beta.start}: its schedule does not reach the sampler",)
    replayed = _replayed(algorithm, store, algo.batch, algo.updates_per_step)

    def update(done: int, new: int) -> None:
        replayed(done, new)
        policy.set_eps_training(_at(algo.epsilon, done))

    policy.set_eps_training(algo.epsilon.start)
    return Peer(algorithm, store, spec.task.envs, update, algo.learning_starts, differences=differences)


def _at(schedule: LinearSchedule, step: int) -> float:
    share = min(1.0, step / schedule.steps)
    return schedule.start + share * (schedule.end - schedule.start)


def _frames(env: gymnasium.Env) -> dict[str, int]:
    channels, height, width = env.observation_space.shape
    return {"c": channels, "h": height, "w": width, "action_shape": int(env.action_space.n)}


def _replayed(algorithm: Algorithm, store: ReplayBuffer, batch: int, updates_per_step: float) -> Update:
    """As many gradient steps as are due after new steps."""
    due = 0.0

    def update(_done: int, new: int) -> None:
        nonlocal due
        due += updates_per_step * new
        while due > 1 - 1e-9:
            algorithm.update(buffer=store, sample_size=batch)
            due -= 1

    return update


def _unequal(difference: str, ours: object, theirs: object) -> tuple[str, ...]:
    return () if ours == theirs else (difference,)


FAMILIES = {PolicyGradientConfig: on_policy, ActorCriticConfig: off_policy, QLearningConfig: q_learning}


def environments(spec: Spec, seed: int) -> tuple[BaseVectorEnv, BaseVectorEnv]:
    """The training and the evaluation environments; the latter normalise as the former do."""
    training, evaluation = (
        DummyVectorEnv([make_env(spec, training=trains)] * count)
        for trains, count in ((True, spec.task.envs), (False, spec.protocol.envs))
    )
    if getattr(spec.algo, "normalize_obs", False):
        training = VectorEnvNormObs(training)
        evaluation = VectorEnvNormObs(evaluation, update_obs_rms=False)
        evaluation.set_obs_rms(training.get_obs_rms())
    training.seed(seed)
    evaluation.seed(seed + EVALUATION_SEED)
    return training, evaluation


def main(arguments: Sequence[str]) -> None:
    """Train, and print a line after every epoch."""
    suite, name, task = arguments[:3]
    seed, steps = (int(text) for text in arguments[3:5])
    spec = apply_settings(suites.spec(suite, name, task), [parse(text) for text in arguments[5:]])
    torch.set_num_threads(1)
    np.random.seed(seed)  # noqa: NPY002 - tianshou draws from it
    torch.manual_seed(seed)
    training, evaluation = environments(spec, seed)
    peer = FAMILIES[type(spec.algo)](spec, make_env(spec, training=True)())
    algorithm = peer.algorithm
    collector = Collector[CollectStats](algorithm, training, peer.store, exploration_noise=True)
    evaluator = Collector[CollectStats](algorithm, evaluation)
    metadata = {name: version(name) for name in ("gymnasium", "mujoco" if suite == "mujoco" else "ale-py")}
    metadata |= {"peer": f"tianshou {version('tianshou')}", "suite": suite, "algorithm": name, "task": task}
    replay = getattr(spec.algo, "replay", None)
    differences = peer.differences + _unequal("curiosity=none", getattr(spec.algo, "curiosity", None), None)
    differences += _unequal("replay.hindsight=none", replay and replay.hindsight, None)
    if suite == "mujoco":
        differences += _unequal("replay.priority=none", replay and replay.priority, None)
    metadata |= {"settings": spec.id, "differences": differences, "seed": seed}
    collector.reset()
    done = 0
    if peer.random_steps:
        with policy_within_training_step(algorithm.policy):
            done = collector.collect(n_step=peer.random_steps, random=peer.uniform).n_collected_steps
    due = (done // spec.budget.epoch + 1) * spec.budget.epoch
    while done < steps:
        with policy_within_training_step(algorithm.policy):
            new = collector.collect(n_step=peer.rollout).n_collected_steps
            done += new
            peer.update(done, new)
        if done >= due:
            evaluator.reset()
            episodes = evaluator.collect(n_episode=spec.protocol.episodes)
            line = {**metadata, "steps": done, "returns": [round(float(x), 2) for x in episodes.returns]}
            sys.stdout.write(json.dumps({**line, "lengths": [int(x) for x in episodes.lens]}) + "\n")
            sys.stdout.flush()
            due += spec.budget.epoch


if __name__ == "__main__":
    main(sys.argv[1:])
