"""What the default adapter answers, byte for byte: a change here changes scores, and the changelog must say so."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import version

import numpy as np
import pytest

from rlbench.envs.base import VectorEnv

Make = Callable[..., VectorEnv]
MADE_WITH = "0.12.1"  # ale-py
GOLDEN = {
    ("pong", True): "96b3759333bfa197bf2d7ad3c5e742c7e1398eaa8f8d2f5fd9218dc2c5ad23b9",
    ("breakout", True): "a58b0142eb4c5cc53a71a2dfc7fbad3cecaa0b6ee8c66ed4fd6659694acbbf61",
    ("breakout", False): "b25e61d575d0937a5dbc57013d2159a3f1f60627a90b9ab36a660f8a277f7d36",
}


@pytest.mark.parametrize(("game", "training"), GOLDEN, ids=str)
def test_a_thousand_rows_of_the_default_adapter_are_as_recorded(make_atari: Make, game: str, *, training: bool) -> None:
    env = make_atari("ale", game, seeds=[1, 2], training=training)
    seen = sha256(env.reset().tobytes())
    for action in np.random.default_rng(0).integers(env.info.actions.n, size=(500, 2)):
        env.send(action)
        for column in env.recv():
            seen.update(column.tobytes())
    assert seen.hexdigest() == GOLDEN[game, training], f"recorded with ale-py {MADE_WITH}, this is {version('ale-py')}"
