"""Weighted means, and loss terms of offline learners, which return one number per row for a learner to average."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlbench.ops.return_distributions import gather_actions


def weighted_mean(x: Tensor, weight: Tensor) -> Tensor:
    """The mean of ``x`` ``[...]`` under ``weight`` ``[...]``, ``[]``; 0 if every weight is 0."""
    return (x * weight).sum() / weight.sum().clamp_min(torch.finfo(x.dtype).eps)


def valid_mean(x: Tensor, weight: Tensor) -> Tensor:
    """The mean of ``x`` ``[..., B]`` over the rows whose ``weight`` ``[B]`` is not 0, ``[]``; 0 if there are none."""
    return weighted_mean(x, (weight > 0).to(x.dtype).expand_as(x))


def bc_mse(action: Tensor, data: Tensor) -> Tensor:
    """The squared error of actions ``[B, A]`` against the data's, mean over their dimensions, ``[B]``."""
    return (action - data).square().mean(-1)


def expectile_loss(error: Tensor, expectile: float) -> Tensor:
    """``|τ − 1(u < 0)| u²`` of errors ``u`` (target minus prediction) ``[...]``, ``[...]`` (2110.06169, eq. 4)."""
    return (expectile - (error < 0).to(error.dtype)).abs() * error.square()


def exponential_weight(advantage: Tensor, scale: float, bound: float) -> Tensor:
    """``min(exp(scale · A), bound)`` of advantages ``[...]``, ``[...]``, always finite (2006.15134, eq. 4)."""
    return (scale * advantage).clamp(max=math.log(bound)).exp()


def binary_weight(advantage: Tensor) -> Tensor:
    """1 where the advantage ``[...]`` is positive and 0 elsewhere, ``[...]`` (2006.15134, eq. 3)."""
    return (advantage > 0).to(advantage.dtype)


def lambda_mix(value: Tensor, lmbda: float) -> Tensor:
    """``λ min + (1 − λ) max`` over the ensemble ``[K, ...]`` (1812.02900, eq. 13), ``[...]``."""
    return lmbda * value.amin(0) + (1 - lmbda) * value.amax(0)


def conservative_gap(data: Tensor, values: Tensor, log_density: Tensor, temperature: float) -> Tensor:
    """CQL's gap: log-sum-exp of Q over all actions minus Q of the data's, ``[K, B]`` (2006.04779, eq. 4, appendix F).

    ``data`` ``[K, B]`` is Q of the data's actions; ``values`` ``[K, M, B]`` is Q of M sampled actions with
    log-densities ``log_density`` ``[M, B]``. The sum is importance-weighted but not divided by M, as in the reference
    code.
    """
    return temperature * ((values - log_density) / temperature).logsumexp(1) - data


def discrete_conservative_gap(mean: Tensor, action: Tensor) -> Tensor:
    """CQL's gap ``[B]`` over discrete actions, from Q-values ``mean`` ``[B, A]`` and the data's ``action`` ``[B]``."""
    return mean.logsumexp(-1) - gather_actions(mean, action)


def probable_actions(logits: Tensor, threshold: float) -> Tensor:
    """Actions at least ``threshold`` times as probable as the most probable (1910.01708, eq. 10), ``[B, A]`` bool.

    It compares logits, so that no probability is rounded; the most probable action always passes.
    """
    return logits - logits.amax(-1, keepdim=True) >= (math.log(threshold) if threshold > 0 else -math.inf)


def kl_to_standard_normal(mean: Tensor, log_std: Tensor) -> Tensor:
    """KL(N(mean, std²) ‖ N(0, 1)) of ``[B, L]``, mean over the latent dimensions as in the paper's code, ``[B]``."""
    return 0.5 * ((2 * log_std).exp() + mean.square() - 1 - 2 * log_std).mean(-1)
