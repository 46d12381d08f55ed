"""Student's t for any degrees of freedom and the normal quantile: all that verdicts need, without scipy's start-up.

The distribution is the regularised incomplete beta function (continued fraction of DLMF 8.17.22, by Lentz's method);
quantiles are its inverse by Newton's steps between bounds. Agrees with scipy to 1e-8.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

TINY = 1e-300


@lru_cache(maxsize=4096)
def quantile(probability: float, degrees: float) -> float:
    """The t below which ``probability`` of Student's distribution with ``degrees`` degrees of freedom lies."""
    if probability < 0.5:
        return -quantile(1 - probability, degrees)
    if probability == 0.5:
        return 0.0  # where Newton's steps have nothing to start from on one side
    low, high = 0.0, 1.0
    while distribution(high, degrees) < probability:
        low, high = high, 2 * high
    t = (low + high) / 2
    for _ in range(100):
        excess = distribution(t, degrees) - probability
        low, high = (low, t) if excess > 0 else (t, high)
        step = t - excess / _density(t, degrees)
        following = step if low < step < high else (low + high) / 2  # Newton's step, kept between its bounds
        if abs(following - t) < 1e-14 * max(1.0, t):
            break
        t = following
    return t


def distribution(t: float, degrees: float) -> float:
    """The probability that Student's t with ``degrees`` degrees of freedom is at most ``t``."""
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    tail = _beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2
    return 1 - tail if t > 0 else tail


def _density(t: float, degrees: float) -> float:
    scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
    return math.exp(scale - (degrees + 1) / 2 * math.log1p(t * t / degrees))


def normal_quantile(probability: float) -> float:
    """The z below which ``probability`` of the standard normal distribution lies."""
    return NormalDist().inv_cdf(probability)


def _beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x in {0.0, 1.0}:
        return x
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(scale) * _fraction(a, b, x) / a
    return 1 - math.exp(scale) * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction that converges fast for x < (a + 1) / (a + b + 2)."""
    c, d = 1.0, 1 / _kept_off_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 1000):
        before = value
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _kept_off_zero(1 + term * d)
            c = _kept_off_zero(1 + term / c)
            value *= c * d
        if abs(value - before) < 1e-15 * abs(value):
            break
    return value


def _kept_off_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY
