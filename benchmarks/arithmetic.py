"""FLOP of one update of Q-learning on frames, in matrix products and convolutions.

Elementwise work is left out (C51's projection, the pairs of quantiles, cosines, Adam). So a floor of this count is too
low for every library, most of all for one with many quantiles.
"""

from __future__ import annotations

from typing import NamedTuple

from rlbench.config.online import DQNHeadConfig, FQFHeadConfig, IQNHeadConfig, QLearningConfig, QRDQNHeadConfig

CONVOLUTIONS = ((20, 32, 8, 4), (9, 64, 4, 32), (7, 64, 3, 64))  # side and channels out, side of kernel, channels in
FEATURES = 7 * 7 * 64


class Rows(NamedTuple):
    """Fractions per state at which a head is evaluated: when predicting, bootstrapping and for FQF's edges."""

    learn: int = 1
    target: int = 1
    edges: int = 0


def update_flop(algo: QLearningConfig, *, batch: int, actions: int, noisy_products: int = 1) -> int:
    """FLOP of one update.

    The online network on ``obs``, the target network on ``next_obs``, for double Q-learning the online network there
    too; then backward twice the first of them, less the gradients with respect to pixels and cosines. A noisy
    layer needs one product; ours does ``noisy_products`` of 2, so that it never computes the noisy matrix.
    """
    torso, first = sum(map(_convolution, CONVOLUTIONS)), _convolution(CONVOLUTIONS[0])
    rows, streams = _rows(algo), _streams(algo, actions) * (1 if algo.noisy is None else noisy_products)
    embedding = _product(algo.head.cosines, FEATURES) if isinstance(algo.head, IQNHeadConfig | FQFHeadConfig) else 0
    proposal = _product(FEATURES, algo.head.n_quantiles) if isinstance(algo.head, FQFHeadConfig) else 0
    row = streams + embedding
    predicting = torso + rows.learn * row
    following = torso + rows.target * row + proposal
    backward = 2 * predicting - first - rows.learn * embedding
    # FQF's edges; its proposal at obs, once more for its own loss, and that loss's gradient
    fractions = rows.edges * row + 3 * proposal
    return batch * (predicting + (2 if algo.double else 1) * following + backward + fractions)


def _rows(algo: QLearningConfig) -> Rows:
    match algo.head:
        case IQNHeadConfig(n_taus=learn, n_target_taus=target):
            return Rows(learn, target)
        case FQFHeadConfig(n_quantiles=count):
            return Rows(count, count, count - 1)
        case _:
            return Rows()


def _streams(algo: QLearningConfig, actions: int) -> int:
    """FLOP of one row of features through the layers after the torso."""
    match algo.head:
        case DQNHeadConfig() | IQNHeadConfig() | FQFHeadConfig():
            width = 1
        case QRDQNHeadConfig(n_quantiles=count):
            width = count
        case _:
            width = algo.head.n_atoms
    outputs = (actions * width, width) if algo.dueling else (actions * width,)
    return sum(_product(FEATURES, algo.hidden) + _product(algo.hidden, numbers) for numbers in outputs)


def _convolution(shape: tuple[int, int, int, int]) -> int:
    side, channels, kernel, inputs = shape
    return 2 * side * side * channels * kernel * kernel * inputs


def _product(inputs: int, outputs: int) -> int:
    return 2 * inputs * outputs
