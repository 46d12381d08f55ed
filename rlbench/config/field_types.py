"""Types of the fields that several families share: range and meaning of a setting."""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo

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
AlphaLr: TypeAlias = Annotated[float | None, Field(gt=0, description="learning rate of α; none: α is fixed")]
LogStdMin: TypeAlias = Annotated[float, Field(description="lower bound of the log std")]
Revision: TypeAlias = Annotated[Literal[1], Field(description="raised by every change of code that can move a score")]
Critics: TypeAlias = Annotated[int, Field(ge=1, le=1_000, description="critics, whose minimum is the target")]
CriticLr: TypeAlias = Annotated[float, Field(gt=0, description="learning rate of the critics' Adam")]
ActorLr: TypeAlias = Annotated[float, Field(gt=0, description="learning rate of the actor's Adam")]
Polyak: TypeAlias = Annotated[float, Field(gt=0, le=1, description="Polyak coefficient per gradient step")]
UpdatesPerStep: TypeAlias = Annotated[float, Field(gt=0, le=1_000, description="gradient steps per agent step")]
LearningStarts: TypeAlias = Annotated[int, Field(ge=1, description="agent steps before the first update")]
Widths: TypeAlias = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(max_length=100)]
NStep: TypeAlias = Annotated[int, Field(ge=1, le=100, description="rewards summed per target, within an episode")]


def _check_log_std(maximum: float, info: ValidationInfo) -> float:
    minimum = (info.data or {}).get("log_std_min", -math.inf)  # no data: the field is validated alone
    if minimum >= maximum:
        raise ValueError(f"log_std_min={minimum} must lie below log_std_max={maximum}")
    return maximum


def _check_target_entropy(target: float | None, info: ValidationInfo) -> float | None:
    if target is not None and (info.data or {}).get("alpha_lr", 0.0) is None:
        raise ValueError(f"target_entropy={target}: nothing aims at it while alpha_lr is none")
    return target


LogStdMax: TypeAlias = Annotated[float, Field(description="upper bound of the log std"), AfterValidator(_check_log_std)]
TargetEntropy: TypeAlias = Annotated[
    float | None,
    Field(description="nats that a learned α aims at; none: minus the number of action dimensions"),
    AfterValidator(_check_target_entropy),
]
