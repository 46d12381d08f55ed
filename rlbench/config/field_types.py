"""Types of the fields that several families share: range and meaning of a setting."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

Envs: TypeAlias = Annotated[int, Field(ge=1, le=10_000, description="vectorized envs")]
AsyncBatch: TypeAlias = Annotated[int | None, Field(ge=1, description="envs to wait for before acting; none: all")]
AdamEpsilon: TypeAlias = Annotated[float, Field(gt=0, description="ε of Adam, added to the root of the second moment")]
MaxGradNorm: TypeAlias = Annotated[
    float | None, Field(gt=0, description="maximum norm of gradients; none: no clipping")
]
Discount: TypeAlias = Annotated[float, Field(ge=0, le=1, description="discount per agent step")]
Batch: TypeAlias = Annotated[int, Field(ge=1, description="transitions per gradient step")]
TargetUpdateInterval: TypeAlias = Annotated[int, Field(ge=1, description="gradient steps between copies to the target")]
Alpha: TypeAlias = Annotated[float, Field(gt=0, description="entropy coefficient, initial if it is learned")]
TargetEntropy: TypeAlias = Annotated[
    float | None, Field(description="nats that a learned α aims at; none: minus the number of action dimensions")
]
LogStdMin: TypeAlias = Annotated[float, Field(description="lower bound of the log std")]
LogStdMax: TypeAlias = Annotated[float, Field(description="upper bound of the log std")]
Revision: TypeAlias = Annotated[Literal[1], Field(description="raised by every change of code that can move a score")]
Critics: TypeAlias = Annotated[int, Field(ge=1, description="critics, whose minimum is the target")]
ActorLr: TypeAlias = Annotated[float, Field(gt=0, description="learning rate of the actor's Adam")]
Polyak: TypeAlias = Annotated[float, Field(gt=0, le=1, description="Polyak coefficient per gradient step")]
NStep: TypeAlias = Annotated[int, Field(ge=1, le=100, description="rewards summed per target, within an episode")]
