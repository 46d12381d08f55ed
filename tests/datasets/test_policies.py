"""Policy files: their actions, and invalid files."""

import math
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from rlbench.datasets.policies import MAX_BYTES, Policy, parse_policy, read_policy_file, serialize
from rlbench.datasets.recipes import POLICIES, RECIPES
from rlbench.errors import RefusedFile, UsageError

Arrays = dict[str, NDArray[np.generic]]
FACTS = {
    "format": "actor-v1", "name": "small", "env_evaluated": "Small-v0", "input_dim": "2", "action_dim": "1",
    "hidden_layers": "1", "activation": "relu", "squash": "clip", "log_std": "vector", "log_std_min": "",
    "obs_keys": "",
}  # fmt: skip


def arrays() -> Arrays:
    """Two numbers to three units to one action."""
    return {
        "layers.0.weight": np.array([[1, 0], [0, 1], [-1, -1]], np.float32),
        "layers.0.bias": np.array([0, 0.5, 0], np.float32),
        "mean.weight": np.array([[0.25, 0.5, 1]], np.float32),
        "mean.bias": np.array([-0.125], np.float32),
        "log_std": np.array([math.log(0.5)], np.float32),
    }


def policy_of(changes: Mapping[str, NDArray[np.generic] | None] | None = None, **facts: str) -> Policy:
    """The small policy with some arrays and facts of its own; None takes an array out."""
    content = arrays() | dict(changes or {})
    return parse_policy(
        serialize({k: v for k, v in content.items() if v is not None}, FACTS | facts), "small.safetensors"
    )


def action_of(policy: Policy, *obs: float, elapsed: int = 0, noise: float | None = None) -> float:
    """The action at one observation."""
    noise_row = None if noise is None else np.array([[noise]])
    action = policy(np.array([obs], np.float32), np.array([elapsed]), noise_row)
    assert action.dtype == np.float32 and action.shape == (1, 1)
    return float(action[0, 0])


def test_deterministic_action_equals_the_layers_output() -> None:
    assert action_of(policy_of(), 0.5, -0.25) == 0.125 + 0.125 - 0.125  # relu gives 0.5, 0.25 and 0
    assert action_of(policy_of(), -0.5, 0.25) == 0.375 + 0.25 - 0.125  # and 0, 0.75 and 0.25


def test_an_action_is_clipped_or_squashed() -> None:
    assert action_of(policy_of(), 8.0, 0.0) == 1.0
    assert action_of(policy_of(squash="tanh"), 0.5, -0.25) == np.float32(math.tanh(0.125))


def test_activation_is_the_files() -> None:
    bent = 0.25 * math.tanh(-0.5) + 0.5 * math.tanh(0.75) + math.tanh(0.25) - 0.125
    assert action_of(policy_of(activation="tanh"), -0.5, 0.25) == np.float32(bent)
    assert action_of(policy_of(activation="none"), -0.5, 0.25) == -0.125 + 0.375 + 0.25 - 0.125


def test_noise_is_scaled_by_the_std_and_added_before_tanh() -> None:
    assert action_of(policy_of(), 0.5, -0.25, noise=1.0) == pytest.approx(0.625, abs=1e-7)
    assert action_of(policy_of(), 0.5, -0.25, noise=-4.0) == -1.0
    assert action_of(policy_of(squash="tanh"), 0.5, -0.25, noise=1.0) == pytest.approx(math.tanh(0.625), abs=1e-7)


def test_log_std_layer_is_clipped_at_its_bounds() -> None:
    layer = {
        "log_std": None,
        "log_std.weight": np.array([[10, 0, -10]], np.float32),
        "log_std.bias": np.zeros(1, np.float32),
    }
    policy = policy_of(layer, log_std="layer", log_std_max="-1", log_std_min="-3")
    assert action_of(policy, 0.5, -0.25, noise=1.0) == pytest.approx(0.125 + math.exp(-1), abs=1e-7)
    assert action_of(policy, 0.0, -0.5, noise=1.0) == pytest.approx(0.5 - 0.125 + math.exp(-3), abs=1e-7)


def test_zeros_and_the_time_left_are_appended_before_the_scale() -> None:
    wide = {
        "layers.0.weight": np.eye(4, dtype=np.float32),
        "layers.0.bias": np.zeros(4, np.float32),
        "mean.weight": np.array([[1, 1, 1, 1]], np.float32) / 16,
        "mean.bias": np.zeros(1, np.float32),
        "obs_mean": np.array([0.0, 0.0, -1.0, 0.5]),
        "obs_var": np.array([1.0, 4.0, 0.25, 0.01]) - 0.001,
    }
    policy = policy_of(
        wide, input_dim="4", obs_pad_zeros="1", time_feature="true", time_feature_max_steps="10", obs_norm="true",
        obs_epsilon="0.001", obs_clip="1.5", activation="none",
    )  # fmt: skip
    assert policy.obs_size == 2
    obs_by_hand = 1.0 / 1 + 3.0 / 2 + min(1.5, 1 / 0.5) + max(-1.5, (0.6 - 0.5) / 0.1)
    assert action_of(policy, 1.0, 3.0, elapsed=4) == pytest.approx(obs_by_hand / 16, abs=1e-6)
    assert action_of(policy, 1.0, 3.0, elapsed=9) == pytest.approx((1.0 + 1.5 + 1.5 - 1.5) / 16, abs=1e-6)


def test_envs_have_their_own_clocks() -> None:
    wide = {"layers.0.weight": np.array([[0, 0, 1]] * 3, np.float32)}
    policy = policy_of(wide, input_dim="3", time_feature="true", time_feature_max_steps="4")
    both = policy(np.zeros((2, 2), np.float32), np.array([0, 2]))
    assert both[0, 0] == 1.0 and both[1, 0] == action_of(policy, 0.0, 0.0, elapsed=2) == np.float32(
        0.125 + 0.5 + 0.5 - 0.125
    )


SHA256 = {part.policy: part.sha256 for recipe in RECIPES.values() for part in recipe.parts}


@pytest.mark.parametrize("name", sorted(SHA256))
def test_packaged_policies_agree_with_explicit_sums(name: str) -> None:
    policy = read_policy_file(POLICIES / f"{name}.safetensors")
    assert policy.sha256 == SHA256[name]
    generator = np.random.default_rng(7)
    obs = generator.standard_normal((2, policy.obs_size)).astype(np.float32)
    noise = generator.standard_normal((2, policy.metadata.action_dim))
    actions = policy(obs, np.zeros(2, np.int64), noise)
    for row in range(2):
        np.testing.assert_allclose(actions[row], _naive(policy, obs[row].tolist(), noise[row].tolist()), atol=1e-7)


def _naive(policy: Policy, obs: list[float], noise: list[float]) -> list[float]:
    """One number after the other."""
    facts = policy.metadata
    x = list(obs)
    if policy.scale is not None:
        mean, std = policy.scale
        x = [min(max((v - m) / d, -facts.obs_clip), facts.obs_clip) for v, m, d in zip(x, mean, std, strict=True)]

    def through(weight: NDArray[np.float64], bias: NDArray[np.float64], inputs: list[float]) -> list[float]:
        return [
            math.fsum([b, *(w * v for w, v in zip(row, inputs, strict=True))])
            for row, b in zip(weight, bias, strict=True)
        ]

    bend = math.tanh if facts.activation == "tanh" else lambda v: max(v, 0.0)
    for weight, bias in policy.hidden:
        x = [bend(v) for v in through(weight, bias, x)]
    action = through(*policy.mean, x)
    log_std = through(*policy.log_std, x) if isinstance(policy.log_std, tuple) else list(policy.log_std)
    spread = [math.exp(min(max(v, facts.log_std_min), facts.log_std_max)) for v in log_std]
    raw = [a + s * z for a, s, z in zip(action, spread, noise, strict=True)]
    return [math.tanh(v) if facts.squash == "tanh" else min(max(v, -1.0), 1.0) for v in raw]


def test_a_deterministic_policy_cannot_be_sampled() -> None:
    with pytest.raises(UsageError, match="small: is deterministic, nothing can be sampled; use --deterministic"):
        action_of(policy_of({"log_std": None}, log_std="none"), 0.0, 0.0, noise=1.0)


def test_another_task_or_another_shape_is_refused() -> None:
    policy_of().fits("Small-v0", features=2, actions=1)
    with pytest.raises(UsageError, match="plays Small-v0, not Large-v0"):
        policy_of().fits("Large-v0", features=2, actions=1)
    with pytest.raises(UsageError, match="maps 2 numbers to 1, but Small-v0 shows 3 and takes 1"):
        policy_of().fits("Small-v0", features=3, actions=1)


EMPTY = {
    "layers.0.weight": np.zeros((0, 2), np.float32),
    "layers.0.bias": np.zeros(0, np.float32),
    "mean.weight": np.zeros((1, 0), np.float32),
}


@pytest.mark.parametrize(
    ("changes", "facts", "why"),
    [
        ({"mean.bias": None}, {}, "mean.bias is missing"),
        ({"log_std": None}, {}, "log_std is missing"),
        ({"extra": np.zeros(1, np.float32)}, {}, "extra is unknown"),
        ({"mean.weight": np.zeros((1, 4), np.float32)}, {}, r"mean.weight is float32 \(1, 4\).*shape \(1, 3\)"),
        ({"layers.0.bias": np.zeros(4, np.float32)}, {}, "layers.0.weight is float32"),
        ({"mean.bias": np.array([np.nan], np.float32)}, {}, "mean.bias holds NaN"),
        ({"log_std": np.array([np.inf], np.float32)}, {}, "log_std holds NaN or infinity"),
        (EMPTY, {"obs_pad_zeros": "1"}, r"layers.0.bias has no elements"),
        ({}, {"obs_norm": "true"}, "obs_mean is missing"),
        ({}, {"activation": "gelu"}, "activation"),
        ({}, {"action_dim": "0"}, "action_dim"),
        ({}, {"time_feature_max_steps": "1" + "0" * 400}, "time_feature_max_steps"),
        ({}, {"format": "actor-v2"}, "format"),
        ({}, {"name": ""}, "name"),
        ({}, {"obs_keys": "observation,desired_goal"}, "obs_keys"),
        ({"obs_mean": np.zeros(2), "obs_var": np.array([1.0, 0.0])}, {"obs_norm": "true"}, "obs_var holds a variance"),
    ],
)
def test_a_file_that_is_no_whole_policy_is_refused_in_one_line(
    changes: dict[str, NDArray[np.generic] | None], facts: dict[str, str], why: str
) -> None:
    with pytest.raises(RefusedFile, match=why) as caught:
        policy_of(changes, **facts)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("small.safetensors: ")


@pytest.mark.parametrize(
    "raw", [b"", b"short", b"\xff" * 64, serialize(arrays(), FACTS)[:-1], b"\x02" + b"\0" * 7 + b"[]"]
)
def test_invalid_safetensors_is_refused(raw: bytes) -> None:
    with pytest.raises(RefusedFile, match="not "):
        parse_policy(raw, "x")


def test_a_file_is_read_with_its_checksum_and_never_when_it_is_huge(tmp_path: Path) -> None:
    path, raw = tmp_path / "p.safetensors", serialize(arrays(), FACTS)
    path.write_bytes(raw)
    assert read_policy_file(path).sha256 == sha256(raw).hexdigest()
    with pytest.raises(RefusedFile, match=r"nowhere.*: cannot be read"):
        read_policy_file(tmp_path / "nowhere.safetensors")
    with path.open("r+b") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(RefusedFile, match="bytes, 67,108,864 are allowed"):
        read_policy_file(path)


def test_equal_contents_give_equal_bytes_in_any_order() -> None:
    backwards = serialize(dict(reversed(arrays().items())), dict(reversed(FACTS.items())))
    assert backwards == serialize(arrays(), FACTS)
