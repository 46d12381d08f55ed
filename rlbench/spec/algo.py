"""What learns: one model per family of algorithms, built of parts that can be chosen independently."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlbench.spec.canon import Frozen


class Linear(Frozen):
    """A value that moves from ``start`` to ``end`` over the first ``steps`` live agent steps and then stays."""

    start: float
    end: float
    steps: int = Field(ge=1)

    def at(self, env_steps: int) -> float:
        """The value after ``env_steps`` live agent steps."""
        return self.end + (self.start - self.end) * max(0.0, 1.0 - env_steps / self.steps)


class Expected(Frozen):
    """One number per action: DQN."""

    kind: Literal["expected"] = "expected"
    huber: float | None = Field(
        default=None, gt=0
    )  # where the squared error turns linear; None is the plain squared error


class Nature(Frozen):
    """The convolutions of Mnih et al. 2015: 32@8/4, 64@4/2, 64@3/1."""

    kind: Literal["nature"] = "nature"
    scale: bool = False  # divide pixels by 255; the documented off-policy tables did not


class Mlp(Frozen):
    """Fully connected layers with ReLU."""

    kind: Literal["mlp"] = "mlp"
    widths: tuple[Annotated[int, Field(ge=1)], ...] = (64,)


class Replay(Frozen):
    """Where experience waits to be learned from."""

    capacity: int = Field(default=100_000, ge=100)  # transitions, over all lanes
    horizon: int = Field(default=1, ge=1, le=100)  # rewards summed before bootstrapping


Head = Annotated[Expected, Field()]
Torso = Annotated[Nature | Mlp, Field(discriminator="kind")]


class QLearning(Frozen):
    """Value-based control with a target network; the algorithm is the type of its head."""

    family: Literal["qlearning"] = "qlearning"
    revision: Literal[1] = 1  # raised by every change of code that can move a score
    head: Head = Expected()
    torso: Torso = Nature()
    hidden: int = Field(default=512, ge=1)  # units of the layer between torso and head
    double: bool = True  # the online network chooses the bootstrap action
    lr: float = Field(default=1e-4, gt=0)
    adam_epsilon: float = Field(default=1e-8, gt=0)
    max_grad_norm: float | None = Field(default=None, gt=0)
    gamma: float = Field(default=0.99, ge=0, le=1)
    batch: int = Field(default=32, ge=1)
    updates_per_step: float = Field(default=0.1, gt=0)  # gradient steps per live agent step
    sync_every: int = Field(default=500, ge=1)  # gradient steps between copies to the target network
    warmup: int = Field(default=320, ge=1)  # live agent steps before the first update
    epsilon: Linear = Linear(start=1.0, end=0.05, steps=1_000_000)  # chance of a random action in training
    replay: Replay = Replay()


Algo = Annotated[QLearning, Field()]
