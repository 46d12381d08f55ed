"""Batched critics against separate ones, and the papers' network sizes."""

import math
from collections import Counter

import pytest
import torch
from scipy import stats

from rlbench.nets import actors
from rlbench.nets.actors import DeterministicActor, SquashedGaussianActor, StateDependentStdActor
from rlbench.nets.critics import Critics, random_subset


def test_batched_critics_equal_separate_networks() -> None:
    torch.manual_seed(0)
    critics = Critics(members=3, obs=4, actions=2, widths=(8, 5))
    obs, action = torch.randn(7, 4), torch.randn(7, 2)
    values = critics(obs, action)
    assert values.shape == (3, 7)
    for member in range(3):
        x = torch.cat([obs, action], 1)
        for depth, layer in enumerate(critics.layers):
            x = x @ layer.weight[member] + layer.bias[member]
            x = x.relu() if depth < 2 else x
        torch.testing.assert_close(values[member], x[:, 0])
    torch.testing.assert_close(critics(obs, action, members=2), values[:2])


def test_critics_with_units_see_the_environments_actions() -> None:
    """By hand: actions −1, 0 and 1 of an interval from −2.5 to 3.5."""
    torch.manual_seed(0)
    critics = Critics(members=2, obs=4, actions=1, widths=(8,), units=(torch.tensor([3.0]), torch.tensor([0.5])))
    torch.manual_seed(0)
    plain = Critics(members=2, obs=4, actions=1, widths=(8,))
    obs, action, own = torch.randn(3, 4), torch.tensor([[-1.0], [0.0], [1.0]]), torch.tensor([[-2.5], [0.5], [3.5]])
    assert torch.equal(critics(obs, action), plain(obs, own))
    values = critics.action_values(obs, action.expand(2, 3, 1))
    assert torch.equal(values, plain.action_values(obs, own.expand(2, 3, 1)))


def test_ensemble_members_are_initialized_like_linear_layers_and_differ() -> None:
    torch.manual_seed(0)
    critics = Critics(members=2, obs=17, actions=6, widths=(256, 256))
    for layer, inputs in zip(critics.layers, (23, 256, 256), strict=True):
        for parameter in (layer.weight, layer.bias):
            assert parameter.abs().max().item() <= inputs**-0.5
        spread = layer.weight.std().item()
        assert spread == pytest.approx((3 * inputs) ** -0.5, rel=0.1)  # of a uniform distribution of that bound
        assert not torch.equal(layer.weight[0], layer.weight[1])


def test_parameter_counts_are_those_of_the_documented_networks() -> None:
    def count(net: torch.nn.Module) -> int:
        return sum(p.numel() for p in net.parameters())

    plain = 17 * 256 + 256 + 256 * 256 + 256 + 256 * 6 + 6
    assert count(DeterministicActor(obs_shape=(17,), actions=6, widths=(256, 256))) == plain
    squashed = SquashedGaussianActor(obs_shape=(17,), actions=6, widths=(256, 256), log_std_min=-20, log_std_max=2)
    assert count(squashed) == plain + 256 * 6 + 6
    assert count(Critics(members=2, obs=17, actions=6, widths=(256, 256))) == 2 * (
        23 * 256 + 256 + 256 * 256 + 256 + 256 + 1
    )


def test_log_std_stays_within_its_bounds() -> None:
    actor = SquashedGaussianActor(obs_shape=(3,), actions=2, widths=(4,), log_std_min=-1.5, log_std_max=0.5)
    with torch.no_grad():
        actor.log_std.bias.copy_(torch.tensor([100.0, -100.0]))
    assert actor(torch.zeros(1, 3)).log_std.tolist() == [[0.5, -1.5]]


def test_random_subset_has_distinct_members_and_uniform_pairs() -> None:
    torch.manual_seed(0)
    value = torch.arange(5.0)[:, None].expand(5, 2)
    pairs = Counter(tuple(sorted(random_subset(value, 2)[:, 0].tolist())) for _ in range(4_000))
    assert len(pairs) == 10
    assert all(a != b for a, b in pairs)
    assert stats.chisquare(list(pairs.values())).pvalue > 1e-3
    assert random_subset(value, None) is value


def test_log_std_offset_and_scale_are_learned() -> None:
    """corl-team/CORL@eeeeef2 algorithms/offline/cql.py: ``log_std_multiplier * log_std + log_std_offset``."""
    actor = SquashedGaussianActor(
        obs_shape=(3,), actions=2, widths=(4,), log_std_min=-20, log_std_max=2, log_std_offset=-1.0
    )
    plain = SquashedGaussianActor(obs_shape=(3,), actions=2, widths=(4,), log_std_min=-20, log_std_max=2)
    plain.load_state_dict({key: value for key, value in actor.state_dict().items() if key != "affine"})
    obs = torch.randn(5, 3)
    torch.testing.assert_close(actor(obs).log_std, plain(obs).log_std - 1)
    torch.testing.assert_close(actor(obs).mean, plain(obs).mean)
    gradients = torch.autograd.grad(actor(obs).log_std.sum(), [actor.affine])[0]
    torch.testing.assert_close(gradients, torch.stack([plain(obs).log_std.sum(), torch.tensor(10.0)]))


def test_pre_tanh_mean_stays_within_its_bound() -> None:
    actor = SquashedGaussianActor(
        obs_shape=(3,), actions=2, widths=(4,), log_std_min=-20, log_std_max=2, mean_bound=9.0
    )
    with torch.no_grad():
        actor.mean.bias.copy_(torch.tensor([100.0, -100.0]))
    assert actor(torch.zeros(1, 3)).mean.tolist() == [[9.0, -9.0]]


def test_a_conditional_std_is_a_scaled_softplus_within_its_bounds() -> None:
    """ARISE-Initiative/robomimic@d309eae robomimic/models/policy_nets.py: ``softplus(x) * 0.3 / softplus(0)``."""
    torch.manual_seed(0)
    low, high = math.log(0.007), math.log(7.5)
    actor = StateDependentStdActor(obs_shape=(3,), actions=4, widths=(4,), log_std_min=low, log_std_max=high)
    for layer in (actor.mean, actor.std):
        assert layer.weight.abs().max() <= 1e-3 >= layer.bias.abs().max()
        assert layer.weight.abs().max() > 5e-4
    assert actor(torch.randn(6, 3)).log_std.exp().numpy(force=True) == pytest.approx(0.3, rel=0.01)
    raw = [-50.0, -1.0, 2.0, 90.0]
    with torch.no_grad():
        for layer, bias in ((actor.mean, [20.0, -20.0, 0.5, 0.0]), (actor.std, raw)):
            layer.weight.zero_()
            layer.bias.copy_(torch.tensor(bias))
    policy = actor(torch.randn(1, 3))
    expected = [min(max(math.log1p(math.exp(x)) * 0.3 / math.log(2), 0.007), 7.5) for x in raw]
    assert policy.log_std[0].exp().tolist() == pytest.approx(expected, rel=1e-5)
    assert policy.mean[0].tolist() == pytest.approx([math.tanh(x) for x in (9, -9, 0.5, 0)], rel=1e-6)


def test_orthogonal_critics_preserve_norms_up_to_their_gain() -> None:
    torch.manual_seed(0)
    critics = Critics(members=2, obs=5, actions=3, widths=(8, 8))
    actors.init_orthogonal_critics(critics)
    for layer, gain in zip(critics.layers, (math.sqrt(2), math.sqrt(2), 0.01), strict=True):
        for weight in layer.weight:
            rows = weight.T
            torch.testing.assert_close(rows @ rows.T, gain**2 * torch.eye(len(rows)), atol=1e-5, rtol=0)
        assert not layer.bias.any()
        assert not torch.equal(layer.weight[0], layer.weight[1])


def test_last_layer_of_two_heads_has_one_xavier_initialization() -> None:
    torch.manual_seed(0)
    whole = torch.nn.Linear(256, 12)
    torch.nn.init.xavier_uniform_(whole.weight, gain=1e-2)
    mean, log_std = torch.nn.Linear(256, 6), torch.nn.Linear(256, 6)
    actors.init_xavier(mean, log_std)
    bound = whole.weight.abs().max().item()
    for layer in (mean, log_std):
        assert layer.weight.abs().max().item() == pytest.approx(bound, rel=0.01)
        assert not layer.bias.any()
