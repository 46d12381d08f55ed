"""Settings of online algorithms: one model per family, built of parts that can be chosen independently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from rlbench.config import field_types
from rlbench.config.canonical import Export, Family, Frozen, LearnsFrom


class LinearSchedule(Frozen):
    """A value that moves from ``start`` to ``end`` over the first ``steps`` agent steps and then stays."""

    start: float = Field(description="value at step 0")
    end: float = Field(description="value after the last of the steps")
    steps: int = Field(ge=1, description="length of the linear schedule in agent steps")

    def at(self, env_steps: int) -> float:
        """The value after ``env_steps`` agent steps."""
        return self.end + (self.start - self.end) * max(0.0, 1.0 - env_steps / self.steps)


class DQNHeadConfig(Frozen):
    """One number per action: DQN."""

    kind: Literal["expected"] = "expected"  # DQN
    huber: float | None = Field(default=None, gt=0, description="threshold of the Huber loss; none: squared error")


class C51HeadConfig(Frozen):
    """Probabilities on fixed, evenly spaced returns: C51."""

    kind: Literal["categorical"] = "categorical"  # C51
    n_atoms: int = Field(default=51, ge=2, description="atoms of the support")
    v_min: float = Field(default=-10.0, description="return of the lowest atom")
    v_max: float = Field(default=10.0, description="return of the highest atom")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.v_min >= self.v_max:
            raise ValueError(f"v_min={self.v_min} must lie below v_max={self.v_max}")
        return self


class QRDQNHeadConfig(Frozen):
    """The return at fixed, evenly spaced fractions: QR-DQN."""

    kind: Literal["quantiles"] = "quantiles"  # QR-DQN
    n_quantiles: int = Field(default=200, ge=1, description="quantiles of the return")


class IQNHeadConfig(Frozen):
    """The return at sampled fractions: IQN."""

    kind: Literal["implicit"] = "implicit"  # IQN
    n_taus: int = Field(default=8, ge=1, description="sampled fractions per state of a prediction")
    n_target_taus: int = Field(default=8, ge=1, description="sampled fractions per state of a target")
    n_policy_taus: int = Field(default=8, ge=1, description="sampled fractions per state when acting in training")
    n_eval_taus: int = Field(default=32, ge=1, description="sampled fractions per state in evaluation")
    cosines: int = Field(default=64, ge=1, description="cosine features of a fraction's embedding")


class FQFHeadConfig(Frozen):
    """The return at fractions that a network proposes: FQF."""

    kind: Literal["proposed"] = "proposed"  # FQF
    n_quantiles: int = Field(default=32, ge=2, description="proposed fractions per state")
    entropy: float = Field(default=10.0, ge=0, description="entropy coefficient of the fractions")
    lr: float = Field(default=2.5e-9, gt=0, description="learning rate of the proposal's own RMSprop")
    cosines: int = Field(default=64, ge=1, description="cosine features of a fraction's embedding")


class NatureConfig(Frozen):
    """The convolutions of Mnih et al. 2015: 32@8/4, 64@4/2, 64@3/1."""

    kind: Literal["nature"] = "nature"
    scale: bool = Field(default=False, description="divide pixels by 255; the reference's off-policy scripts do not")


class MLPConfig(Frozen):
    """Fully connected layers."""

    kind: Literal["mlp"] = "mlp"
    widths: field_types.Widths = Field(default=(64,), description="units of each layer")
    activation: Literal["relu", "tanh"] = Field(default="relu", description="activation function")


class PriorityConfig(Frozen):
    """Prioritized replay: the exponents of priorities and importance weights."""

    alpha: float = Field(default=0.5, gt=0, le=1, description="exponent of priorities; 0 would be uniform")
    beta: LinearSchedule = Field(
        default=LinearSchedule(start=0.4, end=1.0, steps=5_000_000), description="importance exponent β"
    )


class HindsightConfig(Frozen):
    """Hindsight experience replay (HER), strategy "future": goals achieved later replace desired goals."""

    k: float = Field(default=8.0, gt=1, description="a sampled transition keeps its own goal with probability 1 / k")


class ReplayConfig(Frozen):
    """The replay buffer."""

    capacity: int = Field(default=100_000, ge=100, description="transitions over all envs")
    n_step: int = Field(default=1, ge=1, le=100, description="rewards summed before bootstrapping")
    priority: PriorityConfig | None = Field(default=None, description="prioritized replay; none: uniform sampling")
    hindsight: HindsightConfig | None = Field(
        default=None, description="hindsight experience replay; none: no new goals"
    )


HeadConfig = Annotated[
    DQNHeadConfig | C51HeadConfig | QRDQNHeadConfig | IQNHeadConfig | FQFHeadConfig, Field(discriminator="kind")
]
TorsoConfig = Annotated[NatureConfig | MLPConfig, Field(discriminator="kind")]

REPLAY_SMOKE_LIMITS: Final[Mapping[str, float]] = {
    "replay.capacity": 5_000,
    "learning_starts": 400,
    "updates_per_step": 1.0,
}


class CuriosityConfig(Frozen):
    """An intrinsic reward, the prediction error of a model that learns beside the algorithm: ICM.

    The reference scripts leave it off; the values are their defaults, with ViZDoom's scale of the loss.
    """

    torso: TorsoConfig = NatureConfig()  # the model's own
    hidden: int = Field(default=512, ge=1, description="units of the layer in the forward and in the inverse model")
    lr: float | None = Field(default=None, gt=0, description="learning rate of ICM's Adam; none: the algorithm's")
    loss_scale: float = Field(default=10.0, gt=0, description="factor of its loss, to which Adam is nearly invariant")
    reward_scale: float = Field(default=0.01, ge=0, description="intrinsic reward per unit of prediction error")
    forward_share: float = Field(
        default=0.2, ge=0, le=1, description="share of the forward loss; the rest is the inverse"
    )


OptionalCuriosity: TypeAlias = Annotated[
    CuriosityConfig | None, Field(description="intrinsic reward by ICM; none: no such reward")
]


def _revision(fields: dict[str, object]) -> Literal[1, 2]:
    """Revision of Q-learning with these fields: 2 where DQN's priority is |δ|, which was its square in revision 1."""
    replay, head = fields.get("replay"), fields.get("head")  # absent if invalid
    return (
        2 if isinstance(replay, ReplayConfig) and replay.priority is not None and isinstance(head, DQNHeadConfig) else 1
    )


class QLearningConfig(Family):
    """Value-based control with a target network; the algorithm is the type of its head."""

    learns_from: ClassVar[LearnsFrom] = "replay"
    epsilon_greedy: ClassVar[bool] = True
    smoke_limits: ClassVar[Mapping[str, float]] = REPLAY_SMOKE_LIMITS
    family: Literal["qlearning"] = "qlearning"
    head: HeadConfig = DQNHeadConfig()
    torso: TorsoConfig = NatureConfig()
    hidden: int = Field(default=512, ge=1, description="units of the layer between torso and head")
    dueling: bool = Field(default=False, description="a second stream for the state value")
    noisy: float | None = Field(default=None, gt=0, description="initial scale σ₀ of noisy layers; none: no noise")
    double: bool = Field(default=True, description="double Q-learning: the online network chooses the bootstrap action")
    lr: float = Field(default=1e-4, gt=0, description="learning rate of Adam")
    adam_epsilon: field_types.AdamEpsilon = 1e-8
    max_grad_norm: field_types.MaxGradNorm = None
    gamma: field_types.Discount = 0.99
    batch: field_types.Batch = 32
    updates_per_step: field_types.UpdatesPerStep = 0.1
    target_update_interval: field_types.TargetUpdateInterval = 500
    learning_starts: field_types.LearningStarts = 320
    epsilon: LinearSchedule = Field(
        default=LinearSchedule(start=1.0, end=0.05, steps=1_000_000), description="exploration probability"
    )
    replay: ReplayConfig = ReplayConfig()
    revision: Literal[1, 2] = Field(
        default_factory=_revision, description="raised by every change of code that can move a score"
    )
    curiosity: OptionalCuriosity = None


class TD3PolicyConfig(Frozen):
    """A deterministic policy, explored with Gaussian noise: DDPG and TD3."""

    kind: Literal["deterministic"] = "deterministic"  # TD3, DDPG
    noise: float = Field(default=0.1, ge=0, description="std of the exploration noise, of actions in [−1, 1]")
    smoothing: float | None = Field(default=None, gt=0, description="std of the target action's noise; none: no noise")
    clip: float = Field(default=0.5, gt=0, description="bound of the noise on the target's action")


class SACPolicyConfig(Frozen):
    """A squashed Gaussian whose entropy is part of its reward: SAC and REDQ."""

    kind: Literal["soft"] = "soft"  # SAC, REDQ
    alpha: field_types.Alpha = 0.2
    alpha_lr: field_types.AlphaLr = None
    target_entropy: field_types.TargetEntropy = None
    log_std_min: field_types.LogStdMin = -20.0
    log_std_max: field_types.LogStdMax = 2.0


ActionUnits: TypeAlias = Literal["normalized", "environment"]
"""Units of the critics' actions and of log-densities: [−1, 1], or the environment's own bounds."""


class ActorCriticConfig(Family):
    """Continuous actions, learned off-policy by an actor and K critics."""

    learns_from: ClassVar[LearnsFrom] = "replay"
    vectors_only: ClassVar[bool] = True
    smoke_limits: ClassVar[Mapping[str, float]] = REPLAY_SMOKE_LIMITS
    family: Literal["actorcritic"] = "actorcritic"
    revision: field_types.Revision = 1
    policy: Annotated[TD3PolicyConfig | SACPolicyConfig, Field(discriminator="kind")] = SACPolicyConfig()
    widths: field_types.Widths = Field(default=(256, 256), description="hidden layers of the actor and of every critic")
    critics: field_types.Critics = 2
    redq_subset: int | None = Field(default=None, ge=1, description="critics drawn for a target (REDQ); none: all")
    actor_lr: field_types.ActorLr = 1e-3
    critic_lr: field_types.CriticLr = 1e-3
    gamma: field_types.Discount = 0.99
    tau: field_types.Polyak = 0.005
    batch: field_types.Batch = 256
    updates_per_step: field_types.UpdatesPerStep = 1.0
    delay: int = Field(default=1, ge=1, description="critic steps per actor step")
    action_units: ActionUnits = Field(
        default="normalized",
        description="units of the critics' actions and of log-densities: [−1, 1] or the env's bounds",
    )
    learning_starts: int = Field(default=10_000, ge=1, description="agent steps of uniform actions before updates")
    replay: ReplayConfig = ReplayConfig(capacity=1_000_000)

    @property
    def export(self) -> Export:
        """Mean and, of a Gaussian, log std before tanh."""
        policy = self.policy
        bounds = (str(policy.log_std_min), str(policy.log_std_max)) if isinstance(policy, SACPolicyConfig) else ("", "")
        return Export(log_std_bounds=bounds)

    @model_validator(mode="after")
    def _subset_of_critics(self) -> Self:
        if self.redq_subset is not None and self.redq_subset > self.critics:
            raise ValueError(f"redq_subset={self.redq_subset} cannot be drawn from critics={self.critics}")
        if self.redq_subset is not None and isinstance(self.policy, TD3PolicyConfig):
            raise ValueError(f"redq_subset={self.redq_subset}: only policy=soft samples its critics; set it to none")
        return self


class DiscreteSACConfig(Family):
    """Discrete actions, learned off-policy by an actor whose entropy is part of its reward, and K critics.

    All of them share a torso, which each of their optimizers updates, as in the reference code.
    """

    learns_from: ClassVar[LearnsFrom] = "replay"
    smoke_limits: ClassVar[Mapping[str, float]] = REPLAY_SMOKE_LIMITS
    family: Literal["discretesac"] = "discretesac"
    revision: field_types.Revision = 1
    torso: TorsoConfig = NatureConfig()
    hidden: int = Field(default=512, ge=1, description="units of the layer between torso, actor and critics")
    critics: field_types.Critics = 2
    alpha: field_types.Alpha = 0.05
    alpha_lr: field_types.AlphaLr = None
    target_entropy: float = Field(default=0.98, gt=0, le=1, description="target of a learned α, of the maximum entropy")
    actor_lr: field_types.ActorLr = 1e-5
    critic_lr: field_types.CriticLr = 1e-5
    gamma: field_types.Discount = 0.99
    tau: field_types.Polyak = 0.005
    batch: field_types.Batch = 64
    updates_per_step: float = Field(
        default=0.1, gt=0, le=1_000, description="gradient steps per network and agent step"
    )
    learning_starts: field_types.LearningStarts = 640
    replay: ReplayConfig = ReplayConfig()
    curiosity: OptionalCuriosity = None


class ReinforceConfig(Frozen):
    """REINFORCE: the plain policy gradient, without a critic."""

    kind: Literal["reinforce"] = "reinforce"


class PPOConfig(Frozen):
    """A2C, and with ``clip`` and ``epochs`` PPO."""

    kind: Literal["surrogate"] = "surrogate"  # PPO, A2C
    clip: float | None = Field(default=None, gt=0, description="clip range of the probability ratio; none: A2C")
    dual_clip: float | None = Field(
        default=None, gt=1, description="c of dual-clip PPO: where A < 0 the surrogate is at least c·A; none: no bound"
    )
    value_clip: bool = Field(default=False, description="clip the value to within clip of its old value")
    epochs: int = Field(default=1, ge=1, le=1_000, description="passes over a rollout")
    minibatches: int = Field(default=1, ge=1, description="minibatches per pass, of equally many steps")
    recompute: bool = Field(default=False, description="recompute advantages and targets before later passes")
    value: float = Field(default=0.5, ge=0, description="coefficient of the value loss")
    entropy: float = Field(default=0.01, ge=0, description="entropy coefficient")
    normalize: bool = Field(default=False, description="normalize advantages to mean 0 and std 1 in every minibatch")
    max_grad_norm: field_types.MaxGradNorm = 0.5

    @model_validator(mode="after")
    def _clips_have_a_bound(self) -> Self:
        if self.clip is None and (self.value_clip or self.dual_clip is not None):
            idle = "value_clip=true" if self.value_clip else f"dual_clip={self.dual_clip}"
            raise ValueError(f"{idle}: without clip nothing is clipped; set clip too")
        return self


class TRPOConfig(Frozen):
    """NPG, and with a trust region TRPO; only the critic has an optimizer."""

    kind: Literal["natural"] = "natural"  # NPG, TRPO
    step: float = Field(default=0.1, gt=0, description="step size of NPG along the natural gradient")
    max_kl: float | None = Field(default=None, gt=0, description="trust region of TRPO, in nats; none: NPG")
    backtrack_coef: float = Field(default=0.8, gt=0, lt=1, description="backtracking coefficient of the line search")
    max_backtracks: int = Field(default=10, ge=1, le=1_000, description="maximum steps of the line search")
    iterations: int = Field(default=10, ge=1, le=1_000, description="iterations of the conjugate gradient")
    damping: float = Field(default=0.1, ge=0, description="damping, added to the diagonal of the Fisher matrix")
    critic_steps: int = Field(default=20, ge=1, le=1_000, description="gradient steps of the critic per rollout")


class PolicyGradientConfig(Family):
    """On-policy algorithms: they learn from rollouts of the current policy."""

    learns_from: ClassVar[LearnsFrom] = "rollouts"
    smoke_limits: ClassVar[Mapping[str, float]] = {"rollout_length": 4}
    updates_per_step: ClassVar[float] = 0.0  # of transitions from a replay
    family: Literal["policygradient"] = "policygradient"
    revision: field_types.Revision = 1
    method: Annotated[ReinforceConfig | PPOConfig | TRPOConfig, Field(discriminator="kind")] = PPOConfig()
    torso: TorsoConfig = MLPConfig(widths=(64, 64), activation="tanh")
    hidden: int = Field(
        default=512, ge=1, description="units of the layer between a convolutional torso and both heads"
    )
    log_std: float = Field(default=-0.5, description="initial log std of continuous actions")
    bound: Literal["clip", "tanh"] = Field(
        default="clip", description="bound of actions for the env: clipped, or squashed by tanh"
    )
    optimizer: Literal["adam", "rmsprop"] = Field(default="adam", description="optimizer")
    epsilon: float = Field(default=1e-8, gt=0, description="ε of the optimizer")
    lr: float = Field(default=3e-4, gt=0, description="initial learning rate")
    lr_decay_steps: int | None = Field(
        default=None, ge=1, description="agent steps over which the learning rate falls to 0; none: constant"
    )
    rollout_length: int = Field(default=32, ge=1, description="vector steps per rollout")
    gamma: field_types.Discount = 0.99
    gae_lambda: float = Field(default=0.95, ge=0, le=1, description="λ of generalized advantage estimation")
    scale_returns: bool = Field(default=True, description="the critic predicts returns divided by their running std")
    normalize_obs: bool = Field(default=True, description="normalize observations by running mean and std, clip at ±10")
    greedy: bool = Field(default=False, description="evaluate the policy's mode instead of its samples")
    curiosity: OptionalCuriosity = None

    @property
    def export(self) -> Export | str:
        """The mean and one std for all observations."""
        torso = self.torso
        return Export(torso.activation, self.bound) if isinstance(torso, MLPConfig) else super().export


OffPolicyConfig: TypeAlias = QLearningConfig | ActorCriticConfig | DiscreteSACConfig
"""The families that learn from a replay buffer."""
