"""Readers of loaded state refuse values of another kind."""

import math
from collections.abc import Callable

import pytest
import torch

from rlbench.ops.state_dict import State, integer, number, subtree, tensor


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (integer, True), (integer, -1), (integer, 2**53 + 1), (integer, 1.0),
        (number, math.inf), (number, math.nan), (number, 10**400), (number, "1"),
        (tensor, 1), (subtree, 1),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_refused_by_name(read: Callable[[State, str], object], value: float | str) -> None:
    with pytest.raises(TypeError, match="steps: expected "):
        read({"steps": value}, "steps")


def test_a_tensor_of_another_dtype_is_refused_by_both_dtypes() -> None:
    with pytest.raises(TypeError, match=r"mean: expected torch.float32 \(2,\), found torch.float64 \(2,\)"):
        tensor({"mean": torch.zeros(2, dtype=torch.float64)}, "mean", like=torch.zeros(2))


def test_a_branch_without_leaves_is_not_written_and_reads_as_empty() -> None:
    assert subtree({}, "sums") == {}
    assert (integer({"steps": 0}, "steps"), number({"seconds": 1}, "seconds")) == (0, 1)
