"""The chunked MLP against the whole one: values, gradients, and the conditions of chunking."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rlbench.nets import chunked_mlp
from rlbench.nets.chunked_mlp import CHUNK, MIN_ROWS, apply_chunked, pays_to_chunk
from rlbench.nets.critics import Critics


def layers_of(critics: Critics, members: int) -> list[Tensor]:
    return [p[:members] for layer in critics.layers for p in layer.parameters()]


@given(
    rows=st.integers(1, 40),
    part=st.integers(1, 15),
    members=st.integers(1, 3),
    widths=st.lists(st.integers(1, 6), max_size=3),
)
def test_chunked_mlp_equals_the_whole_mlp(rows: int, part: int, members: int, widths: list[int]) -> None:
    """Of any number of members and layers, whether or not rows divide; in float64 sums agree to the last digits."""
    torch.manual_seed(rows)
    critics = Critics(members=3, obs=3, actions=2, widths=widths).double()
    obs, action = torch.randn(rows, 3).double(), torch.randn(rows, 2).double()
    pull, parameters = torch.randn(members, rows).double(), list(critics.parameters())
    assert rows < MIN_ROWS
    whole = critics(obs, action, members)
    expected = torch.autograd.grad(whole, parameters, pull, materialize_grads=True)
    before = chunked_mlp.CHUNK
    try:
        chunked_mlp.CHUNK = part
        output = apply_chunked(torch.cat([obs, action], 1), *layers_of(critics, members)).squeeze(-1)
        gradients = torch.autograd.grad(output, parameters, pull, materialize_grads=True)
    finally:
        chunked_mlp.CHUNK = before
    torch.testing.assert_close(output, whole, rtol=1e-12, atol=1e-13)
    for gradient, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-10, atol=1e-12)


def test_many_rows_in_chunks_give_equal_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """As CQL asks: 31 actions at each of 256 observations; what is differentiated is a soft maximum over them."""
    torch.manual_seed(0)
    critics = Critics(members=2, obs=17, actions=6, widths=(256, 256))
    obs, action = torch.randn(256, 17), torch.rand(31, 256, 6)

    def gradients() -> tuple[Tensor, ...]:
        value = critics.action_values(obs, action)
        assert ("ChunkedMLP" in str(value.grad_fn.next_functions[0][0].next_functions)) is (
            chunked_mlp.MIN_ROWS == MIN_ROWS
        )
        return torch.autograd.grad(value.logsumexp(1).mean(1).sum(), list(critics.parameters()))

    output = gradients()
    monkeypatch.setattr(chunked_mlp, "MIN_ROWS", 10**9)
    for one, other in zip(output, gradients(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)


def test_chunks_are_used_only_for_many_rows_on_a_cpu_without_input_gradients() -> None:
    rows = torch.zeros(MIN_ROWS, 2)
    assert MIN_ROWS > CHUNK
    assert pays_to_chunk(rows)
    assert not pays_to_chunk(rows[1:])
    assert not pays_to_chunk(rows.to("meta"))
    expected = rows.clone().requires_grad_()
    assert not pays_to_chunk(expected), "an actor needs the gradients of the actions"
    with torch.no_grad():
        assert pays_to_chunk(expected)


def test_second_derivatives_are_refused() -> None:
    critics = Critics(members=1, obs=1, actions=1, widths=(2,))
    value = apply_chunked(torch.ones(3, 2), *layers_of(critics, 1))
    gradients = torch.autograd.grad(value.sum(), list(critics.parameters()), create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        gradients[0].sum().backward()
