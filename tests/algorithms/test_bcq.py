"""BCQ against its algorithm 1, by an independent implementation in float64."""

import numpy as np
import pytest
import torch

from rlbench.algorithms.bcq import BCQ
from rlbench.config.offline import BCQConfig
from rlbench.nets.bcq_vae import ActionVAE, BCQPolicy, PerturbationNet
from tests.algorithms import by_hand, small_nets
from tests.algorithms.recorded import ACTIONS, BATCH, OBS, WIDTHS, Array, batch, noise, numbers, rows, seeded

LATENT, REACH = 4, 0.05


def learner_of() -> BCQ:
    torch.manual_seed(0)
    proposer = ActionVAE(obs=OBS, actions=ACTIONS, latent=LATENT, widths=(7, 6)).double()
    perturbation = PerturbationNet(obs=OBS, actions=ACTIONS, widths=WIDTHS, perturbation=REACH).double()
    nets = {"proposer": proposer, "critic": small_nets.critics(), "perturbation": perturbation}
    small_nets.spread(proposer, perturbation, nets["critic"])
    net = BCQPolicy(proposer, perturbation, nets["critic"])
    optimizers = {f"{name}_optimizer": small_nets.adam(part) for name, part in nets.items()}
    learner = BCQ(net, **optimizers, tau=0.25, config=BCQConfig(n_action_samples=3, eval_action_samples=20))
    small_nets.spread(learner.target_perturbation, learner.target_critics)
    return learner


def decoded(proposer: ActionVAE, obs: Array, code: Array) -> Array:
    return np.tanh(by_hand.through(np.concatenate([obs, code]), proposer.decoder, proposer.action))


def shifted(net: PerturbationNet, obs: Array, action: Array) -> Array:
    shift = np.tanh(by_hand.through(np.concatenate([obs, action]), net.layers, net.shift))
    return np.clip(action + REACH * shift, -1, 1)


def test_vae_loss_equals_reconstruction_plus_half_the_kl() -> None:
    learner, b = learner_of(), batch()
    proposer = learner.net.proposer
    loss, error, divergence = seeded(lambda: learner.model_loss(b))
    errors, divergences = [], []
    for row, draw in zip(rows(b), noise(BATCH, LATENT), strict=True):
        both = np.concatenate([row.obs, row.action])
        mean = by_hand.through(both, proposer.encoder, proposer.mean)
        std = np.exp(np.clip(by_hand.through(both, proposer.encoder, proposer.log_std), -4, 15))
        errors.append(np.square(decoded(proposer, row.obs, mean + std * draw) - row.action).mean())
        divergences.append(-0.5 * (1 + np.log(std**2) - mean**2 - std**2).mean())
    weight = numbers(b.weight)
    assert loss.item() == pytest.approx(np.dot(weight, np.add(errors, 0.5 * np.array(divergences))) / 5, rel=1e-12)
    assert error.item() == pytest.approx(np.average(errors, weights=weight), rel=1e-12)
    assert divergence.item() == pytest.approx(np.average(divergences, weights=weight), rel=1e-12)


@pytest.mark.parametrize(("bias", "log_std"), [(100.0, 15.0), (-100.0, -4.0)])
def test_vae_std_stays_within_its_bounds(bias: float, log_std: float) -> None:
    proposer = learner_of().net.proposer
    proposer.log_std.bias.data.fill_(bias)
    assert (proposer(batch().obs, batch().action).log_std == log_std).all()


def test_proposed_actions_come_from_latents_clipped_at_one_half() -> None:
    learner, b = learner_of(), batch()
    here, there = seeded(lambda: learner.proposals(b))
    code = np.clip(noise(1, 4 * BATCH, LATENT)[0], -0.5, 0.5).reshape(4, BATCH, -1)
    assert (np.abs(code) == 0.5).any()
    for i, row in enumerate(rows(b)):
        assert numbers(here[i]) == pytest.approx(decoded(learner.net.proposer, row.obs, code[0, i]), rel=1e-12)
        for m in range(3):
            expected = decoded(learner.net.proposer, row.next_obs, code[1 + m, i])
            assert numbers(there[m, i]) == pytest.approx(expected, rel=1e-12)


def test_bcq_critics_regress_to_the_best_lambda_mix_of_perturbed_proposals() -> None:
    learner, b = learner_of(), batch()
    _, there = learner.proposals(b)
    targets = []
    for i, row in enumerate(rows(b)):
        mixes = []
        for m in range(3):
            action = shifted(learner.target_perturbation, row.next_obs, numbers(there[m, i]))
            values = [by_hand.q(learner.target_critics, k, row.next_obs, action) for k in range(2)]
            mixes.append(0.75 * min(values) + 0.25 * max(values))
        targets.append(row.reward + row.discount * max(mixes))
    expected, errors = by_hand.regressed(learner.net.critics, b, targets)
    loss, _, error = learner.critic_loss(b, there)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    assert numbers(error) == pytest.approx(errors, rel=1e-12)


def test_perturbation_ascends_the_first_critic_row_by_row() -> None:
    learner, b = learner_of(), batch()
    here, _ = learner.proposals(b)
    learner.net.critics.layers[-1].bias.data[0] += 10  # it is not the least one
    expected = 0.0
    for row, proposal in zip(rows(b), numbers(here), strict=True):
        action = shifted(learner.net.perturbation, row.obs, proposal)
        expected -= row.weight * by_hand.q(learner.net.critics, 0, row.obs, action) / BATCH
    assert learner.policy_loss(b, here).item() == pytest.approx(expected, rel=1e-12)


def test_bcq_acts_with_the_best_candidate_by_the_first_critic() -> None:
    learner, b = learner_of(), batch()
    actual = seeded(lambda: learner.act(b.obs, "eval"))
    code, net, choices = np.clip(noise(20, BATCH, LATENT), -0.5, 0.5), learner.net, set()
    for i, row in enumerate(rows(b)):
        actions = [shifted(net.perturbation, row.obs, decoded(net.proposer, row.obs, code[m, i])) for m in range(20)]
        best = int(np.argmax([by_hand.q(net.critics, 0, row.obs, action) for action in actions]))
        choices.add(best)
        assert numbers(actual[i]) == pytest.approx(actions[best], rel=1e-12)
    assert len(choices) > 1


def test_critic_and_perturbation_losses_leave_the_vae() -> None:
    learner, b = learner_of(), batch()
    here, there = learner.proposals(b)
    parameters = list(learner.net.proposer.parameters())
    for loss in (learner.critic_loss(b, there)[0], learner.policy_loss(b, here)):
        assert all(s is None for s in torch.autograd.grad(loss, parameters, allow_unused=True))


def test_perturbation_stays_within_its_scale_and_the_action_bounds() -> None:
    torch.manual_seed(0)
    net = PerturbationNet(obs=OBS, actions=ACTIONS, widths=WIDTHS, perturbation=0.05)
    with torch.no_grad():
        net.shift.weight.mul_(1e3)
        action = torch.rand(50, 7, ACTIONS) * 2 - 1
        actual = net(torch.randn(7, OBS), action)
    assert float((actual - action).abs().max()) <= 0.05 + 1e-6
    assert float((actual - action).abs().max()) > 0.04
    assert float(actual.abs().max()) <= 1


@pytest.mark.parametrize(("clip", "most"), [(0.5, 0.5), (0.1, 0.1), (None, np.inf)])
def test_latents_are_clipped_at_the_configured_bound(
    clip: float | None, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposer = ActionVAE(obs=OBS, actions=ACTIONS, latent=14, widths=WIDTHS, clip=clip)
    monkeypatch.setattr(proposer, "decode", lambda _, code: code)
    torch.manual_seed(0)
    code = proposer.propose(torch.zeros(40, OBS), 10)
    assert code.shape == (10, 40, 14)
    torch.manual_seed(0)
    torch.testing.assert_close(code, torch.randn(10, 40, 14).clamp(-most, most))
