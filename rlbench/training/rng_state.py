"""The state of torch's own generators, from which networks draw: noise in weights, fractions of a distribution."""

from __future__ import annotations

import torch

from rlbench.ops.state_dict import State, tensor


class RngState:
    """The host's generator and, where a run computes on a card, that card's."""

    def __init__(self, card: torch.device | None) -> None:
        self.card = card

    def state_dict(self) -> State:
        """Both states; on the host."""
        host: State = {"host": torch.get_rng_state()}
        return host if self.card is None else {**host, "card": torch.cuda.get_rng_state(self.card)}

    def load_state_dict(self, state: State) -> None:
        """Draw on from there; a state saved without a card leaves the card's alone."""
        torch.set_rng_state(tensor(state, "host"))
        if self.card is not None and "card" in state:
            torch.cuda.set_rng_state(tensor(state, "card"), self.card)
