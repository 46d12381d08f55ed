"""Offline cells against the settings and code of their primary references, transcribed from the named files."""

import math
from collections import Counter

import pytest

from rlbench import suites
from rlbench.cli.resolve import resolve
from rlbench.config.canonical import fields
from rlbench.config.offline import OfflineConfig
from rlbench.report.reference_scores import reference_cells
from rlbench.suites.offline import D4RL_IDS, OWN_IDS, rows, settings, system

CORL = "corl-team/CORL@eeeeef2"
ROBOMIMIC = "ARISE-Initiative/robomimic@d309eae"
LIBRARY = "typoverflow/OfflineRL-Lib@988f9a1"
REPOSITORIES = {"Tianshou": "thu-ml/tianshou@v0.4.9", "CORL": CORL, "robomimic": ROBOMIMIC, "OfflineRL-Lib": LIBRARY}
PAPER, CONVERSION = "robomimic/scripts/generate_paper_configs.py", "robomimic/scripts/conversion/convert_d4rl.py"
NETS = "robomimic/models/policy_nets.py"

Quoted = list[tuple[str, object, str]]  # field, value here, file

CORL_CQL: Quoted = [
    ("algo.method.conservative_weight", 10.0, "configs/offline/cql/{0}.yaml"),
    ("algo.method.lagrange_threshold", None, "configs/offline/cql/{0}.yaml"),
    ("algo.method.soft_q_backup", False, "configs/offline/cql/{0}.yaml"),
    ("algo.method.n_action_samples", 10, "configs/offline/cql/{0}.yaml"),
    ("algo.method.temperature", 1.0, "configs/offline/cql/{0}.yaml"),
    ("algo.method.bc_steps", 0, "configs/offline/cql/{0}.yaml"),
    ("algo.method.orthogonal_init", True, "configs/offline/cql/{0}.yaml"),
    ("algo.widths", (256, 256, 256), "configs/offline/cql/{0}.yaml"),
    ("algo.actor_lr", 3e-5, "configs/offline/cql/{0}.yaml"),
    ("algo.critic_lr", 3e-4, "configs/offline/cql/{0}.yaml"),
    ("algo.tau", 0.005, "configs/offline/cql/{0}.yaml"),
    ("algo.method.alpha_lr", 3e-5, "algorithms/offline/cql.py"),
    ("algo.method.target_entropy", None, "algorithms/offline/cql.py"),
    ("algo.method.max_grad_norm", None, "algorithms/offline/cql.py"),
    ("algo.method.log_std_offset", -1.0, "algorithms/offline/cql.py"),
    ("algo.method.final_init", "xavier", "algorithms/offline/cql.py"),
    ("algo.method.log_std_min", -20.0, "algorithms/offline/cql.py"),
    ("algo.method.actor_first", True, "algorithms/offline/cql.py"),
]

CORL_TABLE: dict[tuple[str, str], Quoted] = {
    ("il", "walker2d-medium-expert-v2"): [
        ("algo.normalize_obs", True, "configs/offline/bc/{0}.yaml"),
        ("algo.batch", 256, "configs/offline/bc/{0}.yaml"),
        ("algo.actor_lr", 3e-4, "algorithms/offline/any_percent_bc.py"),
        ("algo.widths", (256, 256), "algorithms/offline/any_percent_bc.py"),
        ("algo.method.policy", "deterministic", "algorithms/offline/any_percent_bc.py"),
    ],
    ("td3bc", "hopper-medium-replay-v2"): [
        ("algo.normalize_obs", True, "configs/offline/td3_bc/{0}.yaml"),
        ("algo.return_span", None, "configs/offline/td3_bc/{0}.yaml"),
        ("algo.n_step", 1, "algorithms/offline/td3_bc.py"),
        ("algo.terminate_on_end", False, "algorithms/offline/td3_bc.py"),
        ("algo.method.alpha", 2.5, "configs/offline/td3_bc/{0}.yaml"),
        ("algo.method.delay", 2, "configs/offline/td3_bc/{0}.yaml"),
        ("algo.method.smoothing", 0.2, "configs/offline/td3_bc/{0}.yaml"),
        ("algo.method.clip", 0.5, "configs/offline/td3_bc/{0}.yaml"),
    ],
    ("iql", "halfcheetah-medium-v2"): [
        ("algo.normalize_obs", True, "configs/offline/iql/{0}.yaml"),
        ("algo.return_span", None, "configs/offline/iql/{0}.yaml"),
        ("algo.tau", 0.005, "configs/offline/iql/{0}.yaml"),
        ("algo.method.expectile", 0.7, "configs/offline/iql/{0}.yaml"),
        ("algo.method.temperature", 3.0, "configs/offline/iql/{0}.yaml"),
        ("algo.method.policy", "gaussian", "configs/offline/iql/{0}.yaml"),
        ("algo.method.lr_decay_steps", 1_000_000, "algorithms/offline/iql.py"),
        ("algo.method.log_std_min", -20.0, "algorithms/offline/iql.py"),
        ("algo.method.max_weight", 100.0, "algorithms/offline/iql.py"),
    ],
    ("iql", "hopper-medium-replay-v2"): [
        ("algo.normalize_obs", True, "configs/offline/iql/{0}.yaml"),
        ("algo.return_span", 1000.0, "configs/offline/iql/{0}.yaml"),
        ("algo.tau", 0.001, "configs/offline/iql/{0}.yaml"),
        ("algo.method.expectile", 0.7, "configs/offline/iql/{0}.yaml"),
        ("algo.method.temperature", 3.0, "configs/offline/iql/{0}.yaml"),
        ("algo.method.policy", "deterministic", "configs/offline/iql/{0}.yaml"),
    ],
    ("iql", "hopper-medium-expert-v2"): [
        ("algo.return_span", None, "configs/offline/iql/{0}.yaml"),
        ("algo.tau", 0.005, "configs/offline/iql/{0}.yaml"),
        ("algo.method.expectile", 0.5, "configs/offline/iql/{0}.yaml"),
        ("algo.method.temperature", 6.0, "configs/offline/iql/{0}.yaml"),
        ("algo.method.policy", "gaussian", "configs/offline/iql/{0}.yaml"),
    ],
    ("cql", "walker2d-medium-v2"): [
        *CORL_CQL,
        ("algo.normalize_obs", True, "configs/offline/cql/{0}.yaml"),
        ("algo.return_span", None, "configs/offline/cql/{0}.yaml"),
    ],
    ("cql", "hopper-medium-v2"): [*CORL_CQL, ("algo.return_span", 1000.0, "configs/offline/cql/{0}.yaml")],
}

ROBOMIMIC_TABLE: dict[tuple[str, str], Quoted] = {
    ("bcq", "hopper-expert-v2"): [
        ("algo.widths", (300, 400), "robomimic/config/bcq_config.py"),
        ("algo.actor_lr", 1e-3, PAPER),
        ("algo.critic_lr", 1e-3, PAPER),
        ("algo.normalize_obs", False, PAPER),
        ("algo.method.vae_widths", (300, 400), "robomimic/config/bc_config.py"),
        ("algo.method.vae_lr", 1e-3, PAPER),
        ("algo.method.latent_dim", 14, "robomimic/config/bc_config.py"),
        ("algo.method.latent_clip", None, "robomimic/config/bc_config.py"),
        ("algo.method.vae_kl_weight", 0.5 * 14, PAPER),  # a weight of their sum over latent numbers, here of their mean
        ("algo.method.perturbation", 0.05, "robomimic/config/bcq_config.py"),
        ("algo.method.n_action_samples", 10, "robomimic/config/bcq_config.py"),
        ("algo.method.eval_action_samples", 100, "robomimic/config/bcq_config.py"),
        ("algo.method.lmbda", 0.75, "robomimic/config/bcq_config.py"),
    ],
    ("cql", "walker2d-expert-v2"): [
        ("algo.widths", (256, 256, 256), PAPER),
        ("algo.actor_lr", 3e-5, PAPER),
        ("algo.critic_lr", 3e-4, PAPER),
        ("algo.normalize_obs", False, PAPER),
        ("algo.method.conservative_weight", 10.0, PAPER),
        ("algo.method.lagrange_threshold", None, PAPER),
        ("algo.method.soft_q_backup", False, PAPER),
        ("algo.method.bc_steps", 40_000, PAPER),
        ("algo.method.alpha_lr", 3e-5, "robomimic/algo/cql.py"),
        ("algo.method.actor_first", True, "robomimic/algo/cql.py"),
        ("algo.method.final_init", "uniform", "robomimic/config/cql_config.py"),
        ("algo.method.log_std_min", math.log(0.007), NETS),
        ("algo.method.log_std_max", math.log(7.5), NETS),
        ("algo.method.mean_bound", 9.0, NETS),
    ],
    ("td3bc", "hopper-expert-v2"): [
        ("algo.normalize_obs", True, "robomimic/config/td3_bc_config.py"),
        ("algo.n_step", 1, "robomimic/config/td3_bc_config.py"),
        ("algo.widths", (256, 256), "robomimic/config/td3_bc_config.py"),
        ("algo.method.alpha", 2.5, "robomimic/config/td3_bc_config.py"),
    ],
    ("iql", "halfcheetah-expert-v2"): [
        ("algo.widths", (256, 256, 256), PAPER),
        ("algo.normalize_obs", False, PAPER),
        ("algo.tau", 0.005, PAPER),
        ("algo.method.expectile", 0.7, PAPER),
        ("algo.method.temperature", 1 / 3, PAPER),  # exp(adv / beta), beta 3
        ("algo.method.lr_decay_steps", None, "robomimic/config/iql_config.py"),
        ("algo.method.policy", "conditional", "robomimic/config/iql_config.py"),
        ("algo.method.log_std_min", math.log(0.007), NETS),
        ("algo.return_span", None, CONVERSION),
    ],
}  # fmt: skip

LIBRARY_TABLE: dict[tuple[str, str], Quoted] = {
    ("td3bc", "walker2d-random-v2"): [
        ("algo.normalize_obs", True, "reproduce/td3bc/config/d4rl/mujoco/walker2d-random-v2.py"),
        ("algo.n_step", 1, "offlinerllib/policy/model_free/td3.py"),
        ("algo.method.delay", 2, "reproduce/td3bc/config/d4rl/base.py"),
        ("algo.method.alpha", 2.5, "reproduce/td3bc/config/d4rl/mujoco/walker2d-random-v2.py"),
    ],
    ("iql", "hopper-full-replay-v2"): [
        ("algo.normalize_obs", False, "reproduce/iql/config/d4rl/mujoco/base.py"),
        ("algo.return_span", 1000.0, "reproduce/iql/config/d4rl/mujoco/base.py"),
        ("algo.method.expectile", 0.7, "reproduce/iql/config/d4rl/mujoco/base.py"),
        ("algo.method.temperature", 3.0, "reproduce/iql/config/d4rl/mujoco/base.py"),
        ("algo.method.log_std_min", -5.0, "reproduce/iql/config/d4rl/base.py"),
        ("algo.method.lr_decay_steps", 1_000_000, "reproduce/iql/config/d4rl/base.py"),
        ("algo.method.policy", "gaussian", "reproduce/iql/config/d4rl/mujoco/hopper-full-replay-v2.py"),
    ],
}  # fmt: skip

TABLE = [
    (repository, algorithm, task, quoted)
    for repository, table in ((CORL, CORL_TABLE), (ROBOMIMIC, ROBOMIMIC_TABLE), (LIBRARY, LIBRARY_TABLE))
    for (algorithm, task), quoted in table.items()
]

PROTOCOL = {"Tianshou": (5_000, 10), "CORL": (5_000, 10), "robomimic": (5_000, 50), "OfflineRL-Lib": (10_000, 10)}
"""Gradient steps between evaluations, and episodes of each."""

CELLS = [
    (cell.key.algorithm, cell.key.dataset, cell.primary.system)
    for cell in reference_cells("offline")
    if cell.key.dataset in D4RL_IDS
]

OF_CRITICS = {f"algo.{name}" for name in ("critic_lr", "gamma", "tau", "n_step", "return_span", "terminate_on_end")}
IDLE = {
    "il": OF_CRITICS,
    "bcq": {"algo.method.latent"},
    "cql": {"algo.method.multiplier_lr", "algo.method.max_multiplier"},
    "td3bc": set[str](),
    "iql": set[str](),
}
"""Fields that move nothing in a cell of these algorithms: behaviour cloning has no critic, CQL here no multiplier."""


def test_every_documented_cell_has_the_settings_of_its_primary_reference() -> None:
    assert [(a, t, system(a, t)) for a, t, _ in CELLS] == CELLS
    counts = Counter(name for _, _, name in CELLS)
    assert counts == {"CORL": 32, "robomimic": 13, "OfflineRL-Lib": 9, "Tianshou": 14}


def test_every_row_of_the_settings_is_of_a_documented_cell() -> None:
    cells = {(row.algorithm, task) for row in rows() for task in row.tasks.split()}
    assert cells == {(algorithm, task) for algorithm, task, _ in CELLS}


@pytest.mark.parametrize(("repository", "algorithm", "task", "quoted"), TABLE)
def test_a_cell_has_the_values_of_the_quoted_files(repository: str, algorithm: str, task: str, quoted: Quoted) -> None:
    body, _, quality = task.removesuffix("-v2").partition("-")
    config = f"{body}/{quality.replace('-', '_')}_v2"
    fields = {path: (value, source) for path, value, source, _ in resolve("offline", algorithm, task).rows()}
    for path, value, file in quoted:
        assert fields[path] == (value, f"{repository}:{file.format(config)}"), path


@pytest.mark.parametrize(("algorithm", "task", "name"), CELLS)
def test_every_setting_that_changes_a_score_has_a_source(algorithm: str, task: str, name: str) -> None:
    """Of Tianshou's cells those that its scripts set; the rest of the code is described in the suite."""
    spec = suites.spec("offline", algorithm, task)
    epoch, episodes = PROTOCOL[name]
    assert (spec.budget.steps, spec.budget.epoch, spec.protocol.episodes) == (1_000_000, epoch, episodes)
    sources = {path: source for path, _, source, _ in resolve("offline", algorithm, task).rows()}
    assert isinstance(spec.algo, OfflineConfig)
    paths = {f"algo.{path}" for path, _ in fields(spec.algo)} - {"algo.family", "algo.revision", "algo.method.kind"}
    expected = {"budget.steps", "budget.epoch", "protocol.episodes", *paths - IDLE.get(algorithm, set())}
    cited = {path for path, source in sources.items() if source.startswith(f"{REPOSITORIES[name]}:")}
    assert cited == {setting.path for setting in settings(algorithm, task)}
    if name != "Tianshou":
        assert expected == cited


@pytest.mark.parametrize(("algorithm", "task"), [(a, t) for a, t, name in CELLS if name == "robomimic"])
def test_robomimics_time_limits_terminate_episodes(algorithm: str, task: str) -> None:
    algo = suites.spec("offline", algorithm, task).algo
    assert isinstance(algo, OfflineConfig)
    assert algo.terminate_on_end


def test_our_own_sets_and_undocumented_cells_name_no_reference() -> None:
    for task in (*OWN_IDS, "ant-v4"):
        for algorithm in suites.algorithms("offline"):
            assert settings(algorithm, task) == ()
    assert settings("crr", "hopper-medium-v2") == ()
    assert system("bcq", "hopper-medium-replay-v2") == ""


def test_a_field_that_a_user_sets_names_the_user() -> None:
    sources = resolve("offline", "td3bc", "hopper-medium-v2", sets=["algo.tau=0.01"]).sources
    assert sources["algo.tau"] == "--set"
    assert sources["algo.batch"] == f"{CORL}:configs/offline/td3_bc/hopper/medium_v2.yaml"
