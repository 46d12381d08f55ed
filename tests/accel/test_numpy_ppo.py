"""The numpy engine against eager updates: they agree within float32 rounding for all options."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rlbench import suites
from rlbench.accel.numpy_ppo import NumpyPPO, NumpyValueRegression
from rlbench.algorithms.onpolicy import RolloutBatch, rollout_batch
from rlbench.algorithms.ppo import PPO
from rlbench.algorithms.trpo import TRPO
from rlbench.assembly.policy_gradient import build_on_policy
from rlbench.config.online import PolicyGradientConfig
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime, Spec
from rlbench.envs.base import Box, Discrete, EnvInfo
from rlbench.errors import UsageError
from rlbench.ops.types import Rollout
from tests.slow import slow_but

ENVS, ROWS, ACTIONS, CPU = 6, 8, 3, torch.device("cpu")
ATOL, RTOL = (
    2e-4,
    2e-3,
)  # of parameters after 50 updates of float32; the gradients themselves are tested in one step below

PLAIN = {
    "a2c": ("algo.optimizer=rmsprop", "algo.method.entropy=0.01"),
    "ppo": ("algo.method.clip=0.2", "algo.method.epochs=2", "algo.method.minibatches=3", "algo.method.recompute=true"),
}
OPTIONS = {
    "a2c with rmsprop": PLAIN["a2c"],
    "a2c with adam, unclipped gradient": ("algo.optimizer=adam", "algo.method.max_grad_norm=none"),
    "ppo": PLAIN["ppo"],
    "ppo, tight": (*PLAIN["ppo"], "algo.method.clip=0.01", "algo.lr=0.003"),
    "ppo, entropy": (*PLAIN["ppo"], "algo.method.entropy=0.1"),
    "ppo, dual clip": (*PLAIN["ppo"], "algo.method.dual_clip=1.01", "algo.method.clip=0.01", "algo.lr=0.003"),
    "ppo, value clip": (*PLAIN["ppo"], "algo.method.value_clip=true", "algo.method.clip=0.02", "algo.lr=0.003"),
    "ppo, normalised": (*PLAIN["ppo"], "algo.method.normalize=true"),
    "ppo, uneven batches": (*PLAIN["ppo"], "algo.method.minibatches=5"),
    "ppo, relu": (*PLAIN["ppo"], "algo.torso.activation=relu"),
}


def spec_of(algorithm: str, options: tuple[str, ...]) -> Spec:
    rows = (f"algo.rollout_length={ROWS}", f"task.envs={ENVS}")
    return apply_settings(
        suites.spec("mujoco", algorithm, "HalfCheetah-v4"), [parse(text) for text in (*rows, *options)]
    )


def learner_of(spec: Spec, engine: str, *, discrete: bool, dtype: str = "float32") -> PPO | TRPO:
    bounds = torch.ones(ACTIONS).numpy()
    info = EnvInfo(ENVS, (5,), bounds.astype(dtype).dtype, Discrete(ACTIONS) if discrete else Box(-bounds, bounds), ())
    torch.manual_seed(3)
    assert isinstance(spec.algo, PolicyGradientConfig)
    engine_name = Runtime.model_validate({"update_engine": engine}).update_engine
    learner, _ = build_on_policy(spec, spec.algo, info, CPU, engine_name)
    assert isinstance(learner, PPO | TRPO)
    return learner


def rollouts(count: int, *, discrete: bool, seed: int = 0, shades: bool = False) -> list[Rollout]:
    """Noise with ends and final rows in it, as a ring gives it."""
    generator = torch.Generator().manual_seed(seed)

    def normal_rows(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    batches = []
    for _ in range(count):
        done = torch.rand(ROWS, ENVS, generator=generator) < 0.15
        final = torch.cat([torch.zeros(1, ENVS, dtype=torch.bool), done[:-1]])
        numbered = torch.randint(ACTIONS, (ROWS, ENVS), generator=generator)
        obs = normal_rows(ROWS + 1, ENVS, 5)
        batches.append(
            Rollout(
                obs=(obs * 60 + 128).clamp(0, 255).to(torch.uint8) if shades else obs,
                action=numbered if discrete else normal_rows(ROWS, ENVS, ACTIONS),
                reward=normal_rows(ROWS, ENVS) * ~final,
                terminated=done & ~final & (normal_rows(ROWS, ENVS) > 0),
                done=done & ~final,
                final=final,
            )
        )
    return batches


def assert_same(one: PPO | TRPO, other: PPO | TRPO, *, atol: float = ATOL, rtol: float = RTOL) -> None:
    for (name, one_param), right in zip(one.net.named_parameters(), other.net.parameters(), strict=True):
        torch.testing.assert_close(one_param, right, atol=atol, rtol=rtol, msg=name)


@pytest.mark.parametrize("discrete", [False, True], ids=["real", "numbered"])
@pytest.mark.parametrize("options", slow_but(OPTIONS, 0))
def test_twenty_numpy_updates_equal_eager_ones(options: str, discrete: bool) -> None:
    spec = spec_of("a2c" if options.startswith("a2c") else "ppo", OPTIONS[options])
    eager, quick = (learner_of(spec, engine, discrete=discrete) for engine in ("eager", "numpy"))
    assert isinstance(quick, PPO)
    assert isinstance(quick.engine, NumpyPPO)
    start = [parameter.detach().clone() for parameter in quick.net.parameters()]
    for rollout in rollouts(20, discrete=discrete):
        eager_report, numpy_report = eager.update(rollout), quick.update(rollout)
        torch.testing.assert_close(
            torch.stack([*eager_report.values()]), torch.stack([*numpy_report.values()]), atol=2e-4, rtol=2e-3
        )
    assert_same(eager, quick)
    assert (
        max(float((x - y.detach()).abs().max()) for x, y in zip(start, quick.net.parameters(), strict=True)) > 10 * ATOL
    )


@pytest.mark.parametrize("discrete", [False, True], ids=["real", "numbered"])
@pytest.mark.parametrize("options", OPTIONS)
def test_numpy_gradients_equal_those_of_the_loss(options: str, discrete: bool) -> None:
    spec = spec_of("a2c" if options.startswith("a2c") else "ppo", OPTIONS[options])
    learner = learner_of(spec, "numpy", discrete=discrete)
    assert isinstance(learner, PPO)
    assert isinstance(learner.engine, NumpyPPO)
    for rollout in rollouts(4, discrete=discrete, seed=1):
        learner.update(rollout)
    batch = aged_lesson(learner, rollouts(1, discrete=discrete, seed=2)[0])
    loss, _ = learner.loss(batch)
    expected = torch.autograd.grad(loss, list(learner.net.parameters()))
    surrogate = learner.engine
    surrogate.optimizer.max_norm = None
    surrogate(batch, (torch.arange(len(batch.weight)),))
    gradients = {id(parameter): place for parameter, place in surrogate.stack.views(surrogate.optimizer.gradient)}
    for parameter, grad in zip(learner.net.parameters(), expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(gradients[id(parameter)].copy()), grad, atol=2e-6, rtol=2e-4)


def aged_lesson(learner: PPO, rollout: Rollout) -> RolloutBatch:
    """A lesson whose log-probabilities and values are those of an older policy, so that every clip bites."""
    batch = rollout_batch(learner.net, rollout, learner.returns)
    off = torch.randn(2, len(batch.weight), generator=torch.Generator().manual_seed(5)) * 0.3
    return batch._replace(log_prob=batch.log_prob + off[0], value=batch.value + off[1])


@pytest.mark.parametrize("algorithm", ["npg", "trpo"])
def test_numpy_critic_of_trpo_equals_the_eager_one(algorithm: str) -> None:
    spec = spec_of(algorithm, ("algo.method.critic_steps=5",))
    eager, quick = (learner_of(spec, engine, discrete=False) for engine in ("eager", "numpy"))
    assert isinstance(quick, TRPO)
    assert isinstance(quick.engine, NumpyValueRegression)
    for rollout in rollouts(10, discrete=False):
        torch.testing.assert_close(
            eager.update(rollout)["value_loss"], quick.update(rollout)["value_loss"], atol=1e-5, rtol=1e-3
        )
    assert_same(eager, quick, atol=1e-3)


@pytest.mark.parametrize("algorithm", ["a2c", "ppo", "npg"])
@pytest.mark.parametrize(("before", "after"), [("eager", "numpy"), ("numpy", "eager")])
def test_run_resumes_with_the_other_engine(algorithm: str, before: str, after: str) -> None:
    spec = spec_of(algorithm, PLAIN.get(algorithm, ()))
    first, same, other = (learner_of(spec, engine, discrete=False) for engine in (before, before, after))
    begun, rest = rollouts(5, discrete=False), rollouts(5, discrete=False, seed=9)
    for rollout in begun:
        first.update(rollout)
    for learner in (same, other):
        learner.load_state_dict(first.state_dict())
    assert_shapes(same.state_dict(), other.state_dict())
    for rollout in rest:
        same.update(rollout)
        other.update(rollout)
    assert_same(same, other)
    assert_shapes(same.state_dict(), other.state_dict())


def assert_shapes(one: object, other: object) -> None:
    """The same tree, with tensors of the same form and type."""
    if isinstance(one, dict) and isinstance(other, dict):
        assert list(one) == list(other)
        for key in one:
            assert_shapes(one[key], other[key])
    elif isinstance(one, Tensor) and isinstance(other, Tensor):
        assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())


def test_first_numpy_step_after_loading_a_fresh_learner_works() -> None:
    spec = spec_of("ppo", PLAIN["ppo"])
    fresh, learner = (learner_of(spec, "numpy", discrete=False) for _ in range(2))
    learner.load_state_dict(fresh.state_dict())
    rollout = rollouts(1, discrete=False)[0]
    fresh.update(rollout)
    learner.update(rollout)
    assert_same(fresh, learner, atol=0, rtol=0)


def test_numpy_engine_scales_uint8_observations_like_the_network() -> None:
    spec = spec_of("ppo", PLAIN["ppo"])
    eager, quick = (learner_of(spec, engine, discrete=True, dtype="uint8") for engine in ("eager", "numpy"))
    for rollout in rollouts(5, discrete=True, shades=True):
        eager.update(rollout)
        quick.update(rollout)
    assert_same(eager, quick)


WAYS: dict[str, tuple[str, Callable[[Spec], Spec], bool]] = {
    "requested": ("numpy", lambda spec: spec, True),
    "small, left to us": ("auto", lambda spec: spec, True),
    "eager requested": ("eager", lambda spec: spec, False),
    "wide, left to us": ("auto", lambda spec: apply_settings(spec, [parse("algo.torso.widths=[2048,2048]")]), False),
}


@pytest.mark.parametrize("way", WAYS)
def test_small_networks_use_the_numpy_engine_by_default(way: str) -> None:
    engine, change, quick = WAYS[way]
    learner = learner_of(change(spec_of("ppo", PLAIN["ppo"])), engine, discrete=False)
    assert isinstance(learner, PPO)
    assert isinstance(learner.engine, NumpyPPO) == quick


def test_unsupported_numpy_engine_is_refused_in_one_line() -> None:
    spec = suites.spec("mujoco", "reinforce", "HalfCheetah-v4")
    bounds = torch.ones(ACTIONS).numpy()
    info = EnvInfo(ENVS, (5,), bounds.dtype, Box(-bounds, bounds), ())
    assert isinstance(spec.algo, PolicyGradientConfig)
    with pytest.raises(UsageError, match="update_engine=numpy: only PPO"):
        build_on_policy(spec, spec.algo, info, CPU, "numpy")
    build_on_policy(spec, spec.algo, info, CPU, "auto")
