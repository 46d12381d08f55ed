"""The Atari and toy tables against their references, transcribed from scripts and README."""

import pytest
from ale_py import roms

from rlbench import suites
from rlbench.config.online import (
    C51HeadConfig,
    DQNHeadConfig,
    FQFHeadConfig,
    IQNHeadConfig,
    NatureConfig,
    QRDQNHeadConfig,
)
from rlbench.errors import UnknownName

SEVEN = ("Pong", "Breakout", "Enduro", "Qbert", "MsPacman", "Seaquest", "SpaceInvaders")
SIX = ("dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow")


@pytest.mark.parametrize("game", SEVEN)
@pytest.mark.parametrize("algorithm", SIX)
def test_every_documented_cell_has_the_settings_of_its_document(algorithm: str, game: str) -> None:
    """thu-ml/tianshou examples/atari: defaults of atari_<algorithm>.py and the README's command lines."""
    spec = suites.spec("atari", algorithm, f"{game}NoFrameskip-v4")
    algo, pong, batch = spec.algo, game == "Pong", 64 if game == "Pong" else 32
    assert algo.replay.n_step == (1 if game == "Breakout" and algorithm != "dqn" else 3)
    assert (algo.batch, algo.learning_starts, algo.replay.capacity) == (batch, 10 * batch, 100_000)
    assert (spec.task.envs, algo.updates_per_step, algo.target_update_interval) == (10, 0.1, 500)
    assert (algo.epsilon.start, algo.epsilon.end, algo.epsilon.steps) == (1.0, 0.05, 1_000_000)
    assert (spec.budget.steps, spec.budget.epoch) == (10_000_000, 100_000)
    assert (spec.protocol.epsilon, spec.protocol.stop) == (0.005, 20.0 if pong else None)
    assert spec.protocol.episodes == (100 if algorithm == "dqn" and not pong else 10)
    assert (algo.gamma, algo.adam_epsilon, algo.max_grad_norm, algo.double) == (0.99, 1e-8, None, True)
    assert (algo.torso, algo.hidden) == (NatureConfig(scale=False), 512)
    assert algo.lr == {"fqf": 5e-5, "rainbow": 6.25e-5}.get(algorithm, 1e-4)
    assert (algo.dueling, algo.noisy) == ((True, 0.1) if algorithm == "rainbow" else (False, None))
    priority = algo.replay.priority
    if algorithm == "rainbow":
        beta = priority.beta
        assert (priority.alpha, beta.start, beta.end, beta.steps) == (0.5, 0.4, 1.0, 5_000_000)
    else:
        assert priority is None


@pytest.mark.parametrize("game", SEVEN)
def test_every_documented_cell_has_the_preprocessing_of_its_document(game: str) -> None:
    task = suites.spec("atari", "dqn", f"{game}NoFrameskip-v4").task
    assert (task.kind, task.frame_skip, task.stack, task.size) == ("atari", 4, 4, 84)
    assert (task.noops, task.max_frames, task.sticky) == (30, 108_000, 0.0)
    assert (task.fire, task.episodic_life, task.clip, task.full_actions) == (True, True, True, False)


def test_the_heads_are_the_documented_ones() -> None:
    heads = {name: suites.spec("atari", name, "PongNoFrameskip-v4").algo.head for name in SIX}
    assert heads["dqn"] == DQNHeadConfig(huber=None)
    assert heads["c51"] == heads["rainbow"] == C51HeadConfig(n_atoms=51, v_min=-10.0, v_max=10.0)
    assert heads["qrdqn"] == QRDQNHeadConfig(n_quantiles=200)
    assert heads["iqn"] == IQNHeadConfig(n_taus=8, n_target_taus=8, n_policy_taus=8, n_eval_taus=32, cosines=64)
    assert heads["fqf"] == FQFHeadConfig(n_quantiles=32, entropy=10.0, lr=2.5e-9, cosines=64)


def test_every_game_of_ale_is_a_task() -> None:
    games = {suites.spec("atari", "dqn", task).task.game for task in suites.tasks("atari")}
    assert games == set(roms.get_all_rom_ids())
    assert suites.tasks("atari", with_reference=True) == [f"{game}NoFrameskip-v4" for game in SEVEN]


def test_ids_are_spelled_as_gym_spelled_them() -> None:
    names = suites.tasks("atari")
    assert {"SpaceInvadersNoFrameskip-v4", "UpNDownNoFrameskip-v4", "MsPacmanNoFrameskip-v4"} <= set(names)


def test_globs_name_tasks_and_a_star_the_documented_ones() -> None:
    assert suites.matching("atari", ("*",)) == suites.tasks("atari", with_reference=True)
    assert suites.matching("atari", ()) == suites.tasks("atari", with_reference=True)
    assert suites.matching("atari", ("S*NoFrame*",))[:2] == ["SeaquestNoFrameskip-v4", "SpaceInvadersNoFrameskip-v4"]
    assert suites.matching("atari", ("pongnoframeskip-V4", "Pong*")) == ["PongNoFrameskip-v4"]
    with pytest.raises(UnknownName, match="did you mean 'PongNoFrameskip-v4'"):
        suites.matching("atari", ("Pong",))


def test_identity_is_stable_and_independent_of_the_seed() -> None:
    """Literal: committed records are found by these."""
    pong = suites.spec("atari", "dqn", "PongNoFrameskip-v4")
    assert pong.id == "3c138bcd9e9f"
    assert pong.model_copy(update={"seed": 5}).id == pong.id
    ids = {suites.spec("atari", a, f"{g}NoFrameskip-v4").id for a in SIX for g in SEVEN}
    assert len(ids) == len(SIX) * len(SEVEN)


@pytest.mark.parametrize("game", SEVEN)
def test_every_documented_cell_of_ppo_has_the_settings_of_its_document(game: str) -> None:
    """thu-ml/tianshou examples/atari/atari_ppo.py since #780; four even batches stand for 256, 256 and 488 rows."""
    spec = suites.spec("atari", "ppo", f"{game}NoFrameskip-v4")
    algo, method = spec.algo, spec.algo.method
    assert (algo.torso, algo.hidden, algo.lr) == (NatureConfig(scale=True), 512, 1e-4 if game == "Seaquest" else 2.5e-4)
    assert (algo.optimizer, algo.epsilon, algo.lr_decay_steps) == ("adam", 1e-5, spec.budget.steps)
    assert (algo.gamma, algo.gae_lambda, spec.task.envs, algo.rollout_length) == (0.99, 0.95, 10, 100)
    assert (method.epochs, method.minibatches, method.recompute) == (4, 4, False)
    assert (method.clip, method.value_clip, method.dual_clip, method.normalize) == (0.1, True, None, True)
    assert (method.value, method.entropy, method.max_grad_norm) == (0.25, 0.01, 0.5)
    assert (algo.scale_returns, algo.normalize_obs, algo.greedy) == (False, False, False)
    assert (spec.budget.steps, spec.budget.epoch) == (10_000_000, 100_000)
    protocol = spec.protocol
    assert (protocol.episodes, protocol.epsilon, protocol.stop) == (10, 0.0, 20.0 if game == "Pong" else None)


@pytest.mark.parametrize("game", SEVEN)
def test_every_documented_cell_of_discrete_sac_has_the_settings_of_its_document(game: str) -> None:
    """thu-ml/tianshou examples/atari/atari_sac.py at v0.4.9 (#657) and examples/atari/README.md at f2402056b03a.

    Its row of Breakout: ``atari_sac.py --task "BreakoutNoFrameskip-v4" --n-step 1 --actor-lr 1e-4 --critic-lr 1e-4``.
    """
    spec, breakout = suites.spec("atari", "sac", f"{game}NoFrameskip-v4"), game == "Breakout"
    algo = spec.algo
    assert (algo.torso, algo.hidden, algo.critics) == (NatureConfig(scale=False), 512, 2)
    assert algo.actor_lr == algo.critic_lr == (1e-4 if breakout else 1e-5)
    assert (algo.alpha, algo.alpha_lr) == (0.05, None)
    assert (algo.gamma, algo.replay.n_step, algo.tau) == (0.99, 1 if breakout else 3, 0.005)
    assert (algo.batch, algo.replay.capacity, algo.learning_starts) == (64, 100_000, 640)
    assert (spec.task.envs, algo.updates_per_step) == (10, 0.1)
    assert (spec.budget.steps, spec.budget.epoch) == (10_000_000, 100_000)
    assert (spec.protocol.episodes, spec.protocol.epsilon) == (10, 0.0)
    assert spec.protocol.stop == (20.0 if game == "Pong" else None)


def test_sac_means_discrete_or_continuous_sac_by_the_actions() -> None:
    assert suites.spec("toy", "sac", "Catch").algo.family == "discretesac"
    assert suites.spec("toy", "sac", "Pendulum-v1").algo.family == "actorcritic"


def test_identities_survive_new_families_and_fields() -> None:
    """Literal: committed records are found by these."""
    names = {
        ("toy", "sac", "Pendulum-v1"): "9e1f281af52a",
        ("mujoco", "sac", "HalfCheetah-v4"): "b7471609772c",
        ("mujoco", "ppo", "HalfCheetah-v4"): "ae90adc0cd2c",
        ("goals", "ddpg+her", "FetchReach-v4"): "d9c58c22ccd3",
    }
    assert {cell: suites.spec(*cell).id for cell in names} == names


@pytest.mark.parametrize("game", SEVEN)
@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "sac"])
def test_a_curious_algorithm_is_the_plain_one_with_the_scripts_settings_of_curiosity(algorithm: str, game: str) -> None:
    """Defaults of the scripts' --icm-… options, --icm-lr-scale 10 of the ViZDoom rows; pixels are divided by 255."""
    plain, curious = (suites.spec("atari", name, f"{game}NoFrameskip-v4") for name in (algorithm, f"{algorithm}+icm"))
    icm = curious.algo.curiosity
    assert (icm.loss_scale, icm.reward_scale, icm.forward_share, icm.hidden) == (10.0, 0.01, 0.2, 512)
    assert (icm.torso, icm.lr) == (NatureConfig(scale=True), None)
    assert curious.algo.model_copy(update={"curiosity": None}) == plain.algo
    assert (curious.task, curious.protocol, curious.budget) == (plain.task, plain.protocol, plain.budget)
    assert curious.id != plain.id
