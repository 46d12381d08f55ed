"""Every field of a Spec reaches the object that it configures."""

import math
import os
import platform
import subprocess
import sys
from itertools import islice

import pytest
import torch

from rlbench import suites
from rlbench.algorithms.dqn import QLearner
from rlbench.assembly import assemble, device, evaluation
from rlbench.assembly.environments import describe
from rlbench.buffers.async_ring import AsyncRingBuffer
from rlbench.buffers.prioritized import PrioritizedSampler
from rlbench.buffers.ring import RingBuffer
from rlbench.buffers.samplers import UniformSampler
from rlbench.cli.resolve import resolve
from rlbench.collectors.asynchronous import AsyncCollector
from rlbench.collectors.evaluate import Evaluation
from rlbench.collectors.sync import Collector
from rlbench.config.footprint import MAX_THREADS
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.config.tasks import Task
from rlbench.envs.async_vector import AsyncVector
from rlbench.envs.base import VectorEnv
from rlbench.envs.envpool import EnvPoolMujoco
from rlbench.envs.normalize import ObsNormalizer
from rlbench.errors import UsageError
from rlbench.nets import iqn_fqf
from rlbench.training.online import OnlineTrainer
from rlbench.training.updates import EagerUpdater

SIX = ("dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow")
CPU = Runtime(device="cpu", threads=1)


def parts_of(spec: Spec) -> OnlineTrainer:
    return assemble.build(spec, CPU, describe(spec))


def parts(trainer: OnlineTrainer) -> tuple[QLearner, RingBuffer, Collector, EagerUpdater]:
    learner, ring, collector, updater = trainer.learner, trainer.buffer, trainer.collector, trainer.updater
    assert isinstance(learner, QLearner)
    assert isinstance(ring, RingBuffer)
    assert isinstance(collector, Collector)
    assert isinstance(updater, EagerUpdater)
    return learner, ring, collector, updater


def small(algorithm: str, game: str, *changes: str) -> Spec:
    spec = suites.spec("atari", algorithm, f"{game}NoFrameskip-v4")
    return apply_settings(spec, [parse(c) for c in ("algo.replay.capacity=1000", *changes)])


@pytest.mark.parametrize("game", ["Pong", "Breakout"])
@pytest.mark.parametrize("algorithm", SIX)
def test_built_learner_has_the_settings_of_its_spec(algorithm: str, game: str) -> None:
    spec = small(algorithm, game)
    trainer = parts_of(spec)
    learner, ring, collector, updater = parts(trainer)
    algo = spec.algo
    assert (learner.double, learner.max_grad_norm) == (algo.double, algo.max_grad_norm)
    assert [p.period for p in learner.periodic_actions] == [algo.target_update_interval]
    assert (ring.length, ring.num_envs, ring.n_step, ring.stack) == (100, 10, algo.replay.n_step, 4)
    assert ring.discounts.tolist() == pytest.approx([0.99**k for k in range(algo.replay.n_step + 1)])
    assert updater.batch == algo.batch
    assert updater.learner is learner
    assert updater.source is ring
    assert trainer.update_schedule == (algo.learning_starts, algo.updates_per_step)
    assert trainer.budget == spec.budget
    assert collector.buffer is ring
    if algo.replay.priority is None:
        assert isinstance(ring.sampler, UniformSampler)
    else:
        assert isinstance(ring.sampler, PrioritizedSampler)
        assert ring.sampler.alpha == algo.replay.priority.alpha == 0.5


@pytest.mark.parametrize("algorithm", SIX)
def test_each_parameter_has_one_optimizer_with_the_documented_settings(algorithm: str) -> None:
    learner, *_ = parts(parts_of(small(algorithm, "Pong")))
    adam = learner.optimizers[0]
    assert isinstance(adam, torch.optim.Adam)
    (group,) = adam.param_groups
    assert (group["lr"], group["eps"], group["betas"]) == (
        {"fqf": 5e-5, "rainbow": 6.25e-5}.get(algorithm, 1e-4),
        1e-8,
        (0.9, 0.999),
    )
    parameters = [p for o in learner.optimizers for g in o.param_groups for p in g["params"]]
    assert len(parameters) == len({id(p) for p in parameters}) == len(list(learner.online.parameters()))
    if algorithm == "fqf":
        proposal = learner.optimizers[1]
        assert isinstance(proposal, torch.optim.RMSprop)
        assert isinstance(learner.online.head, iqn_fqf.FQFHead)
        assert {id(p) for p in proposal.param_groups[0]["params"]} == {
            id(p) for p in learner.online.head.proposal.parameters()
        }
        assert proposal.param_groups[0]["lr"] == 2.5e-9
    else:
        assert len(learner.optimizers) == 1


def test_iqn_draws_eight_fractions_in_training_and_thirty_two_in_evaluation() -> None:
    learner, *_ = parts(parts_of(small("iqn", "Pong")))
    assert isinstance(learner.online.head, iqn_fqf.IQNHead)
    assert learner.online.head.samples == {"learn": 8, "target": 8, "act": 8, "eval": 32}


@pytest.mark.parametrize(
    ("task", "name", "entropy"), [("Pendulum-v1", "policy.alpha_lr", -1.0), ("Catch", "alpha_lr", 0.98 * math.log(3))]
)
def test_a_learned_temperature_aims_at_the_documented_entropy(task: str, name: str, entropy: float) -> None:
    spec = apply_settings(suites.spec("toy", "sac", task), [parse(f"algo.{name}=0.001")])
    assert parts_of(spec).learner.temperature.target == pytest.approx(entropy)


def test_exploration_and_importance_weights_follow_their_schedules() -> None:
    """Epsilon falls, and beta really rises: in the documented code it never did."""
    settings = ("algo.epsilon.steps=100", "algo.replay.priority.beta.steps=200", "algo.learning_starts=32")
    spec = apply_settings(suites.spec("toy", "rainbow", "Catch"), [parse(text) for text in settings])
    trainer = parts_of(spec)
    _, ring, collector, _ = parts(trainer)
    assert isinstance(ring.sampler, PrioritizedSampler)
    for record in islice(trainer, 60):
        if record.env_steps > 0 and getattr(record, "evaluated", None) is None:
            before = record.env_steps
    trainer._step()
    assert float(ring.sampler.beta) == pytest.approx(0.4 + 0.6 * min(1.0, before / 200))
    assert float(collector.explorer.epsilon) == pytest.approx(1.0 - 0.95 * min(1.0, before / 100))
    assert float(ring.sampler.beta) > 0.5
    collector.close()


def test_evaluation_plays_full_games_with_the_protocols_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[tuple[int, ...], bool]] = []
    real = assemble.environments

    def note_episode(
        task: Task, *, seeds: tuple[int, ...], training: bool, obs_transform: ObsNormalizer | None, threads: int
    ) -> VectorEnv:
        calls.append((seeds, training))
        return real(task, seeds=seeds, training=training, obs_transform=obs_transform, threads=threads)

    for module in (assemble, evaluation):
        monkeypatch.setattr(module, "environments", note_episode)
    trainer = parts_of(small("dqn", "Breakout", "protocol.episodes=4", "protocol.envs=2"))
    calls.clear()
    evaluations = [trainer.evaluate(epoch) for epoch in (0, 1, 0)]
    (first, full), (second, _), (again, _) = calls
    assert not full
    assert len(first) == 2
    assert first == again != second
    for one in evaluations:
        assert isinstance(one, Evaluation)
        assert one.quota.episodes_per_env == 2
        assert float(one.explorer.epsilon) == pytest.approx(0.005)
        one.envs.close()
    _, _, collector, _ = parts(trainer)
    calls.clear()
    collector.open(0)
    assert calls[0][1]
    assert set(calls[0][0]).isdisjoint(first)
    collector.close()


def test_noisy_networks_have_no_noise_in_evaluation() -> None:
    learner, *_ = parts(parts_of(apply_settings(suites.spec("toy", "rainbow", "Catch"), [parse("algo.noisy=5")])))
    obs = torch.randint(0, 256, (64, 10, 5), dtype=torch.uint8)
    assert torch.equal(learner.act(obs, "eval"), learner.act(obs, "eval"))
    assert not torch.equal(learner.act(obs, "act"), learner.act(obs, "act"))


def test_losses_call_networks_with_their_roles() -> None:
    learner, ring, collector, _ = parts(parts_of(suites.spec("toy", "dqn", "Catch")))
    collector.open(0)
    for _ in range(10):
        collector.step()
    calls: list[tuple[str, str]] = []
    for name, net in (("online", learner.online), ("target", learner.target)):
        net.head.register_forward_pre_hook(lambda _m, words, name=name: calls.append((name, words[1])))
    learner.loss(ring.sample(4))
    assert calls == [("online", "learn"), ("target", "target"), ("online", "target")]
    collector.close()


def test_threads_follow_the_shapes_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pong, catch = suites.spec("atari", "dqn", "PongNoFrameskip-v4"), suites.spec("toy", "dqn", "Catch")
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(device, "cores", lambda: 16)
    assert device.threads_of(pong, Runtime(), cpu) == MAX_THREADS
    assert device.threads_of(pong, Runtime(), gpu) == 1
    assert device.threads_of(catch, Runtime(), cpu) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert device.threads_of(catch, Runtime(), cpu) == 3
    assert device.threads_of(catch, Runtime(threads=2), cpu) == 2
    monkeypatch.setenv("OMP_THREAD_LIMIT", "2")  # with more, gradients of convolutions would be wrong
    assert device.threads_of(catch, Runtime(saved_threads=4), cpu) == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert device.threads_of(catch, Runtime(), cpu) == device.stepping_threads(Runtime()) == 1
    for value in ("²", "5000", "9" * 5000):  # no number, and more threads than any checkpoint may name
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert device.threads_of(catch, Runtime(), cpu) == 1


FAULTS = """
import resource, torch
from rlbench.assembly.device import keep_memory
keep_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        frames = torch.ones(250, 4, 84, 84)
        (frames * 2).sum()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have no such thresholds")
def test_freed_memory_is_reused_by_the_next_step() -> None:
    """Twenty steps with two batches of 28 MB: mapped anew each time they are seven thousand pages apiece.

    280,000 in all. A kernel that reclaims memory nobody has touched for a while may take one batch's pages once.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 30_000


def test_allocator_settings_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(device.ctypes, "CDLL", calls.append)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    device.keep_memory()
    assert calls == []


@pytest.mark.parametrize("name", ["tpu9", "cuda:99", "meta", ""])
def test_missing_device_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--device"):
        device.device_of(Runtime(device=name))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "algorithm", "task", "changes", "kind"),
    [
        ("atari", "dqn", "PongNoFrameskip-v4", (), AsyncVector),
        ("atari", "rainbow", "PongNoFrameskip-v4", ("task.env=envpool",), AsyncVector),
        ("mujoco", "sac", "HalfCheetah-v4", ("task.env=envpool",), EnvPoolMujoco),
        ("mujoco", "td3", "HalfCheetah-v4", ("algo.replay.priority=priority",), AsyncVector),
    ],
)
def test_asynchronous_envs_get_an_async_ring_and_collector(
    suite: str, algorithm: str, task: str, changes: tuple[str, ...], kind: type[AsyncVector | EnvPoolMujoco]
) -> None:
    """And the same seeds, priorities and horizon as envs in step, and n-step returns that are learned from."""
    settings = ("task.envs=4", "algo.replay.capacity=400", "algo.replay.n_step=3", "algo.learning_starts=100", *changes)
    spec = apply_settings(suites.spec(suite, algorithm, task), [parse(c) for c in settings])
    together, trainer = parts_of(spec), parts_of(apply_settings(spec, [parse("task.async_batch=3")]))
    ring, collector, step = trainer.buffer, trainer.collector, together.collector
    assert isinstance(ring, AsyncRingBuffer) and isinstance(together.buffer, RingBuffer)
    assert isinstance(collector, AsyncCollector) and isinstance(step, Collector)
    assert (ring.length, ring.num_envs, ring.n_step, ring.stack) == (100, 4, 3, together.buffer.stack)
    assert type(ring.sampler) is type(together.buffer.sampler)
    collector.open(1)
    step.open(1)
    assert isinstance(collector.envs, kind)
    assert torch.equal(ring.newest_observations(), together.buffer.newest_observations())
    while int(ring.size.sum()) < 60:
        before = int(ring.size.sum())
        collector.step()
        assert int(ring.size.sum()) == before + 3
    trainer.updater.run(0, 2)
    assert trainer.updater.take() is not None
    collector.close()
    step.close()


def test_normalized_bytes_are_refused_before_training() -> None:
    spec = apply_settings(suites.spec("toy", "ppo", "Doors"), [parse("algo.normalize_obs=true")])
    with pytest.raises(UsageError, match=r"algo.normalize_obs: Doors shows bytes"):
        assemble.build(spec, CPU, describe(spec))


@pytest.mark.parametrize(
    ("cell", "change", "reason"),
    [
        (("offline", "td3bc", "hopper-medium-v2"), "protocol.epsilon=0.5", "only Q-learning is evaluated with it"),
        (("offline", "td3bc", "hopper-medium-v2"), "task.world.envs=4", "task.world.envs: offline .*; set it to 1"),
        (("offline", "td3bc", "hopper-medium-v2"), "task.world.async_batch=1", "task.world.async_batch: .* to none"),
        (("offline", "cql", "PongNoFrameskip-v4"), "task.world.clip=false", "task.world.clip: .*; set it to true"),
        (("offline", "bcq", "PongNoFrameskip-v4"), "task.world.episodic_life=false", "episodic_life: .* to true"),
    ],
)
def test_a_setting_that_a_run_would_ignore_is_refused(cell: tuple[str, str, str], change: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        resolve(*cell, sets=[change])
    apply_settings(suites.spec(*cell), [parse(change)])  # a record of earlier code may have it, and is read
