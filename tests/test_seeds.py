"""Named random streams."""

import numpy as np
import torch

from rlbench.seeds import Seeds


def test_equal_names_give_equal_streams_in_any_order_of_calls() -> None:
    one, two = Seeds(7), Seeds(7)
    first = one.child("env", 3).numpy().random(4)
    two.child("replay").numpy().random(100)
    assert np.array_equal(first, two.child("env", 3).numpy().random(4))
    assert one.child("env").child(3) == one.child("env", 3)


def test_other_names_and_other_roots_give_other_streams() -> None:
    root = Seeds(7)
    numbers = {
        s.number() for s in (root, root.child("env"), root.child("env", 0), root.child("env", 1), Seeds(8).child("env"))
    }
    assert len(numbers) == 5


def test_streams_are_constant_across_versions() -> None:
    """Literal: a change here changes every score."""
    assert Seeds(0).child("env", 0).number() == 2750942221
    assert Seeds(0).child("explore").numbers(3) == (2034211244, 979128166, 747863378)


def test_envs_never_share_a_seed() -> None:
    numbers = Seeds(1).child("env", 0).numbers(1000)
    assert len(set(numbers)) == len(numbers) == 1000
    assert max(numbers) < 2**31


def test_the_torch_generator_follows_the_stream() -> None:
    draws = [torch.rand(2, generator=Seeds(3).child("x").torch(torch.device("cpu"))).tolist() for _ in range(2)]
    assert draws[0] == draws[1]
