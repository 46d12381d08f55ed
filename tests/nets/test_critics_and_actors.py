"""Critics side by side against critics one by one, and the sizes the papers give."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from scipy import stats

from rlbench.nets.actors import DeterministicActor, SquashedActor
from rlbench.nets.critics import Critics, drawn


def test_critics_side_by_side_equal_plain_networks_one_by_one() -> None:
    torch.manual_seed(0)
    critics = Critics(members=3, obs=4, actions=2, widths=(8, 5))
    obs, action = torch.randn(7, 4), torch.randn(7, 2)
    found = critics(obs, action)
    assert found.shape == (3, 7)
    for member in range(3):
        x = torch.cat([obs, action], 1)
        for depth, layer in enumerate(critics.layers):
            x = x @ layer.weight[member] + layer.bias[member]
            x = x.relu() if depth < 2 else x
        torch.testing.assert_close(found[member], x[:, 0])
    torch.testing.assert_close(critics(obs, action, members=2), found[:2])


def test_critics_with_units_see_the_environments_actions() -> None:
    """By hand: actions −1, 0 and 1 of an interval from −2.5 to 3.5."""
    torch.manual_seed(0)
    critics = Critics(members=2, obs=4, actions=1, widths=(8,), units=(torch.tensor([3.0]), torch.tensor([0.5])))
    torch.manual_seed(0)
    plain = Critics(members=2, obs=4, actions=1, widths=(8,))
    obs, action = torch.randn(3, 4), torch.tensor([[-1.0], [0.0], [1.0]])
    own = torch.tensor([[-2.5], [0.5], [3.5]])
    assert torch.equal(critics(obs, action), plain(obs, own))
    assert torch.equal(critics.each(obs, action.expand(2, 3, 1)), plain.each(obs, own.expand(2, 3, 1)))


def test_members_are_drawn_as_linear_layers_are_and_differ() -> None:
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
    squashed = SquashedActor(obs_shape=(17,), actions=6, widths=(256, 256), low=-20, high=2)
    assert count(squashed) == plain + 256 * 6 + 6
    assert count(Critics(members=2, obs=17, actions=6, widths=(256, 256))) == 2 * (
        23 * 256 + 256 + 256 * 256 + 256 + 256 + 1
    )


def test_the_logarithm_of_the_spread_keeps_within_its_bounds() -> None:
    actor = SquashedActor(obs_shape=(3,), actions=2, widths=(4,), low=-1.5, high=0.5)
    with torch.no_grad():
        actor.log_std.bias.copy_(torch.tensor([100.0, -100.0]))
    assert actor(torch.zeros(1, 3)).log_std.tolist() == [[0.5, -1.5]]


def test_a_subset_holds_no_member_twice_and_every_pair_is_as_likely() -> None:
    torch.manual_seed(0)
    value = torch.arange(5.0)[:, None].expand(5, 2)
    pairs = Counter(tuple(sorted(drawn(value, 2)[:, 0].tolist())) for _ in range(4_000))
    assert len(pairs) == 10
    assert all(a != b for a, b in pairs)
    assert stats.chisquare(list(pairs.values())).pvalue > 1e-3
    assert drawn(value, None) is value
