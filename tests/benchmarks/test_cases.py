"""The workloads of the benchmarks, and their command line."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.__main__ import CONTESTS, PEERS, WITH_PARTS
from benchmarks.arithmetic import update_flop
from benchmarks.cases import OTHER_UNITS, UNITS, cases
from benchmarks.children import ROOT
from benchmarks.loops import pong_spec
from benchmarks.measure import WORKLOADS
from benchmarks.offline_evaluation import EVAL_WORKERS
from rlbench import suites
from rlbench.algorithms.dqn import QLearner
from rlbench.assembly.discrete import build_q_network, fraction_loss
from rlbench.config.online import QLearningConfig
from rlbench.envs.base import Discrete, EnvInfo
from rlbench.ops.types import Transition
from rlbench.suites.atari import VALUE_BASED


def test_every_workload_has_a_unit_and_a_measurement():
    assert set(WORKLOADS) == set(UNITS)
    assert {*CONTESTS, *WITH_PARTS} <= set(UNITS)


def test_every_script_of_a_peer_exists_and_belongs_to_a_contest():
    assert {name for names in CONTESTS.values() for name in names} == {*PEERS}
    assert all((ROOT / "benchmarks/peers" / script).is_file() for script in PEERS.values())


def test_offline_evaluation_workload_overlaps_and_has_units():
    assert all(case.steps >= 3 for case in cases("offline-evaluation", 1, 10).values())
    for way in EVAL_WORKERS:
        assert {OTHER_UNITS[f"{way}, more"], OTHER_UNITS[f"{way}, more own CPU"]} == {"%"}
        assert OTHER_UNITS[f"{way}, own CPU"] == "CPU s"


@pytest.mark.parametrize("workload", ["value-update", "value-pong"])
def test_value_based_workload_covers_all_q_learning_algorithms(workload):
    case_list = cases(workload, 1, 1_000)
    assert {case.algorithm for case in case_list.values()} == {"dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow"}
    for case in case_list.values():
        algo = pong_spec(case).algo
        assert isinstance(algo, QLearningConfig)
        assert (algo.batch, algo.curiosity) == (case.batch, None)


BATCH, ACTIONS = 4, 6


def count_operations(algo):
    """FLOP of products and convolutions that torch sees in one update of the real learner."""
    spec = suites.spec("atari", "dqn", "PongNoFrameskip-v4").model_copy(update={"algo": algo})
    net = build_q_network(spec, algo, EnvInfo(1, (84, 84), np.dtype(np.uint8), Discrete(ACTIONS), ()))
    adam = torch.optim.Adam(net.parameters())
    learner = QLearner(
        net,
        optimizers=[adam],
        max_grad_norm=None,
        double=algo.double,
        target_update_interval=500,
        auxiliary_loss=fraction_loss(net),
    )
    frames = torch.zeros(BATCH, 4, 84, 84, dtype=torch.uint8)
    ones, slot = torch.ones(BATCH), torch.arange(BATCH)
    with FlopCounterMode(display=False) as counter:
        learner.update(Transition(frames, slot, ones, ones, frames, ones, slot))
    return counter.get_total_flops()


@pytest.mark.parametrize("name", VALUE_BASED)
def test_operation_count_equals_torchs_flop_counter(name):
    """To the FLOP: nothing is estimated. Our noisy layers do two products."""
    algo = VALUE_BASED[name]
    assert update_flop(algo, batch=BATCH, actions=ACTIONS, noisy_products=2) == count_operations(algo)


def test_single_target_saves_one_forward_pass():
    plain = VALUE_BASED["dqn"].model_copy(update={"double": False})
    assert update_flop(plain, batch=BATCH, actions=ACTIONS) == count_operations(plain)


def test_floor_counts_one_product_of_a_noisy_layer():
    rainbow = VALUE_BASED["rainbow"]
    once, twice = (update_flop(rainbow, batch=1, actions=ACTIONS, noisy_products=n) for n in (1, 2))
    layers = 2 * (2 * 3136 * 512 + 512 * (6 * 51 + 51))
    assert twice - once == 5 * layers  # three times forward, and backward twice the first
