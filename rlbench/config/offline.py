"""Settings of offline algorithms with continuous actions: one family, distinguished by its method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from rlbench.config.canonical import Export, Family, Frozen, LearnsFrom

Widths: TypeAlias = tuple[Annotated[int, Field(ge=1)], ...]
Final: TypeAlias = Literal["linear", "xavier", "uniform"]
"""Initialization of an actor's last layer: torch's own, Xavier's with gain 0.01 and no bias, or within ±0.001."""


class OfflineMethod(Frozen):
    """A method of the family; most have a deterministic actor, or add their std after tanh."""

    @property
    def export(self) -> Export | str:
        """The form of the actor in a policy file, or the reason why there is none."""
        return Export(log_std=False)


class Imitation(OfflineMethod):
    """Behavior cloning; of the family's settings it uses only ``widths``, ``actor_lr`` and ``batch``."""

    kind: Literal["imitation"] = "imitation"
    policy: Literal["deterministic", "gaussian"] = "deterministic"  # squared error, or likelihood


class BatchConstrained(OfflineMethod):
    """BCQ: the action of the highest value among samples of a VAE of the data's actions."""

    kind: Literal["batchconstrained"] = "batchconstrained"
    vae_widths: Widths = (512, 512)  # hidden layers of the encoder and of the decoder; the paper's are 750
    vae_lr: float = Field(default=1e-3, gt=0)  # of Adam
    latent: int = Field(default=2, ge=1)  # latent numbers per action dimension
    latent_dim: int | None = Field(default=None, ge=1)  # latent numbers in all; None is ``latent`` a dimension
    latent_clip: float | None = Field(default=0.5, gt=0)  # at which sampled latent numbers are clipped
    vae_kl_weight: float = Field(default=0.5, ge=0)  # weight of the KL divergence per latent number
    perturbation: float = Field(default=0.05, ge=0, le=1)  # φ: maximum shift of a sampled action, of actions in [−1, 1]
    n_action_samples: int = Field(default=10, ge=1)  # sampled actions per state in a target
    eval_action_samples: int = Field(default=100, ge=1)  # sampled actions per state when acting
    lmbda: float = Field(
        default=0.75, ge=0, le=1
    )  # λ: weight of the minimum over critics; 1 − λ is that of the maximum

    @property
    def export(self) -> str:
        """The actor is no single network."""
        return "BCQ's actor chooses among sampled candidates; record another run's"


class Conservative(OfflineMethod):
    """CQL: SAC whose critics are penalized on actions outside the data."""

    kind: Literal["conservative"] = "conservative"
    conservative_weight: float = Field(
        default=1.0, gt=0
    )  # of the gap between the values of all actions and of the data's
    temperature: float = Field(default=1.0, gt=0)  # of the log-sum-exp
    n_action_samples: int = Field(
        default=10, ge=1
    )  # sampled actions of each of three kinds: uniform, of the policy at s, and at s'
    lagrange_threshold: float | None = (
        10.0  # weighted gap above which its multiplier grows; None fixes the multiplier at 1
    )
    multiplier_lr: float = Field(default=3e-4, gt=0)  # of Adam
    max_multiplier: float = Field(default=1e6, ge=1)  # at which the multiplier is clipped
    max_grad_norm: float | None = Field(default=1.0, gt=0)  # of each critic by itself
    soft_q_backup: bool = True  # add the entropy term to the TD target; the paper does not
    alpha: float = Field(default=1.0, gt=0)  # entropy coefficient, or its initial value if it is learned
    alpha_lr: float | None = Field(default=1e-4, gt=0)  # None keeps α fixed
    target_entropy: float | None = None  # nats that a learned α aims at; None is minus the number of action dimensions
    log_std_min: float = -20.0  # lower bound of the log std
    log_std_max: float = 2.0  # upper bound of the log std
    log_std_offset: float | None = None  # initial shift of the log std, learned like its scale of 1; None has neither
    mean_bound: float | None = Field(default=None, gt=0)  # at which the mean before tanh is clipped
    orthogonal_init: bool = False  # of the critics: gain √2, last layer 0.01, biases 0
    final_init: Final = "linear"  # of the actor's last layer
    actor_first: bool = False  # the actor's gradient step precedes the critics'
    bc_steps: int = Field(default=0, ge=0)  # first gradient steps, in which the actor clones the behavior policy

    @property
    def export(self) -> Export:
        """Mean and log std before tanh."""
        return Export(log_std_bounds=(str(self.log_std_min), str(self.log_std_max)))

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.log_std_min >= self.log_std_max:
            raise ValueError(f"log_std_min={self.log_std_min} must lie below log_std_max={self.log_std_max}")
        if self.target_entropy is not None and self.alpha_lr is None:
            raise ValueError(f"target_entropy={self.target_entropy}: nothing aims at it while alpha_lr is none")
        return self


class CriticRegularized(OfflineMethod):
    """CRR: behavior cloning weighted by the advantage over the current policy."""

    kind: Literal["criticregularized"] = "criticregularized"
    mode: Literal["exp", "binary"] = "exp"  # weight of an advantage
    beta: float = Field(default=1.0, gt=0)  # by which advantages are divided before exp
    max_weight: float = Field(default=20.0, gt=0)  # upper bound of the exponential weight
    n_action_samples: int = Field(default=4, ge=1)  # of the policy, for the baseline of the advantage
    advantage_type: Literal["mean", "max"] = "mean"  # of their values
    critics: int = Field(default=2, ge=1)  # their minimum is used; the paper has one
    target_update_interval: int | None = Field(
        default=None, ge=1
    )  # gradient steps between copies to the targets; None averages by ``tau``


class TD3BC(OfflineMethod):
    """TD3+BC: TD3 whose actor's loss adds behavior cloning."""

    kind: Literal["td3bc"] = "td3bc"
    alpha: float = Field(default=2.5, gt=0)  # mean |Q| after normalization, relative to the squared error
    delay: int = Field(default=2, ge=1)  # critic steps per actor step
    smoothing: float | None = Field(default=0.2, gt=0)  # std of the noise on the target's action; None adds none
    clip: float = Field(default=0.5, gt=0)  # at which the smoothing noise is clipped


class ImplicitQ(OfflineMethod):
    """IQL: an expectile of the data's action values, and advantage-weighted behavior cloning."""

    kind: Literal["implicitq"] = "implicitq"
    expectile: float = Field(default=0.7, gt=0, lt=1)  # τ; 0.5 is the mean
    temperature: float = Field(default=3.0, ge=0)  # factor of advantages before exp; 0 is behavior cloning
    max_weight: float = Field(default=100.0, gt=0)  # upper bound of the weight
    lr_decay_steps: int | None = Field(
        default=None, ge=1
    )  # updates over which a cosine schedule lowers the actor's learning rate to 0
    log_std_min: float = -5.0  # lower bound of the log std
    log_std_max: float = 2.0  # upper bound of the log std
    policy: Literal["gaussian", "deterministic", "conditional"] = (
        "gaussian"  # fixed std, no std, or a std per observation
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.log_std_min >= self.log_std_max:
            raise ValueError(f"log_std_min={self.log_std_min} must lie below log_std_max={self.log_std_max}")
        return self


Method = Annotated[
    Imitation | BatchConstrained | Conservative | CriticRegularized | TD3BC | ImplicitQ, Field(discriminator="kind")
]


class Offline(Family):
    """Continuous actions, learned from a data set."""

    learns_from: ClassVar[LearnsFrom] = "data"
    vectors_only: ClassVar[bool] = True
    smoke_limits: ClassVar[Mapping[str, float]] = {"batch": 64}
    updates_per_step: ClassVar[float] = 0.0  # of transitions from a replay
    family: Literal["offline"] = "offline"
    revision: Literal[1] = 1  # raised by every change of code that can move a score
    method: Method = TD3BC()
    widths: Widths = (256, 256)  # hidden layers of the actor, of every critic and of a value network
    actor_lr: float = Field(default=3e-4, gt=0)  # of Adam
    critic_lr: float = Field(default=3e-4, gt=0)  # of the critics, and of IQL's value network
    gamma: float = Field(default=0.99, ge=0, le=1)  # discount of an agent step
    tau: float = Field(default=0.005, gt=0, le=1)  # Polyak coefficient of the target networks, per gradient step
    batch: int = Field(default=256, ge=1)  # transitions of a gradient step
    n_step: int = Field(default=1, ge=1, le=100)  # rewards summed before bootstrapping, within an episode
    normalize_obs: bool = False  # by the data's mean and std
    terminate_on_end: bool = False  # a time limit terminates its episode, so it is not bootstrapped
    return_span: float | None = Field(
        default=None, gt=0
    )  # rewards are scaled so that best − worst return is this; IQL 1000

    @property
    def speed_group(self) -> str:
        """The family and its method."""
        return f"{self.family} {self.method.kind}"

    @property
    def export(self) -> Export | str:
        """The export of the method."""
        return self.method.export
