"""Generated data: every transition in order, and equal data for equal recipes."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.envs.mujoco.hopper_v4 import HopperEnv
from numpy.typing import NDArray

from rlbench import suites
from rlbench.assembly.assemble import build
from rlbench.assembly.environments import describe
from rlbench.assembly.restore import export_policy
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime
from rlbench.datasets.d4rl import D4RLArrays
from rlbench.datasets.policies import Policy, parse_policy, read_policy_file, serialize
from rlbench.datasets.recipes import POLICIES, Recipe, RecipePart
from rlbench.envs.base import Box, EnvInfo, Step
from rlbench.errors import UsageError
from rlbench.generate import (
    DatasetGenerator,
    NoisyPolicy,
    TransitionRecorder,
    _record,
    concatenate_columns,
    returns,
    stored_policy,
    task_of,
)
from rlbench.ops.state_dict import module_state
from rlbench.seeds import Seeds
from tests.forging import with_policy

HOPPER = "hopper-openai_imitation-trpo_iter200"
EXPERT = "hopper-openai_imitation-trpo_iter500"


def policy_of(name: str) -> Policy:
    return read_policy_file(POLICIES / f"{name}.safetensors")


def part(name: str = HOPPER, share: float = 1.0, **changes: object) -> RecipePart:
    """It, played clumsily, so that it falls soon."""
    return RecipePart.model_validate(
        {"policy": name, "sha256": policy_of(name).sha256, "share": share, "noise": 2.0, **changes}
    )


def generate_rows(*parts: RecipePart, steps: int = 301, num_envs: int = 2, seed: int = 0) -> DatasetGenerator:
    recipe = Recipe(name="rlb-test", task="Hopper-v4", parts=parts, steps=steps, lanes=num_envs, seed=seed)
    recording = DatasetGenerator(recipe, [policy_of(p.policy) for p in parts])
    counts = list(recording)
    assert counts == sorted(counts) and counts[-1] == steps
    return recording


@pytest.fixture(scope="module")
def hops() -> D4RLArrays:
    """Some episodes of two envs, 151 and 150 steps."""
    return generate_rows(part()).result()


def ends(rows: D4RLArrays) -> NDArray[np.bool_]:
    return rows.terminals | rows.timeouts


def test_generated_data_have_every_step_and_bounded_actions(hops: D4RLArrays) -> None:
    assert [column.shape[1:] for column in hops] == [(11,), (3,), (), (), (), (11,)]
    assert {len(column) for column in hops} == {301}
    assert [column.dtype.name for column in hops] == [*["float32"] * 3, "bool", "bool", "float32"]
    assert np.abs(hops.actions).max() == 1.0 and not (hops.terminals & hops.timeouts).any()


def test_no_transition_crosses_an_episode(hops: D4RLArrays) -> None:
    obs, next_obs, ended = hops.observations, hops.next_observations, ends(hops)
    assert hops.terminals.sum() >= 4 and ended[-1]
    goes_on = ~ended[:-1]
    np.testing.assert_array_equal(next_obs[:-1][goes_on], obs[1:][goes_on])
    first = np.concatenate([[True], ended[:-1]])
    assert np.abs(obs[first, 0] - 1.25).max() <= 0.005 and np.abs(obs[first, 5:]).max() <= 0.005  # as reset
    assert (next_obs[:-1] != obs[1:]).any(1)[~goes_on].all()  # where it really ended, not the next reset


def test_env_is_truncated_at_its_quota_and_bootstraps(hops: D4RLArrays) -> None:
    cuts = np.flatnonzero(hops.timeouts).tolist()
    assert cuts == [row for row in (150, 300) if not hops.terminals[row]] and cuts


def test_actions_replayed_in_gymnasium_give_equal_transitions(hops: D4RLArrays) -> None:
    text = part().model_dump_json(exclude={"share"})
    stream = f'{text[:-1]},"uniform":0.0}}'  # as when the data of the committed records were generated
    seeds = Seeds(0).child("generate", stream).child("env").numbers(2)
    for rows, seed in ((range(151), seeds[0]), (range(151, 301), seeds[1])):
        env = HopperEnv()
        obs, _ = env.reset(seed=seed)
        for row in rows:
            np.testing.assert_array_equal(hops.observations[row], obs.astype(np.float32))
            obs, reward, terminated, truncated, _ = env.step(hops.actions[row])
            np.testing.assert_array_equal(hops.next_observations[row], obs.astype(np.float32))
            assert hops.rewards[row] == np.float32(reward) and hops.terminals[row] == terminated and not truncated
            if terminated:
                obs, _ = env.reset()
        env.close()


def test_equal_recipes_give_equal_data(hops: D4RLArrays) -> None:
    for again, same in ((generate_rows(part()).result(), True), (generate_rows(part(), seed=1).result(), False)):
        assert all(np.array_equal(a, b) for a, b in zip(again[:3], hops[:3], strict=True)) == same


def test_a_mixture_is_one_part_after_the_other() -> None:
    medium, expert = generate_rows(part(), steps=120).result(), generate_rows(part(EXPERT), steps=120).result()
    both = generate_rows(part(share=0.5), part(EXPERT, share=0.5), steps=240).result()
    for column, one, other in zip(both[:6], medium[:6], expert[:6], strict=True):
        assert column is not None and one is not None and other is not None
        np.testing.assert_array_equal(column, np.concatenate([one, other]))


def test_metadata_have_the_provenance() -> None:
    recording = generate_rows(part())
    metadata = recording.provenance()
    assert Recipe.model_validate_json(str(metadata["recipe"])) == recording.recipe
    assert (metadata["name"], metadata["task"], metadata["env"]) == ("rlb-test", "Hopper-v4", "gymnasium/Hopper-v4")
    assert {"rlbench", "numpy", "mujoco", "gymnasium", "not_d4rl"} <= metadata.keys()
    assert (metadata["policies"], metadata["policies_sha256"]) == (HOPPER, policy_of(HOPPER).sha256)
    assert metadata["episodes"] + metadata["episodes_cut"] == ends(recording.result()).sum()


class Counting:
    """Two envs that observe their step; episodes of env 0 end after 2 steps, those of env 1 are truncated after 3."""

    info = EnvInfo(2, (1,), np.dtype(np.float32), Box(-np.ones(1, np.float32), np.ones(1, np.float32)), ())

    def __init__(self) -> None:
        self.at, self.ended, self.reward = np.zeros(2), np.zeros(2, np.bool_), np.zeros(2)

    def reset(self) -> NDArray[np.float32]:
        return np.array([[0], [100]], np.float32)

    def send(self, action: NDArray[np.float32]) -> None:
        self.at = np.where(self.ended, 0, self.at + 1)
        self.reward = np.where(self.ended, 0, action[:, 0])

    def recv(self) -> Step:
        terminated, truncated = self.at == [2, -1], self.at == [-1, 3]
        self.ended = terminated | truncated
        obs = (self.at + np.array([0, 100]))[:, None].astype(np.float32)
        return Step(obs, self.reward.astype(np.float32), terminated, truncated, np.arange(2), self.reward, self.ended)

    def close(self) -> None:
        pass


def test_reset_steps_are_not_recorded_and_clocks_restart() -> None:
    clocks: list[list[int]] = []

    def player(obs: NDArray[np.float32], elapsed: NDArray[np.int64]) -> NDArray[np.float32]:
        clocks.append(elapsed.tolist())
        return obs / 1000

    envs = Counting()
    recorder = TransitionRecorder(np.array([5, 4]), envs.info, 1)
    assert list(_record(envs, player, recorder)) == [2, 4, 5, 6, 8, 8, 9]
    rows, cut = recorder.in_order()
    assert rows.observations[:, 0].tolist() == [0, 1, 0, 1, 0, 100, 101, 102, 100]
    assert rows.next_observations[:, 0].tolist() == [1, 2, 1, 2, 1, 101, 102, 103, 101]
    assert rows.rewards == pytest.approx(rows.observations[:, 0] / 1000)
    assert rows.terminals.tolist() == [False, True, False, True, False, False, False, False, False]
    assert rows.timeouts.tolist() == [False, False, False, False, True, False, False, True, True]
    assert cut.tolist() == [False, False, False, False, True, False, False, False, True]
    assert [row[0] for row in clocks] == [0, 1, 2, 0, 1, 2, 0]
    assert [row[1] for row in clocks] == [0, 1, 2, 3, 0, 1, 2]
    summary = returns(rows, cut)
    assert (summary["episodes"], summary["episodes_cut"]) == (3, 2)
    assert summary["return_max"] == pytest.approx(0.303) and summary["return_min"] == pytest.approx(0.001)
    assert summary["return_mean"] == pytest.approx(0.305 / 3)


@pytest.mark.parametrize(("env_index", "steps"), [(0, 4), (1, 3)])
def test_env_whose_episode_ends_at_its_quota_is_not_truncated(env_index: int, steps: int) -> None:
    quota = np.full(2, 1)
    quota[env_index] = steps
    envs = Counting()
    recorder = TransitionRecorder(quota, envs.info, 1)
    assert list(_record(envs, lambda obs, _: obs, recorder))[-1] == steps + 1
    rows, cut = recorder.in_order()
    last = quota.cumsum()[env_index] - 1
    assert (rows.terminals[last], rows.timeouts[last], cut[last]) == (env_index == 0, env_index == 1, False)
    assert cut.sum() == rows.timeouts.sum() - env_index == 1  # the other env, after its first step


def test_data_of_truncated_episodes_only_have_no_return_statistics() -> None:
    rows, cut = generate_rows(part(noise=0.0), steps=20)._parts[0]
    assert returns(rows, cut) == {"episodes": 0, "episodes_cut": 2}


def linear(**facts: str) -> Policy:
    """Half of what is seen, spread 0.25."""
    arrays: dict[str, NDArray[np.generic]] = {
        "mean.weight": np.array([[0.5]], np.float32),
        "mean.bias": np.zeros(1, np.float32),
        "log_std": np.array([math.log(0.25)], np.float32),
    }
    metadata = {"name": "half", "env_evaluated": "x", "input_dim": "1", "action_dim": "1", "hidden_layers": "0"}
    return parse_policy(
        serialize(arrays, {**metadata, "activation": "none", "squash": "clip", "log_std": "vector", **facts}), "half"
    )


def normal_rows(**changes: object) -> NDArray[np.float32]:
    policy = linear()
    mine = RecipePart.model_validate({"policy": "half", "sha256": policy.sha256, **changes})
    return NoisyPolicy(policy, mine, Seeds(3).numpy())(
        np.full((20_000, 1), 0.2, np.float32), np.zeros(20_000, np.int64)
    )


def test_deterministic_sampled_and_noisy_actions_follow_their_settings() -> None:
    assert (normal_rows(sampled=False) == np.float32(0.1)).all()
    mean_action, noisy = normal_rows(), normal_rows(sampled=False, noise=0.1)
    assert mean_action.mean() == pytest.approx(0.1, abs=0.01) and mean_action.std() == pytest.approx(0.25, abs=0.01)
    assert noisy.mean() == pytest.approx(0.1, abs=0.01) and noisy.std() == pytest.approx(0.1, abs=0.005)
    assert normal_rows(noise=0.1).std() == pytest.approx(math.hypot(0.25, 0.1), abs=0.01)
    assert np.abs(normal_rows(noise=5.0)).max() == 1.0


def test_policy_that_does_not_fit_is_refused_before_generation() -> None:
    half = linear()
    mine = RecipePart(policy="half", sha256=half.sha256)
    fine = Recipe(name="rlb-x", task="Hopper-v4", parts=(mine,), steps=10, lanes=1)
    with pytest.raises(UsageError, match="half: plays x, not Hopper-v4"):
        next(iter(DatasetGenerator(fine, [half])))
    with pytest.raises(UsageError, match=r"has SHA-256 .* the recipe"):
        DatasetGenerator(fine, [policy_of(HOPPER)])
    pole = fine.model_copy(update={"task": "CartPole-v1"})
    with pytest.raises(UsageError, match="CartPole-v1: only vector observations and continuous actions are recorded"):
        next(iter(DatasetGenerator(pole, [half])))
    assert task_of("Pendulum-v1").id == "Pendulum-v1"


def test_pieces_are_joined_in_order(hops: D4RLArrays) -> None:
    np.testing.assert_array_equal(concatenate_columns([hops, hops]).observations[301:], hops.observations)


@pytest.mark.parametrize("algorithm", ["sac", "td3", "ddpg", "ppo", "reinforce", "trpo"])
def test_the_policy_of_a_run_acts_as_its_learner_does(algorithm: str) -> None:
    spec = suites.spec("mujoco", algorithm, "InvertedPendulum-v4")
    trainer = build(spec, Runtime(device="cpu", threads=1), describe(spec))
    obs = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    checkpoint_state = {"policy": module_state(trainer.learner.policy_net()), "epoch": 0}
    obs_tensor, normalizer = obs, trainer.collector.obs_normalizer
    if normalizer is not None:
        normalizer.update(np.random.default_rng(1).standard_normal((50, 4)).astype(np.float32) * 3 + 1)
        checkpoint_state["scale"], obs_tensor = normalizer.state_dict(), normalizer(obs)
    policy = parse_policy(export_policy(spec, checkpoint_state, name="x"), "x")
    actor, no_time = trainer.learner.policy_net(), np.zeros(6, np.int64)
    with torch.no_grad():
        output = (actor.policy if algorithm in {"ppo", "trpo"} else actor)(torch.from_numpy(obs_tensor))
    policy.fits("InvertedPendulum-v4", features=4, actions=1)
    assert (policy.log_std is None) == (algorithm in {"td3", "ddpg"})
    if policy.log_std is None:
        np.testing.assert_allclose(policy(obs, no_time), output.mode().numpy(), atol=1e-5)
        return
    bound = torch.tanh if algorithm == "sac" else trainer.collector.to_env_action
    for noise, action in ((None, output.mean), (np.ones((6, 1)), output.mean + output.log_std.exp())):
        np.testing.assert_allclose(policy(obs, no_time, noise), bound(action).numpy(force=True), atol=1e-5)
    if algorithm == "sac":
        bounds = spec.algo.policy.log_std_min, spec.algo.policy.log_std_max
        assert (policy.metadata.log_std_min, policy.metadata.log_std_max) == bounds


@pytest.mark.parametrize(
    ("algorithm", "change"),
    [
        *((algorithm, "smoke=true") for algorithm in ("il", "td3bc", "td3bc-raw", "cql", "crr", "iql")),
        ("cql", "algo.method.log_std_offset=-1"),
        ("iql", "algo.method.policy=deterministic"),
        ("iql", "algo.method.policy=conditional"),
    ],
)
def test_exported_offline_policy_acts_as_in_evaluation(
    algorithm: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLBENCH_DATASETS", str(tmp_path))  # where nothing lies: it learns from random actions
    spec = apply_settings(suites.spec("offline", algorithm, "rlb-hopper-medium"), [parse("smoke=true"), parse(change)])
    trainer = build(spec, Runtime(device="cpu", threads=1), describe(spec))
    checkpoint_state = {"policy": module_state(trainer.learner.policy_net()), "epoch": 0}
    if trainer.obs_moments is not None:
        checkpoint_state["scale"] = trainer.obs_moments
    policy = parse_policy(export_policy(spec, checkpoint_state, name="x"), "x")
    obs = np.random.default_rng(0).standard_normal((6, 11)).astype(np.float32)
    obs_tensor = torch.from_numpy(obs)
    if trainer.obs_moments is not None:
        obs_tensor = (obs_tensor - trainer.obs_moments["mean"]) / trainer.obs_moments["deviation"]
    with torch.no_grad():
        due = trainer.learner.act(obs_tensor, "eval")
    np.testing.assert_allclose(policy(obs, np.zeros(6, np.int64)), due.numpy(), atol=1e-5)
    policy.fits("Hopper-v4", features=11, actions=3)
    assert (trainer.obs_moments is not None) == (algorithm == "td3bc")
    assert (policy.log_std is not None) == (algorithm == "cql")  # the others' spread lies behind the bound
    if algorithm == "cql":
        with torch.no_grad():
            policy_output = trainer.learner.policy_net()(obs_tensor)
        ones = policy(obs, np.zeros(6, np.int64), np.ones((6, 3)))
        np.testing.assert_allclose(ones, (policy_output.mean + policy_output.log_std.exp()).tanh().numpy(), atol=1e-5)
        assert (policy.metadata.log_std_min, policy.metadata.log_std_max) == (
            spec.algo.method.log_std_min,
            spec.algo.method.log_std_max,
        )


def test_runs_with_discrete_actions_or_without_their_scale_are_refused() -> None:
    numbered = "choose.* among discrete actions|are recorded with --epsilon"
    for suite, algorithm, task in (("toy", "dqn", "Catch"), ("toy", "ppo", "CartPole-v1"), ("toy", "sac", "Catch")):
        with pytest.raises(UsageError, match=numbered):
            export_policy(suites.spec(suite, algorithm, task), {"policy": {}}, name="x")
    spec = suites.spec("mujoco", "ppo", "InvertedPendulum-v4")
    trainer = build(spec, Runtime(device="cpu", threads=1), describe(spec))
    with pytest.raises(UsageError, match="chooses among sampled candidates"):
        export_policy(suites.spec("offline", "bcq", "rlb-hopper-medium"), {"policy": {}}, name="x")
    bounded = apply_settings(suites.spec("offline", "cql", "rlb-hopper-medium"), [parse("algo.method.mean_bound=9")])
    with pytest.raises(UsageError, match="its actor bounds the mean before tanh"):
        export_policy(bounded, {"policy": {}}, name="x")
    with pytest.raises(UsageError, match="lacks the normalization of observations; --force"):
        export_policy(spec, {"policy": module_state(trainer.learner.policy_net()), "epoch": 0}, name="x")


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    spec = apply_settings(suites.spec("toy", "sac", "Pendulum-v1"), [parse("algo.widths=8,8")])
    return with_policy(spec, tmp_path / "results")


def test_the_policy_of_a_finished_run_is_recorded(finished: Path) -> None:
    policy = stored_policy(finished, "best")
    assert policy.metadata.name.startswith("toy/sac/Pendulum-v1") and policy.metadata.name.endswith("seed=0 best")
    mine = RecipePart(policy=policy.metadata.name, sha256=policy.sha256)
    recording = DatasetGenerator(Recipe(name="rlb-x", task="Pendulum-v1", parts=(mine,), steps=450, lanes=1), [policy])
    assert list(recording)[-1] == 450
    assert np.flatnonzero(recording.result().timeouts).tolist() == [199, 399, 449]
    assert recording.provenance()["episodes"] == 2


def test_a_run_without_that_policy_is_refused(finished: Path) -> None:
    with pytest.raises(
        UsageError, match="has no weights, as records in git have none; train them with: rlbench run toy "
    ):
        stored_policy(finished, "last")
