"""Settings of offline algorithms with discrete actions: Q-learning and the additions of a method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rlbench.config import field_types
from rlbench.config.canonical import Family, Frozen, LearnsFrom
from rlbench.config.online import DQNHeadConfig, HeadConfig, NatureConfig, TorsoConfig


class DiscreteBCConfig(Frozen):
    """Behavior cloning by cross entropy; it uses only the network, ``lr`` and ``batch``."""

    kind: Literal["imitation"] = "imitation"


class DiscreteBCQConfig(Frozen):
    """BCQ: Q-learning over actions that a behavior policy of the data considers probable."""

    kind: Literal["batchconstrained"] = "batchconstrained"
    threshold: float = Field(
        default=0.3, ge=0, le=1, description="minimum probability, relative to the likeliest action's"
    )
    penalty: float = Field(default=0.01, ge=0, description="weight of the behavior policy's squared logits")


class DiscreteCQLConfig(Frozen):
    """CQL: Q-learning that penalizes the values of actions outside the data."""

    kind: Literal["conservative"] = "conservative"
    conservative_weight: float = Field(
        default=10.0, ge=0, description="weight of the gap between the values of all actions and of the data's"
    )


class DiscreteCRRConfig(Frozen):
    """CRR: behavior cloning weighted by the advantage over the current policy."""

    kind: Literal["criticregularized"] = "criticregularized"
    mode: Literal["exp", "binary", "all"] = Field(
        default="exp", description="weight of an advantage; all: plain cloning"
    )
    beta: float = Field(default=1.0, gt=0, description="divisor of advantages before exp")
    max_weight: float = Field(default=20.0, gt=0, description="upper bound of the exponential weight")
    conservative_weight: float | None = Field(default=None, gt=0, description="weight of CQL's gap; none: no such term")
    greedy: bool = Field(default=False, description="evaluate the policy's mode instead of its samples")


Method = Annotated[
    DiscreteBCConfig | DiscreteBCQConfig | DiscreteCQLConfig | DiscreteCRRConfig, Field(discriminator="kind")
]


class DiscreteOfflineConfig(Family):
    """Discrete actions, learned from a data set."""

    learns_from: ClassVar[LearnsFrom] = "data"
    epsilon_greedy: ClassVar[bool] = True
    smoke_limits: ClassVar[Mapping[str, float]] = {"batch": 64}
    updates_per_step: ClassVar[float] = 0.0  # of transitions from a replay
    family: Literal["offlineq"] = "offlineq"
    revision: field_types.Revision = 1
    method: Method = DiscreteBCQConfig()
    head: HeadConfig = DQNHeadConfig(huber=1.0)  # of the Q-values; a policy has logits of its own
    torso: TorsoConfig = NatureConfig()  # shared by values and policy
    hidden: int = Field(default=512, ge=1, description="units of the layer between torso and each head")
    lr: float = Field(default=1e-4, gt=0, description="learning rate of Adam")
    adam_epsilon: field_types.AdamEpsilon = 1e-8
    max_grad_norm: field_types.MaxGradNorm = None
    gamma: field_types.Discount = 0.99
    batch: field_types.Batch = 32
    n_step: field_types.NStep = 1
    target_update_interval: field_types.TargetUpdateInterval = 500

    @model_validator(mode="after")
    def _check_head(self) -> Self:
        if self.method.kind == "criticregularized" and self.head.kind != "expected":
            raise ValueError(f"head={self.head.kind}: the critic of method=criticregularized must be head=expected")
        return self
