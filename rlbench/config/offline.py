"""Settings of offline algorithms: one family of continuous actions and one of discrete ones, each with its methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from rlbench.config import field_types
from rlbench.config.canonical import Export, Family, Frozen, LearnsFrom
from rlbench.config.online import DQNHeadConfig, HeadConfig, NatureConfig, TorsoConfig

FinalLayerInit: TypeAlias = Literal["linear", "xavier", "uniform"]
"""Initialization of an actor's last layer: torch's own, Xavier's with gain 0.01 and no bias, or within ±0.001."""


class OfflineMethod(Frozen):
    """A method of the family; most have a deterministic actor, or a Gaussian around a mean after tanh."""

    @property
    def export(self) -> Export | str:
        """The form of the actor in a policy file, or the reason why there is none."""
        return Export(log_std=False)


class BCConfig(OfflineMethod):
    """Behavior cloning; of the family's settings it uses only ``widths``, ``actor_lr`` and ``batch``."""

    kind: Literal["imitation"] = "imitation"  # BC
    policy: Literal["deterministic", "gaussian"] = Field(
        default="deterministic", description="regression or likelihood"
    )


class BCQConfig(OfflineMethod):
    """BCQ: the action of the highest value among samples of a VAE of the data's actions."""

    kind: Literal["batchconstrained"] = "batchconstrained"  # BCQ
    vae_widths: field_types.Widths = Field(
        default=(512, 512), description="hidden layers of the encoder and of the decoder; the paper's are 750"
    )
    vae_lr: float = Field(default=1e-3, gt=0, description="learning rate of the VAE's Adam")
    latent: int = Field(default=2, ge=1, description="latent numbers per action dimension")
    latent_dim: int | None = Field(default=None, ge=1, description="latent numbers; none: latent per action dimension")
    latent_clip: float | None = Field(default=0.5, gt=0, description="bound of sampled latents; none: no clipping")
    vae_kl_weight: float = Field(default=0.5, ge=0, description="weight of the KL divergence per latent number")
    perturbation: float = Field(default=0.05, ge=0, le=1, description="φ: maximum shift of an action in [−1, 1]")
    n_action_samples: int = Field(default=10, ge=1, description="sampled actions per state in a target")
    eval_action_samples: int = Field(default=100, ge=1, description="sampled actions per state when acting")
    lmbda: float = Field(default=0.75, ge=0, le=1, description="λ: weight of the critics' minimum; 1 − λ: maximum")

    @property
    def export(self) -> str:
        """The actor is no single network."""
        return "BCQ's actor chooses among sampled candidates; record another run's"


class CQLConfig(OfflineMethod):
    """CQL: SAC whose critics are penalized on actions outside the data."""

    kind: Literal["conservative"] = "conservative"  # CQL
    conservative_weight: float = Field(
        default=1.0, gt=0, description="weight of the gap between the values of all actions and of the data's"
    )
    temperature: float = Field(default=1.0, gt=0, description="temperature of the log-sum-exp")
    n_action_samples: int = Field(default=10, ge=1, description="actions of each kind: uniform, policy at s and at s'")
    lagrange_threshold: float | None = Field(
        default=10.0, description="weighted gap above which its multiplier grows; none: the multiplier is 1"
    )
    multiplier_lr: float = Field(default=3e-4, gt=0, description="learning rate of the multiplier's Adam")
    max_multiplier: float = Field(default=1e6, ge=1, description="upper bound of the multiplier")
    max_grad_norm: float | None = Field(default=1.0, gt=0, description="gradient norm bound per critic; none: no bound")
    soft_q_backup: bool = Field(default=True, description="add the entropy term to the TD target; the paper does not")
    alpha: field_types.Alpha = 1.0
    alpha_lr: field_types.AlphaLr = 1e-4
    target_entropy: field_types.TargetEntropy = None
    log_std_min: field_types.LogStdMin = -20.0
    log_std_max: field_types.LogStdMax = 2.0
    log_std_offset: float | None = Field(
        default=None, description="initial shift of the log std, learned like its scale of 1; none: neither"
    )
    mean_bound: float | None = Field(default=None, gt=0, description="bound of the mean before tanh; none: no clipping")
    orthogonal_init: bool = Field(
        default=False, description="orthogonal initialization of the critics: gain √2, last layer 0.01, biases 0"
    )
    final_init: FinalLayerInit = Field(default="linear", description="initialization of the actor's last layer")
    actor_first: bool = Field(default=False, description="the actor's gradient step precedes the critics'")
    bc_steps: int = Field(default=0, ge=0, description="first gradient steps, in which the actor clones the behavior")

    @property
    def export(self) -> Export | str:
        """Mean and log std before tanh; the format bounds no mean."""
        if self.mean_bound is not None:
            return "its actor bounds the mean before tanh, which a policy file cannot; record another run's"
        return Export(log_std_bounds=(str(self.log_std_min), str(self.log_std_max)))


class CRRConfig(OfflineMethod):
    """CRR: behavior cloning weighted by the advantage over the current policy."""

    kind: Literal["criticregularized"] = "criticregularized"  # CRR
    mode: Literal["exp", "binary"] = Field(default="exp", description="weight of an advantage")
    beta: float = Field(default=1.0, gt=0, description="divisor of advantages before exp")
    max_weight: float = Field(default=20.0, gt=0, description="upper bound of the exponential weight")
    n_action_samples: int = Field(default=4, ge=1, description="policy actions per state in the advantage's baseline")
    advantage_type: Literal["mean", "max"] = Field(
        default="mean", description="baseline of the advantage over the sampled actions' values"
    )
    critics: field_types.Critics = 2
    target_update_interval: int | None = Field(
        default=None, ge=1, description="gradient steps between copies to the targets; none: average by tau"
    )


class TD3BCConfig(OfflineMethod):
    """TD3+BC: TD3 whose actor's loss adds behavior cloning."""

    kind: Literal["td3bc"] = "td3bc"
    alpha: float = Field(
        default=2.5, gt=0, description="α: the weight of Q is α / mean |Q|, that of the squared error 1"
    )
    delay: int = Field(default=2, ge=1, description="critic steps per actor step")
    smoothing: float | None = Field(default=0.2, gt=0, description="std of the target action's noise; none: no noise")
    clip: float = Field(default=0.5, gt=0, description="bound of the noise on the target's action")


class IQLConfig(OfflineMethod):
    """IQL: a state value by expectile regression on Q of the data's actions; advantage-weighted behavior cloning."""

    kind: Literal["implicitq"] = "implicitq"  # IQL
    expectile: float = Field(default=0.7, gt=0, lt=1, description="τ of the expectile; 0.5 is the mean")
    temperature: float = Field(default=3.0, ge=0, description="factor of advantages before exp; 0 is behavior cloning")
    max_weight: float = Field(default=100.0, gt=0, description="upper bound of the exponential weight")
    lr_decay_steps: int | None = Field(
        default=None,
        ge=1,
        description="gradient steps of the actor's cosine learning rate schedule to 0; none: constant",
    )
    log_std_min: field_types.LogStdMin = -5.0
    log_std_max: field_types.LogStdMax = 2.0
    policy: Literal["gaussian", "deterministic", "conditional"] = Field(
        default="gaussian",
        description="gaussian: one std for all states; deterministic: none; conditional: a std for each state",
    )


Method = Annotated[BCConfig | BCQConfig | CQLConfig | CRRConfig | TD3BCConfig | IQLConfig, Field(discriminator="kind")]


class OfflineConfig(Family):
    """Continuous actions, learned from a data set."""

    learns_from: ClassVar[LearnsFrom] = "data"
    vectors_only: ClassVar[bool] = True
    smoke_limits: ClassVar[Mapping[str, float]] = {"batch": 64}
    updates_per_step: ClassVar[float] = 0.0  # of transitions from a replay
    family: Literal["offline"] = "offline"
    revision: field_types.Revision = 1
    method: Method = TD3BCConfig()
    widths: field_types.Widths = Field(
        default=(256, 256), description="hidden layers of actor, critics and value network"
    )
    actor_lr: field_types.ActorLr = 3e-4
    critic_lr: float = Field(
        default=3e-4, gt=0, description="learning rate of Adam, of critics and IQL's value network"
    )
    gamma: field_types.Discount = 0.99
    tau: field_types.Polyak = 0.005
    batch: field_types.Batch = 256
    n_step: field_types.NStep = 1
    normalize_obs: bool = Field(default=False, description="normalize observations by the data's mean and std")
    terminate_on_end: bool = Field(default=False, description="time limits terminate, so that nothing is bootstrapped")
    return_span: float | None = Field(
        default=None, gt=0, description="best − worst return after scaling the rewards; IQL: 1000; none: unscaled"
    )

    @property
    def speed_group(self) -> str:
        """The family and its method."""
        return f"{self.family} {self.method.kind}"

    @property
    def export(self) -> Export | str:
        """The export of the method."""
        return self.method.export


class DiscreteBCConfig(Frozen):
    """Behavior cloning by cross entropy; it uses only the network, ``lr`` and ``batch``."""

    kind: Literal["imitation"] = "imitation"  # BC


class DiscreteBCQConfig(Frozen):
    """BCQ: Q-learning over actions that a behavior policy of the data considers probable."""

    kind: Literal["batchconstrained"] = "batchconstrained"  # BCQ
    threshold: float = Field(
        default=0.3, ge=0, le=1, description="minimum probability, relative to the likeliest action's"
    )
    penalty: float = Field(default=0.01, ge=0, description="weight of the behavior policy's squared logits")


class DiscreteCQLConfig(Frozen):
    """CQL: Q-learning that penalizes the values of actions outside the data."""

    kind: Literal["conservative"] = "conservative"  # CQL
    conservative_weight: float = Field(
        default=10.0, ge=0, description="weight of the gap between the values of all actions and of the data's"
    )


class DiscreteCRRConfig(Frozen):
    """CRR: behavior cloning weighted by the advantage over the current policy."""

    kind: Literal["criticregularized"] = "criticregularized"  # CRR
    mode: Literal["exp", "binary", "all"] = Field(
        default="exp", description="weight of an advantage; all: plain cloning"
    )
    beta: float = Field(default=1.0, gt=0, description="divisor of advantages before exp")
    max_weight: float = Field(default=20.0, gt=0, description="upper bound of the exponential weight")
    conservative_weight: float | None = Field(default=None, gt=0, description="weight of CQL's gap; none: no such term")
    greedy: bool = Field(default=False, description="evaluate the policy's mode instead of its samples")


DiscreteMethod = Annotated[
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
    method: DiscreteMethod = DiscreteBCQConfig()
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
