"""The Q-learner against the paper's equations, evaluated by hand in float64."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from rlbench.algorithms.dqn import QLearner
from rlbench.nets.dueling import HeadMLP
from rlbench.nets.q_heads import DQNHead, QNet
from rlbench.ops.types import Transition
from tests.algorithms.by_hand import derivative

LR, ADAM_EPSILON = 1e-2, 1e-8


def learner(*, double: bool = True, huber: float | None = None, max_norm: float | None = None) -> QLearner:
    torch.manual_seed(3)
    streams = HeadMLP(features=4, hidden=6, actions=3, width=1)
    net = QNet(nn.Identity(), DQNHead(streams, huber=huber))
    adam = torch.optim.Adam(net.parameters(), lr=LR, eps=ADAM_EPSILON)
    q_learner = QLearner(net, optimizers=[adam], max_grad_norm=max_norm, double=double, target_update_interval=10)
    with torch.no_grad():
        for parameter in q_learner.target.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # a target that disagrees with the online network
    return q_learner


def batch() -> Transition:
    generator = torch.Generator().manual_seed(5)
    draw = lambda *shape: torch.randn(*shape, generator=generator)
    return Transition(
        obs=draw(5, 4),
        action=torch.tensor([0, 2, 1, 1, 0]),
        reward=draw(5),
        discount=torch.tensor([0.99, 0.0, 0.970299, 0.9, 0.99]),
        next_obs=2 * draw(5, 4),
        weight=torch.tensor([1.0, 0.5, 1.0, 0.0, 2.0]),
        slot=torch.arange(5),
    )


def q_of(net: QNet, row: Tensor) -> list[float]:
    """Two layers with loops and float64, sharing nothing with the network's own code."""
    state = {name: value.double().tolist() for name, value in net.state_dict().items()}
    x = row.double().tolist()
    hidden = []
    for weights, bias in zip(state["head.streams.hidden.weight"], state["head.streams.hidden.bias"], strict=True):
        hidden.append(max(0.0, bias + sum(w * v for w, v in zip(weights, x, strict=True))))
    return [
        bias + sum(w * v for w, v in zip(weights, hidden, strict=True))
        for weights, bias in zip(state["head.streams.out.weight"], state["head.streams.out.bias"], strict=True)
    ]


def by_hand(q_learner: QLearner, data: Transition, *, double: bool) -> tuple[float, list[float]]:
    """Mnih et al. 2015 eq. 2 with the target of van Hasselt et al. 2016 eq. 4; squared error, importance weights."""
    errors = []
    for i in range(len(data.reward)):
        future = q_of(q_learner.target, data.next_obs[i])
        chooser = q_of(q_learner.online, data.next_obs[i]) if double else future
        goal = data.reward[i].item() + data.discount[i].item() * future[chooser.index(max(chooser))]
        errors.append((goal - q_of(q_learner.online, data.obs[i])[int(data.action[i])]) ** 2)
    loss = sum(w * e for w, e in zip(data.weight.tolist(), errors, strict=True)) / len(errors)
    return loss, errors


@pytest.mark.parametrize("double", [True, False])
def test_dqn_loss_equals_the_papers_equation(*, double: bool) -> None:
    q_learner, data = learner(double=double), batch()
    loss, report = q_learner.loss(data)
    want, errors = by_hand(q_learner, data, double=double)
    assert loss.item() == pytest.approx(want, rel=1e-5)
    assert report.priority.tolist() == pytest.approx([math.sqrt(error) for error in errors], rel=1e-4)


def test_gradient_ignores_the_target() -> None:
    """A finite difference of the by-hand loss whose bootstrap is frozen."""
    q_learner, data = learner(), batch()
    targets = []
    for i in range(len(data.reward)):
        future, chooser = q_of(q_learner.target, data.next_obs[i]), q_of(q_learner.online, data.next_obs[i])
        targets.append(data.reward[i].item() + data.discount[i].item() * future[chooser.index(max(chooser))])
    wide = copy.deepcopy(q_learner.online).double()

    def frozen() -> float:
        errors = [(g - q_of(wide, o)[int(a)]) ** 2 for g, o, a in zip(targets, data.obs, data.action, strict=True)]
        return sum(w * e for w, e in zip(data.weight.tolist(), errors, strict=True)) / len(errors)

    loss, _ = q_learner.loss(data)
    gradients = torch.autograd.grad(loss, list(q_learner.online.parameters()))
    for parameter, gradient in zip(wide.parameters(), gradients, strict=True):
        flat = parameter.data.view(-1)
        for i in (0, len(flat) // 2, len(flat) - 1):
            expected = derivative(frozen, flat, i, step=1e-5)
            assert gradient.view(-1)[i].item() == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_gradient_norm_is_clipped() -> None:
    free, bound = learner(), learner(max_norm=0.01)
    free.update(batch())
    bound.update(batch())
    norm = lambda q_learner: math.sqrt(sum(p.grad.square().sum().item() for p in q_learner.online.parameters()))
    assert norm(free) > 0.1
    assert norm(bound) == pytest.approx(0.01, rel=1e-3)
