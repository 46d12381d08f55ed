"""Q-heads and dueling streams: their outputs, noise, sampling and gradients."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from rlbench.nets.dueling import HeadMLP, NoisyLinear
from rlbench.nets.iqn_fqf import FQFHead, IQNHead
from rlbench.nets.q_heads import C51Head, QNet, QRDQNHead
from rlbench.ops.quantiles import QuantileReturn
from rlbench.ops.return_distributions import gather_actions
from rlbench.ops.types import Role

FEATURES, HIDDEN, ACTIONS = 6, 5, 3


def streams(width: int = 1, *, dueling: bool = False, noisy: float | None = None) -> HeadMLP:
    return HeadMLP(features=FEATURES, hidden=HIDDEN, actions=ACTIONS, width=width, dueling=dueling, noisy=noisy)


def proposals(count: int = 4, entropy: float = 0.0) -> FQFHead:
    return FQFHead(streams(), features=FEATURES, count=count, entropy=entropy, cosines=8)


def implicit(learn: int = 7) -> IQNHead:
    samples: dict[Role, int] = {"learn": learn, "target": 3, "act": 2, "eval": 32}
    return IQNHead(streams(), features=FEATURES, samples=samples, cosines=8)


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_noise_is_factorized_and_absent_in_evaluation() -> None:
    layer, eye = NoisyLinear(8, 6, scale=0.5), torch.eye(8)
    quiet = layer(eye, "eval")
    torch.testing.assert_close(quiet, layer.weight.t() + layer.bias)
    assert torch.equal(quiet, layer(eye, "eval"))
    for role in ("act", "learn", "target"):
        torch.manual_seed(1)
        noisy = layer(eye, role)
        assert not torch.equal(noisy, layer(eye, role)), "each call draws anew"
        noise = (noisy - quiet - (layer(torch.zeros(1, 8), "eval") * 0)).detach()
        bias = noise - (noise - noise.mean(0))  # the bias' noise is the same in every row
        torch.manual_seed(1)
        shift = (layer(torch.zeros(1, 8), role) - layer.bias).detach()
        weight = (noise - shift) / layer.weight_noise.t().detach()
        assert torch.linalg.matrix_rank(weight, tol=1e-4) == 1
        assert bias.shape == noise.shape


def test_noise_has_the_papers_scale() -> None:
    """σ₀ / √p each, times f(ε) with E f² = E|ε| = √(2/π)."""
    layer = NoisyLinear(100, 400, scale=0.5)
    assert layer.weight_noise.unique().item() == pytest.approx(0.5 / 10)
    assert layer.weight.abs().max().item() <= 0.1
    draws = torch.stack([(layer(torch.zeros(1, 100), "act") - layer.bias)[0] for _ in range(200)])
    assert draws.square().mean().item() == pytest.approx(0.05**2 * math.sqrt(2 / math.pi), rel=0.05)


def test_dueling_adds_the_value_to_centered_advantages() -> None:
    head_layers = streams(4, dueling=True)
    x = torch.randn(2, FEATURES)
    hidden = (x @ head_layers.hidden.weight.t() + head_layers.hidden.bias).relu()
    advantage = (hidden @ head_layers.out.weight.t() + head_layers.out.bias).view(2, ACTIONS, 4)
    shared_hidden = (x @ head_layers.shared_hidden.weight.t() + head_layers.shared_hidden.bias).relu()
    shared = shared_hidden @ head_layers.shared.weight.t() + head_layers.shared.bias
    torch.testing.assert_close(head_layers(x, "learn"), shared[:, None] + advantage - advantage.mean(1, keepdim=True))


def test_parameter_counts_follow_from_the_papers() -> None:
    """Nature features 3136, 6 actions: the layers after the torso, counted by hand."""

    def of(width: int, *, dueling: bool = False, noisy: float | None = None) -> int:
        return count(HeadMLP(features=3136, hidden=512, actions=6, width=width, dueling=dueling, noisy=noisy))

    hidden = 3136 * 512 + 512
    assert of(1) == hidden + 512 * 6 + 6
    assert of(51) == hidden + 512 * 306 + 306
    assert of(200) == hidden + 512 * 1200 + 1200
    assert of(51, dueling=True, noisy=0.1) == 2 * (2 * hidden + 512 * 306 + 306 + 512 * 51 + 51)
    embed = 64 * 3136 + 3136
    big = HeadMLP(features=3136, hidden=512, actions=6, width=1)
    assert count(IQNHead(big, features=3136, samples={}, cosines=64)) == of(1) + embed
    fqf = FQFHead(big, features=3136, count=32, entropy=10.0, cosines=64)
    assert count(fqf) == of(1) + embed + 3136 * 32 + 32


def test_quantile_fractions_are_midpoints() -> None:
    value = QRDQNHead(streams(4))(torch.randn(2, FEATURES), "learn")
    assert value.taus[0].tolist() == [0.125, 0.375, 0.625, 0.875]
    assert value.mass[0].tolist() == [0.25] * 4
    assert value.values.shape == (2, ACTIONS, 4)


def test_the_categorical_head_spans_its_support() -> None:
    value = C51Head(streams(51), v_min=-10, v_max=10)(torch.randn(2, FEATURES), "learn")
    assert value.logits.shape == (2, ACTIONS, 51)
    assert value.atoms[[0, 25, 50]].tolist() == pytest.approx([-10.0, 0.0, 10.0], abs=1e-6)


def test_iqn_head_draws_the_configured_number_of_fractions_per_role() -> None:
    head, x = implicit(), torch.randn(5, FEATURES)
    for role, number in (("learn", 7), ("target", 3), ("act", 2), ("eval", 32)):
        value = head(x, role)
        assert value.values.shape == (5, ACTIONS, number)
        assert value.taus.shape == (5, number)
        assert ((value.taus >= 0) & (value.taus < 1)).all()
    assert not torch.equal(head(x, "learn").taus, head(x, "learn").taus)


def test_the_cosine_embedding_is_the_papers() -> None:
    """Dabney et al. 2018, eq. 4: φ_j(τ) = ReLU(Σ_{i=1}^{n} cos(π i τ) w_ij + b_j), multiplied into the features."""
    head = implicit()
    features, tau = torch.randn(1, FEATURES), 0.3
    phi = []
    for j in range(FEATURES):
        total = head.embed.bias[j].item()
        for i in range(1, 9):
            total += math.cos(math.pi * i * tau) * head.embed.weight[j, i - 1].item()
        phi.append(max(0.0, total))
    want = head.streams(features * torch.tensor([phi]), "learn")[..., 0]
    torch.testing.assert_close(head.at_taus(features, torch.tensor([[tau]]), "learn")[..., 0], want)


def test_iqn_at_fixed_fractions_has_qr_dqns_loss() -> None:
    """Same fractions, same values: the two algorithms' losses are one function."""
    head, features, action = implicit(learn=4), torch.randn(3, FEATURES), torch.tensor([0, 1, 2])
    taus = ((torch.arange(4.0) + 0.5) / 4).expand(3, -1)
    values = head.at_taus(features, taus, "learn")
    mine = QuantileReturn(values, taus, torch.full((3, 4), 0.25)).at(action)
    theirs = QRDQNHead(streams(4))(features, "learn")._replace(values=values).at(action)
    goal = QuantileReturn(torch.randn(3, 5), torch.rand(3, 5), torch.full((3, 5), 0.2))
    torch.testing.assert_close(mine.loss(goal), theirs.loss(goal))
    torch.testing.assert_close(mine.mean(), theirs.mean())


def test_fqf_proposes_ordered_fractions_that_are_nearly_equal_at_first() -> None:
    head = proposals(count=32)
    edges, entropy = head.edges(torch.randn(4, FEATURES))
    assert edges.shape == (4, 33)
    assert edges[:, 0].tolist() == [0.0] * 4
    torch.testing.assert_close(edges[:, -1], torch.ones(4))
    assert (edges.diff(dim=-1) > 0).all()
    torch.testing.assert_close(edges.diff(dim=-1), torch.full((4, 32), 1 / 32), atol=0.005, rtol=0)
    torch.testing.assert_close(entropy, torch.full((4,), math.log(32)), atol=0.01, rtol=0)
    torch.testing.assert_close(head(torch.randn(4, FEATURES), "learn").mass.sum(-1), torch.ones(4))


def wasserstein(head: FQFHead, features: torch.Tensor, edges: list[float], action: int) -> float:
    """W₁ between the head's inverse CDF and its staircase on ``edges`` (FQF eq. 3), by fine numerical integration."""
    with torch.no_grad():
        points = 4000
        grid = (torch.arange(points, dtype=torch.float64) + 0.5) / points
        curve = head.at_taus(features, grid[None], "learn")[0, action]
        middles = torch.tensor([[(a + b) / 2 for a, b in pairwise(edges)]], dtype=torch.float64)
        steps = head.at_taus(features, middles, "learn")[0, action]
        part = torch.bucketize(grid, torch.tensor(edges[1:-1], dtype=torch.float64))
        return float((curve - steps[part]).abs().mean())


def test_fqfs_gradient_equals_that_of_the_wasserstein_error() -> None:
    """Proposition 1 against a finite difference, for an inverse CDF that rises, as it must for the proposition."""
    head = proposals(count=4).double()
    features = torch.rand(1, FEATURES, dtype=torch.float64) + 0.5

    def rising(x: torch.Tensor, taus: torch.Tensor, role: Role) -> torch.Tensor:
        return torch.stack([taus**3 + taus, 2 * taus**2, taus.exp()], 1) + 0 * x.sum()

    head.at_taus = rising
    with torch.no_grad():
        head.proposal.bias.copy_(torch.tensor([0.4, -0.3, 0.2, 0.0]))
    for action in range(ACTIONS):
        edges = head.edges(features)[0].detach()[0].tolist()
        value = gather_actions(head(features, "learn").values, torch.tensor([action]))
        gradients = []
        for i in range(1, 4):
            step = 0.004
            up, down = list(edges), list(edges)
            up[i], down[i] = edges[i] + step, edges[i] - step
            gradients.append(
                (wasserstein(head, features, up, action) - wasserstein(head, features, down, action)) / (2 * step)
            )
        edge = rising(features, torch.tensor([edges[1:-1]], dtype=torch.float64), "learn")[0, action]
        ours = (2 * edge - value[0, :-1] - value[0, 1:]).tolist()
        assert ours == pytest.approx(gradients, abs=0.01)
        whole = QuantileReturn(value, torch.zeros(1, 4), torch.zeros(1, 4))
        loss = head.fraction_loss(features, torch.tensor([action]), whole)
        (gradient,) = torch.autograd.grad(loss, head.proposal.bias)
        tau = head.edges(features)[0][0, 1:-1]
        (want,) = torch.autograd.grad((torch.tensor(gradients, dtype=torch.float64) * tau).sum(), head.proposal.bias)
        torch.testing.assert_close(gradient, want, atol=0.01, rtol=0)


def test_fqfs_two_losses_have_disjoint_parameters() -> None:
    net = QNet(nn.Linear(4, FEATURES), proposals(entropy=10.0))
    obs, action = torch.randn(3, 4), torch.tensor([0, 1, 2])
    features = net.torso(obs)
    value = net.head(features, "learn").at(action)
    proposal = {id(p) for p in net.head.proposal.parameters()}
    own = torch.autograd.grad(
        net.head.fraction_loss(features, action, value), list(net.parameters()), allow_unused=True, retain_graph=True
    )
    rest = torch.autograd.grad(
        value.loss(value.backup(torch.ones(3), torch.ones(3))).sum(), list(net.parameters()), allow_unused=True
    )
    for parameter, a, b in zip(net.parameters(), own, rest, strict=True):
        assert (a is not None) == (id(parameter) in proposal)
        assert (b is not None) == (id(parameter) not in proposal)


def test_the_entropy_term_pushes_the_fractions_apart() -> None:
    head = proposals(entropy=10.0)
    with torch.no_grad():
        head.proposal.bias.copy_(torch.tensor([3.0, 0.0, 0.0, 0.0]))
    features, action = torch.zeros(1, FEATURES), torch.tensor([0])
    flat = QuantileReturn(torch.zeros(1, 4), torch.zeros(1, 4), torch.zeros(1, 4))
    head.at_taus = lambda x, taus, role: torch.zeros(len(x), ACTIONS, taus.shape[1])
    before = head.edges(features)[1].item()
    (gradient,) = torch.autograd.grad(head.fraction_loss(features, action, flat), head.proposal.bias)
    with torch.no_grad():
        head.proposal.bias -= 0.05 * gradient
    assert head.edges(features)[1].item() > before
