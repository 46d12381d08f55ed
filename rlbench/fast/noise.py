"""The state of torch's own generators, from which networks draw: noise in weights, fractions of a distribution."""

from __future__ import annotations

from typing import Self

import torch

from rlbench.ops.state import State, tensor


class Noise:
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


class Stream:
    """What one of several runs in a process draws from torch's own generators: theirs while it stands, else aside."""

    def __init__(self, card: torch.device | None) -> None:
        self.card = card
        self.host = torch.Generator()
        self.own = self.host if card is None else torch.Generator(card)  # of the device that networks are on

    def __enter__(self) -> Self:
        torch.set_rng_state(self.host.get_state())
        if self.card is not None:
            torch.cuda.set_rng_state(self.own.get_state(), self.card)
        return self

    def __exit__(self, *_: object) -> None:
        self.host.set_state(torch.get_rng_state())
        if self.card is not None:
            self.own.set_state(torch.cuda.get_rng_state(self.card))
