"""Settings of online algorithms: one model per family, built of parts that can be chosen independently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from rlbench.config.canonical import Export, Family, Frozen, LearnsFrom


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
    huber: float | None = Field(default=None, gt=0)  # threshold of the Huber loss; None is the squared error


class Categorical(Frozen):
    """Probabilities on fixed, evenly spaced returns: C51."""

    kind: Literal["categorical"] = "categorical"
    n_atoms: int = Field(default=51, ge=2)
    v_min: float = -10.0  # return of the lowest atom
    v_max: float = 10.0  # return of the highest atom

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.v_min >= self.v_max:
            raise ValueError(f"v_min={self.v_min} must lie below v_max={self.v_max}")
        return self


class Quantiles(Frozen):
    """The return at fixed, evenly spaced fractions: QR-DQN."""

    kind: Literal["quantiles"] = "quantiles"
    n_quantiles: int = Field(default=200, ge=1)


class Implicit(Frozen):
    """The return at sampled fractions: IQN."""

    kind: Literal["implicit"] = "implicit"
    n_taus: int = Field(default=8, ge=1)  # fractions per state when predicting
    n_target_taus: int = Field(default=8, ge=1)  # … when bootstrapping
    n_policy_taus: int = Field(default=8, ge=1)  # … when collecting
    n_eval_taus: int = Field(default=32, ge=1)  # … when being evaluated
    cosines: int = Field(default=64, ge=1)  # of the fraction's embedding


class Proposed(Frozen):
    """The return at fractions that a network proposes: FQF."""

    kind: Literal["proposed"] = "proposed"
    n_quantiles: int = Field(default=32, ge=2)
    entropy: float = Field(default=10.0, ge=0)  # coefficient that keeps the fractions apart
    lr: float = Field(default=2.5e-9, gt=0)  # of the proposal's own RMSprop
    cosines: int = Field(default=64, ge=1)  # of the fraction's embedding


class Nature(Frozen):
    """The convolutions of Mnih et al. 2015: 32@8/4, 64@4/2, 64@3/1."""

    kind: Literal["nature"] = "nature"
    scale: bool = False  # divide pixels by 255; the documented off-policy tables did not


class Mlp(Frozen):
    """Fully connected layers."""

    kind: Literal["mlp"] = "mlp"
    widths: tuple[Annotated[int, Field(ge=1)], ...] = (64,)  # units of each layer
    activation: Literal["relu", "tanh"] = "relu"


class Priority(Frozen):
    """Prioritized replay: the exponents of priorities and importance weights."""

    alpha: float = Field(default=0.5, gt=0, le=1)  # 0 would be uniform
    beta: Linear = Linear(start=0.4, end=1.0, steps=5_000_000)  # exponent of the importance weights


class Hindsight(Frozen):
    """Hindsight experience replay (HER), strategy "future": goals achieved later replace desired goals."""

    k: float = Field(default=8.0, gt=1)  # a sampled transition keeps its own goal with probability 1 / k


class Replay(Frozen):
    """The replay buffer."""

    capacity: int = Field(default=100_000, ge=100)  # transitions, over all envs
    n_step: int = Field(default=1, ge=1, le=100)  # rewards summed before bootstrapping
    priority: Priority | None = None  # None samples uniformly
    hindsight: Hindsight | None = None  # None relabels no goals


Head = Annotated[Expected | Categorical | Quantiles | Implicit | Proposed, Field(discriminator="kind")]
Torso = Annotated[Nature | Mlp, Field(discriminator="kind")]


REPLAY_SMOKE_LIMITS: Final[Mapping[str, float]] = {
    "replay.capacity": 5_000,
    "learning_starts": 400,
    "updates_per_step": 1.0,
}


class Curiosity(Frozen):
    """An intrinsic reward, the prediction error of a model that learns beside the algorithm: ICM.

    The reference scripts leave it off; the values are their defaults, with ViZDoom's scale of the loss.
    """

    torso: Torso = Nature()  # the model's own
    hidden: int = Field(default=512, ge=1)  # units of the layer in the forward and in the inverse model
    lr: float | None = Field(default=None, gt=0)  # of its own Adam; None is the algorithm's, or its actor's
    loss_scale: float = Field(default=10.0, gt=0)  # factor of its loss, to which Adam is nearly invariant
    reward_scale: float = Field(default=0.01, ge=0)  # reward for an error of 1
    forward_share: float = Field(default=0.2, ge=0, le=1)  # of the loss; the rest is the inverse model's


def _revision(fields: dict[str, object]) -> Literal[1, 2]:
    """Revision of Q-learning with these fields: 2 where DQN's priority is |δ|, which was its square in revision 1."""
    replay, head = fields.get("replay"), fields.get("head")  # absent if invalid
    return 2 if isinstance(replay, Replay) and replay.priority is not None and isinstance(head, Expected) else 1


class QLearning(Family):
    """Value-based control with a target network; the algorithm is the type of its head."""

    learns_from: ClassVar[LearnsFrom] = "replay"
    epsilon_greedy: ClassVar[bool] = True
    smoke_limits: ClassVar[Mapping[str, float]] = REPLAY_SMOKE_LIMITS
    family: Literal["qlearning"] = "qlearning"
    head: Head = Expected()
    torso: Torso = Nature()
    hidden: int = Field(default=512, ge=1)  # units of the layer between torso and head
    dueling: bool = False  # a second stream for the state value
    noisy: float | None = Field(default=None, gt=0)  # initial scale of the noise on the layers after the torso
    double: bool = True  # the online network chooses the bootstrap action
    lr: float = Field(default=1e-4, gt=0)  # of Adam
    adam_epsilon: float = Field(default=1e-8, gt=0)  # added to the root of the second moment
    max_grad_norm: float | None = Field(default=None, gt=0)  # norm at which gradients are clipped; None does not clip
    gamma: float = Field(default=0.99, ge=0, le=1)  # discount of an agent step
    batch: int = Field(default=32, ge=1)  # transitions of a gradient step
    updates_per_step: float = Field(default=0.1, gt=0)  # gradient steps per live agent step
    target_update_interval: int = Field(default=500, ge=1)  # gradient steps between copies to the target network
    learning_starts: int = Field(default=320, ge=1)  # live agent steps before the first update
    epsilon: Linear = Linear(start=1.0, end=0.05, steps=1_000_000)  # chance of a random action in training
    replay: Replay = Replay()
    revision: Literal[1, 2] = Field(default_factory=_revision)  # raised by every change of code that can move a score
    curiosity: Curiosity | None = None  # None adds no intrinsic reward


class Deterministic(Frozen):
    """A deterministic policy, explored with Gaussian noise: DDPG and TD3."""

    kind: Literal["deterministic"] = "deterministic"
    noise: float = Field(default=0.1, ge=0)  # std in training, of actions in [−1, 1]
    smoothing: float | None = Field(default=None, gt=0)  # std of the noise on the target's action; None adds none
    clip: float = Field(default=0.5, gt=0)  # at which the smoothing noise is clipped


class Soft(Frozen):
    """A squashed Gaussian whose entropy is part of its reward: SAC and REDQ."""

    kind: Literal["soft"] = "soft"
    alpha: float = Field(default=0.2, gt=0)  # entropy coefficient, or its initial value if it is learned
    alpha_lr: float | None = Field(default=None, gt=0)  # None keeps α fixed, as in the documented tables
    target_entropy: float | None = None  # nats that a learned α aims at; None is minus the number of action dimensions
    log_std_min: float = -20.0  # lower bound of the log std
    log_std_max: float = 2.0  # upper bound of the log std

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.log_std_min >= self.log_std_max:
            raise ValueError(f"log_std_min={self.log_std_min} must lie below log_std_max={self.log_std_max}")
        if self.target_entropy is not None and self.alpha_lr is None:
            raise ValueError(f"target_entropy={self.target_entropy}: nothing aims at it while alpha_lr is none")
        return self


ActionUnits: TypeAlias = Literal["normalized", "environment"]
"""Units of the critics' actions and of log-densities: [−1, 1], or the environment's own bounds."""


class ActorCritic(Family):
    """Continuous actions, learned off-policy by an actor and K critics."""

    learns_from: ClassVar[LearnsFrom] = "replay"
    vectors_only: ClassVar[bool] = True
    smoke_limits: ClassVar[Mapping[str, float]] = REPLAY_SMOKE_LIMITS
    family: Literal["actorcritic"] = "actorcritic"
    revision: Literal[1] = 1  # raised by every change of code that can move a score
    policy: Annotated[Deterministic | Soft, Field(discriminator="kind")] = Soft()
    widths: tuple[Annotated[int, Field(ge=1)], ...] = (256, 256)  # hidden layers of the actor and of every critic
    critics: int = Field(default=2, ge=1)  # the target is their minimum
    redq_subset: int | None = Field(default=None, ge=1)  # … or the minimum of a random subset of this size: REDQ
    actor_lr: float = Field(default=1e-3, gt=0)  # of Adam
    critic_lr: float = Field(default=1e-3, gt=0)  # of Adam
    gamma: float = Field(default=0.99, ge=0, le=1)  # discount of an agent step
    tau: float = Field(default=0.005, gt=0, le=1)  # Polyak coefficient of the target networks, per gradient step
    batch: int = Field(default=256, ge=1)  # transitions of a gradient step
    updates_per_step: float = Field(default=1.0, gt=0)  # gradient steps per live agent step
    delay: int = Field(default=1, ge=1)  # critic steps per actor step
    action_units: ActionUnits = "normalized"
    learning_starts: int = Field(default=10_000, ge=1)  # live agent steps of uniform actions before the first update
    replay: Replay = Replay(capacity=1_000_000)

    @property
    def export(self) -> Export:
        """Mean and, of a Gaussian, log std before tanh."""
        policy = self.policy
        bounds = (str(policy.log_std_min), str(policy.log_std_max)) if isinstance(policy, Soft) else ("", "")
        return Export(log_std_bounds=bounds)

    @model_validator(mode="after")
    def _subset_of_critics(self) -> Self:
        if self.redq_subset is not None and self.redq_subset > self.critics:
            raise ValueError(f"redq_subset={self.redq_subset} cannot be drawn from critics={self.critics}")
        if self.redq_subset is not None and isinstance(self.policy, Deterministic):
            raise ValueError(f"redq_subset={self.redq_subset}: only policy=soft samples its critics; set it to none")
        return self


class DiscreteSAC(Family):
    """Discrete actions, learned off-policy by an actor whose entropy is part of its reward, and K critics.

    All of them share a torso, which each of their optimizers updates, as in the reference code.
    """

    learns_from: ClassVar[LearnsFrom] = "replay"
    smoke_limits: ClassVar[Mapping[str, float]] = REPLAY_SMOKE_LIMITS
    family: Literal["discretesac"] = "discretesac"
    revision: Literal[1] = 1  # raised by every change of code that can move a score
    torso: Torso = Nature()
    hidden: int = Field(default=512, ge=1)  # units of the layer between torso, actor and critics
    critics: int = Field(default=2, ge=1)  # the target is their minimum
    alpha: float = Field(default=0.05, gt=0)  # entropy coefficient, or its initial value if it is learned
    alpha_lr: float | None = Field(default=None, gt=0)  # None keeps α fixed, as in the documented table
    target_entropy: float = Field(default=0.98, gt=0, le=1)  # target of a learned α, as a share of the maximum entropy
    actor_lr: float = Field(default=1e-5, gt=0)  # of Adam
    critic_lr: float = Field(default=1e-5, gt=0)  # of Adam
    gamma: float = Field(default=0.99, ge=0, le=1)  # discount of an agent step
    tau: float = Field(default=0.005, gt=0, le=1)  # Polyak coefficient of the target networks, per gradient step
    batch: int = Field(default=64, ge=1)  # transitions of a gradient step
    updates_per_step: float = Field(default=0.1, gt=0)  # gradient steps of each per live agent step
    learning_starts: int = Field(default=640, ge=1)  # live agent steps of the untrained policy before the first update
    replay: Replay = Replay()
    curiosity: Curiosity | None = None  # None adds no intrinsic reward


class Reinforce(Frozen):
    """REINFORCE: the plain policy gradient, without a critic."""

    kind: Literal["reinforce"] = "reinforce"


class Surrogate(Frozen):
    """A2C, and with ``clip`` and ``epochs`` PPO."""

    kind: Literal["surrogate"] = "surrogate"
    clip: float | None = Field(default=None, gt=0)  # clip range of the probability ratio; None is A2C
    dual_clip: float | None = Field(
        default=None, gt=1
    )  # lower bound of the surrogate, in advantages, for negative advantages
    value_clip: bool = False  # the value, too, is clipped to within ``clip`` of its old value
    epochs: int = Field(default=1, ge=1)  # passes over a rollout
    minibatches: int = Field(default=1, ge=1)  # per epoch; each holds rollout_length · envs / minibatches steps
    recompute: bool = False  # advantages and value targets anew before each epoch but the first
    value: float = Field(default=0.5, ge=0)  # coefficient of the critic's squared error
    entropy: float = Field(default=0.01, ge=0)  # coefficient of the policy's entropy
    normalize: bool = False  # advantages to mean 0 and std 1 in every minibatch
    max_grad_norm: float | None = Field(default=0.5, gt=0)  # norm at which gradients are clipped; None does not clip

    @model_validator(mode="after")
    def _clips_have_a_bound(self) -> Self:
        if self.clip is None and (self.value_clip or self.dual_clip is not None):
            idle = "value_clip=true" if self.value_clip else f"dual_clip={self.dual_clip}"
            raise ValueError(f"{idle}: without clip nothing is clipped; set clip too")
        return self


class Natural(Frozen):
    """NPG, and with a trust region TRPO; only the critic has an optimizer."""

    kind: Literal["natural"] = "natural"
    step: float = Field(default=0.1, gt=0)  # step size of NPG, in natural gradients
    max_kl: float | None = Field(default=None, gt=0)  # trust region of TRPO; None is NPG
    backtrack_coef: float = Field(default=0.8, gt=0, lt=1)  # of the line search
    max_backtracks: int = Field(default=10, ge=1)  # steps of the line search, at most
    iterations: int = Field(default=10, ge=1)  # of the conjugate gradient
    damping: float = Field(default=0.1, ge=0)  # added to the curvature's diagonal
    critic_steps: int = Field(default=20, ge=1)  # gradient steps of the critic per rollout


class PolicyGradient(Family):
    """On-policy algorithms: they learn from rollouts of the current policy."""

    learns_from: ClassVar[LearnsFrom] = "rollouts"
    smoke_limits: ClassVar[Mapping[str, float]] = {"rollout_length": 4}
    updates_per_step: ClassVar[float] = 0.0  # of transitions from a replay
    family: Literal["policygradient"] = "policygradient"
    revision: Literal[1] = 1  # raised by every change of code that can move a score
    method: Annotated[Reinforce | Surrogate | Natural, Field(discriminator="kind")] = Surrogate()
    torso: Torso = Mlp(widths=(64, 64), activation="tanh")
    hidden: int = Field(default=512, ge=1)  # units of the layer between a shared convolutional torso and both heads
    log_std: float = -0.5  # initial log std of continuous actions
    bound: Literal["clip", "tanh"] = "clip"  # maps a continuous action to [−1, 1] before its execution
    optimizer: Literal["adam", "rmsprop"] = "adam"
    epsilon: float = Field(default=1e-8, gt=0)  # of the optimizer
    lr: float = Field(default=3e-4, gt=0)  # of the optimizer, at first
    lr_decay_steps: int | None = Field(default=None, ge=1)  # live agent steps over which the learning rate falls to 0
    rollout_length: int = Field(default=32, ge=1)  # vector steps per rollout: it holds rollout_length · envs steps
    gamma: float = Field(default=0.99, ge=0, le=1)  # discount of an agent step
    gae_lambda: float = Field(default=0.95, ge=0, le=1)  # λ of the advantage estimates
    scale_returns: bool = True  # the critic predicts returns divided by their running std
    normalize_obs: bool = True  # by running mean and std, clipped at ±10
    greedy: bool = False  # evaluated by the policy's mode instead of its samples
    curiosity: Curiosity | None = None  # None adds no intrinsic reward

    @property
    def export(self) -> Export | str:
        """The mean and one std for all observations."""
        torso = self.torso
        return Export(torso.activation, self.bound) if isinstance(torso, Mlp) else super().export


OffPolicy: TypeAlias = QLearning | ActorCritic | DiscreteSAC
"""The families that learn from a replay buffer."""
