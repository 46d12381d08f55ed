"""A pure function of tensors, compiled whole at its first call, or left as it is where that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar, TypeVarTuple

import torch

Backend: TypeAlias = Callable[..., object]
"""What torch gives a traced function to."""

GivenT = TypeVarTuple("GivenT")
FoundT = TypeVar("FoundT")


class Compiled(Generic[*GivenT, FoundT]):
    """``plain``, by ``backend``; it draws the numbers that ``plain`` would."""

    def __init__(self, plain: Callable[[*GivenT], FoundT], *, backend: str | Backend = "inductor") -> None:
        options: dict[str, str | int | bool | Callable[..., object]] = {"fallback_random": True}
        self.plain = plain
        self.quick: Callable[[*GivenT], FoundT] = torch.compile(
            plain, fullgraph=True, dynamic=False, backend=backend, options=options if backend == "inductor" else None
        )
        self.refusal: str | None = None  # why it is not compiled after all
        self._tried = False

    def __call__(self, *given: *GivenT) -> FoundT:
        """What ``plain`` gives."""
        if self.refusal is not None:
            return self.plain(*given)
        if self._tried:
            return self.quick(*given)
        try:
            found = self.quick(*given)
        except RuntimeError as error:  # a break in the graph, no C++ compiler, a kernel that cannot be made
            self.refusal = f"could not be compiled ({_brief(error)})"
            return self.plain(*given)
        self._tried = True
        return found


def _brief(error: RuntimeError) -> str:
    """Its name, and the first two lines of what it says: the first may only name the backend."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join([f"{type(error).__name__}:", *lines[:2]])
